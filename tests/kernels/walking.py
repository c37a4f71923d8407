"""Drive the scan kernel over whole logs with the smallest buffers, and compare with the oracle."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from reput.base.config import StoreConfig
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.java_string import decode_utf8
from reput.kernels import record_walk as kernel
from reput.kernels.commit_log_scan import scan_records
from reput.kernels.jit import new_rows
from reput.kernels.places_scan import scan_places
from reput.kernels.queue_table import QueueTable, grown, new_queue_table
from tests.oracle.consume_queue import multi_dispatch
from tests.oracle.index_file import key_hash
from tests.oracle.records import (
    TRANSACTION_COMMIT,
    TRANSACTION_NONE,
    Blank,
    Record,
    SizeMismatch,
    UnreadableError,
    decode,
)

NEVER = (1 << 63) - 1
DELAYS_MS = np.array(StoreConfig().delay_table_ms(), np.int64)


class Row(NamedTuple):
    """The dispatched entries of one message. `further` are (topic, queue id, queue offset)."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    tags_code: int
    size: int
    sys_flag: int
    queue: tuple[str, int]
    key_hashes: tuple[int, ...]
    further: tuple[tuple[str, int, int], ...]


@dataclass
class Walked:
    """The result of a walk over a log.

    damage     unreadable ranges as (offset, length)
    blanks     log offsets of blanks
    misplaced  number of records that state another physical offset than their own
    """

    rows: list[Row] = field(default_factory=list)
    damage: list[tuple[int, int]] = field(default_factory=list)
    blanks: list[int] = field(default_factory=list)
    misplaced: int = 0


@dataclass(frozen=True)
class Room:
    """The buffers of a call of the kernel; `window_bytes` grows if a record needs more."""

    window_bytes: int = 1 << 20
    messages: int = 1000
    keys: int = 40_000
    multi: int = 40_000
    queues: int = 64
    name_bytes: int = 1 << 16


