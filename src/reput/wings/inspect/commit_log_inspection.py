"""Inspect one CommitLog file, by walking its records as dispatch does."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from reput import core
from reput.base import Finding, Kind, StoreConfig
from reput.core import wrong_bodies
from reput.format.commit_log import (
    MIN_RECORD_BYTES,
    SYS_FLAG_TRANSACTION_MASK,
    read_size_and_physical_offset,
)
from reput.format.file_names import parse_offset_file_name
from reput.io import LOCAL, RangeReader, Storage, size_of

_MOST_WRONG_BODIES = 1000
_TRANSACTIONS = ("none", "prepared", "commit", "rollback")


@dataclass(slots=True)
class CommitLogInspection:
    """The content of one log file. Offsets are physical, times in ms.

    finished: whether the file ends with a blank record, so that the log continues in the next file
    free_bytes: number of bytes after the last record
    misplaced: number of records that are not at the physical offset that they state
    wrong_bodies: number of records whose body does not match its CRC; only the first 1,000 of them have a finding
    """

    path: str
    size_bytes: int
    begin: int
    kind: str = "CommitLog file"
    end: int = 0
    finished: bool = False
    free_bytes: int = 0
    messages: int = 0
    keys: int = 0
    smallest_bytes: int = 0
    largest_bytes: int = 0
    first_store_timestamp: int | None = None
    earliest_store_timestamp: int | None = None
    latest_store_timestamp: int | None = None
    topics: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    misplaced: int = 0
    wrong_bodies: int = 0
    torn_tail: bool = False
    findings: list[Finding] = field(default_factory=list)


def inspect_commit_log_file(
    path: str, config: StoreConfig, storage: Storage = LOCAL
) -> CommitLogInspection:
    """Inspect a log file by walking its records. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    size = size_of(path, storage)
    with storage.open(path) as reader:
        file = core.CommitLogFile(
            _begin(reader, path, size), size, path, gap=core.CommitLogFile.gap_of(path)
        )
    log = CommitLogInspection(path, file.size, file.start)
    scan = core.FileScan(
        file,
        file.start,
        file.end,
        core.ScanMode.BROKER,
        core.DispatchRules.of(config),
        open_file=storage.open,
    )
    topics: Counter[str] = Counter()
    transactions: Counter[str] = Counter()
    record_bytes = 0
    for piece in scan.pieces():
        batch = piece.batch
        _count(batch, log, topics, transactions)
        _check_bodies(piece, file, log)
        # In a DLedger log, a header of `gap` bytes precedes each record.
        record_bytes += int(batch.messages["size"].sum(dtype=np.int64)) + file.gap * len(batch)
    log.topics = dict(topics.most_common())
    log.transactions = {name: transactions[name] for name in _TRANSACTIONS if transactions[name]}
    log.misplaced = scan.misplaced
    _note_end(log, file, scan, record_bytes)
    return log


def _begin(reader: RangeReader, path: str, size: int) -> int:
    """Return the physical offset of the file's first byte, from its name or, if it was renamed, its first record."""
    begin = parse_offset_file_name(os.path.basename(path))
    if begin is not None:
        return begin
    # The file is too short for a record, so nothing states its physical offset. Assume 0.
    if size < MIN_RECORD_BYTES:
        return 0
    return max(read_size_and_physical_offset(reader.read(0, MIN_RECORD_BYTES), 0)[1], 0)


def _count(
    batch: core.DispatchBatch,
    log: CommitLogInspection,
    topics: Counter[str],
    transactions: Counter[str],
) -> None:
    messages = batch.messages
    times, sizes = messages["store_timestamp"], messages["size"]
    earliest, latest = int(times.min()), int(times.max())
    if log.first_store_timestamp is None:
        log.first_store_timestamp = int(times[0])
        log.earliest_store_timestamp, log.latest_store_timestamp = earliest, latest
        log.smallest_bytes = int(sizes.min())
    log.earliest_store_timestamp = min(log.earliest_store_timestamp or earliest, earliest)
    log.latest_store_timestamp = max(log.latest_store_timestamp or latest, latest)
    log.smallest_bytes = min(log.smallest_bytes, int(sizes.min()))
    log.largest_bytes = max(log.largest_bytes, int(sizes.max()))
    log.messages += len(messages)
    log.keys += len(batch.key_hash)
    for queue, count in enumerate(np.bincount(messages["queue"])):
        if count:
            topics[batch.queues[queue].topic] += int(count)
    kinds = (messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK) >> 2
    for kind, count in enumerate(np.bincount(kinds)):
        transactions[_TRANSACTIONS[kind]] += int(count)


def _check_bodies(
    piece: core.ScannedPiece, file: core.CommitLogFile, log: CommitLogInspection
) -> None:
    """Add a finding for each record whose body does not match its CRC."""
    wrong = wrong_bodies(piece.data, piece.positions, piece.batch.messages)
    for at in (piece.positions[wrong] + piece.base).tolist():
        log.wrong_bodies += 1
        if log.wrong_bodies <= _MOST_WRONG_BODIES:
            detail = "the body does not match its CRC"
            log.findings.append(file.lost(at, at, detail, Kind.BODY_CRC))


def _note_end(
    log: CommitLogInspection, file: core.CommitLogFile, scan: core.FileScan, record_bytes: int
) -> None:
    """Classify the bytes after the last record: a blank record, unused space (zeros), damage, or a torn end."""
    verdict = scan.verdict()
    log_end = verdict.end_for_rebuild()
    damage = [lost for lost in verdict.damage if lost.start < log_end]
    log.findings += damage
    # If the file has a blank record, scan.end is after it. The last message record ends before the blank.
    log.end = log.begin + record_bytes + sum(lost.length for lost in damage)
    log.finished = not verdict.is_unreadable
    log.free_bytes = file.end - log.end
    log.torn_tail = log_end < verdict.position and scan.end.torn
