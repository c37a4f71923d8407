"""Write and merge the indexes of an archive: Parquet files with the keys and the queue entries of log files.

Keys are rows (hash of topic and key, physical offset), sorted by hash. The hash is the same as in IndexFiles, so
queries and look-ups handle rows and IndexFile items in the same way. Queue entries are sorted by queue, then in the
order of the log.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from reput import core
from reput.errors import StoreError
from reput.format import archive_index
from reput.format.archive import KEY_INDEX, QUEUE_INDEX, IndexObject, Times
from reput.format.consume_queue import BatchEntry
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.file_names import offset_file_name
from reput.io import Archive, FileReader, FileWriter, ObjectStore, OpenFile, ParquetIndex, Scratch

PARQUET_MAGIC = b"PAR1"
_MERGED_ROWS = 1 << 22
_PART_BYTES = 8 << 20
_POSITION_BITS = 31
_HASHES = 1 << 31
"""Number of possible key hashes: RocketMQ's hashes are not negative, and so have 31 bits."""

_DICTIONARIES = ("topic", "queue_id", "size", "tags_code", "batch_size")
_OF_MESSAGES = ("physical_offset", "size", "store_timestamp", "tags_code")
_DELTAS = {"queue_offset", "physical_offset", "store_timestamp"}


@dataclass
class ScannedFile:
    """The result of a scan of one log file.

    Attributes:
        messages: Number of messages.
        messages_end: Physical offset after the last message; 0 without messages.
        times: Least and greatest store time of the messages.
        is_whole: Whether the whole file was readable, and every message lies at the offset that it states.
        has_replaced_ids: See `reput.format.archive.LogFile`.
        key_hashes, key_offsets: Hash and physical offset of each key, sorted.
        queues: The queues, sorted.
        bounds: int64[queues + 1]. Queue q has the entries from bounds[q] to before bounds[q + 1].
        entries: The columns of QUEUE_SCHEMA, by name.
        unplaced: Light queues (%LMQ%) and batch queues that lack entries in the store.
        batch_queues: The batch queues (5.x) among the queues.
    """

    messages: int = 0
    messages_end: int = 0
    times: Times | None = None
    is_whole: bool = True
    has_replaced_ids: bool = False
    key_hashes: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    key_offsets: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    queues: list[core.Queue] = field(default_factory=list)
    bounds: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    entries: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    unplaced: list[core.Queue] = field(default_factory=list)
    batch_queues: set[core.Queue] = field(default_factory=set)


class _Columns(NamedTuple):
    queue: npt.NDArray[np.int64]
    queue_offset: npt.NDArray[np.int64]
    messages: dict[str, npt.NDArray[Any]]


