"""Answer requests of the HTTP API with JSON, or with JSON lines while results are found."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from reput.base import json_text
from reput.engine import check as engine_check
from reput.engine.messages import coverage_fields
from reput.engine.writer import SharedStore
from reput.errors import MessageNotFoundError, ReputError, UsageError
from reput.wings.console import arguments
from reput.wings.console.arguments import (
    Failure,
    SearchForm,
    choice,
    integer,
    optional_integer,
    search_of,
    text,
    time,
)
from reput.wings.console.message_pages import traced
from reput.wings.console.mounts import Mounts, StoppedError, Until
from reput.wings.console.searching import Outcome, Share, Steps, pull_share, search
from reput.wings.console.store_facts import each_topic, facts_of
from reput.wings.console.users import Permission, may
from reput.wings.console.volume import volume_of_topic
from reput.wings.inspect.api import TRACE_SCHEMA, life_fields
from reput.wings.serve import HTTP

LINES = "application/x-ndjson"
_MOST_UNREADABLE = 100
_MOST_PARTS = _MOST_FINDINGS = 1_000
_JSON_TO_A_BYTE = 6  # A byte of a text takes at most six bytes in JSON (\u0000).
Lines = Generator[bytes, None, None]


class JSON(JSONResponse):
    """A JSON answer in the form that the command line prints."""

    def render(self, content: Any) -> bytes:
        return (json_text(content) + "\n").encode("utf-8", "backslashreplace")


class Api:
    """The request handlers. `reput.wings.console.openapi` lists their paths and parameters."""

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts

    async def stores(self, request: Request) -> Response:
        after = text(request.query_params, "after")
        every = {*self._mounts.names, *self._mounts.missing}
        names = iter(sorted(name for name in every if after is None or name > after))
        return await self._mounts.run(
            lambda: _list_page("stores", "store", map(self._facts, names))
        )

    def _facts(self, name: str) -> dict[str, Any]:
        """Return the summary of a store, or its error, so that one unreadable store does not hide the others."""
        try:
            _, store = self._mounts.named(name)
            met = store.unreadable.ranges()[-_MOST_UNREADABLE:]
            return facts_of(name, store).as_json() | {
                "unreadable": [part.as_json() for part in met]
            }
        except ReputError as error:
            return {"store": name, **Failure.of(error).as_json()}

    async def topics(self, request: Request) -> Response:
        _, store = self._store(request)
        topic, after = (text(request.query_params, name) for name in ("topic", "after"))
        facts = each_topic(store, topic, after)
        return await self._mounts.run(
            lambda: _list_page("topics", "topic", (topic_facts.as_json() for topic_facts in facts))
        )

    async def volume(self, request: Request) -> Response:
        _, store = self._store(request)
        query, topic = request.query_params, request.path_params["topic"]
        parts = integer(query, "parts", 60)
        if not 1 <= parts <= _MOST_PARTS:
            raise UsageError(f"parts must be 1 to {_MOST_PARTS:,}", arguments=["parts"])
        begin, end = time(query, "begin"), time(query, "end")
        volume = await self._mounts.run(lambda: volume_of_topic(store, topic, begin, end, parts))
        return JSON(
            {"topic": topic, "begin_ms": volume.begin_ms, "part_ms": volume.part_ms,
             "messages": volume.messages}
        )  # fmt: skip

    async def messages(self, request: Request) -> Response:
        _, store = self._store(request)
        return await self._search(request, store, search_of(request.query_params))

    async def message(self, request: Request) -> Response:
        _, store = self._store(request)
        topic = text(request.query_params, "topic")
        keys = (request.path_params["id"],)
        form = SearchForm(topic, keys, None, None, arguments.MOST_MESSAGES, None)
        return await self._search(request, store, form, must_exist=True)

    async def _search(
        self, request: Request, store: SharedStore, form: SearchForm, must_exist: bool = False
    ) -> Response:
        share = Share()
        until = self._mounts.until()
        steps, in_child = search(store, form, share, until), form.is_in_child
        # Raise BusyError now if too many searches are running: once an answer has begun, its status cannot change.
        self._mounts.check_room()
        if choice(request.query_params, "format", ("json", "jsonl")) == "jsonl":
            return self._stream(_search_lines(steps, share, until), in_child=in_child)

        def answer() -> Response:
            *parts, outcome = steps
            assert isinstance(outcome, Outcome)
            messages = [message for part in parts if isinstance(part, tuple) for message in part]
            if must_exist and not messages and outcome.is_complete and not until.is_stopped:
                raise MessageNotFoundError(f"no message with the id {form.keys[0]!r}")
            end = _end_fields(outcome, until)
            return JSON({"messages": list(map(share.fields, messages)), **end})

        return await self._mounts.search(answer, request, until, in_child=in_child)

    async def queue(self, request: Request) -> Response:
        _, store = self._store(request)
        query, path = request.query_params, request.path_params
        topic, queue_id = path["topic"], path["queue"]
        limit = search_of(query, 32).limit
        offset, tags = optional_integer(query, "offset"), text(query, "tags")

        def answer() -> Response:
            start = store.min_queue_offset(topic, queue_id) if offset is None else offset
            share = Share()
            pulled = pull_share(store, (topic, queue_id, start), limit, tags, share)
            return JSON(
                {
                    "status": pulled.status,
                    "messages": list(map(share.fields, pulled.messages)),
                    "next_begin_offset": pulled.next_begin_offset,
                    "min_offset": pulled.min_offset,
                    "max_offset": pulled.max_offset,
                    "complete": pulled.is_complete,
                    "unreadable": [problem.as_json() for problem in pulled.unreadable],
                }
            )

        return await self._mounts.run(answer)

    async def trace(self, request: Request) -> Response:
        query = request.query_params
        store = text(query, "store")
        missing, stores = self._mounts.unread(store), self._mounts.select(store)
        key, message_id, topic = (text(query, part) for part in ("key", "message", "topic"))
        as_lines = choice(query, "format", ("json", "jsonl")) == "jsonl"

        def answer() -> Response:
            life, _, problems = traced(stores, key=key, message_id=message_id, topic=topic)
            problems += missing
            # All bodies together must fit into the answer. If the user may not see bodies, every body is omitted.
            most_bytes = (
                0
                if not may(Permission.BODIES)
                else HTTP.answer_bytes // (_JSON_TO_A_BYTE * max(len(life.events), 1))
            )
            *parts, end = life_fields(life, most_bytes)
            if problems:
                end |= {"complete": False, "failed": problems}
            head = {"schema": TRACE_SCHEMA, "stores": [name for name, _ in stores], "key": key, "message": message_id,
                    "topic": topic}  # fmt: skip
            if as_lines:
                return Response(b"".join(map(_line, [head, *parts, end])), media_type=LINES)
            events = [part for part in parts if "event" in part]
            reasons = [part for part in parts if "reason" in part]
            return JSON({**head, **end, "events": events, "reasons": reasons})

        return await self._mounts.search(answer)

    async def check(self, request: Request) -> Response:
        name, store = self._store(request)
        is_full = choice(request.query_params, "mode", ("quick", "full")) == "full"
        # The HTTP status is sent before the check begins, so the last line of the body says whether the store is valid.
        findings = self._mounts.findings(store, is_full, self._mounts.until())
        mode = "full" if is_full else "quick"
        return self._stream(_check_lines(findings, {"store": name, "mode": mode}))

    def _store(self, request: Request) -> tuple[str, SharedStore]:
        return self._mounts.named(text(request.query_params, "store"))

    def _stream(self, lines: Lines, *, in_child: bool = False) -> Response:
        return StreamingResponse(self._mounts.iterate(lines, in_child=in_child), media_type=LINES)


def _list_page(name: str, key: str, entries: Iterator[dict[str, Any]]) -> Response:
    """Return as many entries as fit into an answer, but at least one.

    Also return a cursor for the other entries: the field `key` of the last returned entry.
    """
    page, budget, has_more = list[dict[str, Any]](), HTTP.answer_bytes, False
    for entry in entries:
        budget -= len(json_text(entry))
        if page and budget < 0:
            has_more = True
            break
        page.append(entry)
    cursor = page[-1][key] if has_more else None
    return JSON({name: page, "has_more": has_more, "cursor": cursor})


def _search_lines(steps: Steps, share: Share, until: Until) -> Lines:
    """Yield a line per message, nothing for progress, then a line with `complete`.

    An error also becomes a line, because the status was sent before.
    """
    try:
        for step in steps:
            if isinstance(step, Outcome):
                yield _line(_end_fields(step, until))
            else:
                messages = step if isinstance(step, tuple) else ()
                yield b"".join(map(_line, map(share.fields, messages)))
    except ReputError as error:
        yield _line({"complete": False, **Failure.of(error).as_json()})
    finally:
        steps.close()


def _end_fields(outcome: Outcome, until: Until) -> dict[str, Any]:
    # A search that had just finished when the server stopped is complete.
    is_cut = until.is_stopped and outcome.is_late
    return {
        **(Failure.of(StoppedError()).as_json() if is_cut else {}),
        "complete": outcome.is_complete and not is_cut,
        "has_more": outcome.cursor is not None,
        "cursor": outcome.cursor,
        "unreadable": [problem.as_json() for problem in outcome.problems[:_MOST_FINDINGS]],
        "unreadable_count": len(outcome.problems),
        "coverage": None if outcome.coverage is None else coverage_fields(outcome.coverage),
    }


def _check_lines(findings: Iterator[Any], head: dict[str, Any]) -> Lines:
    count = wrong = 0
    try:
        yield _line({"schema": engine_check.CHECK_SCHEMA, **head})
        for finding in findings:
            count, wrong = count + 1, wrong + finding.is_wrong
            yield _line(finding.as_json())
        yield _line({"valid": not wrong, "findings": count})
    except ReputError as error:
        yield _line({"valid": False, "findings": count, **Failure.of(error).as_json()})


def _line(value: Any) -> bytes:
    return (json_text(value) + "\n").encode("utf-8", "backslashreplace")
