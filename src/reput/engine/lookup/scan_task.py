"""Find candidates in the log itself, by the hashes of all keys.

A `LookupScanTask` scans a range that no IndexFile covers. The two other tasks find messages that no index has. If a
record has several UNIQ_KEYs (5.x), the index has only the last one: a `ReplacedIdTask` finds the others. An `InnerTask`
finds messages of inner batches (5.x).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Finding
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    DispatchBatch,
    FileScan,
    InnerBatches,
    KnownRanges,
    OpenBatch,
    ScanBuffers,
    ScanMode,
    find_record,
)
from reput.engine.lookup.candidates import (
    PART_SHIFT,
    SCANNED,
    CandidateRun,
    Candidates,
    StorePlace,
    write_run,
)
from reput.engine.lookup.key_parts import KeyPart, SortedKeys, texts_of
from reput.engine.lookup.match_task import Places, decoded_matches, write_matches
from reput.engine.messages import Records
from reput.errors import StoreNotFoundError
from reput.format.java_string import encode_utf8
from reput.io import ArrowFile, StagedFiles
from reput.kernels import key_match as kernel
from reput.kernels.jit import new_rows
from reput.kernels.key_match import find_wanted

# Key hashes are not negative, so they have 31 bits.
_HASH_BITS = 31
# Average number of hashes per bucket.
_BUCKET_HASHES = 2
# A task writes a run (file of candidates) once it has more than this many hits. The limit bounds its memory.
_RUN_HITS = 1 << 20
_PIECE_BYTES = 4 << 20


class HashTable:
    """A hash table of the wanted hashes, which are given as a sorted int32 array without duplicates."""

    def __init__(self, hashes: npt.NDArray[np.int32]) -> None:
        self.hashes = hashes
        bits = max(len(hashes) // _BUCKET_HASHES, 1).bit_length()
        self.shift = _HASH_BITS - min(bits, _HASH_BITS)
        # The upper bits of a hash are the number of its bucket. Since the hashes are sorted, each bucket is a slice.
        edges = np.arange((1 << (_HASH_BITS - self.shift)) + 1, dtype=np.int64) << self.shift
        self.bounds = np.searchsorted(hashes, edges)

    def find(self, key_hash: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Return the positions in `key_hash` of wanted hashes, ascending."""
        places = np.empty(len(key_hash), np.int64)
        count = find_wanted(key_hash, self.hashes, self.bounds, self.shift, places)
        return places[:count]


@lru_cache(maxsize=1)
def wanted_hashes(path: str) -> HashTable:
    """Return the hashes in a file. A worker caches only the last file, because the hashes take much memory."""
    return HashTable(ArrowFile.map_array(path))


@cache
def _buffers() -> ScanBuffers:
    return ScanBuffers()


@dataclass(frozen=True, slots=True)
class _FileTask:
    """A task that finds keys in one file of a store's log.

    wanted  path of a .npy file with the hashes of the keys
    parts   the parts of the key table to look up: number and files of each
    """

    place: StorePlace
    file: CommitLogFile
    wanted: str
    parts: tuple[tuple[int, KeyPart], ...]

    @property
    def store(self) -> int:
        return self.place.number

    @property
    def weight(self) -> int:
        return 1 + self.file.size


@dataclass(frozen=True, slots=True)
class LookupScanTask(_FileTask):
    """A task: scan records that begin in [begin, stop) of the file.

    start   physical offset of the first record, or None to search for it
    only    int64, sorted: the numbers that identify the keys to find (`candidates.PART_SHIFT`); None for all keys
    """

    number: int
    begin: int
    stop: int
    start: int | None
    only: npt.NDArray[np.int64] | None = None

    @property
    def weight(self) -> int:
        return 1 + self.stop - self.begin


@dataclass(slots=True)
class ScanFound:
    """The result of a scan, and its range. `start` is None if no record begins in the range."""

    number: int
    start: int | None
    end: int
    finished: bool = False
    unreadable: str = ""
    runs: list[CandidateRun] = field(default_factory=list)
    damage: list[Finding] = field(default_factory=list)