def scan_log_file(
    open_file: OpenFile,
    file: core.CommitLogFile,
    rules: core.DispatchRules,
    store_queues: core.QueueIndex | None,
    *,
    is_last: bool,
    may_replace_ids: bool,
    batch_topics: frozenset[str] = frozenset(),
) -> ScannedFile:
    """Scan a log file for its keys and queue entries.

    Args:
        open_file: Opens the file.
        file: The file.
        rules: The rules of dispatch.
        store_queues: The store's queues, whose entries determine the queue offsets. If None, the offsets that messages
            state are used.
        is_last: Whether the log may end in this file.
        may_replace_ids: Whether records may have several UNIQ_KEYs (5.x).
        batch_topics: Topics with batch queues, whose entries are copied from the store.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    # An archive's index has keys only.
    rules = replace(rules, tags_from=None)
    scan = core.FileScan(
        file, file.start, file.end, core.ScanMode.SALVAGE, rules, open_file=open_file
    )
    scanned = ScannedFile()
    columns, hashes, offsets, least, greatest = [], [], [], [], []
    queues: list[core.Queue] = []
    for batch in scan.batches():
        messages = batch.messages
        grouped = batch.queue_entries()
        numbers = np.repeat(np.arange(len(grouped.bounds) - 1), np.diff(grouped.bounds))
        rows = {name: messages[name][grouped.rows] for name in _OF_MESSAGES}
        columns.append(_Columns(numbers, grouped.queue_offset.copy(), rows))
        hashes.append(batch.key_hash.copy())
        offsets.append(messages["physical_offset"][batch.key_row])
        scanned.messages += len(messages)
        if len(messages):
            scanned.messages_end = int(messages["physical_offset"][-1] + messages["size"][-1])
            least.append(int(messages["store_timestamp"].min()))
            greatest.append(int(messages["store_timestamp"].max()))
        queues = batch.queues
    cut = scan.end.unreadable and not is_last
    scanned.is_whole = not (scan.damage or scan.misplaced or cut)
    scanned.times = Times(min(least), max(greatest)) if least else None
    if may_replace_ids:
        scanned.has_replaced_ids = core.may_have_replaced_ids(open_file, file, ends=not is_last)
    if hashes:
        _take_keys(scanned, np.concatenate(hashes), np.concatenate(offsets), file.start)
    if columns:
        _take_entries(scanned, file, columns, queues, store_queues, batch_topics)
    return scanned


def _take_keys(
    scanned: ScannedFile,
    hashes: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    start: int,
) -> None:
    # Drop keys of damaged records, which may state any offset. Queries scan a log file that has damage, and so do not
    # need these keys.
    inside = (offsets >= start) & (offsets < start + (1 << _POSITION_BITS))
    if not inside.all():
        hashes, offsets = hashes[inside], offsets[inside]
    if len(hashes):
        hashes, offsets = _sorted_keys(hashes, offsets)
        # A message can have the same key several times. One row is enough.
        is_new = np.append(True, (np.diff(hashes) != 0) | (np.diff(offsets) != 0))
        scanned.key_hashes, scanned.key_offsets = hashes[is_new], offsets[is_new]


def _sorted_keys(
    hashes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Sort keys by hash, then by offset."""
    least, first = int(hashes.min()), int(offsets.min())
    bits = (int(offsets.max()) - first).bit_length()
    if (int(hashes.max()) - least).bit_length() + bits > 63:
        order = np.lexsort((offsets, hashes))
        return hashes[order], offsets[order]
    # Sorting numbers takes a fifth of the time of sorting rows, so hash and offset are combined into one.
    keys = (hashes.astype(np.int64) - least) << bits | offsets - first
    keys.sort()
    return ((keys >> bits) + least).astype(np.int32), (keys & (1 << bits) - 1) + first


def _take_entries(
    scanned: ScannedFile,
    file: core.CommitLogFile,
    columns: Sequence[_Columns],
    queues: Sequence[core.Queue],
    store_queues: core.QueueIndex | None,
    batch_topics: frozenset[str],
) -> None:
    number = np.concatenate([part.queue for part in columns])
    queue_offsets = np.concatenate([part.queue_offset for part in columns])
    sorted_queues = sorted(range(len(queues)), key=lambda index: queues[index])
    rank = np.empty(len(queues), np.int64)
    rank[sorted_queues] = np.arange(len(queues))
    place_of = rank[number]
    if len(queues) < 1 << 15:
        place_of = place_of.astype(np.int16)  # NumPy uses radix sort for 16-bit integers.
    order = np.argsort(place_of, kind="stable")
    bounds = np.searchsorted(place_of[order], np.arange(len(queues) + 1))
    queue_offsets = queue_offsets[order]
    messages = {
        name: np.concatenate([part.messages[name] for part in columns])[order]
        for name in _OF_MESSAGES
    }
    sizes = np.ones(len(order), np.int16)
    rows_of_queues: list[npt.NDArray[np.int64]] = []
    ends = [0]
    for place, of in enumerate(sorted_queues):
        queue, rows = queues[of], slice(bounds[place], bounds[place + 1])
        if rows.start == rows.stop:
            continue
        places = messages["physical_offset"][rows]
        is_batch = queue.topic in batch_topics
        numbers: npt.NDArray[np.int64] | None
        if is_batch and (batches := _own_batches(store_queues, queue, file, places)) is not None:
            numbers, sizes[rows] = batches
            scanned.batch_queues.add(queue)
        else:
            numbers = _own_numbers(store_queues, queue, file, places)
        # Messages of light queues (LMQ) and batch queues do not state their queue offset. All other messages do.
        if numbers is None and (is_batch or core.is_light(queue.topic)):
            scanned.unplaced.append(queue)
            continue
        if numbers is not None:
            queue_offsets[rows] = numbers
        numbered = np.arange(rows.start, rows.stop)[queue_offsets[rows] >= 0]
        if len(numbered):
            scanned.queues.append(queue)
            rows_of_queues.append(numbered)
            ends.append(ends[-1] + len(numbered))
    selection = np.concatenate(rows_of_queues) if rows_of_queues else np.empty(0, np.int64)
    scanned.bounds = np.array(ends, np.int64)
    scanned.entries = {"queue_offset": queue_offsets, "batch_size": sizes, **messages}
    if len(selection) < len(order):
        scanned.entries = {name: values[selection] for name, values in scanned.entries.items()}


