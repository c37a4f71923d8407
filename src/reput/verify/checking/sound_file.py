"""Whether a file of the log is sound: every record whole, and every entry of its messages where it must be.

Most files are, and kernels say so without an array being made of what they compare. What is not sound, `log_check`
looks at again to find out what is wrong: this one only ever says yes, or that it cannot say yes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import ITEM_BYTES, item_position
from reput.kernels.entry_matches import (
    ANY_TIME,
    FIRST_TIME,
    ITEM,
    ITEM_STATE_FIELDS,
    KEY,
    LAST_TIME,
    match_items,
    match_queue_entries,
)
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.scan import FileScan, Piece
from reput.verify.checking.index_entries import IndexPiece
from reput.verify.checking.queue_entries import QueuePiece

if TYPE_CHECKING:
    from collections.abc import Callable

    from reput.verify.checking.log_check import LogTask

_WORDS = 5  # of an entry, and of an item
# So many are held at the same time; files with more messages are looked at the other way.
_MOST_ENTRIES = 1 << 24
_ITEMS_READ = 1 << 16
Words = npt.NDArray[np.uint32]


class _Memory:
    """What a worker process keeps from task to task: fresh memory costs more than what is done with it."""

    def __init__(self) -> None:
        self.entries = np.empty((0, _WORDS), np.uint32)
        self.items = np.empty((_ITEMS_READ, _WORDS), np.uint32)

    def room_for(self, entries: int) -> Words:
        if entries > len(self.entries):
            self.entries = np.empty((entries, _WORDS), np.uint32)
        return self.entries[:entries]


@cache
def _memory() -> _Memory:
    return _Memory()


def latest_of_sound_file(
    task: LogTask, scan: FileScan, is_sound_piece: Callable[[Piece], bool]
) -> int | None:
    """The latest store timestamp of a sound file, ms; None where it is not, or has no message. Raises StoreError.

    Args:
        task: The file, and what its indexes hold of it.
        scan: A walk over it from its begin, not begun.
        is_sound_piece: Whether the records of a piece are right in themselves.
    """
    if (
        not task.queues
        or not task.index
        or sum(_length(one) for one in task.queues) > _MOST_ENTRIES
    ):
        return None
    queues, index = _Queues(task.queues), _Index(task.index)
    latest = None
    for piece in scan.pieces():
        batch = piece.batch
        if scan.damage or not is_sound_piece(piece):
            return None
        if not queues.match(batch, piece.positions + piece.base) or not index.match(batch):
            return None
        high = int(batch.messages["store_timestamp"].max())
        latest = high if latest is None else max(latest, high)
    if not _ends_well(task, scan):
        return None
    return latest if queues.are_all_matched() and index.is_all_matched() else None


def _ends_well(task: LogTask, scan: FileScan) -> bool:
    """Whether there is nothing behind the last record but a blank, or zeros where the log ends."""
    if scan.damage or scan.end.torn:
        return False
    is_end = (task.is_last or task.is_live) and scan.end.position >= task.log_end
    return is_end or not scan.end.unreadable


def _length(piece: QueuePiece) -> int:
    return 0 if piece.span is None else piece.span.last + 1 - piece.span.first


class _Queues:
    """The entries of the file's messages, of all queues one after the other."""

    def __init__(self, pieces: tuple[QueuePiece, ...]) -> None:
        self._known: list[Queue] = []
        self._places: dict[Queue, tuple[int, int, int]] = {}
        self._totals = {one.queue: one.span.total for one in pieces if one.span is not None}
        self._entries = _memory().room_for(sum(_length(one) for one in pieces))
        begin = 0
        for piece in pieces:
            if piece.span is not None and (count := self._read(piece, begin)):
                self._places[piece.queue] = (piece.span.first, begin, count)
                begin += count
        self._arrays = np.zeros((4, 0), np.int64)

    def _read(self, piece: QueuePiece, begin: int) -> int:
        """How many entries of the span there are from its first on without a gap."""
        assert piece.span is not None
        wanted, stop = piece.span.first, piece.span.last + 1
        for first, count, path in piece.files:
            if not first <= wanted < min(first + count, stop):
                continue
            end = min(first + count, stop)
            into = self._entries[begin + wanted - piece.span.first : begin + end - piece.span.first]
            with FileReader(path) as reader:
                reader.read_into(into.reshape(-1).view(np.uint8), (wanted - first) * ENTRY_BYTES)
            wanted = end
        return wanted - piece.span.first

    def match(self, batch: DispatchBatch, offsets: npt.NDArray[np.int64]) -> bool:
        if len(batch.queues) > len(self._known):
            self._meet(batch.queues)
        first, start, count, matched = self._arrays
        return bool(
            match_queue_entries(
                batch.messages, batch.multi, offsets, first, start, count, self._entries, matched
            )
        )

    def _meet(self, queues: list[Queue]) -> None:
        new = [self._places.get(queue, (0, 0, 0)) for queue in queues[len(self._known) :]]
        columns = np.array([(*place, 0) for place in new], np.int64).T
        self._arrays = np.ascontiguousarray(np.concatenate([self._arrays, columns], axis=1))
        self._known = queues

    def are_all_matched(self) -> bool:
        """Whether no entry is left that leads into this file of the log."""
        matched = dict(zip(self._known, self._arrays[3].tolist(), strict=True))
        return all(matched.get(queue, 0) == total for queue, total in self._totals.items())


