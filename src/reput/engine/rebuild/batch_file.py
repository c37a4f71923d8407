"""Write and read staged DispatchBatches: files with the messages of a scan, for the write tasks.

    column data ... | footer (JSON) | length of the footer 8 | magic 8

The footer has the positions of the columns, the names of the queues (once for all batches) and a summary. Besides the
batches, the file has a table with one run per queue. The planner needs only these runs to decide which task writes
which entries. A run summarizes the entries that one part of the log appends to one queue: five numbers suffice to
compute the positions of the entries without reading them.

Writing these files is the bottleneck of a rebuild, so columns are compressed. A column is stored as its minimum (in the
footer) and the differences from the minimum, each in the fewest whole bytes. A constant column takes no bytes. The
columns of a batch are written by one call, and the columns that a reader asks for are read by one call. The footer is
written last, so a file without a footer is incomplete. Only the version of reput that wrote a file reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch, Queue
from reput.errors import FormatError
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE, RawEntries, new_entries
from reput.io import FileReader, FileWriter, StagedFiles
from reput.kernels.jit import new_rows
from reput.kernels.narrow_columns import find_spans, narrow, widen
from reput.kernels.queue_entries import extend_runs, lay_out_by_queue

_TRAILER = struct.Struct("<q8s")
_MAGIC = b"reput-b3"
# Bytes per stored value. A column uses the smallest width that holds all its values: 0 if they are all equal, and 8 if
# even 4 bytes are too few.
_WIDTHS = (0, 1, 2, 4)
_INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))
_ALIGNMENT = 8
# The order in which the columns of messages are stored. A task that writes queues, or an IndexFile, needs neighbouring
# columns, so that it reads hardly any others with them.
_ORDER = (
    "queue", "sys_flag", "size", "tags_code", "queue_offset", "physical_offset", "store_timestamp",
    "key_count", "key_hash",
)  # fmt: skip
# The columns of which `lay_out_by_queue` makes entries, in its order.
_ENTRY_COLUMNS = ("physical_offset", "size", "tags_code", "sys_flag", "queue", "queue_offset")
_INDEX_FIELDS = ("physical_offset", "store_timestamp", "key_count")
_MULTI = "multi."
_MULTI_COLUMNS = tuple(_MULTI + name for name in MULTI_DTYPE.names or ())
# Messages whose index entries are read at a time: their rows stay in the processor's cache.
_KEY_ROWS = 1 << 15
RUN_DTYPE = np.dtype(
    [(name, np.int64) for name in ("entries", "first", "slack", "ahead", "highest")]
)
"""The fields of a run, which summarizes the entries that one part of the log appends to a queue.

