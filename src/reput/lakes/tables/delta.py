"""A Delta table, written without a JVM: files by pyarrow, the transaction by deltalake.

A commit carries the state twice. `commitInfo` has all of it, and may be cleaned away with the table's history; the
transaction identifiers, one a store, have how far it is in the table, and stay. Rejected rows are a Delta table of
their own, to which they are committed after the messages: a run that dies between leaves that to the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from reput.clock import now_ms
from reput.errors import MissingExtraError, UsageError
from reput.files.writer import remove_tree
from reput.lakes.commit import Commit, State, explained_by, with_column_shape
from reput.lakes.compaction import Rewrite
from reput.lakes.data_file import DataFile, bring
from reput.lakes.lake_bucket import CONTROL_FOLDER
from reput.lakes.parquet_files import BLOOM_COLUMNS
from reput.lakes.request import ExportRequest
from reput.lakes.tables.parquet import OLD_REJECTS, without
from reput.log.read_mark import ReadMark
from reput.messages.body_shape import NOTHING

if TYPE_CHECKING:
    from deltalake import DeltaTable as Table

_STATE = "reput"
_TRANSACTION = "reput:"
_DATA = "data"
_DERIVED = {"day": pa.date32(), "hour": pa.string()}


class DeltaTable:
    """See `reput.lakes.commit.Destination`. Raises MissingExtraError where deltalake is not installed."""

    def __init__(self, folder: Path) -> None:
        try:
            import deltalake  # noqa: F401
        except ImportError:
            raise MissingExtraError(
                "layout delta needs deltalake: pip install 'reput[delta]'", arguments=["layout"]
            ) from None
        self.name, self.folder, self.control = str(folder), folder, folder / CONTROL_FOLDER
        self.layout, self.table = "delta", "messages"
        self.known_by: tuple[str, ...] = ("_delta_log",)
        self.widens = NOTHING  # but for the table feature typeWidening, which few readers know
        self._rejects = folder / OLD_REJECTS
        self._schema = self._reject_schema = pa.schema([])
        self._partition_by: list[str] = []

    def state(self, stores: Sequence[str]) -> State | None:
        table = _open(self.folder)
        if table is None:
            return None
        with _explained(self.name):
            text = _last_state(self.name, table.history())
            columns = pa.schema(table.schema())
            if text is not None:
                return with_column_shape(State.from_text(text, self.name), columns, self.name)
            ends = {store: table.transaction_version(_TRANSACTION + store) for store in stores}
        marks = {store: ReadMark(end) for store, end in ends.items() if end is not None}
        if not marks:
            raise UsageError(
                f"{self.name}: a Delta table that nothing of these stores was exported to; "
                "name another folder"
            )
        return with_column_shape(State("", marks), columns, self.name)

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        self._partition_by, self._reject_schema = list(request.partition_by), reject_schema
        extra = [(name, _DERIVED[name]) for name in request.partition_by if name in _DERIVED]
        if "topic" in request.partition_by and "topic" not in schema.names:
            extra.insert(0, ("topic", pa.string()))
        self._schema = pa.schema([*schema, *(pa.field(*column) for column in extra)])
        return without(schema, request.partition_by), reject_schema

    @staticmethod
    def why_no_partition(topic: str) -> str:
        return "" if topic else "in a Delta table a partition without a name is one without a topic"

    def publish(self, commit: Commit, staged: Path) -> None:
        bring(self._places(commit), staged)

    def commit(self, commit: Commit) -> None:
        files = commit.numbered(is_reject=False)
        _commit(self.folder, self._schema, self._partition_by, files, commit.state)

    def has(self, run: str) -> bool:
        return _has(self.folder, run)

    def finish(self, commit: Commit, staged: Path) -> None:
        files = commit.numbered(is_reject=True)
        if files and not _has(self._rejects, commit.state.run):
            schema = self._reject_schema
            if not len(schema):  # the run that wrote them has died
                schema = pq.read_schema(self._rejects / _DATA / files[0][0])
            _commit(self._rejects, schema, [], files, commit.state)

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """See `reput.lakes.compaction.Compactable`. deltalake rewrites and commits, in a transaction of its own."""
        table = _open(self.folder)
        if table is None:
            return 0, 0
        with _explained(self.name):
            done = table.optimize.compact(
                target_size=target_bytes, writer_properties=_writer_properties()
            )
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def discard(self, commit: Commit) -> None:
        for path, _ in self._places(commit):
            remove_tree(path)

    def datasets(self) -> list[Any]:
        """See `reput.lakes.tables.opening.ReadableDestination`."""
        tables = (_open(folder) for folder in (self.folder, self._rejects))
        with _explained(self.name):
            return [table.to_pyarrow_dataset() for table in tables if table is not None]

    def _places(self, commit: Commit) -> list[tuple[Path, DataFile]]:
        return [
            (folder / _DATA / name, file)
            for folder, is_reject in ((self.folder, False), (self._rejects, True))
            for name, file in commit.numbered(is_reject)
        ]


def _writer_properties() -> Any:
    """Of files that deltalake writes, as near to those of exports as it can."""
    from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties

    filtered = ColumnProperties(bloom_filter_properties=BloomFilterProperties(True))
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        column_properties=dict.fromkeys(BLOOM_COLUMNS, filtered),
    )


def _open(folder: Path) -> Table | None:
    from deltalake import DeltaTable as Table

    with _explained(str(folder)):
        return Table(folder) if Table.is_deltatable(str(folder)) else None


def _has(folder: Path, run: str) -> bool:
    table = _open(folder)
    if table is None:
        return False
    with _explained(str(folder)):
        texts = [commit[_STATE] for commit in table.history() if _STATE in commit]
    return any(State.from_text(text, folder).run == run for text in texts)


def _last_state(name: str, history: Iterable[dict[str, Any]]) -> str | None:
    """The state of the table as it is now: where it was restored to a version, that of then."""
    last: int | None = None
    for commit in history:  # the latest first
        if last is not None and commit["version"] > last:
            continue
        if _STATE in commit:
            return str(commit[_STATE])
        if commit.get("operation") == "RESTORE":
            version = commit.get("operationParameters", {}).get("version")
            if version is None:
                raise UsageError(
                    f"{name}: was restored to a time, which does not tell what it has; "
                    "restore it to a version, or export to another place"
                )
            last = int(version)
    return None


def _commit(
    folder: Path,
    schema: pa.Schema,
    partition_by: list[str],
    files: Sequence[tuple[str, DataFile]],
    state: State,
) -> None:
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.transaction import create_table_with_add_actions

    now = now_ms()
    properties = CommitProperties(
        custom_metadata={_STATE: state.as_text()},
        app_transactions=[
            Transaction(_TRANSACTION + store, mark.end, now) for store, mark in state.marks.items()
        ],
    )
    actions = [_add_action(folder, name, file, now) for name, file in files]
    table = _open(folder)
    with _explained(str(folder)):
        columns = Schema.from_arrow(schema)
        if table is None:
            create_table_with_add_actions(
                str(folder),
                columns,
                actions,
                partition_by=partition_by,
                commit_properties=properties,
            )
        else:
            # Only then: a run that dies between leaves a column of nulls, which the next one uses.
            lacking = _lacking(pa.schema(table.schema()), schema)
            if lacking:
                table.alter.add_columns([f for f in columns.fields if f.name in lacking])
                table.update_incremental()
            table.create_write_transaction(
                actions, "append", columns, partition_by=partition_by, commit_properties=properties
            )


def _lacking(there: pa.Schema, wanted: pa.Schema) -> set[str]:
    """Columns that are not there, or not with all fields."""
    return {
        column.name
        for column in wanted
        if column.name not in there.names or there.field(column.name).type != column.type
    }


def _add_action(folder: Path, name: str, file: DataFile, now_ms: int) -> Any:
    from deltalake.transaction import AddAction

    path = f"{_DATA}/{name}"
    in_file = {name for name, _ in file.partition}
    statistics = {
        "numRecords": file.tally.rows,
        "minValues": _bounds(file.least, in_file),
        "maxValues": _bounds(file.greatest, in_file),
    }
    size = os.path.getsize(folder / path)
    values = dict(file.partition)
    return AddAction(path, size, values, now_ms, True, json.dumps(statistics))


def _bounds(values: Any, without_names: set[str]) -> dict[str, Any]:
    """Statistics as Delta writes them: times in ISO 8601."""
    found = {name: value for name, value in values.items() if name not in without_names}
    if "store_timestamp" in found:
        stamp = pa.scalar(found["store_timestamp"], pa.timestamp("ms"))
        found["store_timestamp"] = f"{stamp.cast(pa.string()).as_py().replace(' ', 'T')}Z"
    return found


def _explained(name: str) -> AbstractContextManager[None]:
    from deltalake.exceptions import CommitFailedError

    return explained_by("Delta", name, CommitFailedError)