def _own_numbers(
    store_queues: core.QueueIndex | None,
    queue: core.Queue,
    file: core.CommitLogFile,
    offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64] | None:
    """Return the queue offsets of the store's entries for these messages; None if an entry is missing."""
    if store_queues is None:
        return None
    with suppress(StoreError):
        reader: core.QueueReader = store_queues.queue(queue.topic, queue.queue_id)
        if reader.kind is core.BATCH_QUEUE:
            return None
        first, stop = reader.min_queue_offset(file.start), reader.min_queue_offset(file.end)
        entries = np.frombuffer(b"".join(reader.entry_bytes(first, stop)), ENTRY_DTYPE)
        places = entries["physical_offset"].astype(np.int64)
        numbers = first + np.arange(len(places), dtype=np.int64)
        # A queue in RocksDB may have gaps, so read it entry by entry.
        if len(places) < stop - first:
            pairs = [(number, entry[0]) for number, entry in reader.numbered(first, stop)]
            numbers, places = np.array(pairs, np.int64).reshape(-1, 2).T
        # The usual case: the queue has entries of exactly these messages, in log order.
        if np.array_equal(places, offsets):
            return numbers
        order = np.argsort(places, kind="stable")
        at = np.minimum(np.searchsorted(places[order], offsets), max(len(places) - 1, 0))
        if len(places) and np.array_equal(places[order][at], offsets):
            return numbers[order][at]
    return None


def _own_batches(
    store_queues: core.QueueIndex | None,
    queue: core.Queue,
    file: core.CommitLogFile,
    offsets: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int16]] | None:
    """Return base offsets and sizes of the batches at physical `offsets`, from the store's queue.

    Return None if the queue lacks an entry for one of them.
    """
    if store_queues is None:
        return None
    with suppress(StoreError):
        reader = store_queues.queue(queue.topic, queue.queue_id)
        first, stop = reader.min_queue_offset(file.start), reader.min_queue_offset(file.end)
        entries = {
            entry.physical_offset: (entry.base_offset, entry.batch_size)
            for _, entry in reader.numbered(first, stop)
            if isinstance(entry, BatchEntry)
        }
        batches = [entries.get(offset) for offset in offsets.tolist()]
        if None not in batches:
            bases, sizes = np.array(batches, np.int64).T
            return bases, sizes.astype(np.int16)
    return None


