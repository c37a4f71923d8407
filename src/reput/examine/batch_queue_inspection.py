"""What one file of a batch queue (5.x) holds, and whether its entries can be right."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.files.storage import LOCAL, Storage, size_of
from reput.findings import Finding, Kind
from reput.format.batch_consume_queue import BATCH_ENTRY_BYTES, BATCH_ENTRY_DTYPE

_BLOCK_ENTRIES = 1 << 18
_DTYPE = np.dtype(BATCH_ENTRY_DTYPE)


@dataclass(slots=True)
class BatchQueueInspection:
    """A file of a batch queue.

    Attributes:
        entries: written ones, each of a record
        messages: of these records
        room: entries that fit into the file
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


def inspect_batch_queue_file(path: str, storage: Storage = LOCAL) -> BatchQueueInspection:
    """Read every entry. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    found = BatchQueueInspection(path, size_of(path, storage))
    found.room = found.size_bytes // BATCH_ENTRY_BYTES
    if rest := found.size_bytes % BATCH_ENTRY_BYTES:
        _note(
            found, Kind.PARTIAL_QUEUE_ENTRY, found.room,
            f"{rest} bytes at the end are not a whole entry",
        )  # fmt: skip
    with storage.open(path) as reader:
        for first in range(0, found.room, _BLOCK_ENTRIES):
            count = min(_BLOCK_ENTRIES, found.room - first)
            data = reader.read(first * BATCH_ENTRY_BYTES, count * BATCH_ENTRY_BYTES)
            _take(np.frombuffer(data, _DTYPE), first, found)
    return found


def _take(block: npt.NDArray[np.void], first: int, found: BatchQueueInspection) -> None:
    written = (block["physical_offset"] >= 0) & (block["size"] > 0)
    rows = np.flatnonzero(written)
    if not len(rows):
        return
    if found.entries < first or rows[-1] >= len(rows):
        gap = found.entries if found.entries < first else int(np.argmin(written)) + first
        detail = f"entry {gap} is not written and ends the queue, but later ones are"
        _note(found, Kind.QUEUE_GAP, gap, detail)
    entries = block[rows]
    bases, offsets = entries["base_offset"].astype(np.int64), entries["physical_offset"]
    stops = bases + entries["batch_size"]
    ends = offsets.astype(np.int64) + entries["size"]
    begin = bases[0] if found.next_message is None else found.next_message
    expected = np.append(begin, stops[:-1])
    if len(wrong := np.flatnonzero(bases != expected)):
        row = int(wrong[0])
        detail = (
            f"entry {first + rows[row]} begins at queue offset {bases[row]}, not at {expected[row]}"
        )
        _note(found, Kind.QUEUE_DISORDER, first + int(rows[row]), detail)
    if found.begin is None:
        found.begin, found.first_message = int(offsets[0]), int(bases[0])
    found.end, found.next_message = int(ends[-1]), int(stops[-1])
    found.entries += len(rows)
    found.messages += int(entries["batch_size"].sum(dtype=np.int64))


def _note(found: BatchQueueInspection, kind: Kind, entry: int, detail: str) -> None:
    at = entry * BATCH_ENTRY_BYTES
    found.findings.append(Finding(kind, found.path, detail, file_offset=at))
