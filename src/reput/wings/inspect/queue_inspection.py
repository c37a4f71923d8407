"""Inspect one file of a queue: read its entries, and check that they are plausible."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, agreeing, counted
from reput.core import BATCH_QUEUE, CONSUME_QUEUE, QueueKind
from reput.format.consume_queue import PRE_BLANK
from reput.format.file_names import parse_offset_file_name
from reput.io import LOCAL, Storage, size_of

_BLOCK_ENTRIES = 1 << 18


@dataclass(slots=True)
class ConsumeQueueInspection:
    """The content of one ConsumeQueue file.

    first_entry: queue offset of the first entry, from the file's name; None for a renamed copy
    entries: number of written entries, except pre-blank ones
    pre_blank: number of filler entries, which a broker writes if a queue does not begin at the start of its file
    room: number of entries that fit into the file
    begin, end: physical offsets of the first message, and after the last message
    """

    path: str
    size_bytes: int
    kind: str = "ConsumeQueue file"
    first_entry: int | None = None
    room: int = 0
    pre_blank: int = 0
    entries: int = 0
    begin: int | None = None
    end: int | None = None
    message_bytes: int = 0
    distinct_tags_codes: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class BatchQueueInspection:
    """The content of one file of a batch queue (5.x).

    Attributes:
        entries: number of written entries, one per record
        messages: number of messages in these records
        room: number of entries that fit into the file
        first_message: queue offset of the first message
        next_message: queue offset after the last message
        begin: physical offset of the first record
        end: physical offset after the last record
    """

    path: str
    size_bytes: int
    kind: str = "batch queue file"
    room: int = 0
    entries: int = 0
    messages: int = 0
    first_message: int | None = None
    next_message: int | None = None
    begin: int | None = None
    end: int | None = None
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class QueueInspection:
    """One queue of a store, of any kind.

    Attributes:
        path: folder of the queue
        topic, queue_id: the queue
        files: number of files; 0 in RocksDB
        first: queue offset of the first message
        stop: queue offset that the next message gets
        min_logical_offset, max_logical_offset: the same in bytes of the queue (`ConsumeQueue.getMinLogicOffset`); None
            for a batch queue, in which queue offsets do not lead to entries by their place
    """

    path: str
    kind: str
    topic: str
    queue_id: int
    files: int
    first: int
    stop: int
    min_logical_offset: int | None = None
    max_logical_offset: int | None = None
    findings: list[Finding] = field(default_factory=list)


def inspect_consume_queue_file(path: str, storage: Storage = LOCAL) -> ConsumeQueueInspection:
    """Inspect a ConsumeQueue file by reading every entry.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    queue = ConsumeQueueInspection(path, size_of(path, storage))
    logical_offset = parse_offset_file_name(os.path.basename(path))
    if logical_offset is not None:
        queue.first_entry = logical_offset // CONSUME_QUEUE.entry_bytes
    tags_codes: set[int] = set()
    blank_entry = np.array(tuple(PRE_BLANK), CONSUME_QUEUE.dtype)
    for first, block, written in _blocks(queue, CONSUME_QUEUE, storage):
        blank = block == blank_entry
        queue.pre_blank += int(blank.sum())
        rows = np.flatnonzero(written & ~blank)
        _take(block[rows], first + rows, queue)
        tags_codes.update(np.unique(block["tags_code"][rows]).tolist())
    queue.distinct_tags_codes = len(tags_codes)
    return queue


