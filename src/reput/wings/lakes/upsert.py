"""Maintain tables that keep only the newest message of each key, like a compacted topic of RocketMQ.

Mirrors `CompactionLog.shouldRetainMsg` (tag rocketmq-all-5.3.3). Within a queue, the key is the whole property KEYS. A
message replaces older messages with the same key, and a message without a body deletes them. The newest message of a
key is the last one in the log. RocketMQ drops messages without keys; here they are rejected rows.

An export first stages all messages of a run. Then it removes superseded rows from the staged files, and rewrites
those table files that contain superseded rows. One commit replaces these table files and adds the new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.base import Runner
from reput.errors import StoreAccessError, UsageError, explained
from reput.io import Parquet
from reput.wings.lakes.commit import Commit, Destination
from reput.wings.lakes.data_file import DataFile, RowTally, tally_of, total_of
from reput.wings.lakes.merging import MergeJob, batches_of, shaped
from reput.wings.lakes.parquet_files import ParquetFiles
from reput.wings.lakes.parsed_bodies import Misfit
from reput.wings.lakes.reject_reasons import Reasons
from reput.wings.lakes.request import ExportRequest

COLUMNS = ("store", "topic", "queue_id", "keys", "physical_offset", "body")
"""Columns that every upsert table must have."""

NO_KEYS = "the message has no keys, so no later message could replace it"

Kept = npt.NDArray[np.bool_]


@runtime_checkable
class Upsertable(Protocol):
    """A destination in a folder. A commit can replace some of its files."""

    def live(self) -> tuple[list[DataFile], Path]:
        """Return the files of the table, and the folder to which their names are relative.

        Raises:
            UsageError: The table has files that no export wrote, or another program deleted rows of it.
        """

    def replace(self, commit: Commit) -> None:
        """Make a commit and remove the files that it replaces, atomically."""


def check_upsert(request: ExportRequest, destination: Destination) -> None:
    """Raise UsageError if the destination or the columns do not support upserts."""
    if request.upsert_by is None:
        return
    if not isinstance(destination, Upsertable):
        raise UsageError(
            f"{destination.name}: upsert_by needs a local table of layout iceberg or delta",
            arguments=["upsert_by", "layout"],
        )
    names = request.table_schema().names
    if missing := [name for name in COLUMNS if name not in names]:
        raise UsageError(
            f"upsert_by needs the columns {', '.join(missing)}", arguments=["upsert_by", "columns"]
        )


def split_by_keys(
    batch: pa.RecordBatch, reason: pa.Field, counted: Reasons
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Split off the rows without keys. They get a column `reason`, and are counted."""
    lengths = pc.fill_null(pc.list_value_length(batch["keys"]), 0)
    has_keys = pc.greater(lengths, 0)
    if has_keys.true_count == len(batch):
        return batch, batch.slice(0, 0)
    refused = batch.filter(pc.invert(has_keys))
    counted.add([Misfit(NO_KEYS, NO_KEYS)], len(refused))
    reasons = pa.array([NO_KEYS] * len(refused), reason.type)
    return batch.filter(has_keys), refused.append_column(reason, reasons)


class Upserted(NamedTuple):
    """The files of a commit.

    Attributes:
        files: New files, including files of rejected rows.
        replaces: Files of the table whose remaining rows are in the new files.
        rows: Number of rows of this run that are the newest of their keys.
        superseded: Number of rows of the table that newer messages have replaced or deleted.
    """

    files: list[DataFile]
    replaces: list[str]
    rows: int
    superseded: int