`entries` is the number of these entries; it may be 0. `kernels.queue_entries.extend_runs` explains the other fields.
"""
QueueRuns = npt.NDArray[np.void]
"""RUN_DTYPE[n]: for each of n queues, its run (the summary of the entries that one part of the log appends to it)."""


def new_runs(count: int) -> QueueRuns:
    """Return an empty run (a summary of 0 entries) for each of `count` queues."""
    runs = new_rows(count, RUN_DTYPE)
    runs[:] = np.zeros(1, RUN_DTYPE)
    return runs


def extended(runs: QueueRuns, batch: DispatchBatch) -> QueueRuns:
    """Return the runs of a part of the log and the batch that follows it, one for each queue in `batch.queues`.

    `batch.queues` must begin with the queues of `runs`, in the same order. New queues may follow.
    """
    result = new_runs(len(batch.queues))
    result[: len(runs)] = runs
    extend_runs(batch.messages, batch.multi, result)
    return result


class _Place(NamedTuple):
    """How and where the file stores a column.

    width     bytes per stored value
    least     the number that is subtracted from each value before it is stored
    position  where the stored values begin
    """

    width: int
    least: int
    position: int

    def moved(self, distance: int) -> _Place:
        return self._replace(position=self.position + distance)


class _Table(NamedTuple):
    """Columns of one integer type: the columns from `first` on of a matrix with one row per record."""

    names: Sequence[str]
    rows: npt.NDArray[Any]
    first: int


class BatchFileWriter:
    """Writes batches one after the other. The file is readable only after `finish`."""

    def __init__(self, file: FileWriter, begin: int = 0) -> None:
        """Write into `file`, from byte `begin` on."""
        self._file, self._begin, self._position = file, begin, 0
        self._batches: list[dict[str, Any]] = []
        self._queues: list[Queue] = []

    def append(self, batch: DispatchBatch) -> None:
        """Write the next batch of a scan.

        The caller must ensure that `batch.queues` begins with the queues of the earlier batches, in the same order.
        """
        self._queues = batch.queues
        tables = [
            *_tables("", batch.messages),
            _Table(("key_hash",), batch.key_hash[:, None], 0),
            *_tables(_MULTI, batch.multi),
        ]
        self._batches.append(
            {
                "rows": [len(batch.messages), len(batch.key_hash), len(batch.multi)],
                "queues": len(batch.queues),
                "columns": self._write(tables),
            }
        )

    def finish(self, summary: Any, runs: QueueRuns, facts: str = "") -> int:
        """Write the runs (summaries of the queues' entries), then the footer. Return the position after them.

        The footer contains `summary`, which may be any JSON value, and the stored form of facts about the scanned range
        (`reput.core.log.known_ranges`), or nothing.
        """
        columns = self._write(list(_tables("", runs)))
        footer = json.dumps(
            {
                "batches": self._batches, "queues": list(map(name_of, self._queues)),
                "runs": [len(runs), columns],
                "summary": summary, "facts": facts,
            }
        ).encode()  # fmt: skip
        footer += _TRAILER.pack(len(footer), _MAGIC)
        self._file.write(footer, self._begin + self._position)
        return self._begin + self._position + len(footer)

    def _write(self, tables: Sequence[_Table]) -> dict[str, _Place]:
        """Write all columns of some tables, and return their places."""
        counts = {name: len(table.rows) for table in tables for name in table.names}
        spans = {name: span for table in tables for name, span in _spans(table).items()}
        places: dict[str, _Place] = {}
        end = 0
        for name in sorted(spans, key=_rank):
            places[name] = _Place(*spans[name], end)
            end = _aligned(end + counts[name] * places[name].width)
        data = np.empty(end, np.uint8)
        for name, place in places.items():
            data[(stop := place.position + counts[name] * place.width) : _aligned(stop)] = 0
        for table in tables:
            narrow(table.rows, table.first, _matrix(places[name] for name in table.names), data)
        self._file.write(data.data, self._begin + self._position)
        begin, self._position = self._position, self._position + end
        return {name: place.moved(begin) for name, place in places.items()}


def _tables(prefix: str, rows: npt.NDArray[np.void]) -> Iterator[_Table]:
    """Yield the fields of rows, grouped by type. The fields of a type are contiguous."""
    for kind in _INTEGERS:
        fields = [name for name in rows.dtype.names or () if rows.dtype[name] == kind]
        if fields:
            yield _Table([prefix + name for name in fields], *_column(rows, fields[0]))


def _spans(table: _Table) -> dict[str, tuple[int, int]]:
    """Return the width of each column, and the number to subtract from its values."""
    if not len(table.rows):
        return dict.fromkeys(table.names, (0, 0))
    least, most = np.empty((2, len(table.names)), np.int64)
    find_spans(table.rows, table.first, least, most)
    spans = {}
    for name, low, high in zip(table.names, least.tolist(), most.tolist(), strict=True):
        width = next((width for width in _WIDTHS if (high - low) >> 8 * width == 0), 8)
        # Differences of 8 bytes would be no shorter than the values, and could overflow. So store the values.
        spans[name] = width, low if width < 8 else 0
    return spans


def _rank(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _matrix(places: Iterable[_Place]) -> npt.NDArray[np.int64]:
    """Return places as the kernels take them."""
    return np.array(list(places), np.int64).reshape(-1, len(_Place._fields))


def _column(rows: npt.NDArray[np.void], field: str) -> tuple[npt.NDArray[Any], int]:
    """Return the rows as a matrix of integers, and the number of the matrix column with the field `field`."""
    fields = rows.dtype.fields
    assert fields is not None
    dtype, start = fields[field][:2]
    columns = rows.dtype.itemsize // dtype.itemsize
    return rows.view(dtype).reshape(len(rows), columns), start // dtype.itemsize


def read_summary(path: str) -> Any:
    """Read the summary that `finish` wrote. Raises FormatError if the file was not finished."""
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        return _read_footer(reader, path)["summary"]


def read_facts(path: str) -> str:
    """Return the facts that `finish` wrote. Raises StoreAccessError, FormatError."""
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        return str(_read_footer(reader, path).get("facts", ""))


def name_of(queue: Queue) -> str:
    """Return a queue's name for a footer: one string, because JSON parses strings faster than pairs."""
    return f"{queue.queue_id} {queue.topic}"


def queue_of(name: str) -> Queue:
    """Return the queue for a name in a footer; the reverse of `name_of`."""
    # The queue id comes first, because a topic of a damaged log may contain spaces.
    queue_id, _, topic = name.partition(" ")
    return Queue(topic, int(queue_id))


def read_runs(path: str) -> tuple[list[str], QueueRuns]:
    """Return the names of a file's queues, and for each queue its run (a summary of its entries in the file).

    Raises StoreAccessError, FormatError.
    """
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        footer = _read_footer(reader, path)
        count, columns = footer["runs"]
        runs = new_rows(count, RUN_DTYPE)
        stored = _StagedColumns(reader, columns, dict.fromkeys(columns, count))
    stored.fill(runs, RUN_DTYPE.names or ())
    return footer["queues"], runs


def read_batches(
    path: str, fields: Sequence[str], selection: Collection[Queue] | None = None
) -> Iterator[DispatchBatch]:
    """Yield the batches of a file. Read only the parts of a batch that are listed in `fields`.

    `fields` lists fields of `DispatchBatch.messages`, and may also list 'key_hash' and 'multi', the other arrays of a
    DispatchBatch. Fields of `messages` that are not listed have undefined values; arrays that are not listed are empty.
    If the file has none of the queues in `selection`, no batch is yielded.
    """
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        yield from _batches(reader, path, fields, selection)


def read_section(
    path: str, start: int, stop: int, fields: Sequence[str], selection: Collection[Queue]
) -> Iterator[DispatchBatch]:
    """Yield the batches that a BatchFileWriter wrote to bytes [start, stop) of a file. See `read_batches`."""
    section = _Section(StagedFiles.read_range(path, start, stop - start))
    yield from _batches(section, path, fields, selection)


class LaidOut(NamedTuple):
    """The ConsumeQueue entries of a batch, in the form of the file, grouped by queue.

    queues   the queues of the batch
    bounds   int64[queues + 1]: queue q has entries[bounds[q]:bounds[q + 1]]
    entries  RawEntries, in the order of the log within each queue
    first    int64[queues], queue offset of each queue's first entry; undefined for a queue without entries
    end      int64[queues], physical offset at which the message of each queue's last entry ends
    """

    queues: list[Queue]
    bounds: npt.NDArray[np.int64]
    entries: RawEntries
    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]