class Hits(NamedTuple):
    """Hashes of keys that were found, and the physical offsets of their records."""

    hashes: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def run_scan_task(folder: str, edges: npt.NDArray[np.int64], task: LookupScanTask) -> ScanFound:
    """Scan a range. The task may run twice, even at the same time. Raises StoreAccessError, StoreChangedError."""
    try:
        # If the first record of the split is unknown, guess its offset. The driver compares the guess with the end of
        # the previous split, and repeats the task if the guess is wrong.
        start = task.start
        if start is None:
            with task.place.storage.open(task.file.path) as reader:
                start = find_record(reader, task.file, task.begin, task.stop)
        result = ScanFound(task.number, start, task.begin)
        if start is None:
            return result
        for hits in _scan(task, start, result):
            name = f"scan-{task.store}-{task.number}-{start}-{len(result.runs)}"
            run = write_run(
                StagedFiles.attempt_path(folder, name),
                task.store,
                SCANNED,
                edges,
                joined_hits(task.parts, hits, task.only),
            )
            if run is not None:
                result.runs.append(run)
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return ScanFound(task.number, task.start, task.stop)
    return result


def _scan(task: LookupScanTask, start: int, result: ScanFound) -> Iterator[Hits]:
    """Scan, and yield the hits in batches. At the end, store the other results of the scan in `result`."""
    hashes = wanted_hashes(task.wanted)
    scan = FileScan(
        task.file,
        start,
        task.stop,
        ScanMode.READER,
        buffers=_buffers(),
        open_file=task.place.storage.open,
    )
    waiting: list[Hits] = []
    for batch in scan.batches():
        waiting.append(_hits(hashes, batch))
        if sum(len(hits.hashes) for hits in waiting) > _RUN_HITS:
            yield _together(waiting)
            waiting = []
    yield _together(waiting)
    result.end, result.finished = scan.end.position, scan.end.finished
    result.unreadable, result.damage = scan.end.unreadable, scan.damage


def _hits(hashes: HashTable, batch: DispatchBatch) -> Hits:
    entries = hashes.find(batch.key_hash)
    rows = batch.key_row[entries]
    return Hits(batch.key_hash[entries], batch.messages["physical_offset"][rows])


def _together(waiting: list[Hits]) -> Hits:
    """Join hits, sort them by hash and offset, and drop duplicates."""
    hashes = np.concatenate([np.empty(0, np.int32), *(hits.hashes for hits in waiting)])
    offsets = np.concatenate([np.empty(0, np.int64), *(hits.offsets for hits in waiting)])
    order = np.lexsort((offsets, hashes))
    hashes, offsets = hashes[order], offsets[order]
    fresh = np.append(True, (np.diff(hashes) != 0) | (np.diff(offsets) != 0))[: len(hashes)]
    return Hits(hashes[fresh], offsets[fresh])


def joined_hits(
    parts: Sequence[tuple[int, KeyPart]], hits: Hits, only: npt.NDArray[np.int64] | None = None
) -> Iterator[tuple[int, pa.RecordBatch, Candidates]]:
    """Yield for each part of the key table: its number, its keys and its candidates, as `write_run` expects them.

    A hit consists of a hash and the offset of a record. A candidate is a hit together with a key that has the same
    hash.

    `only` has the numbers of the keys to consider (see `PART_SHIFT`); None for all keys.
    """
    for number, part in parts:
        keys = SortedKeys(part.path)
        which, rows = keys.rows_with(hits.hashes)
        offsets = hits.offsets[which]
        if only is not None:
            numbers = keys.batch.column("row").to_numpy()[rows].astype(np.int64)
            keeps = np.isin(numbers + (number << PART_SHIFT), only)
            offsets, rows = offsets[keeps], rows[keeps]
        yield number, keys.batch, Candidates(offsets, rows)


@dataclass(frozen=True, slots=True)
class ReplacedIdTask(_FileTask):
    """A task: search a log file for ids that are not in the index.

    If a record has several UNIQ_KEYs (5.x), the index has only the last one, so the earlier ids are not in it. An
    earlier scan of the file may have stored these ids (`KnownFile`). Otherwise, the file is scanned now.
    """