class IndexWriter:
    """Writes one index into a local file. `finish` returns its manifest entry."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind
        self._sink = _Sink(FileWriter(path, size=0))
        schema = archive_index.KEY_SCHEMA if kind == KEY_INDEX else archive_index.QUEUE_SCHEMA
        encodings = (
            {"key_hash": "DELTA_BINARY_PACKED", "physical_offset": "BYTE_STREAM_SPLIT"}
            if kind == KEY_INDEX
            else dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED")
        )
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression="zstd", compression_level=3,
            use_dictionary=list(_DICTIONARIES) if kind == QUEUE_INDEX else [],
            column_encoding=encodings, store_schema=False,
        )  # fmt: skip
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._rows = 0
        self._digests: list[str] = []
        self._queues: list[archive_index.QueueRows] = []

    def add(self, rows: pa.Table) -> None:
        """Append rows. They are written as soon as several row groups are complete."""
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= 4 * archive_index.GROUP_ROWS:
            self._write(self._waiting_rows // archive_index.GROUP_ROWS * archive_index.GROUP_ROWS)

    def add_queue(self, queue: archive_index.QueueRows) -> None:
        """Begin a queue. The rows added next belong to it."""
        self._queues.append(queue._replace(row=self._rows + self._waiting_rows))

    def _write(self, rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        for start in range(0, rows, archive_index.GROUP_ROWS):
            part = waiting.slice(start, min(archive_index.GROUP_ROWS, rows - start))
            self._writer.write_table(part, row_group_size=archive_index.GROUP_ROWS)
            self._digests.append(self._sink.take_digest())
        self._rows += rows
        self._waiting, self._waiting_rows = [waiting.slice(rows)], self._waiting_rows - rows

    def finish(self, begin: int, end: int, files: int) -> IndexObject:
        """Complete the index. It covers log files from physical offset `begin` to `end`; `files` is their number."""
        if self._waiting_rows:
            self._write(self._waiting_rows)
        pairs = {archive_index.DIGESTS.decode(): json.dumps(self._digests)}
        if self._kind == QUEUE_INDEX:
            pairs[archive_index.QUEUES.decode()] = archive_index.packed(self._queues).decode()
        self._writer.add_key_value_metadata(pairs)
        self._sink.take_digest()
        self._writer.close()
        footer = self._sink.last
        self._sink.close()
        name = f"{self._kind}/{offset_file_name(begin)}-{offset_file_name(end)}-{uuid.uuid4().hex}.parquet"
        return IndexObject(
            begin, end, files, name, self._sink.size, self._rows, len(footer),
            hashlib.sha256(footer).hexdigest(),
        )  # fmt: skip

    def abandon(self) -> None:
        self._sink.close()


class _Sink:
    """A file to which pyarrow's writer writes. It computes the digest of each row group."""

    def __init__(self, file: FileWriter) -> None:
        self._file, self.size = file, 0
        self._since: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> int:
        written = bytes(data)
        # If pyarrow's writer is deleted before the file is finished, it tries to complete the file. Ignore what it
        # writes then.
        if self.closed:
            return len(written)
        self._since.append(written)
        self._file.write(written, self.size)
        self.size += len(written)
        return len(written)

    def take_digest(self) -> str:
        """Return the digest of the row group that was just written."""
        data = self.last
        # Magic bytes precede the first row group of a Parquet file. The digest of the row group excludes them.
        if self.size == len(data):
            data = data[len(PARQUET_MAGIC) :]
        self._since = []
        return hashlib.sha256(data).hexdigest()

    @property
    def last(self) -> bytes:
        return b"".join(self._since)

    def tell(self) -> int:
        return self.size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        self.closed = True


def write_keys(path: Path, scanned: ScannedFile, begin: int, end: int) -> IndexObject:
    """Write the keys of one log file into a local file."""
    writer = IndexWriter(path, KEY_INDEX)
    writer.add(_keys_of(scanned.key_hashes, scanned.key_offsets))
    return writer.finish(begin, end, 1)


def _keys_of(hashes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> pa.Table:
    return pa.table([pa.array(hashes), pa.array(offsets)], schema=archive_index.KEY_SCHEMA)


def write_queues(path: Path, scanned: ScannedFile, begin: int, end: int) -> IndexObject:
    """Write the queue entries of one log file into a local file."""
    writer = IndexWriter(path, QUEUE_INDEX)
    bounds = scanned.bounds.tolist()
    for queue, start, stop in zip(scanned.queues, bounds[:-1], bounds[1:], strict=True):
        numbers, sizes = (
            scanned.entries[name][start:stop] for name in ("queue_offset", "batch_size")
        )
        writer.add_queue(_rows_of(queue, numbers, sizes, is_batch=queue in scanned.batch_queues))
        writer.add(
            _entries_of(
                queue, {name: values[start:stop] for name, values in scanned.entries.items()}
            )
        )
    return writer.finish(begin, end, 1)


def _rows_of(
    queue: core.Queue,
    numbers: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int16],
    *,
    is_batch: bool,
) -> archive_index.QueueRows:
    follows = not is_batch and bool((np.diff(numbers) == 1).all())
    greatest = int((numbers + sizes).max()) - 1
    return archive_index.QueueRows(
        *queue, 0, len(numbers), int(numbers.min()), greatest, follows, is_batch
    )


def _entries_of(queue: core.Queue, columns: dict[str, npt.NDArray[Any]]) -> pa.Table:
    count = len(columns["queue_offset"])
    times = pa.array(columns["store_timestamp"]).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        [
            pa.repeat(pa.scalar(queue.topic, pa.string()), count),
            pa.repeat(pa.scalar(queue.queue_id, pa.int32()), count),
            pa.array(columns["queue_offset"]), pa.array(columns["physical_offset"]), pa.array(columns["size"]),
            times, pa.array(columns["tags_code"]), pa.array(columns["batch_size"]),
        ],
        schema=archive_index.QUEUE_SCHEMA,
    )  # fmt: skip


