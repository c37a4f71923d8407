"""What one ConsumeQueue file holds, and whether its entries can be right."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.files.reader import RangeReader
from reput.files.storage import LOCAL, Storage, size_of
from reput.findings import Finding, Kind
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.file_names import parse_offset_file_name

_BLOCK_ENTRIES = 1 << 20


@dataclass(slots=True)
class ConsumeQueueInspection:
    """`first_entry` is the queue offset of the first entry, from the name; None for a renamed copy.

    entries      written ones, pre-blank ones not counted; `pre_blank` fill the file up to the first
    room         entries that fit into the file
    begin, end   physical offset of the first message, and after the last
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


def inspect_consume_queue_file(path: str, storage: Storage = LOCAL) -> ConsumeQueueInspection:
    """Read every entry. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    logical_offset = parse_offset_file_name(os.path.basename(path))
    found = ConsumeQueueInspection(path, size_of(path, storage))
    with storage.open(path) as reader:
        found.room = found.size_bytes // ENTRY_BYTES
        if logical_offset is not None:
            found.first_entry = logical_offset // ENTRY_BYTES
        if found.size_bytes % ENTRY_BYTES:
            reason = f"{found.size_bytes % ENTRY_BYTES} bytes at the end are not a whole entry"
            found.findings.append(_finding(found, Kind.PARTIAL_QUEUE_ENTRY, found.room, reason))
        _read_entries(reader, found)
    return found


def _finding(found: ConsumeQueueInspection, kind: Kind, entry: int, detail: str) -> Finding:
    return Finding(kind, found.path, detail, file_offset=entry * ENTRY_BYTES)


def _read_entries(reader: RangeReader, found: ConsumeQueueInspection) -> None:
    tags_codes: set[int] = set()
    ended_at: int | None = None
    for first in range(0, found.room, _BLOCK_ENTRIES):
        count = min(_BLOCK_ENTRIES, found.room - first)
        block = np.frombuffer(reader.read(first * ENTRY_BYTES, count * ENTRY_BYTES), ENTRY_DTYPE)
        written = (block["physical_offset"] >= 0) & (block["size"] > 0)
        blank = block == np.array(tuple(PRE_BLANK), ENTRY_DTYPE)
        if ended_at is None and not written.all():
            ended_at = first + int(np.argmin(written))
        if ended_at is not None and written[max(ended_at - first, 0) :].any():
            reason = f"entry {ended_at} is not written and ends the queue, but later ones are"
            found.findings.append(_finding(found, Kind.QUEUE_GAP, ended_at, reason))
            break
        found.pre_blank += int(blank.sum())
        _take(block[written & ~blank], first + np.flatnonzero(written & ~blank), found)
        tags_codes.update(np.unique(block["tags_code"][written & ~blank]).tolist())
    found.distinct_tags_codes = len(tags_codes)


def _take(
    entries: npt.NDArray[np.void], number: npt.NDArray[np.int64], found: ConsumeQueueInspection
) -> None:
    if not len(entries):
        return
    offsets = entries["physical_offset"].astype(np.int64)
    ends = offsets + entries["size"].astype(np.int64)
    before = np.concatenate(([found.end if found.end is not None else offsets[0]], ends[:-1]))
    backwards = np.flatnonzero(offsets < before)
    if len(backwards):
        entry, offset = int(number[backwards[0]]), int(offsets[backwards[0]])
        reason = (
            f"entry {entry} leads to {offset}, before the end of the message of the entry before"
        )
        found.findings.append(_finding(found, Kind.QUEUE_DISORDER, entry, reason))
    if found.begin is None:
        found.begin = int(offsets[0])
    found.end = int(ends[-1])
    found.entries += len(entries)
    found.message_bytes += int(entries["size"].sum(dtype=np.int64))