class _Index:
    """The items of the file's messages, read as they are compared."""

    def __init__(self, pieces: tuple[IndexPiece, ...]) -> None:
        self._pieces = list(reversed(pieces))
        self._state = np.zeros(ITEM_STATE_FIELDS, np.int64)
        self._items = _memory().items[:0]
        self._first = self._next = self._stop = (
            0  # numbers of items: the first in memory, the next to read, the end
        )
        self._piece: IndexPiece | None = None

    def match(self, batch: DispatchBatch) -> bool:
        """Whether all keys of the batch have their items, and these follow those of the batch before."""
        state = self._state
        state[:ITEM] = 0
        while state[KEY] < len(batch.key_hash):
            if state[ITEM] == len(self._items) and not self._go_on():
                return False
            assert self._piece is not None
            header, base = self._piece.header, self._piece.first_base
            begin = header.begin_timestamp
            first_begin = begin if self._first > 1 else ANY_TIME if base is None else base
            if not match_items(
                batch.messages, batch.key_hash, state, self._items, begin, first_begin
            ):
                return False
            if state[ITEM] == len(self._items) and not self._is_header_right():
                return False
        return True

    def _go_on(self) -> bool:
        """Read the items that follow; whether there are any."""
        if self._next == self._stop:
            if not self._pieces:
                return False
            self._piece = self._pieces.pop()
            span = self._piece.span
            self._next, self._stop = span.first, span.last + 1
            if self._stop - self._next != span.total:
                return False
        assert self._piece is not None
        count = min(self._stop - self._next, _ITEMS_READ)
        self._items = _memory().items[:count]
        with FileReader(self._piece.path) as reader:
            at = item_position(self._piece.hash_slots, self._next)
            reader.read_into(self._items.reshape(-1).view(np.uint8)[: count * ITEM_BYTES], at)
        self._first, self._next = self._next, self._next + count
        self._state[ITEM] = 0
        return count > 0

    def _is_header_right(self) -> bool:
        """Whether the header says the times of its first and its last message, of those that were just met."""
        assert self._piece is not None
        header = self._piece.header
        if self._piece.is_growing:
            return True
        first, last = int(self._state[FIRST_TIME]), int(self._state[LAST_TIME])
        if self._first == 1 and first != header.begin_timestamp:
            return False
        is_last = self._next - 1 == header.last_item(1 << 31)
        return not is_last or last == header.end_timestamp

    def is_all_matched(self) -> bool:
        """Whether no item is left that leads into this file of the log."""
        return (
            not self._pieces
            and self._next == self._stop
            and int(self._state[ITEM]) == len(self._items)
        )
