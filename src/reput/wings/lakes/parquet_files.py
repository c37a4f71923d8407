"""Write rows to Parquet files in sorted row groups, so that readers find a key without reading the whole table.

A row group is sorted by topic, key and store timestamp and has a page index; `key` and `unique_key` have Bloom
filters if the installed pyarrow can write them.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from posixpath import join
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from reput.errors import StoreAccessError, explained
from reput.io import DISK, Location, Parquet, Scratch, StagedFiles
from reput.wings.lakes.data_file import DataFile, RowTally, bounds_of, read_back, tally_of, total_of
from reput.wings.lakes.partitions import SORT_COLUMNS, PartitionValues, sorted_slices

ROW_GROUP_BYTES = 96 << 20
"""Size of the rows that are sorted together, in bytes of Arrow memory. The rows come from about 64 MiB of a log."""

STAGED = ".part"
"""Suffix of staged files, so that they do not match the file patterns of readers."""
_ASIDE = ".rows"
"""Suffix of a task's file of rows that were set aside."""

LEAST_GROUP_BYTES = 2 << 20
"""A partition with fewer bytes of rows waits for more: a row group of few rows costs as much as one of thousands."""
# Limit of the open files of a task whose rows belong to many partitions.
_MOST_OPEN = 128
BLOOM_COLUMNS = ("key", "unique_key")
_BLOOM_FALSE_POSITIVES = 0.01
# These columns have a different value in nearly every row, so a dictionary would save nothing.
_NO_DICTIONARY = (
    "queue_offset", "physical_offset", "born_timestamp", "store_timestamp", "unique_key", "keys.list.element",
    "properties.key_value.value", "body", "message_id",
)  # fmt: skip


class _OpenFile(NamedTuple):
    """A file that is being written. `collected` has its metadata after the writer was closed."""

    path: Path
    writer: pq.ParquetWriter
    collected: list[pq.FileMetaData]


