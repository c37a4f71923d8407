"""Write and read staged DispatchBatches: files with the messages of a scan, for the write tasks.

    column data ... | footer (JSON) | length of the footer 8 | magic 8

The footer has the positions of the columns, the names of the queues (once for all batches) and a summary. Besides the
batches, the file has a table with one run per queue. The planner needs only these runs to decide which task writes
which entries. A run summarizes the entries that one part of the log appends to one queue: five numbers suffice to
compute the positions of the entries without reading them.

Writing these files is the bottleneck of a rebuild, so columns are compressed. A column is stored as its minimum (in the
footer) and the differences from the minimum, each in the fewest whole bytes. A constant column takes no bytes. The
footer is written last, so a file without a footer is incomplete. Only the version of reput that wrote a file reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch, Queue
from reput.errors import FormatError
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.io import FileReader, FileWriter, StagedFiles
from reput.kernels.jit import new_rows
from reput.kernels.narrow_columns import find_spans, narrow, widen
from reput.kernels.queue_entries import summarize_runs

_TRAILER = struct.Struct("<q8s")
_MAGIC = b"reput-b2"
# Bytes per stored value. A column uses the smallest width that holds all its values: 0 if they are all equal, and 8 if
# even 4 bytes are too few.
_WIDTHS = (0, 1, 2, 4)
_INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))
RUN_DTYPE = np.dtype(
    [(name, np.int64) for name in ("entries", "first", "slack", "ahead", "highest")]
)
"""The fields of a run, which summarizes the entries that one part of the log appends to a queue.

`entries` is the number of these entries; it may be 0. `kernels.queue_entries.summarize_runs` explains the other fields.
"""
QueueRuns = npt.NDArray[np.void]
"""RUN_DTYPE[n]: for each of n queues, its run (the summary of the entries that one part of the log appends to it)."""


def new_runs(count: int) -> QueueRuns:
    """Return an empty run (a summary of 0 entries) for each of `count` queues."""
    return np.zeros(count, RUN_DTYPE)


def runs_of(batch: DispatchBatch) -> QueueRuns:
    """Return a run for each queue in `batch.queues`: a summary of the queue's entries in the batch."""
    bounds, _, queue_offset = batch.queue_entries()
    runs = new_runs(len(batch.queues))
    columns = [np.empty(len(runs), np.int64) for _ in range(4)]
    summarize_runs(bounds, queue_offset, *columns)
    runs["entries"] = np.diff(bounds)
    for name, column in zip(("first", "slack", "ahead", "highest"), columns, strict=True):
        runs[name] = column
    return runs


