"""Show consumer groups with their lag, and their dead letters with their history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from reput.engine.messages import messages_of_topic
from reput.engine.writer import SharedStore
from reput.errors import MessageNotFoundError, ReputError
from reput.format.commit_log import MessageExt
from reput.format.properties import (
    DEAD_LETTER_ORIGIN_ID,
    DEAD_LETTER_TOPIC_PREFIX,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
)
from reput.io import Location
from reput.wings.console.arguments import page_number, text
from reput.wings.console.rendering import Views, page_links
from reput.wings.console.results import Row
from reput.wings.serve import HTTP, QueueLag, consumer_lag, lag_of_group

GROUPS_OF_A_PAGE = 50
_MOST_DEAD, _MOST_QUEUES = 50, 1_000
_DEAD_LETTER_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"


class QueueOfGroup(NamedTuple):
    """The lag of a group in one queue, and the name of the queue's store."""

    store: str
    queue: QueueLag


@dataclass(slots=True)
class Group:
    """A consumer group, over all stores.

    Attributes:
        name: The name of the group.
        queues: The queues for which the group has committed an offset.
        dead_by_store: Number of the group's dead letters that have not expired, by store. Stores without dead letters
            are not listed.
    """

    name: str
    queues: list[QueueOfGroup] = field(default_factory=list)
    dead_by_store: dict[str, int] = field(default_factory=dict)

    @property
    def dead(self) -> int:
        """Return the number of the group's dead letters in all stores."""
        return sum(self.dead_by_store.values())

    @property
    def lag(self) -> int | None:
        """Return the number of messages that the group has not consumed; None if it is unknown in a queue."""
        return lag_of_group(self.name, (part.queue for part in self.queues)).lag_messages

    @property
    def lag_ms(self) -> int | None:
        """Return the age (ms) of the oldest message that the group has not consumed; None if it is unknown."""
        seconds = lag_of_group(self.name, (part.queue for part in self.queues)).lag_seconds
        return None if seconds is None else int(seconds * 1000)

    @property
    def expired(self) -> int:
        """Return the number of messages that expired before the group consumed them."""
        return sum(part.queue.expired for part in self.queues)

    @property
    def topics(self) -> list[str]:
        return sorted({part.queue.topic for part in self.queues})

    @property
    def stores(self) -> list[str]:
        return sorted({part.store for part in self.queues})


class DeadLetter(NamedTuple):
    """A dead letter and its history.

    Attributes:
        row: The record in the dead letter queue.
        message_id: Its id, which contains a broker's address and a physical offset.
        topic: The topic to which the message was sent; empty if unknown.
        origin: The id of the original message; empty if unknown.
        key: The key to trace: the unique key, or the last of KEYS, which usually identifies the message. Empty if the
            message has no key.
        retries: The number of retries.
        born_ms: The time at which the message was sent, ms. None if the record does not state where it comes from: then
            it may be a copy, with a time of its own.
    """

    row: Row
    message_id: str
    topic: str
    origin: str
    key: str
    retries: int
    born_ms: int | None

    @property
    def traced(self) -> dict[str, str]:
        """Return the parameters of the trace page for this message; empty if it has neither an origin nor a key."""
        if self.origin:
            return {"message": self.origin}
        return {"key": self.key} if self.key else {}

    @classmethod
    def of(cls, store: str, message: MessageExt) -> DeadLetter:
        properties = message.properties
        topic = properties.get(_DEAD_LETTER_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC, "")
        origin = properties.get(DEAD_LETTER_ORIGIN_ID) or properties.get(ORIGIN_MESSAGE_ID, "")
        retries = message.reconsume_times
        born = message.born_timestamp if topic or origin else None
        # A record with an unknown origin may have a unique key of its own. Its keys lead to the original message.
        names = [*message.keys[-1:], message.unique_key or ""]
        key = next(filter(None, names if born is None else names[::-1]), "")
        return cls(Row.of(store, message), message.message_id, topic, origin, key, retries, born)


