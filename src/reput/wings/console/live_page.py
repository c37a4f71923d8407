"""Show new messages as they arrive, with filters. The page requests new rows every two seconds.

The request's address contains the offset at which to continue in each store. With many stores the address would be too
long for proxies. Then the offsets are kept in this process, under a random name that the address contains.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from reput.core import LogTail, SharedStore, TailFilter, wanted_tags
from reput.errors import ReputError, UsageError
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt
from reput.wings.console.arguments import choice, text
from reput.wings.console.group_pages import chosen
from reput.wings.console.rendering import Views
from reput.wings.console.results import Row
from reput.wings.console.search_page import cursors_of
from reput.wings.console.users import Permission, demand
from reput.wings.serve import HTTP

_FIELDS = ("topic", "key", "tags", "contains", "how", "store")
_FIRST_ROWS, _MOST_ROWS = 20, 200
_SECONDS = 1.0
"""Time for which one request may read logs. The next request continues at the same place."""
_MOST_BEHIND_BYTES = 64 << 20
_MOST_IN_ADDRESS, _MOST_KEPT = 50, 100_000
_FORGOTTEN = (
    "This page was idle for so long that the server has forgotten its position; "
    "it starts again with the newest messages."
)


class _KeptCursors:
    """Keeps the cursors (offsets at which to continue) of pages that show many stores.

    The cursors of a page are kept together, under a random name. If there are too many cursors, the cursors of the page
    that was idle longest are dropped. Not thread-safe.
    """

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most, self._count = most, 0
        self._kept: OrderedDict[str, tuple[dict[str, int], str]] = OrderedDict()

    def get(self, name: str) -> dict[str, int] | None:
        """Return cursors, and drop the cursors of the preceding request, which the page no longer needs."""
        found = self._kept.get(name)
        if found is None:
            return None
        self._kept.move_to_end(name)
        self._drop(found[1])
        return found[0]

    def put(self, cursors: dict[str, int], before: str) -> str:
        """Keep cursors, and return their name.

        `before` is the name of the cursors of the preceding request. The browser may repeat the preceding request, so
        its cursors are dropped only when the new cursors are first used.
        """
        name = secrets.token_urlsafe(12)
        self._kept[name] = cursors, before
        self._count += len(cursors)
        # Keep the newest set of cursors even if it alone exceeds the limit. Otherwise, its page could never continue.
        while self._count > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))
        return name

    def _drop(self, name: str) -> None:
        dropped = self._kept.pop(name, None)
        self._count -= len(dropped[0]) if dropped else 0


class LivePage:
    """The handlers of `/live`, and of `/live/rows`, which the page requests."""

    def __init__(self, views: Views) -> None:
        self._views, self._mounts = views, views.mounts
        self._kept = _KeptCursors()

    async def live(self, request: Request) -> Response:
        return await self._answer(request, "live.html")

    async def rows(self, request: Request) -> Response:
        """Return rows of new messages, newest first, and the cursors for the next request."""
        return await self._answer(request, "live_rows.html")

    async def _answer(self, request: Request, template: str) -> Response:
        query = request.query_params
        q = {name: text(query, name) or "" for name in _FIELDS}
        missing, stores = self._mounts.unread(q["store"]), chosen(self._mounts, q["store"])
        wanted = TailFilter(
            q["topic"] or None, None, q["key"] or None, frozenset(wanted_tags(q["tags"] or None))
        )
        content = None
        if q["contains"]:
            if q["how"] != "property":
                demand(Permission.BODIES)
            from reput.engine.tables import How, parse_content

            content = parse_content(choice(query, "how", tuple(How)), q["contains"])
        cursors = cursors_of(query, [name for name, _ in stores])
        at = text(query, "at") or ""
        kept = self._kept.get(at) if at else None
        tails = _Watched(stores, wanted, content, {**cursors, **(kept or {})})
        tails.notes += missing
        if at and kept is None:
            tails.notes.append(_FORGOTTEN)
        await self._mounts.search(tails.read)
        return await self._views.page(
            request, template, view="live", q=q, tails=tails, link=self._query(tails, q, at)
        )

    def _query(self, tails: _Watched, q: Mapping[str, str], before: str) -> str:
        """Return the query string with which the page requests later messages."""
        pairs = [(name, value) for name, value in q.items() if value]
        if len(tails.cursors) > _MOST_IN_ADDRESS:
            pairs.append(("at", self._kept.put(tails.cursors, before)))
        else:
            pairs += [("after", f"{name}:{offset}") for name, offset in tails.cursors.items()]
        return "?" + urlencode(pairs, errors="surrogatepass")


class _Watched:
    """Reads the messages of several logs, beginning at the cursor of each log.

    Attributes:
        rows: The new messages, newest first.
        cursors: By store, the physical offset at which to continue.
        notes: Unreadable stores, and skipped messages.
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
        # Begin with a different store in each request. Otherwise, the last stores would not be read if time is short.
        turn = int(until * 1000) % max(len(self._stores), 1)
        for name, store in (*self._stores[turn:], *self._stores[:turn]):
            begin = self.cursors.get(name)
            if begin is not None and (len(self.rows) >= _MOST_ROWS or time.monotonic() > until):
                continue  # Skip this store. The next request continues at its old cursor.
            try:
                with store.reader() as reader:
                    tail = LogTail(reader, self._wanted)
                    if begin is None:
                        self._first(name, tail)
                    else:
                        end = reader.end_offset()
                        # After a truncation, the log may end before the cursor.
                        tail.position = min(begin, end)
                        # Nobody can read so many messages. Continue with the newest ones.
                        if end - begin > _MOST_BEHIND_BYTES:
                            tail.position = end
                            self.notes.append(
                                f"{name}: {end - begin:,} bytes were written too fast to be shown"
                            )
                        self._new(name, tail, until)
                    self.cursors[name] = tail.position
            except UsageError:
                # The search conditions are invalid, so every store would refuse them. Report the error only once.
                raise
            except ReputError as error:
                self.notes.append(f"{name}: {error}")
        self.rows.sort(key=lambda row: row.store_timestamp, reverse=True)
        del self.rows[_MOST_ROWS:]

    def _first(self, name: str, tail: LogTail) -> None:
        found = tail.last(_FIRST_ROWS)
        self.rows += [Row.of(name, message) for message in found if self._takes(message)]
        oldest = found[0].physical_offset if len(found) == _FIRST_ROWS else None
        self.notes += [f"{name}: {one}" for one in tail.coverage(oldest).unreadable]

    def _new(self, name: str, tail: LogTail, until: float) -> None:
        records = tail.new_records(to_the_end=True)
        try:
            for record in records:
                message = record.message()
                if self._takes(message):
                    self.rows.append(Row.of(name, message))
                if len(self.rows) >= _MOST_ROWS or time.monotonic() > until:
                    # The next request continues after this message.
                    tail.position = message.physical_offset + message.size_bytes
                    break
        finally:
            records.close()
            self.notes += [f"{name}: {one}" for one in tail.damage]

    def _takes(self, message: MessageExt) -> bool:
        if self._content is None:
            return True
        sent = sent_body(message, HTTP.answer_bytes)
        return bool(self._content.takes(sent.data, message.properties))
