"""What one CommitLog file holds: a walk over its records, as dispatch makes it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from reput.config import StoreConfig
from reput.files.reader import FileReader
from reput.format.commit_log import (
    MIN_RECORD_BYTES,
    SYS_FLAG_TRANSACTION_MASK,
    read_size_and_physical_offset,
)
from reput.format.file_names import parse_offset_file_name
from reput.store.commit_log_files import CommitLogFile
from reput.store.dispatch_batch import DispatchBatch
from reput.store.scan import FileScan
from reput.verify.problem import Problem

_TRANSACTIONS = ("none", "prepared", "commit", "rollback")


@dataclass(slots=True)
class CommitLogInspection:
    """Offsets are physical, times in ms; `free_bytes` lie behind the last record.

    finished   the file ends in its blank: what follows is in the next file
    misplaced  records that state another physical offset than their own
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
    torn_tail: bool = False
    problems: list[Problem] = field(default_factory=list)


def inspect_commit_log_file(path: str, config: StoreConfig) -> CommitLogInspection:
    """Walk the file. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
    with FileReader(path) as reader:
        size = os.stat(path).st_size
        file = CommitLogFile(_begin(reader, path, size), size, path)
    found = CommitLogInspection(path, file.size, file.start)
    scan = FileScan(file, file.start, file.end, config)
    topics: Counter[str] = Counter()
    transactions: Counter[str] = Counter()
    record_bytes = 0
    for batch in scan.batches():
        _count(batch, found, topics, transactions)
        record_bytes += int(batch.messages["size"].sum(dtype=np.int64))
    found.topics = dict(topics.most_common())
    found.transactions = {name: transactions[name] for name in _TRANSACTIONS if transactions[name]}
    found.misplaced = scan.misplaced
    _note_end(found, scan, record_bytes)
    return found


def _begin(reader: FileReader, path: str, size: int) -> int:
    """From the file's name; of a renamed copy from its first record."""
    begin = parse_offset_file_name(os.path.basename(path))
    if begin is not None:
        return begin
    if size < MIN_RECORD_BYTES:
        return 0
    return max(read_size_and_physical_offset(reader.read(0, MIN_RECORD_BYTES), 0)[1], 0)


def _count(
    batch: DispatchBatch,
    found: CommitLogInspection,
    topics: Counter[str],
    transactions: Counter[str],
) -> None:
    messages = batch.messages
    times, sizes = messages["store_timestamp"], messages["size"]
    earliest, latest = int(times.min()), int(times.max())
    if found.first_store_timestamp is None:
        found.first_store_timestamp = int(times[0])
        found.earliest_store_timestamp, found.latest_store_timestamp = earliest, latest
        found.smallest_bytes = int(sizes.min())
    found.earliest_store_timestamp = min(found.earliest_store_timestamp or earliest, earliest)
    found.latest_store_timestamp = max(found.latest_store_timestamp or latest, latest)
    found.smallest_bytes = min(found.smallest_bytes, int(sizes.min()))
    found.largest_bytes = max(found.largest_bytes, int(sizes.max()))
    found.messages += len(messages)
    found.keys += len(batch.key_hash)
    for queue, count in enumerate(np.bincount(messages["queue"])):
        if count:
            topics[batch.queues[queue].topic] += int(count)
    kinds = (messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK) >> 2
    for kind, count in enumerate(np.bincount(kinds)):
        transactions[_TRANSACTIONS[kind]] += int(count)


def _note_end(found: CommitLogInspection, scan: FileScan, record_bytes: int) -> None:
    """A blank ends a file, zeros are space not yet used; else damage, or a torn end."""
    end = found.begin + found.size_bytes
    found.problems += [
        Problem(
            found.path,
            damage.physical_offset - found.begin,
            f"{damage.length} bytes lost: {damage.reason}",
        )
        for damage in scan.damage
    ]
    unread = bool(scan.end.unreadable)
    # The walk steps over a blank to the end of its file; records and skipped bytes reach up to it.
    found.end = found.begin + record_bytes + sum(damage.length for damage in scan.damage)
    found.finished = not unread
    found.free_bytes = end - found.end
    if unread and scan.end.data_follows:
        reason = f"{scan.end.unreadable}; {end - found.end} bytes to the end of the file are lost"
        found.problems.append(Problem(found.path, found.end - found.begin, reason))
    elif unread:
        found.torn_tail = scan.end.torn
