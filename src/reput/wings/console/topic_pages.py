"""Show topics, their volume over time, and their queues."""

from __future__ import annotations

from contextlib import suppress
from heapq import nsmallest

from starlette.requests import Request
from starlette.responses import Response

from reput.core import PullResult
from reput.engine.messages import messages_of_topic
from reput.engine.writer import SharedStore
from reput.errors import FormatError, MessageNotFoundError, ReputError
from reput.wings.console.arguments import optional_integer, page_number, search_of, text, time
from reput.wings.console.rendering import Views, page_links, segment
from reput.wings.console.rendering import query as query_string
from reput.wings.console.searching import Share, pull_share
from reput.wings.console.store_facts import QueueFacts, TopicFacts, kind_of, topics_of
from reput.wings.console.volume import volume_of_topic

_PAGE = 32
_PARTS = 48
_MOST_SUGGESTED = 20
TOPICS_OF_A_PAGE = 50


class TopicPages:
    """The handlers of `/topics`, `/topics/TOPIC` and `/queues/TOPIC/QUEUE`."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts

    async def topics(self, request: Request) -> Response:
        """Return a page of topics, sorted by name; topics of applications come first."""
        name, store = self._views.store(request)
        query = request.query_params
        search = text(query, "search") or ""
        page = page_number(query)
        first = (page - 1) * TOPICS_OF_A_PAGE

        def look() -> tuple[int, int, list[TopicFacts]]:
            every = store.topics()
            count = [entry for entry in every if search.lower() in entry.lower()]
            count.sort(key=lambda entry: (kind_of(entry) != "topic", kind_of(entry), entry))
            facts = (topics_of(store, topic) for topic in count[first : first + TOPICS_OF_A_PAGE])
            return len(every), len(count), [entry for some in facts for entry in some]

        total, count, topics = await self._mounts.run(look)
        pages = -(-count // TOPICS_OF_A_PAGE)
        links = page_links("/topics", {"store": name, "search": search}, page, pages)
        return await self._views.page(
            request, "topics.html", view="topics", store=name, topics=topics, total=total,
            found=count, links=links, q={"search": search}, first=first,
            most=max((entry.messages for entry in topics), default=0),
        )  # fmt: skip

    async def suggest(self, request: Request) -> Response:
        """Return the names of topics that contain a text, for completion in a form field."""
        part = (text(request.query_params, "topic") or "").lower()
        store = text(request.query_params, "store")
        stores = [
            self._mounts.named(store_name)
            for store_name in ([store] if store else self._mounts.names)
        ]

        def find() -> list[str]:
            every = {
                name
                for _, store_name in stores
                for name in _names(store_name)
                if part in name.lower()
            }
            return nsmallest(_MOST_SUGGESTED, every, key=lambda name: (len(name), name))

        names = await self._mounts.run(find)
        return await self._views.page(request, "suggest.html", names=names, view="")

    async def topic(self, request: Request) -> Response:
        name, store = self._views.store(request)
        topic = request.path_params["topic"]
        facts = await self._mounts.run(lambda: topics_of(store, topic))
        if not facts:
            raise await self._mounts.run(lambda: _unknown(store, topic))
        newest = await self._mounts.run(lambda: messages_of_topic(store, topic, limit=10))
        return await self._views.page(
            request, "topic.html", view="topics", store=name, topic=facts[0], newest=newest,
            zoom={side: text(request.query_params, side) for side in ("begin", "end")},
        )  # fmt: skip

    async def spark(self, request: Request) -> Response:
        """Return the small curve of a topic's volume. The list of topics requests it separately."""
        _, store = self._views.store(request)
        topic = request.path_params["topic"]
        try:
            volume = await self._mounts.run(lambda: volume_of_topic(store, topic, parts=_PARTS))
        # The topic may have been deleted since the list was shown, or a part of its log cannot be read.
        except (MessageNotFoundError, FormatError):
            volume = None
        return await self._views.page(request, "spark.html", volume=volume, view="")

    async def queue(self, request: Request) -> Response:
        name, store = self._views.store(request)
        query, topic = request.query_params, request.path_params["topic"]
        queue_id, tags = request.path_params["queue"], text(query, "tags")
        limit, at = search_of(query, _PAGE).limit, time(query, "at", "time")
        offset_parameter = optional_integer(query, "offset")
        facts = await self._mounts.run(lambda: _facts(store, topic, queue_id))
        start = (
            max(facts.max_offset - limit, facts.min_offset)
            if offset_parameter is None
            else offset_parameter
        )
        if offset_parameter is None and at is not None:
            start = await self._mounts.run(lambda: store.offset_by_time(topic, queue_id, at))
        place = topic, queue_id, start
        pulled = await self._mounts.run(lambda: pull_share(store, place, limit, tags, Share()))
        problems = await self._mounts.run(lambda: _problems(store, place, pulled, facts))
        base = f"/queues/{segment(topic)}/{queue_id}"
        links = {
            which: base + query_string({"store": name, "offset": offset, "limit": query.get("limit"), "tags": tags})
            for which, offset in _turns(pulled, start, limit, facts).items()
        }  # fmt: skip
        q = {"topic": topic, "tags": tags or "", "at": text(query, "at") or "", "offset": start}
        return await self._views.page(
            request, "queue.html", view="topics", store=name, queue=facts, pulled=pulled,
            links=links, q=q, limit=limit, problems=problems,
        )  # fmt: skip


def _names(store: SharedStore) -> list[str]:
    # Ignore errors here: suggestions are optional, and the search itself will report the error.
    with suppress(ReputError):
        return store.topics()
    return []


def _unknown(store: SharedStore, topic: str) -> ReputError:
    """Return the error for a topic without queues, whose messages may be in the log nevertheless."""
    with store.reader() as reader:
        if topic not in reader.all_topics():
            return MessageNotFoundError(f"{store.path}: no topic {topic!r}")
    reason = f"the CommitLog has messages of topic {topic!r}, but its ConsumeQueues are missing; rebuild them"
    return FormatError(store.path, 0, reason)


def _facts(store: SharedStore, topic: str, queue_id: int) -> QueueFacts:
    # This raises if the queue is lost.
    high = store.max_queue_offset(topic, queue_id)
    low = store.min_queue_offset(topic, queue_id, check=False)
    return QueueFacts(queue_id, low, high)


def _problems(
    store: SharedStore, place: tuple[str, int, int], pulled: PullResult, queue: QueueFacts
) -> list[str]:
    """Return why messages may be missing from a page, also those that are missing before or after all entries."""
    topic, queue_id, start = place
    beyond = []
    if start <= queue.min_offset > 0:
        beyond.append(queue.min_offset - 1)
    if start < pulled.next_begin_offset == queue.max_offset:
        beyond.append(queue.max_offset)
    findings = list(pulled.unreadable)
    for offset in beyond:
        findings += store.pull_records(topic, queue_id, offset, 1, on_corrupt="skip").unreadable
    return list(dict.fromkeys(map(str, findings)))


def _turns(pulled: PullResult, start: int, limit: int, queue: QueueFacts) -> dict[str, int]:
    """Return the queue offsets of the previous and next page, if they exist."""
    turns = {}
    if start > queue.min_offset:
        turns["first"] = queue.min_offset
        turns["before"] = max(min(start, queue.max_offset) - limit, queue.min_offset)
    if queue.min_offset <= start < pulled.next_begin_offset < queue.max_offset:
        turns["after"] = pulled.next_begin_offset
        turns["last"] = max(queue.max_offset - limit, queue.min_offset)
    elif start < queue.min_offset:
        turns["first"] = queue.min_offset
    return turns