def merge_indexes(
    archive: Archive,
    parts: Sequence[IndexObject],
    kind: str,
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> IndexObject:
    """Merge indexes of consecutive log files into one, and upload it as a new object.

    `change` is applied to all rows, and must keep their order. It may drop rows from an index of keys, but not from an
    index of queues.

    Raises FormatError, StoreNotFoundError, StoreAccessError.
    """
    with Scratch.folder() as folder:
        path = Path(folder, kind)
        writer = IndexWriter(path, kind)
        try:
            _merge(archive, [archive.index(part) for part in parts], writer, kind, change)
            index = writer.finish(parts[0].begin, parts[-1].end, sum(part.files for part in parts))
        finally:
            writer.abandon()
        return upload_index(archive.objects, index, path)


def _merge(
    archive: Archive,
    indexes: Sequence[ParquetIndex],
    writer: IndexWriter,
    kind: str,
    change: Callable[[pa.Table], pa.Table],
) -> None:
    if kind == KEY_INDEX:
        for table in _merged_keys(archive, indexes):
            writer.add(change(table))
    else:
        _merge_queues(archive, indexes, writer, change)


def upload_index(objects: ObjectStore, index: IndexObject, path: Path) -> IndexObject:
    """Upload an index file in parts. `index` states the name and the size of the uploaded object. Return `index`."""

    def chunks() -> Iterator[bytes]:
        with FileReader(str(path)) as file:
            for at in range(0, index.object_bytes, _PART_BYTES):
                yield file.read(at, min(_PART_BYTES, index.object_bytes - at))

    objects.upload(index.object, chunks())
    return index


def _merged_keys(archive: Archive, indexes: Sequence[ParquetIndex]) -> Iterator[pa.Table]:
    """Yield all keys in order. Each step merges one range of hashes, so that memory does not grow with the archive."""
    rows = sum(index.part.rows for index in indexes)
    slices = max(-(-rows // _MERGED_ROWS), 1)
    edges = [_HASHES * number // slices for number in range(slices + 1)]
    for low, high in itertools.pairwise(edges):
        tables = [
            archive.group(index, group, is_kept=False)
            for index in indexes
            for group in range(len(index.ranges))
            if index.least_hashes[group] < high and low <= index.greatest_hashes[group]
        ]
        if not tables:
            continue
        hashes = np.concatenate([table.column("key_hash").to_numpy() for table in tables])
        offsets = np.concatenate([table.column("physical_offset").to_numpy() for table in tables])
        inside = (low <= hashes) & (hashes < high)
        if inside.any():
            yield _keys_of(*_sorted_keys(hashes[inside], offsets[inside]))


def _merge_queues(
    archive: Archive,
    indexes: Sequence[ParquetIndex],
    writer: IndexWriter,
    change: Callable[[pa.Table], pa.Table],
) -> None:
    by_queue: dict[tuple[str, int], list[tuple[int, archive_index.QueueRows]]] = {}
    for number, index in enumerate(indexes):
        for rows in index.queues:
            by_queue.setdefault((rows.topic, rows.queue_id), []).append((number, rows))
    readers = [_QueueRowReader(archive, index) for index in indexes]
    for name in sorted(by_queue):
        parts = by_queue[name]
        every = [rows for _, rows in parts]
        follows = all(rows.follows and not rows.is_batch for rows in every) and all(
            before.greatest + 1 == after.least for before, after in itertools.pairwise(every)
        )
        writer.add_queue(
            archive_index.QueueRows(
                *name, 0, sum(rows.rows for rows in every), min(rows.least for rows in every),
                max(rows.greatest for rows in every), follows, any(rows.is_batch for rows in every),
            )
        )  # fmt: skip
        for number, rows in parts:
            for table in readers[number].take(rows.row, rows.rows):
                writer.add(change(table))


class _QueueRowReader:
    """Reads the rows of one index in ascending order, and keeps the current row group."""

    def __init__(self, archive: Archive, index: ParquetIndex) -> None:
        self._archive, self._index = archive, index
        self._group, self._table = -1, None

    def take(self, row: int, rows: int) -> Iterable[pa.Table]:
        starts = self._index.row_starts
        while rows:
            group = int(np.searchsorted(starts, row, "right")) - 1
            if group != self._group:
                self._group, self._table = (
                    group,
                    self._archive.group(self._index, group, is_kept=False),
                )
            at = row - int(starts[group])
            part = self._table.slice(at, rows)  # type: ignore[attr-defined]
            yield part
            row, rows = row + len(part), rows - len(part)