class ReplacedFound(NamedTuple):
    """The result of a ReplacedIdTask: runs (files of candidates), and unreadable ranges."""

    store: int
    runs: list[CandidateRun]
    damage: tuple[Finding, ...] = ()


def run_replaced_task(
    folder: str, edges: npt.NDArray[np.int64], task: ReplacedIdTask
) -> ReplacedFound:
    """Search a log file for requested ids that are not in the index (see `ReplacedIdTask`).

    The task may run twice, even at the same time. `edges` has the same meaning as in `write_run`. Raises
    StoreAccessError, StoreChangedError.
    """
    try:
        with closing(CommitLogReader(task.place.log)) as log:
            facts = KnownRanges(log).learn(task.file, with_ids=True)
    # The file has expired meanwhile.
    except StoreNotFoundError:
        return ReplacedFound(task.store, [])
    if facts.ids is None:
        return ReplacedFound(task.store, [], facts.damage)
    # Copy the hashes: kernels need writable arrays, and an array from `np.frombuffer` is read-only.
    hashes = np.frombuffer(facts.ids.hashes, np.int32).copy()
    entries = wanted_hashes(task.wanted).find(hashes)
    hits = Hits(hashes[entries], np.frombuffer(facts.ids.offsets, np.int64)[entries])
    path = StagedFiles.attempt_path(folder, f"replaced-{task.store}-{task.file.start}")
    run = write_run(path, task.store, SCANNED, edges, joined_hits(task.parts, hits))
    return ReplacedFound(task.store, [] if run is None else [run], facts.damage)


@dataclass(frozen=True, slots=True)
class InnerTask(_FileTask):
    """A task: unwrap the inner batches of some topics in the file, and compare their messages with the keys."""

    number: int
    topics: frozenset[str]


class Unwrapped(NamedTuple):
    """The result of an InnerTask: staged matches as in `Matched`, and the number of compared messages.

    damage    unreadable ranges, which may have had messages of any topic
    unopened  (topic, finding) of batches that could not be unwrapped
    """

    path: str
    store: int
    batches: list[tuple[int, int]]
    messages: int = 0
    damage: tuple[Finding, ...] = ()
    unopened: tuple[tuple[str, Finding], ...] = ()


@dataclass
class _Piece:
    """Messages of inner batches as consecutive records.

    begins   position of each record
    offsets  physical offset of the batch that contains the record
    inner    number of the record in its batch
    """

    data: bytearray = field(default_factory=bytearray)
    begins: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)


def run_inner_task(folder: str, columns: tuple[str, ...], task: InnerTask) -> Unwrapped:
    """Search inner batches. The task may run twice, even at the same time.

    Raises StoreAccessError, StoreChangedError.
    """
    path = StagedFiles.attempt_path(folder, f"inner-{task.store}-{task.number}")
    with closing(CommitLogReader(task.place.log)) as log:
        may_hold = partial(_may_hold, wanted_hashes(task.wanted))
        batches = InnerBatches(log, task.topics, may_hold, walks_first=False)
        try:
            staged = write_matches(path, columns, _matches(task, columns, batches))
        # The file has expired meanwhile.
        except StoreNotFoundError:
            return Unwrapped(path, task.store, [])
    unopened = [
        (topic, finding_of_topic)
        for topic, lost in batches.unopened.items()
        for finding_of_topic in lost
    ]
    return Unwrapped(
        path, task.store, staged, batches.searched, tuple(batches.unreadable), tuple(unopened)
    )


def _may_hold(hashes: HashTable, batch: OpenBatch) -> bool:
    # Copy the bytes, because the kernel accepts only writable arrays.
    data = np.frombuffer(bytearray(batch.data), np.uint8)
    topic = np.frombuffer(bytearray(encode_utf8(batch.outer.topic)), np.uint8)
    table = hashes.hashes, hashes.bounds, hashes.shift
    return bool(len(data) and kernel.batch_has_wanted(data, topic, *table))


