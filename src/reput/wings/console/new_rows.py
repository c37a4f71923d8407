"""Read the new messages of several logs for the live page: in the server, or in a child process of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reput.engine.messages import LogTail, TailFilter
from reput.engine.writer import SharedStore
from reput.errors import ReputError, UsageError
from reput.format.bodies import sent_body
from reput.format.commit_log import MessageExt
from reput.wings.console.results import Row
from reput.wings.serve import HTTP

if TYPE_CHECKING:
    from reput.wings.console.content import Content

_FIRST_ROWS, _MOST_ROWS = 20, 200
_SECONDS = 1.0
"""Time for which one request may read logs. The next request continues at the same place."""
_MOST_BEHIND_BYTES = 64 << 20


@dataclass(slots=True)
class NewRows:
    """The new messages of several logs.

    Attributes:
        cursors: By store, the physical offset at which to continue.
        rows: The new messages, newest first.
        notes: Unreadable stores, and skipped messages.
    """

    cursors: dict[str, int]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def new_rows(
    stores: Sequence[tuple[str, SharedStore | Callable[[], SharedStore]]],
    predicate: TailFilter,
    cursors: Mapping[str, int],
    content: Content | None = None,
) -> NewRows:
    """Read messages for about a second, beginning at the cursor of each log.

    Args:
        stores: The stores by name, or functions that open them.
        wanted, content: The conditions.
        cursors: By store, the physical offset at which to begin; the newest messages of a store without a cursor.

    Raises:
        UsageError: The conditions are invalid.
    """
    rows_reader = _NewRowsReader(predicate, content, NewRows(dict(cursors)))
    # Begin with a different store in each request. Otherwise, the last stores would not be read if time is short.
    turn = int(rows_reader.until * 1000) % max(len(stores), 1)
    for name, store in (*stores[turn:], *stores[:turn]):
        rows_reader.read(name, store)
    result = rows_reader.result
    result.rows.sort(key=lambda row: row.store_timestamp, reverse=True)
    del result.rows[_MOST_ROWS:]
    return result


class _NewRowsReader:
    """One request of the live page.

    Attributes:
        result: What was read so far.
        until: The end of its time.
    """

    def __init__(self, predicate: TailFilter, content: Content | None, result: NewRows) -> None:
        self._predicate, self._content, self.result = predicate, content, result
        self.until = time.monotonic() + _SECONDS

    @property
    def _is_full(self) -> bool:
        return len(self.result.rows) >= _MOST_ROWS or time.monotonic() > self.until

    def read(self, name: str, store: SharedStore | Callable[[], SharedStore]) -> None:
        begin = self.result.cursors.get(name)
        if begin is not None and self._is_full:
            return  # Skip this store. The next request continues at its old cursor.
        try:
            shared = store if isinstance(store, SharedStore) else store()
            with shared.reader() as reader:
                tail = LogTail(reader, self._predicate)
                if begin is None:
                    self._first(name, tail)
                else:
                    end = reader.end_offset()
                    # After a truncation, the log may end before the cursor.
                    tail.position = min(begin, end)
                    # Nobody can read so many messages. Continue with the newest ones.
                    if end - begin > _MOST_BEHIND_BYTES:
                        tail.position = end
                        self.result.notes.append(
                            f"{name}: {end - begin:,} bytes were written too fast to be shown"
                        )
                    self._new(name, tail)
                self.result.cursors[name] = tail.position
        except UsageError:
            # The search conditions are invalid, so every store would refuse them. Report the error only once.
            raise
        except ReputError as error:
            self.result.notes.append(f"{name}: {error}")

    def _first(self, name: str, tail: LogTail) -> None:
        messages = tail.last(_FIRST_ROWS)
        self.result.rows += [Row.of(name, message) for message in messages if self._takes(message)]
        oldest = messages[0].physical_offset if len(messages) == _FIRST_ROWS else None
        self.result.notes += [f"{name}: {problem}" for problem in tail.coverage(oldest).unreadable]

    def _new(self, name: str, tail: LogTail) -> None:
        records = tail.new_records(to_the_end=True)
        try:
            for record in records:
                message = record.message()
                if self._takes(message):
                    self.result.rows.append(Row.of(name, message))
                if self._is_full:
                    # The next request continues after this message.
                    tail.position = message.physical_offset + message.size_bytes
                    break
        finally:
            records.close()
            self.result.notes += [f"{name}: {problem}" for problem in tail.damage]

    def _takes(self, message: MessageExt) -> bool:
        if self._content is None:
            return True
        sent = sent_body(message, HTTP.answer_bytes)
        return bool(self._content.takes(sent.data, message.properties))
