"""Staged DispatchBatches: what a scan leaves for the writers, each column as narrow as its values allow.

    column data ... | footer (JSON) | length of the footer 8 | magic 8

Writing to a file is the scarce resource of a rebuild, so a column is stored as its least value (in the footer) and
the distances from it in the fewest whole bytes, none at all where the column is constant. The footer comes last:
a file without it was not finished. No one but the version that wrote it reads such a file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from reput.errors import FormatError
from reput.files.reader import FileReader
from reput.files.writer import FileWriter
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.kernels.rows import new_rows
from reput.log.dispatch_batch import DispatchBatch, Queue

_TRAILER = struct.Struct("<q8s")
_MAGIC = b"reput-b1"
_KINDS = ((1 << 8, "u1"), (1 << 16, "u2"), (1 << 32, "u4"))


class BatchFileWriter:
    """Writes batches one after the other to a new file; nothing is readable before `finish`."""

    def __init__(self, path: Path) -> None:
        self._file, self._position = FileWriter(path), 0
        self._batches: list[dict[str, Any]] = []

    def append(self, batch: DispatchBatch) -> None:
        columns = {name: batch.messages[name] for name in MESSAGE_DTYPE.names or ()}
        columns["key_hash"] = batch.key_hash
        columns.update({f"multi.{name}": batch.multi[name] for name in MULTI_DTYPE.names or ()})
        self._batches.append(
            {
                "rows": [len(batch.messages), len(batch.key_hash), len(batch.multi)],
                "queues": batch.queues,
                "columns": {name: self._write_column(column) for name, column in columns.items()},
            }
        )

    def finish(self, summary: Any) -> None:
        """Write the footer with `summary`, anything JSON can hold, and close."""
        footer = json.dumps({"batches": self._batches, "summary": summary}).encode()
        self._file.write(footer + _TRAILER.pack(len(footer), _MAGIC), self._position)
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write_column(self, column: npt.NDArray[Any]) -> tuple[str, int, int]:
        """Returns the kind of number, the least value, and where the numbers are."""
        if not len(column):
            return "", 0, 0
        least, span = int(column.min()), int(column.max()) - int(column.min())
        if span == 0:
            return "", least, 0
        kind = next((kind for limit, kind in _KINDS if span < limit), "i8")
        least = least if kind != "i8" else 0
        narrow = (column - least).astype(kind) if least else column.astype(kind)
        position = self._position
        self._file.write(narrow.data, position)
        self._position += narrow.nbytes
        return kind, least, position


def read_summary(path: Path) -> Any:
    """What `finish` was given. Raises FormatError when the file was not finished."""
    with FileReader(str(path)) as reader:
        return _read_footer(reader, path)["summary"]


def read_batches(path: Path, fields: Sequence[str]) -> Iterator[DispatchBatch]:
    """The batches of a file with these fields of `messages`, plus `key_hash` or `multi` if named.

    Fields not asked for hold nothing of meaning.
    """
    with FileReader(str(path)) as reader:
        for batch in _read_footer(reader, path)["batches"]:
            rows, keys, multi = batch["rows"]
            columns = batch["columns"]
            messages = new_rows(rows, MESSAGE_DTYPE)
            further = new_rows(multi if "multi" in fields else 0, MULTI_DTYPE)
            key_hash = np.empty(keys if "key_hash" in fields else 0, np.int32)
            for name in fields:
                if name == "key_hash":
                    _read_column(reader, columns[name], key_hash)
                elif name == "multi":
                    for part in MULTI_DTYPE.names or ():
                        _read_column(reader, columns[f"multi.{part}"], further[part])
                else:
                    _read_column(reader, columns[name], messages[name])
            queues = [Queue(*queue) for queue in batch["queues"]]
            yield DispatchBatch(messages, key_hash, further, queues)


def _read_column(reader: FileReader, place: tuple[str, int, int], into: npt.NDArray[Any]) -> None:
    kind, least, position = place
    if not kind:
        into[:] = least
        return
    data = np.empty(len(into) * np.dtype(kind).itemsize, np.uint8)
    reader.read_into(data, position)
    np.add(data.view(kind), least, out=into, casting="unsafe", dtype=np.int64)


def _read_footer(reader: FileReader, path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size >= _TRAILER.size:
        length, magic = _TRAILER.unpack(reader.read(size - _TRAILER.size, _TRAILER.size))
        if magic == _MAGIC and 0 <= length <= size - _TRAILER.size:
            footer: dict[str, Any] = json.loads(reader.read(size - _TRAILER.size - length, length))
            return footer
    raise FormatError(path, size, "staged batches were not finished; delete the staging folder")