def read_entries(path: str) -> Iterator[LaidOut]:
    """Yield the entries of each batch of a file, without the batch. Raises StoreAccessError, FormatError."""
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        footer = _read_footer(reader, path)
        every = list(map(queue_of, footer["queues"]))
        for batch in footer["batches"]:
            rows, _, multi = batch["rows"]
            stored = _StagedColumns.of_batch(reader, batch, [*_ENTRY_COLUMNS, *_MULTI_COLUMNS])
            further, queues = stored.multi(multi), every[: batch["queues"]]
            bounds, entries = np.empty(len(queues) + 1, np.int64), new_entries(rows + multi)
            first, end = np.empty((2, len(queues)), np.int64)
            places = stored.places(_ENTRY_COLUMNS)
            lay_out_by_queue(stored.data, places, rows, further, bounds, entries, first, end)
            yield LaidOut(queues, bounds, entries, first, end)


def read_index_entries(path: str) -> Iterator[DispatchBatch]:
    """Yield the batches of a file in parts that stay in the processor's cache.

    They have only the columns that an IndexFile needs, and are valid until the next part is requested. Raises
    StoreAccessError, FormatError.
    """
    with StagedFiles.reading(path) as local, FileReader(local) as reader:
        messages, multi = new_rows(_KEY_ROWS, MESSAGE_DTYPE), new_rows(0, MULTI_DTYPE)
        for batch in _read_footer(reader, path)["batches"]:
            stored = _StagedColumns.of_batch(reader, batch, (*_INDEX_FIELDS, "key_hash"))
            first_key, rows = 0, batch["rows"][0]
            for first in range(0, rows, _KEY_ROWS):
                part = messages[: min(_KEY_ROWS, rows - first)]
                stored.fill(part, _INDEX_FIELDS, first)
                hashes = np.empty(int(part["key_count"].sum()), np.int32)
                stored.fill_array(hashes, "key_hash", first_key)
                first_key += len(hashes)
                yield DispatchBatch(part, hashes, multi, [])


