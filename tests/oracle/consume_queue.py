"""Consume queues, written entry by entry.

Entries are put as by ConsumeQueue.putMessagePositionInfo and MappedFileQueue.getLastMappedFile of rocketmq-all-4.9.3,
except after gaps in the queue offsets of a queue that is not light. There the broker appends the next entry without a
gap, so all later entries move. Here a gap of n entries is filled with pre-blank entries if n messages may have been
lost. This is the case if n records fit into the log's unreadable or refused bytes since the previous entry. It is also
the case if n records fit into all bytes since that entry, and the queue's next message continues the queue offsets.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from tests.oracle.java_text import divide, is_blank, parse_number, split, to_long
from tests.oracle.records import TRANSACTION_COMMIT, TRANSACTION_NONE, Record

ENTRY = struct.Struct(">qiq")  # physical offset, size, tags code
PRE_BLANK = ENTRY.pack(0, 0x7FFFFFFF, 0)
LMQ_PREFIX = "%LMQ%"
MIN_RECORD_BYTES = 91

QueueFiles = dict[tuple[str, int], dict[str, bytes]]


@dataclass
class ConsumeQueue:
    """One queue: its files by start offset, each without the zeros after its entries."""

    file_bytes: int
    files: dict[int, bytearray] = field(default_factory=dict)
    max_physical_offset: int = -1
    is_light: bool = False
    lost: Sequence[tuple[int, int]] = ()  # physical offset and length
    refused_bytes: int = 0

    def put(
        self,
        physical_offset: int,
        size: int,
        tags_code: int,
        queue_offset: int,
        following: int | None = None,
    ) -> None:
        """Put an entry; `following` is the queue offset of the queue's next message."""
        if to_long(physical_offset + size) <= self.max_physical_offset:
            return  # the broker treats it as a repeated dispatch
        self._fill_gap(physical_offset, queue_offset, following)
        expected = to_long(queue_offset * ENTRY.size)
        start = self._file_to_write(expected)
        file = self.files[start]
        if len(self.files) == 1 and not file and queue_offset != 0:
            while len(file) < expected - self._file_start(expected):
                file += PRE_BLANK
        # The broker drops an entry only if its place is before the end of the queue (a file created for it stays). It
        # appends all others at the end: those whose place is beyond the end, and each with queue offset 0.
        if queue_offset != 0 and expected < start + len(file):
            self.refused_bytes += size
            return
        self.refused_bytes = 0
        self.max_physical_offset = to_long(physical_offset + size)
        file += ENTRY.pack(physical_offset, size, tags_code)

    def _fill_gap(self, physical_offset: int, queue_offset: int, following: int | None) -> None:
        if self.is_light or self.max_physical_offset < 0:
            return
        position = (max(self.files) + len(self.files[max(self.files)])) // ENTRY.size
        gap = queue_offset - position
        between = physical_offset - self.max_physical_offset
        unread = self.refused_bytes
        for start, length in self.lost:
            first, last = max(start, self.max_physical_offset), min(start + length, physical_offset)
            unread += max(last - first, 0)
        room = between if following == queue_offset + 1 else min(unread, between)
        if gap <= room // MIN_RECORD_BYTES:
            for number in range(position, queue_offset):
                self.files[self._file_to_write(number * ENTRY.size)] += PRE_BLANK

    def _file_to_write(self, expected: int) -> int:
        """Return the start of the last file, or of a new one if it is full or missing."""
        if not self.files:
            start = self._file_start(expected)
        else:
            start = max(self.files)
            if len(self.files[start]) < self.file_bytes:
                return start
            start += self.file_bytes
        self.files[start] = bytearray()
        return start

    def _file_start(self, logical_offset: int) -> int:
        return divide(logical_offset, self.file_bytes) * self.file_bytes

    def padded(self) -> dict[str, bytes]:
        return {
            f"{'-' * (start < 0)}{abs(start):020d}": bytes(file).ljust(self.file_bytes, b"\0")
            for start, file in sorted(self.files.items())
        }


def write_consume_queues(
    records: Iterable[Record],
    *,
    file_bytes: int,
    enable_multi_dispatch: bool = False,
    enable_lmq: bool = False,
    lost: Sequence[tuple[int, int]] = (),
) -> QueueFiles:
    """Dispatch records. Returns {(topic, queue id): {file name: bytes}}.

    `file_bytes` is mappedFileSizeConsumeQueue, rounded up to whole entries here; `lost` are the (physical offset,
    length) of unreadable parts of the log.
    """
    file_bytes = -(-file_bytes // ENTRY.size) * ENTRY.size
    offered: dict[tuple[str, int], list[tuple[Record, int]]] = {}
    for record in records:
        if record.transaction_type not in (TRANSACTION_NONE, TRANSACTION_COMMIT):
            continue
        targets = [(record.topic, record.queue_id, record.queue_offset)]
        if enable_multi_dispatch:
            targets += multi_dispatch(record, enable_lmq=enable_lmq)
        for topic, queue_id, queue_offset in targets:
            offered.setdefault((topic, queue_id), []).append((record, queue_offset))
    queues: dict[tuple[str, int], ConsumeQueue] = {}
    for (topic, queue_id), messages in offered.items():
        queue = ConsumeQueue(file_bytes, is_light=topic.startswith(LMQ_PREFIX), lost=lost)
        queues[topic, queue_id] = queue
        following = [number for _, number in messages[1:]]
        for (record, queue_offset), after in zip_longest(messages, following):
            queue.put(
                record.physical_offset, record.total_size, record.tags_code, queue_offset, after
            )
    return {key: queue.padded() for key, queue in queues.items() if queue.files}


def multi_dispatch(record: Record, *, enable_lmq: bool) -> list[tuple[str, int, int]]:
    """Return the further (topic, queue id, queue offset) that a record is dispatched to.

    The broker's dispatch hangs forever at a record without properties, and at a queue offset that is not a number. A
    rebuild must continue after both. Here the first record has no further queues, and the second has those before the
    invalid offset, which the broker wrote before it hung.
    """
    queues = record.properties.get("INNER_MULTI_DISPATCH")
    offsets = record.properties.get("INNER_MULTI_QUEUE_OFFSET")
    if queues is None or offsets is None or is_blank(queues) or is_blank(offsets):
        return []
    names, numbers = split(queues, ","), split(offsets, ",")
    if len(names) != len(numbers):
        return []
    targets = []
    for name, number in zip(names, numbers, strict=True):
        try:
            queue_offset = parse_number(number, 64)
        except ValueError:
            break
        light = enable_lmq and name.startswith(LMQ_PREFIX)
        targets.append((name, 0 if light else record.queue_id, queue_offset))
    return targets
