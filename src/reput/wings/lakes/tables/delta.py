"""Write a Delta table without a JVM: pyarrow writes the files, and deltalake the transaction.

A commit contains the state twice. `commitInfo` has the whole state, but may be removed with the table's history. The
transaction identifiers, one per store, have only the exported offsets, but are never removed. Rejected rows go into a
separate Delta table, which is committed after the messages. If a run dies between the two commits, the next run makes
the second one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    CommitProperties,
    Schema,
    Transaction,
    WriterProperties,
    transaction,
)
from deltalake import DeltaTable as Table
from deltalake.exceptions import CommitFailedError

from reput.base import now_ms
from reput.engine.tables import ReadMark
from reput.errors import MissingExtraError, UsageError
from reput.io import Location, Parquet
from reput.wings.lakes.body_shape import NOTHING
from reput.wings.lakes.commit import Commit, Staged, State, explained_by, with_column_shape
from reput.wings.lakes.compaction import Rewrite
from reput.wings.lakes.data_file import DataFile, RowTally
from reput.wings.lakes.lake_bucket import CONTROL_FOLDER, LakeBucket
from reput.wings.lakes.merging import most_small_files
from reput.wings.lakes.parquet_files import BLOOM_COLUMNS
from reput.wings.lakes.request import ExportRequest
from reput.wings.lakes.table_files import BucketFiles, FolderFiles, TableFiles
from reput.wings.lakes.tables.parquet import MOST_NAME_BYTES, OLD_REJECTS, hive_folders, without

_STATE = "reput"
_TRANSACTION = "reput:"
_FENCE = "reput"
"""Application id in every commit of an export. Concurrent transactions conflict if they have the same id."""
_BEGUN = "reput.begun"
"""Marks the Delta commit with which an export created the empty table, before it committed messages."""
_DATA = "data"
_DERIVED = {"day": pa.date32(), "hour": pa.string()}


class _Delta:
    """See `reput.wings.lakes.commit.Destination`."""

    def __init__(self, files: TableFiles) -> None:
        self.name, self._files = files.name, files
        self.layout, self.table = "delta", "messages"
        self.known_by: tuple[str, ...] = ("_delta_log",)
        # The table feature typeWidening is not used, because few readers support it.
        self.widens = NOTHING
        self._rows, self._rejects = _DeltaPlace(files, ""), _DeltaPlace(files, f"{OLD_REJECTS}/")
        self._schema = self._reject_schema = pa.schema([])
        self._partition_by: list[str] = []

    def state(self, stores: Sequence[str]) -> State | None:
        table = self._rows.open()
        if table is None:
            return None
        with _explained(self.name):
            history = table.history()
            text = _last_state(self.name, history)
            columns = pa.schema(table.schema())
            if text is not None:
                return with_column_shape(State.from_text(text, self.name), columns, self.name)
            # The part of the history that contained the state of the exports was removed. The transaction identifiers
            # remain.
            ends = {store: table.transaction_version(_TRANSACTION + store) for store in stores}
        marks = {store: ReadMark(end) for store, end in ends.items() if end is not None}
        # An export created this table and died before its first commit.
        if not marks and any(_BEGUN in commit for commit in history) and not table.file_uris():
            return None
        if not marks:
            raise UsageError(
                f"{self.name}: a Delta table without exports of these stores; name another folder"
            )
        return with_column_shape(State("", marks), columns, self.name)

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        self._partition_by, self._reject_schema = list(request.partition_by), reject_schema
        extra = [(name, _DERIVED[name]) for name in request.partition_by if name in _DERIVED]
        texts = [name for name in request.text_partitions if name not in schema.names]
        extra = [*((name, pa.string()) for name in texts), *extra]
        self._schema = pa.schema([*schema, *(pa.field(*column) for column in extra)])
        return without(schema, request.partition_by), reject_schema

    @staticmethod
    def why_no_partition(column: str, text: str) -> str:
        return (
            "" if text else f"a Delta table cannot distinguish an empty {column} from no {column}"
        )

    def publish(self, commit: Commit, staged: Staged) -> None:
        self._files.bring(self._places(commit), staged)

    def commit(self, commit: Commit) -> None:
        files = commit.numbered(is_reject=False)
        self._rows.commit(self._schema, self._partition_by, files, commit.state)

    def has(self, run: str) -> bool:
        table = self._rows.open()
        return table is not None and _has(table, run, self.name)

    def finish(self, commit: Commit, staged: Staged) -> None:
        files = commit.numbered(is_reject=True)
        if files:
            schema = self._reject_schema
            if not len(schema):
                # An earlier run wrote the files and died, so their schema is not known here.
                schema = self._files.schema_of(f"{OLD_REJECTS}/{_path_of(*files[0])}")
            self._rejects.commit(schema, [], files, commit.state)

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """See `reput.wings.lakes.compaction.Compactable`. deltalake rewrites the files and commits them itself."""
        table = self._rows.open()
        if table is None:
            return 0, 0
        with _explained(self.name):
            done = table.optimize.compact(
                target_size=target_bytes, writer_properties=_writer_properties()
            )
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def most_small_files(self, target_bytes: int) -> int:
        """See `reput.wings.lakes.compaction.CountsSmallFiles`."""
        table = self._rows.open()
        if table is None:
            return 0
        with _explained(self.name):
            actions = pa.table(table.get_add_actions(flatten=True))
        names = [name for name in actions.schema.names if name.startswith("partition.")]
        columns = [actions[name].to_pylist() for name in ("size_bytes", *names)]
        # Only sizes and partitions are needed to count small files.
        files = [
            DataFile("", size, RowTally(), tuple(zip(names, map(str, values), strict=True)), {}, {})
            for size, *values in zip(*columns, strict=True)
        ]
        return most_small_files(files, target_bytes)

    def discard(self, commit: Commit) -> None:
        self._files.remove(name for name, _ in self._places(commit))

    def datasets(self) -> list[Any]:
        """See `reput.wings.lakes.tables.opening.ReadableDestination`."""
        tables = (place.open() for place in (self._rows, self._rejects))
        with _explained(self.name):
            datasets = [table.to_pyarrow_dataset() for table in tables if table is not None]
        for dataset in datasets:
            Parquet.check(dataset, has_pages=not Location.is_url(self.name))
        return datasets

    def _places(self, commit: Commit) -> list[tuple[str, DataFile]]:
        return [
            (f"{below}{_path_of(name, file)}", file)
            for below, is_reject in (("", False), (f"{OLD_REJECTS}/", True))
            for name, file in commit.numbered(is_reject)
        ]


class DeltaTable(_Delta):
    """A table in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderFiles(folder))
        self.folder, self.control = folder, folder / CONTROL_FOLDER

    def live(self) -> tuple[list[DataFile], Path]:
        """See `reput.wings.lakes.upsert.Upsertable`."""
        table = self._rows.open()
        if table is None:
            return [], self.folder
        with _explained(self.name):
            actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
            is_changed = "deletionVectors" in (table.protocol().writer_features or ())
        if is_changed:
            raise UsageError(
                f"{self.name}: another program has enabled deletion vectors for this table, so an export "
                "cannot replace its rows; export to another place"
            )
        return [
            DataFile(
                unquote(file["path"]), file["size_bytes"], RowTally(file["num_records"], None, None),
                tuple((name, _text(file.get(f"partition.{name}"))) for name in self._partition_by), {}, {},
            )
            for file in actions
        ], self.folder  # fmt: skip

    def replace(self, commit: Commit) -> None:
        """See `reput.wings.lakes.upsert.Upsertable`.

        Raises MissingExtraError if the installed version of deltalake cannot remove files.
        """
        files = commit.numbered(is_reject=False)
        self._rows.commit(self._schema, self._partition_by, files, commit.state, commit.replaces)