def joined(runs: QueueRuns, later: QueueRuns) -> QueueRuns:
    """Join the runs (summaries of entries, one per queue) of two consecutive parts of the log.

    `later` must begin with the queues of `runs`, in the same order. New queues may follow.
    """
    earlier = new_runs(len(later))
    earlier[: len(runs)] = runs
    has, goes_on = earlier["entries"] > 0, later["entries"] > 0
    result = np.where(has, earlier, later)
    joint = np.flatnonzero(has & goes_on)
    first, second = earlier[joint], later[joint]
    # `slack` and `ahead` are differences: the queue offset of an entry minus the entry's index in its run (see
    # `summarize_runs`). In the joined run, the entries of `second` come after the entries of `first`. So the indexes of
    # these later entries grow by the number of entries in `first`, and their differences shrink by this number.
    result["slack"][joint] = np.minimum(first["slack"], second["slack"] - first["entries"])
    result["ahead"][joint] = np.maximum(first["ahead"], second["ahead"] - first["entries"])
    result["highest"][joint] = np.maximum(first["highest"], second["highest"])
    result["entries"][joint] = first["entries"] + second["entries"]
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
        self._batches.append(
            {
                "rows": [len(batch.messages), len(batch.key_hash), len(batch.multi)],
                "queues": len(batch.queues),
                "columns": {
                    **self._write_fields("", batch.messages),
                    **self._write_columns(("key_hash",), batch.key_hash[:, None], 0),
                    **self._write_fields("multi.", batch.multi),
                },
            }
        )

    def finish(self, summary: Any, runs: QueueRuns, facts: str = "") -> int:
        """Write the runs (summaries of the queues' entries), then the footer. Return the position after them.

        The footer contains `summary`, which may be any JSON value, and the stored form of facts about the scanned range
        (`reput.core.log.known_ranges`), or nothing.
        """
        columns = self._write_fields("", runs)
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

    def _write_fields(self, prefix: str, rows: npt.NDArray[np.void]) -> dict[str, _Place]:
        """Write all fields of rows, grouped by type, so that the columns of a type are contiguous."""
        places: dict[str, _Place] = {}
        for kind in _INTEGERS:
            fields = [name for name in rows.dtype.names or () if rows.dtype[name] == kind]
            names = [prefix + name for name in fields]
            if fields:
                places |= self._write_columns(names, *_column(rows, fields[0]))
        return places

    def _write_columns(
        self, names: Sequence[str], rows: npt.NDArray[Any], first: int
    ) -> dict[str, _Place]:
        if not len(rows):
            return dict.fromkeys(names, _Place(0, 0, 0))
        least, most = np.empty((2, len(names)), np.int64)
        find_spans(rows, first, least, most)
        spans = zip(names, least.tolist(), most.tolist(), strict=True)
        return {
            name: self._write_column(rows, first + number, *span)
            for number, (name, *span) in enumerate(spans)
        }

    def _write_column(self, rows: npt.NDArray[Any], column: int, least: int, most: int) -> _Place:
        width = next((width for width in _WIDTHS if (most - least) >> 8 * width == 0), 8)
        # Differences of 8 bytes would be no shorter than the values, and could overflow. So store the values.
        least = least if width < 8 else 0
        data, position = np.empty(len(rows) * width, np.uint8), self._position
        narrow(rows, column, least, width, data)
        self._file.write(data.data, self._begin + position)
        self._position += data.nbytes
        return _Place(width, least, position)


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
        for name, place in columns.items():
            _read_column(reader, place, *_column(runs, name))
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


class _Section:
    """A section of a file, held in memory. It has the methods of FileReader that this module calls."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        buffer[:] = np.frombuffer(self._data, np.uint8, len(buffer), position)


_Readable = FileReader | _Section


def _batches(
    reader: _Readable, path: str, fields: Sequence[str], selection: Collection[Queue] | None
) -> Iterator[DispatchBatch]:
    footer = _read_footer(reader, path)
    every = list(map(queue_of, footer["queues"]))
    # If few queues are selected, most files have none of them. Then return before any column is read.
    if selection is not None and not any(queue in selection for queue in every):
        return
    for batch in footer["batches"]:
        rows, keys, multi = batch["rows"]
        columns = batch["columns"]
        messages = new_rows(rows, MESSAGE_DTYPE)
        further = new_rows(multi if "multi" in fields else 0, MULTI_DTYPE)
        key_hash = np.empty(keys if "key_hash" in fields else 0, np.int32)
        for name in fields:
            if name == "key_hash":
                _read_column(reader, columns[name], key_hash[:, None], 0)
            elif name == "multi":
                for part in MULTI_DTYPE.names or ():
                    _read_column(reader, columns[f"multi.{part}"], *_column(further, part))
            else:
                _read_column(reader, columns[name], *_column(messages, name))
        yield DispatchBatch(messages, key_hash, further, every[: batch["queues"]])


def _read_column(
    reader: _Readable, place: Sequence[int], into: npt.NDArray[Any], column: int
) -> None:
    width, least, position = place
    data = np.empty(len(into) * width, np.uint8)
    reader.read_into(data, position)
    widen(data, least, width, into, column)


def _read_footer(reader: _Readable, path: str) -> dict[str, Any]:
    size = reader.size
    if size >= _TRAILER.size:
        length, magic = _TRAILER.unpack(reader.read(size - _TRAILER.size, _TRAILER.size))
        if magic == _MAGIC and 0 <= length <= size - _TRAILER.size:
            footer: dict[str, Any] = json.loads(reader.read(size - _TRAILER.size - length, length))
            return footer
    raise FormatError(path, size, "staged batches were not finished; delete the staging folder")