def inspect_batch_queue_file(path: str, storage: Storage = LOCAL) -> BatchQueueInspection:
    """Inspect a batch queue file by reading every entry.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    queue = BatchQueueInspection(path, size_of(path, storage))
    for first, block, written in _blocks(queue, BATCH_QUEUE, storage):
        rows = np.flatnonzero(written)
        _take_batches(block[rows], first + rows, queue)
    return queue


def _blocks(
    queue: ConsumeQueueInspection | BatchQueueInspection, kind: QueueKind, storage: Storage
) -> Iterator[tuple[int, npt.NDArray[np.void], npt.NDArray[np.bool_]]]:
    """Yield the entries in blocks: number of the first entry, the entries, and a flag per entry whether it is written.

    Readers of a ConsumeQueue stop at its first gap, so entries after a gap are reported but not yielded.
    """
    queue.room, rest = divmod(queue.size_bytes, kind.entry_bytes)
    if rest:
        detail = f"{counted(rest, 'byte')} at the end {agreeing(rest, 'is')} not a whole entry"
        _note(queue, kind, Kind.PARTIAL_QUEUE_ENTRY, queue.room, detail)
    gap: int | None = None
    is_reported = False
    with storage.open(queue.path) as reader:
        for first in range(0, queue.room, _BLOCK_ENTRIES):
            count = min(_BLOCK_ENTRIES, queue.room - first)
            data = reader.read(first * kind.entry_bytes, count * kind.entry_bytes)
            block = np.frombuffer(data, kind.dtype)
            written = (block["physical_offset"] >= 0) & (block["size"] > 0)
            if gap is None and not written.all():
                gap = first + int(np.argmin(written))
            if gap is not None and not is_reported and written[max(gap - first, 0) :].any():
                detail = f"entry {gap} is not written and ends the queue, but later ones are"
                _note(queue, kind, Kind.QUEUE_GAP, gap, detail)
                is_reported = True
            # Readers of a ConsumeQueue stop at the gap.
            if is_reported and kind is CONSUME_QUEUE:
                return
            yield first, block, written


def _take(
    entries: npt.NDArray[np.void], number: npt.NDArray[np.int64], queue: ConsumeQueueInspection
) -> None:
    if not len(entries):
        return
    offsets = entries["physical_offset"].astype(np.int64)
    ends = offsets + entries["size"].astype(np.int64)
    before = np.concatenate(([queue.end if queue.end is not None else offsets[0]], ends[:-1]))
    backwards = np.flatnonzero(offsets < before)
    if len(backwards):
        entry, offset = int(number[backwards[0]]), int(offsets[backwards[0]])
        detail = f"entry {entry} leads to {offset}, before the end of the previous entry's message"
        _note(queue, CONSUME_QUEUE, Kind.QUEUE_DISORDER, entry, detail)
    if queue.begin is None:
        queue.begin = int(offsets[0])
    queue.end = int(ends[-1])
    queue.entries += len(entries)
    queue.message_bytes += int(entries["size"].sum(dtype=np.int64))


def _take_batches(
    entries: npt.NDArray[np.void], number: npt.NDArray[np.int64], queue: BatchQueueInspection
) -> None:
    if not len(entries):
        return
    bases, offsets = entries["base_offset"].astype(np.int64), entries["physical_offset"]
    stops = bases + entries["batch_size"]
    ends = offsets.astype(np.int64) + entries["size"]
    begin = bases[0] if queue.next_message is None else queue.next_message
    expected = np.append(begin, stops[:-1])
    if len(wrong := np.flatnonzero(bases != expected)):
        row = int(wrong[0])
        entry = int(number[row])
        detail = f"entry {entry} begins at queue offset {bases[row]}, not at {expected[row]}"
        _note(queue, BATCH_QUEUE, Kind.QUEUE_DISORDER, entry, detail)
    if queue.begin is None:
        queue.begin, queue.first_message = int(offsets[0]), int(bases[0])
    queue.end, queue.next_message = int(ends[-1]), int(stops[-1])
    queue.entries += len(entries)
    queue.messages += int(entries["batch_size"].sum(dtype=np.int64))


def _note(
    queue: ConsumeQueueInspection | BatchQueueInspection,
    kind: QueueKind,
    finding_kind: Kind,
    entry: int,
    detail: str,
) -> None:
    at = entry * kind.entry_bytes
    queue.findings.append(Finding(finding_kind, queue.path, detail, file_offset=at))