class DeltaBucketTable(_Delta):
    """A table in a bucket. See `reput.wings.lakes.control.BucketDestination`."""

    def __init__(self, bucket: LakeBucket) -> None:
        super().__init__(BucketFiles(bucket))
        self.bucket = bucket

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        """See Destination. Creates the table, because `fence` needs one."""
        schemas = super().prepare(request, schema, reject_schema)
        self._rows.create(self._schema, self._partition_by)
        return schemas

    def fence(self) -> None:
        """See BucketDestination. Of two transactions with the same application id, Delta accepts only the first."""
        self._rows.fence()


def _writer_properties() -> Any:
    """Return settings that make files written by deltalake as similar to an export's files as possible."""
    filtered = ColumnProperties(bloom_filter_properties=BloomFilterProperties(True))
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        column_properties=dict.fromkeys(BLOOM_COLUMNS, filtered),
    )


class _DeltaPlace:
    """One Delta table of an export, at a place below the folder or URL of the export."""

    def __init__(self, files: TableFiles, below: str) -> None:
        self._files, self._below = files, below
        self._place = files.place(below.rstrip("/"))

    def open(self) -> Table | None:
        """Return the table, or None if it does not exist."""
        settings = dict(self._files.settings())
        with _explained(self._place):
            if not Table.is_deltatable(self._place, settings):
                return None
            return Table(self._place, storage_options=settings)

    def create(self, schema: pa.Schema, partition_by: list[str]) -> None:
        """Create the table without rows if it does not exist."""
        if self.open() is None:
            self._create(schema, partition_by, [], {"custom_metadata": {_BEGUN: "1"}})

    def _create(
        self,
        schema: pa.Schema,
        partition_by: list[str],
        actions: list[Any],
        properties: dict[str, Any],
    ) -> None:
        with _explained(self._place):
            transaction.create_table_with_add_actions(
                self._place, Schema.from_arrow(schema), actions, partition_by=partition_by,
                commit_properties=CommitProperties(**properties),
                storage_options=dict(self._files.settings()),
            )  # fmt: skip

    def fence(self) -> None:
        """Make a commit, so that every unfinished commit on an earlier version fails with a conflict."""
        table = self.open()
        if table is not None:
            with _explained(self._place):
                partition_by = table.metadata().partition_columns
                properties = CommitProperties(app_transactions=[_fence_of(now_ms())])
                table.create_write_transaction(
                    [], "append", table.schema(), partition_by=partition_by,
                    commit_properties=properties,
                )  # fmt: skip

    def commit(
        self,
        schema: pa.Schema,
        partition_by: list[str],
        files: Sequence[tuple[str, DataFile]],
        state: State,
        gone: Sequence[str] = (),
    ) -> None:
        """Add files and state, and remove files, in one transaction.

        Does nothing if the table already has the run's commit.
        """
        now = now_ms()
        properties: dict[str, Any] = {
            "custom_metadata": {_STATE: state.as_text()},
            "app_transactions": [
                _fence_of(now),
                *(
                    Transaction(_TRANSACTION + store, mark.end, now)
                    for store, mark in state.marks.items()
                ),
            ],
        }
        actions = [_add_action(name, file, now) for name, file in files]
        if gone:
            actions += _remove_actions(gone, now)
        table = self.open()
        if table is None:
            self._files.check_owner()
            self._create(schema, partition_by, actions, properties)
            return
        with _explained(self._place):
            if _has(table, state.run, self._place):
                return
            columns = Schema.from_arrow(schema)
            # Add columns first: if the run dies afterwards, it leaves a column of nulls, which the next run uses.
            lacking = _lacking(pa.schema(table.schema()), schema)
            if lacking:
                table.alter.add_columns([f for f in columns.fields if f.name in lacking])
                table.update_incremental()
            # Check ownership after the table's version was read. If another run takes the table later, a commit of that
            # run makes this transaction fail.
            self._files.check_owner()
            table.create_write_transaction(
                actions, "append", columns, partition_by=partition_by,
                commit_properties=CommitProperties(**properties),
            )  # fmt: skip