class _Section:
    """A section of a file, held in memory. It has the methods of FileReader that this module calls."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        buffer[:] = np.frombuffer(self._data, np.uint8, len(buffer), position)


_Readable = FileReader | _Section


class _StagedColumns:
    """Stored columns, read by one call."""

    def __init__(
        self, reader: _Readable, places: Mapping[str, Sequence[int]], counts: Mapping[str, int]
    ) -> None:
        """Read the columns of `places`, which have `counts` values."""
        columns = {name: _Place(*place) for name, place in places.items()}
        stored = [(name, place) for name, place in columns.items() if place.width and counts[name]]
        begin = min((place.position for _, place in stored), default=0)
        stops = (place.position + place.width * counts[name] for name, place in stored)
        self.data = np.empty(max(stops, default=begin) - begin, np.uint8)
        reader.read_into(self.data, begin)
        self._places = {name: place.moved(-begin) for name, place in columns.items()}

    @classmethod
    def of_batch(cls, reader: _Readable, batch: Mapping[str, Any], names: Iterable[str]) -> Self:
        """Read columns of a batch, which a footer describes."""
        rows, keys, multi = batch["rows"]
        counts = {
            name: keys if name == "key_hash" else multi if name in _MULTI_COLUMNS else rows
            for name in names
        }
        return cls(reader, {name: batch["columns"][name] for name in counts}, counts)

    def places(self, names: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return where the columns are in `data`, as the kernels take it."""
        return _matrix(self._places[name] for name in names)

    def fill(
        self, rows: npt.NDArray[np.void], fields: Sequence[str], first: int = 0, prefix: str = ""
    ) -> None:
        """Set fields of rows to the stored values from row `first` on."""
        for kind in _INTEGERS:
            names = [name for name in fields if rows.dtype[name] == kind]
            if names:
                places = self.places([prefix + name for name in names])
                columns = np.array([_column(rows, name)[1] for name in names], np.int64)
                widen(self.data, places, first, columns, _column(rows, names[0])[0])

    def fill_array(self, values: npt.NDArray[np.int32], name: str, first: int = 0) -> None:
        """Set an array to the stored values of a column from row `first` on."""
        widen(self.data, self.places([name]), first, np.zeros(1, np.int64), values[:, None])

    def multi(self, count: int) -> npt.NDArray[np.void]:
        """Return the entries in further queues of a batch, of which all columns were read."""
        rows = new_rows(count, MULTI_DTYPE)
        self.fill(rows, MULTI_DTYPE.names or (), prefix=_MULTI)
        return rows


def _batches(
    reader: _Readable, path: str, fields: Sequence[str], selection: Collection[Queue] | None
) -> Iterator[DispatchBatch]:
    footer = _read_footer(reader, path)
    every = list(map(queue_of, footer["queues"]))
    # If few queues are selected, most files have none of them. Then return before any column is read.
    if selection is not None and not any(queue in selection for queue in every):
        return
    of_messages = [name for name in fields if name not in ("key_hash", "multi")]
    has_multi, has_keys = "multi" in fields, "key_hash" in fields
    names = [
        *of_messages,
        *(("key_hash",) if has_keys else ()),
        *(_MULTI_COLUMNS if has_multi else ()),
    ]
    for batch in footer["batches"]:
        rows, keys, multi = batch["rows"]
        stored = _StagedColumns.of_batch(reader, batch, names)
        messages = new_rows(rows, MESSAGE_DTYPE)
        stored.fill(messages, of_messages)
        further = stored.multi(multi) if has_multi else new_rows(0, MULTI_DTYPE)
        key_hash = np.empty(keys if has_keys else 0, np.int32)
        if has_keys:
            stored.fill_array(key_hash, "key_hash")
        yield DispatchBatch(messages, key_hash, further, every[: batch["queues"]])


def _read_footer(reader: _Readable, path: str) -> dict[str, Any]:
    size = reader.size
    if size >= _TRAILER.size:
        length, magic = _TRAILER.unpack(reader.read(size - _TRAILER.size, _TRAILER.size))
        if magic == _MAGIC and 0 <= length <= size - _TRAILER.size:
            footer: dict[str, Any] = json.loads(reader.read(size - _TRAILER.size - length, length))
            return footer
    raise FormatError(path, size, "staged batches were not finished; delete the staging folder")