def _matches(
    task: InnerTask, columns: tuple[str, ...], batches: InnerBatches
) -> Iterator[pa.RecordBatch]:
    keys = [(number, SortedKeys(part.path)) for number, part in task.parts]
    for piece in _pieces(task.file, batches):
        data = np.frombuffer(piece.data, np.uint8)
        begins = np.array(piece.begins, np.int64)
        ends = np.append(begins[1:], len(data))
        records = new_rows(len(begins), kernel.RECORD_DTYPE)
        kernel.locate_records(data, begins, ends, np.ones(len(begins), np.uint8), records)
        hashes, record_of = _wanted_entries(task, data, records)
        offsets = np.array(piece.offsets, np.int64)
        inner = np.array(piece.inner, np.int32)
        for number, part in keys:
            matches = _compared(part, data, records, hashes, record_of)
            rows, which = np.unique(matches.record, return_inverse=True)
            if not len(rows):
                continue
            decoded = Records(data, begins[rows], offsets[rows], task.place.name, True)
            places = Places(matches.number + (number << PART_SHIFT), matches.segment, which)
            yield from decoded_matches(decoded, places, task.store, columns, inner[rows])


def _pieces(file: CommitLogFile, batches: InnerBatches) -> Iterator[_Piece]:
    piece = _Piece()
    for number, located in batches.messages(file.start, file.end):
        piece.begins.append(len(piece.data))
        piece.offsets.append(located.physical_offset)
        piece.inner.append(number)
        piece.data += located.data
        if len(piece.data) >= _PIECE_BYTES:
            yield piece
            piece = _Piece()
    if piece.begins:
        yield piece


def _wanted_entries(
    task: InnerTask, data: npt.NDArray[np.uint8], records: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Return pairs of a wanted hash and the row of a record with a key of this hash, as two arrays. No pair repeats."""
    # KEYS of n bytes have at most n / 2 + 1 keys. With the unique key, a record has at most n / 2 + 2 keys.
    most = int((records["keys_bytes"] // 2 + 2).sum())
    hashes, record_of = np.empty(most, np.int32), np.empty(most, np.int64)
    count = kernel.hash_records(data, records, hashes, record_of)
    hashes, record_of = hashes[:count], record_of[:count]
    places = wanted_hashes(task.wanted).find(hashes)
    pairs = np.unique(
        np.stack([record_of[places], hashes[places].astype(np.int64)], axis=1), axis=0
    )
    return pairs[:, 1].astype(np.int32), np.ascontiguousarray(pairs[:, 0])


def _compared(
    keys: SortedKeys,
    data: npt.NDArray[np.uint8],
    records: npt.NDArray[np.void],
    hashes: npt.NDArray[np.int32],
    record_of: npt.NDArray[np.int64],
) -> Places:
    """Return pairs of a key (in `keys`, one part of the key table) and a record that matches it.

    A record matches a key if it has the key's hash, topic and text, and was stored within the key's time window.
    """
    which, rows = keys.rows_with(hashes)
    record = record_of[which]
    columns = {name: keys.batch.column(name) for name in keys.batch.schema.names}
    begin, end, hash_of, row = (
        columns[name].to_numpy()[rows] for name in ("begin", "end", "hash", "row")
    )
    topics, texts = (texts_of(columns[name].take(pa.array(rows))) for name in ("topic", "key"))
    candidates = (records["stated_offset"][record], hash_of, *topics, *texts)
    # Make the arrays read-only, because the kernel is compiled for read-only arrays.
    for array in candidates:
        array.flags.writeable = False
    verdicts = np.empty(len(rows), np.uint8)
    kernel.match_keys(data, records, np.arange(len(rows)), record, *candidates, verdicts)
    times = records["store_timestamp"][record]
    is_match = (verdicts == kernel.MATCH) & (begin <= times) & (times <= end)
    segment = np.full(int(is_match.sum()), SCANNED, np.int32)
    return Places(row[is_match].astype(np.int64), segment, record[is_match])