class _SetAside:
    """Rows of small partitions, in a file of Arrow batches, until the task has read all its rows.

    Attributes:
        batches: by partition, the numbers of its batches in the file
    """

    def __init__(self, path: Path) -> None:
        self._path, self._count = path, 0
        self._writer: pa.RecordBatchFileWriter | None = None
        self.batches: dict[PartitionValues, list[int]] = {}

    def add(self, values: PartitionValues, rows: pa.Table) -> None:
        with explained(self._path, "be written"):
            if self._writer is None:
                with DISK.native(self._path) as place:
                    self._writer = pa.ipc.new_file(place, rows.schema)
            for batch in rows.to_batches():
                self._writer.write_batch(batch)
                self.batches.setdefault(values, []).append(self._count)
                self._count += 1

    def groups(self, most_bytes: int) -> Iterator[tuple[PartitionValues, pa.Table]]:
        """Yield the rows of one partition after the other, in tables of about `most_bytes`. Then delete the file."""
        if self._writer is None:
            return
        with explained(self._path, "be read"), DISK.native(self._path) as place:
            self._writer.close()
            with pa.memory_map(place) as source:
                reader = pa.ipc.open_file(source)
                for values, numbers in self.batches.items():
                    waiting: list[pa.RecordBatch] = []
                    size = 0
                    for number in numbers:
                        waiting.append(reader.get_batch(number))
                        size += waiting[-1].nbytes
                        if size >= most_bytes:
                            yield values, pa.Table.from_batches(waiting)
                            waiting, size = [], 0
                    if waiting:
                        yield values, pa.Table.from_batches(waiting)
        self.delete()

    def delete(self) -> None:
        """Delete the file, if there is one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            DISK.delete(self._path)


class ParquetFiles:
    """Writes the rows of one task into files, one per partition.

    Rows are divided and written in groups of `ROW_GROUP_BYTES`. If a group has few rows of a partition, they are set
    aside, so that no row group is small because there are many partitions, and each row is encoded once.

    folder        folder for the files; if it is a URL of a bucket, complete files are uploaded to it
    schema        schema of the files; batches also have the columns of partitions
    partition_by  names from `reput.wings.lakes.request.PARTITIONS`
    is_reject     see DataFile
    is_fast       whether to save time: rows are not sorted, and files are not read back to verify them

    Raises StoreAccessError.
    """

    def __init__(
        self,
        folder: str,
        schema: pa.Schema,
        partition_by: Sequence[str],
        is_reject: bool = False,
        *,
        is_fast: bool = False,
    ) -> None:
        self._folder, self._schema, self._is_reject = folder, schema, is_reject
        self._partition_by, self._is_fast = partition_by, is_fast
        self._handed: dict[PartitionValues, RowTally] = {}
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._open: OrderedDict[PartitionValues, _OpenFile] = OrderedDict()
        self._files: list[DataFile] = []
        self._is_last = False
        # Local files that will be uploaded to a bucket.
        self._scratch = ExitStack()
        self._here = (
            self._scratch.enter_context(Scratch.folder())
            if Location.is_url(folder)
            else Path(folder)
        )
        self._aside = _SetAside(self._here / f"{uuid.uuid4().hex}{_ASIDE}")

    def write(self, batch: pa.RecordBatch) -> None:
        if not len(batch):
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> list[DataFile]:
        """Write the waiting rows, close the files and read them back; return the files."""
        self._is_last = True
        self._flush()
        for values, rows in self._aside.groups(ROW_GROUP_BYTES):
            for _, group in sorted_slices(rows, (), self._sort_by):
                self._write(values, group)
        while self._open:
            self._close_oldest()
        self._scratch.close()
        return self._files

    def abandon(self) -> None:
        """Close open files after an error, ignoring further errors."""
        for file in self._open.values():
            with suppress(OSError, pa.ArrowException):
                file.writer.close()
        with suppress(OSError, pa.ArrowException):
            self._aside.delete()
        self._scratch.close()

    @property
    def _sort_by(self) -> Sequence[str]:
        return () if self._is_fast else SORT_COLUMNS

    def _flush(self) -> None:
        if not self._waiting:
            return
        size, table = self._waiting_bytes, self._taken()
        count, aside = len(table), self._aside.batches
        for values, rows in sorted_slices(table, self._partition_by, self._sort_by):
            is_small = len(rows) * size < LEAST_GROUP_BYTES * count
            # Later rows of a partition follow the earlier ones, so that its rows stay in order.
            if values in aside or (is_small and not self._is_last):
                self._aside.add(values, rows)
            else:
                self._write(values, rows)

    def _write(self, values: PartitionValues, rows: pa.Table) -> None:
        file = self._file(values, len(rows))
        with explained(file.path, "be written"):
            file.writer.write_table(rows.select(self._schema.names), row_group_size=len(rows))
        if self._is_fast:
            # These files will not be read back, so their rows are counted here.
            self._handed[values] += total_of(map(tally_of, rows.to_batches()))

    def _taken(self) -> pa.Table:
        """Return the waiting rows and drop the reference to them, so that their memory is freed after sorting."""
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        return table

    def _file(self, values: PartitionValues, rows: int) -> _OpenFile:
        if values in self._open:
            self._open.move_to_end(values)
            return self._open[values]
        # Close the least recently used file. Later rows of its partition go into another file.
        if len(self._open) >= _MOST_OPEN:
            self._close_oldest()
        path = self._here / f"{uuid.uuid4().hex}{STAGED}"
        with explained(path, "be written"), DISK.native(path) as place:
            options = writer_options(self._schema, rows, is_sorted=not self._is_fast)
            collected: list[pq.FileMetaData] = []
            writer = pq.ParquetWriter(place, self._schema, metadata_collector=collected, **options)
        self._open[values] = file = _OpenFile(path, writer, collected)
        self._handed[values] = RowTally()
        return file

    def _close_oldest(self) -> None:
        values, (path, writer, collected) = self._open.popitem(last=False)
        with explained(path, "be written"):
            writer.close()
        if not Location.is_url(self._folder):
            # A commit must not name a file that a power cut could damage.
            DISK.sync_file(path)
        (metadata,) = collected
        least, greatest = bounds_of(metadata)
        tally = self._handed.pop(values)
        with explained(path, "be read"), DISK.native(path) as place:
            if not self._is_fast:
                # Count the rows of the written file, and add up their sizes and CRCs. Before the commit, these totals
                # are compared with the totals of the rows that were read from the log.
                tally = read_back(place, metadata)
            else:
                with Parquet.opened(place, metadata) as file:
                    rows = file.metadata.num_rows
                if rows != tally.rows:
                    raise StoreAccessError(
                        f"{path}: has {rows} of {tally.rows} rows; nothing was committed. "
                        "Check the disk, then repeat the operation"
                    )
        size = os.path.getsize(path)
        if Location.is_url(self._folder):
            put = StagedFiles.put if self._is_fast else StagedFiles.put_verified
            put(path, join(self._folder, path.name))
            DISK.delete(path)
        self._files.append(
            DataFile(path.name, size, tally, values, least, greatest, self._is_reject)
        )


def writer_options(schema: pa.Schema, rows: int, is_sorted: bool = True) -> Mapping[str, Any]:
    """Return arguments of `pq.ParquetWriter` for a schema and row groups of about `rows` rows."""
    names, leaves = schema.names, list(_leaf_paths(schema))
    options: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [path for path in leaves if path not in _NO_DICTIONARY],
        "write_page_index": True,
        "sorting_columns": [
            pq.SortingColumn(leaves.index(name))
            for name in SORT_COLUMNS
            if name in names and is_sorted
        ]
        or None,
    }
    if _writes_bloom_filters():
        filters = {"ndv": max(rows, 1), "fpp": _BLOOM_FALSE_POSITIVES}
        options["bloom_filter_options"] = {c: filters for c in BLOOM_COLUMNS if c in names}
    return options


@cache
def _writes_bloom_filters() -> bool:
    """Return whether the installed pyarrow can write Bloom filters."""
    return "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


def _leaf_paths(fields: Sequence[pa.Field] | pa.Schema, above: str = "") -> Iterator[str]:
    """Yield the paths of the stored columns, as pyarrow names them."""
    for field in fields:
        path, kind = f"{above}{field.name}", field.type
        if pa.types.is_struct(kind):
            yield from _leaf_paths(list(kind), f"{path}.")
        elif pa.types.is_map(kind):
            yield from _leaf_paths([kind.key_field, kind.item_field], f"{path}.key_value.")
        elif pa.types.is_list(kind):
            element = pa.field("element", kind.value_type)
            yield from _leaf_paths([element], f"{path}.list.")
        else:
            yield path