def upsert(
    job: MergeJob, files: Sequence[DataFile], table: Upsertable | None, runner: Runner,
    progress: Callable[[int, int], None],
) -> Upserted:  # fmt: skip
    """Keep only the newest message of each key in staged files and in the files of a table.

    Args:
        job: Folder of staged files, and their schemas.
        files: The staged files of a run.
        table: The table, or None if it has no rows yet.
        runner: Runs the tasks that rewrite files.
        progress: Called with the bytes of rewritten files.

    Raises:
        StoreAccessError: A file cannot be read or written, or has wrong rows.
    """
    rejects = [file for file in files if file.is_reject]
    staged = [file for file in files if not file.is_reject]
    identities = [_identities(Path(job.source) / file.name, file) for file in staged]
    newest, keeps = _newest(identities)
    work = [_Rewrite(job.source, file, mask) for file, mask in zip(staged, keeps, strict=True)]
    # Files without superseded rows need not be rewritten.
    whole = [item.file for item in work if item.kept.all()]
    work = [item for item in work if not item.kept.all()]
    replaces: list[str] = []
    superseded = 0
    if table is not None and len(newest):
        old, folder = table.live()
        for file in old:
            names, _, _ = _identities(folder / file.name, file)
            replaced = pc.is_in(names, value_set=newest).to_numpy(zero_copy_only=False)
            if replaced.any():
                superseded += int(replaced.sum())
                replaces.append(file.name)
                work.append(_Rewrite(str(folder), file, ~replaced))
    weights = [item.file.file_bytes for item in work]
    done = runner.run(partial(run_rewrite, job), work, weights, progress) if work else []
    written = [file for item in done for file in item]
    rows = sum(int(mask.sum()) for mask in keeps)
    return Upserted([*whole, *written, *rejects], replaces, rows, superseded)


@dataclass(frozen=True)
class _Rewrite:
    """A file to write again with some of its rows."""

    folder: str
    file: DataFile
    kept: Kept


def run_rewrite(job: MergeJob, work: _Rewrite) -> list[DataFile]:
    """Rewrite a file without its superseded rows. A second call for the same file does no harm.

    Raises:
        StoreAccessError: The rows written differ from the rows read.
    """
    if not work.kept.any():
        # All rows of the file were superseded.
        return []
    writer = ParquetFiles(job.folder, job.schema, (), is_fast=job.is_fast)
    read, start = RowTally(), 0
    try:
        for batch in batches_of(Path(work.folder) / work.file.name):
            rows = batch.filter(pa.array(work.kept[start : start + len(batch)]))
            start += len(batch)
            read += tally_of(rows)
            writer.write(shaped(rows, job.schema))
        written = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    holds = total_of(file.tally for file in written)
    if start != len(work.kept) or read.rows != work.kept.sum() or not holds.agrees_with(read):
        raise StoreAccessError(
            f"{work.folder}: {work.file.name}: its newest rows could not be copied; nothing was committed. "
            "Check the disk, then run the export again"
        )
    return [replace(file, partition=work.file.partition) for file in written]


def _identities(path: Path, file: DataFile) -> tuple[pa.Array, npt.NDArray[np.int64], Kept]:
    """Return for each row: store, queue and key as one text, the physical offset, and whether it has a body."""
    with explained(path, "be read"), Parquet.opened(path) as opened:
        there = opened.schema_arrow.names
        table = opened.read([name for name in COLUMNS if name in there], use_threads=False)
    # Files of a table that is partitioned by topic do not contain the topic.
    topic: Any = table["topic"] if "topic" in there else dict(file.partition).get("topic")
    # The separator cannot occur in topics or in KEYS, because it separates properties.
    names = pc.binary_join_element_wise(
        table["store"], topic, pc.cast(table["queue_id"], pa.string()),
        pc.binary_join(table["keys"].cast(pa.list_(pa.string())), " "), "\x02",
    )  # fmt: skip
    bodies = pc.fill_null(pc.binary_length(table["body"]), 0)
    return _flat(names), table["physical_offset"].to_numpy(), pc.greater(bodies, 0).to_numpy()


def _flat(values: pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _newest(
    files: Sequence[tuple[pa.Array, npt.NDArray[np.int64], Kept]],
) -> tuple[pa.Array, list[Kept]]:
    """Return all keys, and for each file a mask of the rows that are the newest of their keys and have a body."""
    if not files:
        return pa.array([], pa.string()), []
    encoded = (
        pa.chunked_array([names for names, _, _ in files]).combine_chunks().dictionary_encode()
    )
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = encoded.indices.to_numpy()
    places = np.concatenate([offsets for _, offsets, _ in files])
    # In this order, the newest message is the last row of its key.
    order = np.lexsort((places, codes))
    last = np.ones(len(order), np.bool_)
    last[:-1] = codes[order][1:] != codes[order][:-1]
    keeps = np.zeros(len(order), np.bool_)
    keeps[order[last]] = True
    # If the newest message of a key has no body, it deletes the key, and is not a row of the table.
    keeps &= np.concatenate([has_body for _, _, has_body in files])
    bounds = np.cumsum([len(names) for names, _, _ in files])[:-1]
    return encoded.dictionary, np.split(keeps, bounds)