class KernelWalk:
    """Walks log files as `store.scan` does, without files. Raises AssertionError if a call returns nonsense.

    With `places`, each window is walked by the quick kernel, whose rows have neither tags code nor keys. That kernel
    stops at a delayed message, and the full kernel walks the rest of the window.
    """

    def __init__(
        self,
        room: Room,
        *,
        multi_dispatch: bool = False,
        lmq: bool = False,
        places: bool = False,
        tags_from: int = NEVER,
    ) -> None:
        self.places, self.tags_from = places, tags_from
        self.room, self.multi_dispatch, self.lmq = room, multi_dispatch, lmq
        self.found = Walked()
        self.statuses: set[int] = set()
        self.state = np.zeros(kernel.STATE_FIELDS, np.int64)
        self.table: QueueTable = new_queue_table(room.queues, room.name_bytes)
        self._make_rows(room.messages, room.keys, room.multi)

    def _make_rows(self, messages: int, keys: int, multi: int) -> None:
        self.messages = new_rows(messages, MESSAGE_DTYPE)
        self.key_hash = np.zeros(keys, np.int32)
        self.multi = new_rows(multi, MULTI_DTYPE)

    def walk(self, files: Sequence[tuple[int, bytes]]) -> Walked:
        for start, data in files:
            self._walk_file(start, data)
            self._take()
        self.found.misplaced = int(self.state[kernel.MISPLACED])
        return self.found

    def _walk_file(self, start: int, data: bytes) -> None:
        position, least = 0, 0
        while position < len(data):
            window = data[position : position + max(self.room.window_bytes, least)]
            at_file_end = position + len(window) == len(data)
            status, walked = self._walk_window(window, start + position, at_file_end)
            position, least = position + walked, 0
            needed = int(self.state[kernel.NEEDED])
            if status == kernel.BLANK:
                self.found.blanks.append(start + position)
                return
            if status == kernel.SIZE_MISMATCH:
                self.found.damage.append((start + position, needed))
                position += needed
            elif status == kernel.MORE_BYTES:
                assert not at_file_end
                assert needed > len(window) - walked, "asked for bytes that it had"
                least = needed
                if position + needed > len(data):
                    status = kernel.UNREADABLE
            if status == kernel.UNREADABLE:
                self.found.damage.append((start + position, len(data) - position))
                return

    def _walk_window(self, window: bytes, base: int, at_file_end: bool) -> tuple[int, int]:
        # No bytes follow the window, so an interpreted kernel that reads beyond it raises IndexError.
        data = np.frombuffer(bytearray(window), np.uint8)
        self.state[kernel.POSITION] = 0
        while True:
            status = self.call(data, len(window), len(window), base, at_file_end)
            self.statuses.add(status)
            if status == kernel.BATCH_FULL:
                self._make_room()
            elif status == kernel.TABLE_FULL:
                self.table = grown(self.table)
            else:
                return status, int(self.state[kernel.POSITION])

    def call(self, data: Any, end: int, stop: int, base: int, at_file_end: bool) -> int:
        if self.places:
            status = int(
                scan_places(
                    data, end, stop, base, at_file_end, self.state, self.messages, *self.table
                )
            )
            if status != kernel.SCHEDULED:
                return status
            self.statuses.add(status)
        return int(
            scan_records(
                data, end, stop, base, at_file_end, self.multi_dispatch, self.lmq, self.tags_from, DELAYS_MS,
                self.state, self.messages, self.key_hash, self.multi, *self.table,
            )
        )  # fmt: skip

    def _make_room(self) -> None:
        if self.state[kernel.MESSAGES]:
            self._take()
        else:  # the arrays are empty, but too small for one message
            self._make_rows(
                len(self.messages) + 1, 2 * len(self.key_hash) + 1, 2 * len(self.multi) + 1
            )

    def _take(self) -> None:
        """Convert the kernel's rows to `Row` tuples, and empty the arrays."""
        state = self.state
        keys, multi = iter(self.key_hash.tolist()), 0
        for number in range(int(state[kernel.MESSAGES])):
            message = self.messages[number]
            key_hashes = tuple(next(keys) for _ in range(int(message["key_count"])))
            further = []
            while multi < state[kernel.MULTI_ROWS] and self.multi[multi]["row"] == number:
                topic, queue_id = self._queue(int(self.multi[multi]["queue"]))
                further.append((topic, queue_id, int(self.multi[multi]["queue_offset"])))
                multi += 1
            queue = self._queue(int(message["queue"]))
            numbers = (int(message[name]) for name in Row._fields[:6])
            self.found.rows.append(Row._make((*numbers, queue, key_hashes, tuple(further))))
        assert multi == state[kernel.MULTI_ROWS]
        assert len(list(keys)) == len(self.key_hash) - state[kernel.KEY_ROWS]
        state[[kernel.MESSAGES, kernel.KEY_ROWS, kernel.MULTI_ROWS]] = 0

    def _queue(self, number: int) -> tuple[str, int]:
        return decode_utf8(self.table.name(number)), int(self.table.queues[number]["queue_id"])


def oracle_walk(
    files: Sequence[tuple[int, bytes]],
    *,
    enable_multi: bool = False,
    lmq: bool = False,
    tags_from: int = NEVER,
) -> Walked:
    """Return what the scan kernel should find, by the oracle's decoder."""
    found, end_offset = Walked(), 0
    for start, data in files:
        at = 0
        while at < len(data):
            try:
                item = decode(data, at)
            except UnreadableError:
                found.damage.append((start + at, len(data) - at))
                break
            if isinstance(item, Blank):
                found.blanks.append(start + at)
                break
            if isinstance(item, SizeMismatch):
                found.damage.append((start + at, item.length))
                at += item.length
                continue
            row = _row(item, end_offset, tags_from, enable_multi=enable_multi, lmq=lmq)
            found.rows.append(row)
            end_offset = item.physical_offset if row.key_hashes else end_offset
            found.misplaced += item.physical_offset != start + at
            at += item.total_size
    return found


def _row(record: Record, end_offset: int, tags_from: int, *, enable_multi: bool, lmq: bool) -> Row:
    tags = record.index_tags if record.physical_offset >= tags_from else []
    keys = record.index_keys + tags if record.physical_offset >= end_offset else []
    queued = record.transaction_type in (TRANSACTION_NONE, TRANSACTION_COMMIT)
    further = multi_dispatch(record, enable_lmq=lmq) if enable_multi and queued else []
    return Row(
        record.physical_offset,
        record.queue_offset,
        record.store_timestamp,
        record.tags_code,
        record.total_size,
        record.sys_flag,
        (record.topic, record.queue_id),
        tuple(key_hash(record.topic, key) for key in keys),
        tuple(further),
    )