def _fence_of(now: int) -> Any:
    return Transaction(_FENCE, now, now)


def _has(table: Table, run: str, place: str) -> bool:
    with _explained(place):
        texts = [commit[_STATE] for commit in table.history() if _STATE in commit]
    return any(State.from_text(text, place).run == run for text in texts)


def _last_state(name: str, history: Iterable[dict[str, Any]]) -> str | None:
    """Return the text of the state (see `State`) in the table's current version; None if it has none.

    For a restored table, this is the state of the restored version.
    """
    last: int | None = None
    # The history lists the latest commit first.
    for commit in history:
        if last is not None and commit["version"] > last:
            # Skip this commit, which is not part of the restored version.
            continue
        if _STATE in commit:
            return str(commit[_STATE])
        if commit.get("operation") == "RESTORE":
            version = commit.get("operationParameters", {}).get("version")
            if version is None:
                raise UsageError(
                    f"{name}: was restored to a time, so the restored version is unknown; "
                    "restore it to a version, or export to another place"
                )
            last = int(version)
    return None


def _lacking(present: pa.Schema, needed: pa.Schema) -> set[str]:
    """Return the names of columns that are missing in the table, or have missing fields there."""
    return {
        column.name
        for column in needed
        if column.name not in present.names or present.field(column.name).type != column.type
    }


def _path_of(name: str, file: DataFile) -> str:
    """Return the path of a data file.

    The path has folders in Hive's form, such as day=2026-10-14, because Polars reads partition values from paths.
    """
    folders = hive_folders(file)
    is_possible = all(
        len(os.fsencode(folder)) <= MOST_NAME_BYTES and folder.isprintable() for folder in folders
    )
    return "/".join([_DATA, *(folders if is_possible else []), name])


def _add_action(name: str, file: DataFile, now_ms: int) -> Any:
    path = _path_of(name, file)
    # Data files of Delta do not contain the columns of partitions, so these columns get no statistics.
    in_file = {name for name, _ in file.partition}
    statistics = {
        "numRecords": file.tally.rows,
        "minValues": _bounds(file.least, in_file),
        "maxValues": _bounds(file.greatest, in_file),
    }
    values = dict(file.partition)
    return transaction.AddAction(
        path, file.file_bytes, values, now_ms, True, json.dumps(statistics)
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _remove_actions(names: Sequence[str], now_ms: int) -> list[Any]:
    if not hasattr(transaction, "RemoveAction"):
        raise MissingExtraError(
            "upsert_by needs deltalake 1.6 or newer: pip install -U 'reput[delta]'",
            arguments=["upsert_by"],
        )
    return [transaction.RemoveAction(name, True, now_ms) for name in names]


def _bounds(values: Any, without_names: set[str]) -> dict[str, Any]:
    """Return statistics in Delta's form, with times in ISO 8601, without the columns in `without_names`."""
    bounds = {name: value for name, value in values.items() if name not in without_names}
    if "store_timestamp" in bounds:
        stamp = pa.scalar(bounds["store_timestamp"], pa.timestamp("ms"))
        bounds["store_timestamp"] = f"{stamp.cast(pa.string()).as_py().replace(' ', 'T')}Z"
    return bounds


def _explained(name: str) -> AbstractContextManager[None]:
    return explained_by("Delta", name, CommitFailedError)
