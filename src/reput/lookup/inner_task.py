"""Messages of inner batches (5.x), which no index has: those of one file of the log, unwrapped and compared at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.errors import StoreNotFoundError
from reput.findings import Finding
from reput.format.java_string import encode_utf8
from reput.kernels import key_match as kernel
from reput.kernels.rows import new_rows
from reput.log.files import CommitLogFile
from reput.log.reader import CommitLogReader
from reput.lookup.candidates import PART_SHIFT, SCANNED
from reput.lookup.key_parts import KeyPart, SortedKeys, texts_of
from reput.lookup.matches import Places, decoded_matches, write_matches
from reput.lookup.place import StorePlace
from reput.lookup.scan_task import HashTable, wanted_hashes
from reput.messages.decode import Records
from reput.messages.inner_batch import OpenBatch
from reput.query.inner_batches import InnerBatches

_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class InnerTask:
    """Unwrap the inner batches of some topics in one file, and compare their messages with the keys.

    wanted  path of the keys' hashes, as np.save has written them
    """

    place: StorePlace
    number: int
    file: CommitLogFile
    topics: frozenset[str]
    wanted: str
    parts: tuple[tuple[int, KeyPart], ...]

    @property
    def store(self) -> int:
        return self.place.number

    @property
    def weight(self) -> int:
        return 1 + self.file.size


class Unwrapped(NamedTuple):
    """Staged matches as `Matched` has them; how many messages were compared.

    damage    what could not be read, of any topic
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
    """Messages as records, one after the other: where each begins, its batch's offset, its number in that."""

    data: bytearray = field(default_factory=bytearray)
    begins: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    inner: list[int] = field(default_factory=list)


def run_inner_task(folder: str, columns: tuple[str, ...], task: InnerTask) -> Unwrapped:
    """Safe to run twice, and beside itself. Raises StoreAccessError, StoreChangedError."""
    path = Path(folder) / f"inner-{task.store}-{task.number}"
    with closing(CommitLogReader(task.place.log)) as log:
        may_hold = partial(_may_hold, wanted_hashes(task.wanted))
        batches = InnerBatches(log, task.topics, may_hold, walks_first=False)
        try:
            staged = write_matches(path, columns, _matches(task, columns, batches))
        except StoreNotFoundError:  # expired meanwhile
            return Unwrapped(str(path), task.store, [])
    unopened = [(topic, one) for topic, lost in batches.unopened.items() for one in lost]
    return Unwrapped(
        str(path), task.store, staged, batches.searched, tuple(batches.unreadable), tuple(unopened)
    )


def _may_hold(wanted: HashTable, batch: OpenBatch) -> bool:
    data = np.frombuffer(bytearray(batch.data), np.uint8)
    topic = np.frombuffer(bytearray(encode_utf8(batch.outer.topic)), np.uint8)
    table = wanted.hashes, wanted.bounds, wanted.shift
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
            found = _compared(part, data, records, hashes, record_of)
            rows, which = np.unique(found.record, return_inverse=True)
            if not len(rows):
                continue
            decoded = Records(data, begins[rows], offsets[rows], task.place.path, True)
            places = Places(found.number + (number << PART_SHIFT), found.segment, which)
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
    """Hashes that some key has, and the record of each; the same of one record once."""
    most = int((records["keys_bytes"] // 2 + 2).sum())
    hashes, record_of = np.empty(most, np.int32), np.empty(most, np.int64)
    count = kernel.hash_records(data, records, hashes, record_of)
    hashes, record_of = hashes[:count], record_of[:count]
    found = wanted_hashes(task.wanted).find(hashes)
    pairs = np.unique(np.stack([record_of[found], hashes[found].astype(np.int64)], axis=1), axis=0)
    return pairs[:, 1].astype(np.int32), np.ascontiguousarray(pairs[:, 0])


def _compared(
    keys: SortedKeys,
    data: npt.NDArray[np.uint8],
    records: npt.NDArray[np.void],
    hashes: npt.NDArray[np.int32],
    record_of: npt.NDArray[np.int64],
) -> Places:
    """Keys of a part with their records: the same hash, topic and key, stored within the key's times."""
    place = np.searchsorted(keys.hashes, hashes)
    there = np.flatnonzero(place < len(keys.hashes))
    there = there[keys.hashes[place[there]] == hashes[there]]
    which, rows = keys.rows_of(place[there])
    record = record_of[there][which]
    columns = {name: keys.batch.column(name) for name in keys.batch.schema.names}
    begin, end, hash_of, row = (
        columns[name].to_numpy()[rows] for name in ("begin", "end", "hash", "row")
    )
    topics, texts = (texts_of(columns[name].take(pa.array(rows))) for name in ("topic", "key"))
    candidates = (records["stated_offset"][record], hash_of, *topics, *texts)
    for array in candidates:  # as those of staged candidates are, for which the kernel is compiled
        array.flags.writeable = False
    verdicts = np.empty(len(rows), np.uint8)
    kernel.match_keys(data, records, np.arange(len(rows)), record, *candidates, verdicts)
    stored = records["store_timestamp"][record]
    is_match = (verdicts == kernel.MATCH) & (begin <= stored) & (stored <= end)
    segment = np.full(int(is_match.sum()), SCANNED, np.int32)
    return Places(row[is_match].astype(np.int64), segment, record[is_match])
