"""Candidates out of a range of the log that no IndexFile covers: one scan, joined with the hashes of all keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.errors import StoreNotFoundError
from reput.findings import Finding
from reput.format.index_file import index_key, key_hash
from reput.log.dispatch_batch import DispatchBatch
from reput.log.files import CommitLogFile
from reput.log.keyed_record import read_keyed_record
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import BROKER
from reput.log.splits import guess_record
from reput.log.walk import LogWalk
from reput.lookup.candidates import PART_SHIFT, SCANNED, CandidateRun, Candidates, write_run
from reput.lookup.key_parts import KeyPart, SortedKeys
from reput.lookup.place import StorePlace
from reput.lookup.wanted_hashes import HashTable, wanted_hashes

_RUN_HITS = 1 << 20


@cache
def _buffers() -> ScanBuffers:
    return ScanBuffers()


@dataclass(frozen=True, slots=True)
class LookupScanTask:
    """Scan records that begin in [begin, stop) of one file.

    start   where the first of them begins, None: search it
    wanted  path of the hashes, as np.save has written them
    only    numbers of the keys to look for (int64, sorted), None for all
    """

    place: StorePlace
    number: int
    file: CommitLogFile
    begin: int
    stop: int
    start: int | None
    wanted: str
    parts: tuple[tuple[int, KeyPart], ...]
    only: npt.NDArray[np.int64] | None = None

    @property
    def store(self) -> int:
        return self.place.number

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
    unreadable: str = ""
    runs: list[CandidateRun] = field(default_factory=list)
    damage: list[Finding] = field(default_factory=list)


class Hits(NamedTuple):
    """Hashes that some key has, and the physical offsets of the records that have them."""

    hashes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def run_scan_task(folder: str, edges: npt.NDArray[np.int64], task: LookupScanTask) -> ScanFound:
    """Safe to run twice, and beside itself. Raises StoreAccessError, StoreChangedError."""
    try:
        start = task.start
        if start is None:
            start = guess_record(task.place.storage.open, task.file, task.begin, task.stop)
        found = ScanFound(task.number, start, task.begin)
        if start is None:
            return found
        for hits in _scan(task, start, found):
            path = Path(folder) / f"scan-{task.store}-{task.number}-{start}-{len(found.runs)}"
            run = write_run(
                path, task.store, SCANNED, edges, joined_hits(task.parts, hits, task.only)
            )
            if run is not None:
                found.runs.append(run)
    except StoreNotFoundError:  # expired meanwhile
        return ScanFound(task.number, task.start, task.stop)
    return found


def _scan(task: LookupScanTask, start: int, found: ScanFound) -> Iterator[Hits]:
    """Hits of the scan, a number of them at a time; what else is found goes into `found` at its end."""
    wanted = wanted_hashes(task.wanted)
    scan = FileScan(
        task.file, start, task.stop, BROKER, buffers=_buffers(), open_file=task.place.storage.open
    )
    waiting: list[Hits] = []
    for batch in scan.batches():
        waiting.append(_hits(wanted, batch))
        if not scan.misplaced and sum(len(hits.hashes) for hits in waiting) > _RUN_HITS:
            yield _together(waiting)
            waiting = []
    if scan.misplaced:  # what a message says of its place is no use then: take each as it lies
        waiting = [_walk(task, start, wanted)]
    yield _together(waiting)
    found.end, found.finished = scan.end.position, scan.end.finished
    found.unreadable, found.damage = scan.end.unreadable, scan.damage


def _hits(wanted: HashTable, batch: DispatchBatch) -> Hits:
    entries = wanted.find(batch.key_hash)
    rows = batch.key_row[entries]
    return Hits(batch.key_hash[entries], batch.messages["physical_offset"][rows])


def _walk(task: LookupScanTask, start: int, wanted: HashTable) -> Hits:
    log = CommitLogReader(task.place.log)
    pairs = [
        (key_hash(index_key(record.topic, key)), record.physical_offset)
        for record in map(read_keyed_record, LogWalk(log, start, task.stop))
        for key in record.keys
    ]
    log.close()
    hashes = np.array([pair[0] for pair in pairs], np.int32)
    entries = wanted.find(hashes)
    return Hits(hashes[entries], np.array([pair[1] for pair in pairs], np.int64)[entries])


def _together(waiting: list[Hits]) -> Hits:
    """By hash; the same hash at the same offset once."""
    hashes = np.concatenate([np.empty(0, np.int32), *(hits.hashes for hits in waiting)])
    offsets = np.concatenate([np.empty(0, np.int64), *(hits.offsets for hits in waiting)])
    order = np.lexsort((offsets, hashes))
    hashes, offsets = hashes[order], offsets[order]
    fresh = np.append(True, (np.diff(hashes) != 0) | (np.diff(offsets) != 0))[: len(hashes)]
    return Hits(hashes[fresh], offsets[fresh])


def joined_hits(
    parts: Sequence[tuple[int, KeyPart]], hits: Hits, only: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[int, pa.RecordBatch, Candidates]]:
    """Candidates of each part for `write_run`: the keys with these hashes, of those with numbers in `only`."""
    for number, part in parts:
        keys = SortedKeys(part.path)
        place = np.searchsorted(keys.hashes, hits.hashes)
        there = np.flatnonzero(place < len(keys.hashes))
        there = there[keys.hashes[place[there]] == hits.hashes[there]]
        which, rows = keys.rows_of(place[there])
        offsets = hits.offsets[there][which]
        if only is not None:
            numbers = keys.batch.column("row").to_numpy()[rows].astype(np.int64)
            kept = np.isin(numbers + (number << PART_SHIFT), only)
            offsets, rows = offsets[kept], rows[kept]
        yield number, keys.batch, Candidates(offsets, rows)
