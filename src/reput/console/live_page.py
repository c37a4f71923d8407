"""Show new messages, filtered. The page requests them every two seconds; the server keeps no state in between."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from reput.broker.limits import HTTP
from reput.console.arguments import choice, text
from reput.console.group_pages import chosen
from reput.console.rendering import Views
from reput.console.results import Row
from reput.console.search_page import cursors_of
from reput.console.users import Permission, demand
from reput.errors import ReputError, UsageError
from reput.format.commit_log import MessageExt
from reput.messages.bodies import sent_body
from reput.query.pull import wanted_tags
from reput.query.shared_store import SharedStore
from reput.query.tail import LogTail, TailFilter

_FIELDS = ("topic", "key", "tags", "contains", "how", "store")
_FIRST_ROWS, _MOST_ROWS = 20, 200
_SECONDS = 1.0
"""Time for which one request may walk logs; the next request continues at the same place."""
_MOST_BEHIND_BYTES = 64 << 20


class LivePage:
    """The page `/live`, and `/live/rows`, which the page requests."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts

    async def live(self, request: Request) -> Response:
        return await self._answer(request, "live.html")

    async def rows(self, request: Request) -> Response:
        """Return rows of new messages, newest first, and the cursors for the next request."""
        return await self._answer(request, "live_rows.html")

    async def _answer(self, request: Request, template: str) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        stores = chosen(self._mounts, q["store"])
        wanted = TailFilter(
            q["topic"] or None, None, q["key"] or None, frozenset(wanted_tags(q["tags"] or None))
        )
        content = None
        if q["contains"]:
            if q["how"] != "property":
                demand(Permission.BODIES)
            from reput.table.content import How, parse_content

            content = parse_content(choice(query, "how", tuple(How)), q["contains"])
        cursors = cursors_of(query, [name for name, _ in stores])
        tails = _Watched(stores, wanted, content, cursors)
        await self._mounts.search(tails.read)
        return await self._views.page(
            request, template, view="live", q=q, tails=tails, live_query=_query
        )


def _query(tails: _Watched, q: Mapping[str, str]) -> str:
    """Return the query string for later messages."""
    pairs = [(name, value) for name, value in q.items() if value]
    pairs += [("after", f"{name}:{offset}") for name, offset in tails.cursors.items()]
    return "?" + urlencode(pairs, errors="surrogatepass")


class _Watched:
    """Messages of several logs after their cursors.

    Attributes:
        rows: New messages, newest first.
        cursors: By store, the physical offset to continue at.
        notes: Stores that could not be read, and messages that were passed over.
    """

    def __init__(
        self,
        stores: Sequence[tuple[str, SharedStore]],
        wanted: TailFilter,
        content: Any,
        cursors: dict[str, int],
    ) -> None:
        self._stores, self._wanted, self._content = stores, wanted, content
        self.cursors = dict(cursors)
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def read(self) -> None:
        """Read messages for about a second."""
        until = time.monotonic() + _SECONDS
        turn = int(until * 1000) % max(len(self._stores), 1)  # busy stores do not always come first
        for name, store in (*self._stores[turn:], *self._stores[:turn]):
            begin = self.cursors.get(name)
            if begin is not None and (len(self.rows) >= _MOST_ROWS or time.monotonic() > until):
                continue  # the next request continues there
            try:
                with store.reader() as reader:
                    tail = LogTail(reader, self._wanted)
                    if begin is None:
                        self._first(name, tail)
                    else:
                        end = reader.end_offset()
                        tail.position = min(begin, end)
                        if end - begin > _MOST_BEHIND_BYTES:
                            tail.position = end
                            self.notes.append(
                                f"{name}: {end - begin:,} bytes were written too fast to be shown"
                            )
                        self._new(name, tail, until)
                    self.cursors[name] = tail.position
            except UsageError:
                raise
            except ReputError as error:
                self.notes.append(f"{name}: {error}")
        self.rows.sort(key=lambda row: row.store_timestamp, reverse=True)
        del self.rows[_MOST_ROWS:]

    def _first(self, name: str, tail: LogTail) -> None:
        found = tail.last(_FIRST_ROWS)
        self.rows += [Row.of(name, message) for message in found if self._takes(message)]

    def _new(self, name: str, tail: LogTail, until: float) -> None:
        records = tail.new_records(to_the_end=True)
        try:
            for record in records:
                message = record.message()
                if self._takes(message):
                    self.rows.append(Row.of(name, message))
                if len(self.rows) >= _MOST_ROWS or time.monotonic() > until:
                    tail.position = message.physical_offset + message.size_bytes
                    break
        finally:
            records.close()

    def _takes(self, message: MessageExt) -> bool:
        if self._content is None:
            return True
        sent = sent_body(message, HTTP.answer_bytes)
        return bool(self._content.takes(sent.data, message.properties))