class GroupPages:
    """The handlers of `/groups` and `/groups/GROUP`."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts

    async def groups(self, request: Request) -> Response:
        """Return a page of groups, the largest lag first."""
        query = request.query_params
        search, store_name = text(query, "search") or "", text(query, "store")
        page = page_number(query)
        stores = self._mounts.select(store_name)
        every, problems = await self._mounts.search(lambda: groups_of(stores))
        problems += self._mounts.unread(store_name)
        matches = [group for group in every if search.lower() in group.name.lower()]
        matches.sort(key=lambda group: (-(group.lag or 0), -group.dead, group.name))
        first = (page - 1) * GROUPS_OF_A_PAGE
        pages = -(-len(matches) // GROUPS_OF_A_PAGE)
        links = page_links("/groups", {"store": store_name, "search": search}, page, pages)
        return await self._views.page(
            request, "groups.html", view="groups", total=len(every), found=len(matches),
            groups=matches[first : first + GROUPS_OF_A_PAGE], first=first, links=links,
            problems=problems, q={"search": search, "store": store_name},
        )  # fmt: skip

    async def group(self, request: Request) -> Response:
        """Return the page of one group: its queues, and its newest dead letters."""
        name, store_name = request.path_params["group"], text(request.query_params, "store")
        stores = self._mounts.select(store_name)
        is_partial = not store_name and bool(self._mounts.missing)

        def look() -> tuple[Group, list[DeadLetter], list[str]]:
            every, problems = groups_of(stores, name)
            dead, more = dead_letters_of(stores, name)
            if not (every or problems or more or is_partial):
                raise MessageNotFoundError(
                    f"No store has offsets or dead letters of the consumer group {name!r}."
                )
            return (every or [Group(name)])[0], dead, problems + more

        group, dead, problems = await self._mounts.search(look)
        problems += self._mounts.unread(store_name)
        queues = sorted(group.queues, key=lambda part: -(part.queue.lag or 0))
        return await self._views.page(
            request, "group.html", view="groups", group=group, queues=queues[:_MOST_QUEUES],
            dead=dead, problems=problems, q={"store": store_name}, copies=_with_copies(dead),
            dead_topic=DEAD_LETTER_TOPIC_PREFIX + name,
        )  # fmt: skip


def groups_of(
    stores: Sequence[tuple[str, SharedStore]], only: str | None = None
) -> tuple[list[Group], list[str]]:
    """Return the groups with committed offsets or dead letters, and a line per problem.

    With `only`, return only the group of this name.
    """
    groups: dict[str, Group] = {}
    problems = []
    for name, store in stores:
        try:
            for queue in () if Location.is_url(store.path) else consumer_lag(store, store.path):
                if only in (None, queue.group):
                    lag_group = groups.setdefault(queue.group, Group(queue.group))
                    if (problem := queue.problem or queue.age_problem) is not None:
                        problems.append(f"{name}: group {queue.group}: {problem}")
                    lag_group.queues.append(QueueOfGroup(name, queue))
            for group, count in _dead_counts(store, only):
                counts = groups.setdefault(group, Group(group)).dead_by_store
                if count:
                    counts[name] = count
        except ReputError as error:
            problems.append(f"{name}: {error}")
        if Location.is_url(store.path):
            problems.append(f"{name}: offsets of groups are read only on this machine")
    return list(groups.values()), problems


def _dead_counts(store: SharedStore, only: str | None) -> Iterable[tuple[str, int]]:
    names = store.topics() if only is None else [DEAD_LETTER_TOPIC_PREFIX + only]
    for topic in names:
        queues = store.list_queues(topic) if topic.startswith(DEAD_LETTER_TOPIC_PREFIX) else []
        if queues:
            count = 0
            for _, queue_id in queues:
                least = store.min_queue_offset(topic, queue_id, check=False)
                count += max(store.max_queue_offset(topic, queue_id) - least, 0)
            yield topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX), count


def _with_copies(letters: Sequence[DeadLetter]) -> list[str]:
    """Return the stores that have a copy of a dead letter: the same message at the same place of the same log."""
    stores: dict[tuple[str, int], set[str]] = {}
    for letter in letters:
        stores.setdefault((letter.message_id, letter.row.store_timestamp), set()).add(
            letter.row.store
        )
    return sorted({name for names in stores.values() if len(names) > 1 for name in names})


def dead_letters_of(
    stores: Sequence[tuple[str, SharedStore]], group: str
) -> tuple[list[DeadLetter], list[str]]:
    """Return the newest dead letters of a group, newest first, and a line per problem."""
    letters: list[DeadLetter] = []
    problems = []
    most_bytes = max(HTTP.answer_bytes // max(len(stores), 1), 1)
    for name, store in stores:
        try:
            topic = DEAD_LETTER_TOPIC_PREFIX + group
            page = messages_of_topic(store, topic, limit=_MOST_DEAD, max_bytes=most_bytes)
        except ReputError as error:
            problems.append(f"{name}: {error}")
            continue
        problems += [f"{name}: {problem}" for problem in page.problems]
        letters += [DeadLetter.of(name, message) for message in page.messages]
    letters.sort(key=lambda letter: letter.row.store_timestamp, reverse=True)
    return letters[:_MOST_DEAD], problems
