"""Candidates out of a range of the log that no IndexFile covers: one scan, joined with the hashes of all keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.config import StoreConfig
from reput.errors import StoreNotFoundError
from reput.files.reader import FileReader
from reput.format.index_file import index_key, key_hash
from reput.kernels.key_match import find_wanted
from reput.query.bulk.candidates import PART_SHIFT, SCANNED, Candidates, Run, write_run
from reput.query.bulk.key_parts import KeyPart, SortedKeys
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.dispatch_batch import DispatchBatch
from reput.store.keyed_record import read_keyed_record
from reput.store.log_walk import LogWalk
from reput.store.record_search import find_record
from reput.store.scan import FileScan, ScanBuffers

_RUN_HITS = 1 << 20
_HASH_BITS = 31
_BUCKET_HASHES = 2


class Wanted:
    """Hashes to look for, int32, sorted and different, with a table that leads to each at once."""

    def __init__(self, hashes: npt.NDArray[np.int32]) -> None:
        self.hashes = hashes
        bits = max(len(hashes) // _BUCKET_HASHES, 1).bit_length()
        self.shift = _HASH_BITS - min(bits, _HASH_BITS)
        edges = np.arange((1 << (_HASH_BITS - self.shift)) + 1, dtype=np.int64) << self.shift
        self.bounds = np.searchsorted(hashes, edges)

    def find(self, key_hash: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Numbers of those that are wanted, rising."""
        found = np.empty(len(key_hash), np.int64)
        count = find_wanted(key_hash, self.hashes, self.bounds, self.shift, found)
        return found[:count]


@cache
def _wanted(path: str) -> Wanted:
    """A worker keeps it from task to task; the table is as large as the keys are many."""
    return Wanted(np.load(path, mmap_mode="r"))


@cache
def _buffers() -> ScanBuffers:
    return ScanBuffers()


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Scan records that begin in [begin, stop) of one file.

    start   where the first of them begins, None: search it
    wanted  path of the hashes, as np.save has written them
    only    numbers of the keys to look for (int64, sorted), None for all
    """

    store: int
    store_path: str
    number: int
    file: CommitLogFile
    begin: int
    stop: int
    start: int | None
    wanted: str
    parts: tuple[tuple[int, KeyPart], ...]
    only: npt.NDArray[np.int64] | None = None

    @property
    def weight(self) -> int:
        return 1 + self.stop - self.begin


@dataclass(slots=True)
class ScanFound:
    """What a scan has found and where it went: `start` is None where no record begins in the range."""

    number: int
    start: int | None
    end: int
    finished: bool = False
    unreadable: bool = False
    runs: list[Run] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


class _Hits(NamedTuple):
    hashes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def run_scan_task(folder: str, edges: npt.NDArray[np.int64], task: ScanTask) -> ScanFound:
    """Safe to run twice, and beside itself. Raises StoreAccessError, StoreChangedError."""
    try:
        start = _search(task) if task.start is None else task.start
        found = ScanFound(task.number, start, task.begin)
        if start is None:
            return found
        for hits in _scan(task, start, found):
            path = Path(folder) / f"scan-{task.store}-{task.number}-{start}-{len(found.runs)}"
            run = write_run(path, task.store, SCANNED, edges, _joined(task, hits))
            if run is not None:
                found.runs.append(run)
    except StoreNotFoundError:  # expired meanwhile
        return ScanFound(task.number, task.start, task.stop)
    return found


def _search(task: ScanTask) -> int | None:
    with FileReader(task.file.path) as reader:
        return find_record(reader, task.file, task.begin, task.stop)


def _scan(task: ScanTask, start: int, found: ScanFound) -> Iterator[_Hits]:
    """Hits of the scan, a number of them at a time; what else is found goes into `found` at its end."""
    wanted = _wanted(task.wanted)
    scan = FileScan(task.file, start, task.stop, StoreConfig(), buffers=_buffers())
    waiting: list[_Hits] = []
    for batch in scan.batches():
        waiting.append(_hits(wanted, batch))
        if not scan.misplaced and sum(len(hits.hashes) for hits in waiting) > _RUN_HITS:
            yield _together(waiting)
            waiting = []
    if scan.misplaced:  # what a message says of its place is no use then: take each as it lies
        waiting = [_walk(task, start, wanted)]
    yield _together(waiting)
    found.end, found.finished = scan.end.position, scan.end.finished
    found.unreadable, found.damage = bool(scan.end.unreadable), scan.damage


def _hits(wanted: Wanted, batch: DispatchBatch) -> _Hits:
    entries = wanted.find(batch.key_hash)
    rows = batch.key_row[entries]
    return _Hits(batch.key_hash[entries], batch.messages["physical_offset"][rows])


def _walk(task: ScanTask, start: int, wanted: Wanted) -> _Hits:
    log = CommitLog(task.store_path)
    pairs = [
        (key_hash(index_key(record.topic, key)), record.physical_offset)
        for record in map(read_keyed_record, LogWalk(log, start, task.stop))
        for key in record.keys
    ]
    log.close()
    hashes = np.array([pair[0] for pair in pairs], np.int32)
    entries = wanted.find(hashes)
    return _Hits(hashes[entries], np.array([pair[1] for pair in pairs], np.int64)[entries])


def _together(waiting: list[_Hits]) -> _Hits:
    """By hash; the same hash at the same offset once."""
    hashes = np.concatenate([np.empty(0, np.int32), *(hits.hashes for hits in waiting)])
    offsets = np.concatenate([np.empty(0, np.int64), *(hits.offsets for hits in waiting)])
    order = np.lexsort((offsets, hashes))
    hashes, offsets = hashes[order], offsets[order]
    fresh = np.append(True, (np.diff(hashes) != 0) | (np.diff(offsets) != 0))[: len(hashes)]
    return _Hits(hashes[fresh], offsets[fresh])


def _joined(task: ScanTask, hits: _Hits) -> Iterator[tuple[int, pa.RecordBatch, Candidates]]:
    for number, part in task.parts:
        keys = SortedKeys(part.path)
        place = np.searchsorted(keys.hashes, hits.hashes)
        there = np.flatnonzero(place < len(keys.hashes))
        there = there[keys.hashes[place[there]] == hits.hashes[there]]
        which, rows = keys.rows_of(place[there])
        offsets = hits.offsets[there][which]
        if task.only is not None:
            numbers = keys.batch.column("row").to_numpy()[rows].astype(np.int64)
            kept = np.isin(numbers + (number << PART_SHIFT), task.only)
            offsets, rows = offsets[kept], rows[kept]
        yield number, keys.batch, Candidates(offsets, rows)
