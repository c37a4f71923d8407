"""An Iceberg table, written without a JVM: files by pyarrow, the snapshot by pyiceberg.

The summary of a snapshot carries the state, and so does a property of the table, set in the same commit: summaries
go when snapshots expire, and a table that is rolled back must go on where its snapshot ends. Rejected rows are a
table of their own, to which they are added after the messages: a run that dies between leaves that to the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from reput.errors import MissingExtraError, StoreAccessError, StoreLockedError, UsageError
from reput.files.writer import make_folder, remove_tree
from reput.lakes.commit import Commit, State, explained_by, with_column_shape
from reput.lakes.compaction import Rewrite, request_of
from reput.lakes.data_file import DataFile, RowTally, bring
from reput.lakes.lake_bucket import CONTROL_FOLDER
from reput.lakes.partitions import SORT_COLUMNS
from reput.lakes.request import ExportRequest
from reput.messages.body_shape import Widenings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

DEFAULT_TABLE = "reput.messages"
_STATE, _RUN = "reput.state", "reput.run"
_CATALOG = "catalog.db"
_TABLE = re.compile(r"([^\s./\\]+\.)+[^\s./\\]+")
_WIDENS: Widenings = frozenset({("int32", "int64"), ("float", "double")})
"""What the specification calls type promotion: integers become longer ones, never doubles."""

_SOURCES = {"topic": "topic", "day": "store_timestamp", "hour": "store_timestamp"}


class IcebergTable:
    """See `reput.lakes.commit.Destination`.

    folder   of the data, and of the catalog where no other is named
    catalog  None for an SQLite file in the folder, the URI of an SQL database, or the name of one in pyiceberg's own
             configuration
    table    NAMESPACE.NAME in the catalog

    Raises MissingExtraError where pyiceberg is not installed, and for names that cannot be.
    """

    def __init__(
        self, folder: Path, catalog: str | None = None, table: str = DEFAULT_TABLE
    ) -> None:
        try:
            import pyiceberg  # noqa: F401
        except ImportError:
            raise MissingExtraError(
                "layout iceberg needs pyiceberg: pip install 'reput[iceberg]'",
                arguments=["layout"],
            ) from None
        if catalog == "":
            raise UsageError(
                "catalog: give a name, or the URI of an SQL database", arguments=["catalog"]
            )
        if not _TABLE.fullmatch(table):
            raise UsageError(f"table {table}: write NAMESPACE.NAME", arguments=["table"])
        self.name, self.folder, self.layout = f"{folder} ({table})", folder, "iceberg"
        self.control = folder / CONTROL_FOLDER
        # A catalog's URI may have a password in it.
        self.table = f"{table} of {hashlib.sha256((catalog or '').encode()).hexdigest()}"
        self.known_by: tuple[str, ...] = (_CATALOG, f"{table.rpartition('.')[2]}/metadata")
        self._table, self._rejects = table, f"{table}_rejects"
        self._catalog_name = catalog
        self._opened: Catalog | None = None
        self._schema = pa.schema([])
        self.widens = _WIDENS

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            from pyiceberg.catalog import load_catalog

            make_folder(self.folder)
            warehouse = _location(self.folder)
            named = self._catalog_name or f"sqlite:///{self.folder}/{_CATALOG}"
            with self._explained():
                if "://" in named:
                    self._opened = load_catalog("reput", type="sql", uri=named, warehouse=warehouse)
                else:
                    self._opened = load_catalog(named)
        return self._opened

    def state(self, stores: Sequence[str]) -> State | None:
        table = self._load(self._table)
        if table is None:
            return None
        snapshot = table.current_snapshot()
        while snapshot is not None:
            text = _summary(snapshot).get(_STATE)
            if text is not None:
                return self._state_of(text, table)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        text = table.properties.get(_STATE)
        if text is not None and table.current_snapshot() is not None:
            return self._state_of(text, table)
        if table.current_snapshot() is not None:
            raise UsageError(f"{self.name}: nothing was exported to this table; name another")
        return None

    def _state_of(self, text: str, table: Table) -> State:
        state = State.from_text(text, self.name)
        return with_column_shape(state, table.schema().as_arrow(), self.name)

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        for name in request.partition_by:
            if _SOURCES[name] not in schema.names:
                raise UsageError(
                    f"partition_by {name} needs the column {_SOURCES[name]}",
                    arguments=["partition_by"],
                )
        table = self._load(self._table) or self._create(self._table, schema, request.partition_by)
        rejects = reject_schema
        if request.value_column is not None:
            reject_table = self._load(self._rejects) or self._create(
                self._rejects, reject_schema, ()
            )
            rejects = with_ids(reject_schema, reject_table.schema())
        with self._explained():
            transaction = table.transaction()  # which is not committed
            evolve(transaction, schema)
            self._schema = with_ids(schema, transaction.table_metadata.schema())
        return self._schema, rejects

    @staticmethod
    def why_no_partition(topic: str) -> str:
        return ""

    def publish(self, commit: Commit, staged: Path) -> None:
        bring(self._places(commit), staged)

    def commit(self, commit: Commit) -> None:
        self._add(self._table, commit, is_reject=False)

    def has(self, run: str) -> bool:
        return self._is_in(self._table, run)

    def finish(self, commit: Commit, staged: Path) -> None:
        if commit.numbered(is_reject=True) and not self._is_in(self._rejects, commit.state.run):
            self._add(self._rejects, commit, is_reject=True)

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """See `reput.lakes.compaction.Compactable`. Files of other writers, and such with deleted rows, stay."""
        table = self._load(self._table)
        schema = request_of(state, self.name).columns_with(state.shape)
        if table is None or table.schema().as_arrow().names != schema.names:
            raise UsageError(f"{self.name}: has other columns than exports gave it")
        place = self._folder_of(self._table) / "data"
        with self._explained():
            own = live_files(table, _location(place))
        files = [data_file(name, file) for name, file in sorted(own.items())]
        old, new = rewrite(files, str(place), with_ids(schema, table.schema()))
        if new:
            gone = [own[file.name] for file in old]
            publish(Commit(state, new), action=partial(self._replace, gone))
        return len(old), len(new)

    def _replace(self, gone: Sequence[Any], commit: Commit) -> None:
        table = self._load(self._table)
        if table is None:
            raise StoreAccessError(f"{self.name}: the table is not there any more")
        place = self._folder_of(self._table) / "data"
        paths = [_location(place / name) for name, _ in commit.numbered(is_reject=False)]
        properties = {_STATE: commit.state.as_text(), _RUN: commit.state.run}
        with self._explained():
            replace_files(table, gone, paths, properties)

    def discard(self, commit: Commit) -> None:
        for path, _ in self._places(commit):
            remove_tree(path)

    def _places(self, commit: Commit) -> list[tuple[Path, DataFile]]:
        return [
            (self._folder_of(table) / "data" / name, file)
            for table, is_reject in ((self._table, False), (self._rejects, True))
            for name, file in commit.numbered(is_reject)
        ]

    def _folder_of(self, table: str) -> Path:
        return self.folder / table.rpartition(".")[2]

    def datasets(self) -> list[Any]:
        """See `reput.lakes.tables.opening.ReadableDestination`. Files have all columns, partitions included."""
        tables = (self._load(name) for name in (self._table, self._rejects))
        found = []
        for table in tables:
            if table is not None:
                with self._explained():
                    files = [task.file.file_path for task in table.scan().plan_files()]
                found.append(
                    ds.dataset([one.removeprefix("file://") for one in files], format="parquet")
                )
        return [dataset for dataset in found if dataset.files]

    def _load(self, name: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self._explained():
            try:
                return self._catalog.load_table(name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def _create(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

        transforms: dict[str, Any] = {
            "topic": IdentityTransform(),
            "day": DayTransform(),
            "hour": HourTransform(),
        }
        location = _location(self._folder_of(name))
        with self._explained():
            self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            with self._catalog.create_table_transaction(name, schema, location) as transaction:
                with transaction.update_spec() as spec:
                    for part in partition_by:
                        named = part if part != _SOURCES[part] else None
                        spec.add_field(_SOURCES[part], transforms[part], named)
                with transaction.update_sort_order() as order:
                    for column in SORT_COLUMNS:
                        if column in schema.names:
                            order.asc(column, IdentityTransform())
            return self._catalog.load_table(name)

    def _is_in(self, name: str, run: str) -> bool:
        table = self._load(name)
        return table is not None and any(
            _summary(snapshot).get(_RUN) == run for snapshot in table.metadata.snapshots
        )

    def _add(self, name: str, commit: Commit, is_reject: bool) -> None:
        table = self._load(name)
        if table is None:
            raise StoreAccessError(f"{self.name}: the table {name} is not there any more")
        folder = self._folder_of(name) / "data"
        paths = [_location(folder / file) for file, _ in commit.numbered(is_reject)]
        state = {_STATE: commit.state.as_text()}
        with self._explained(), table.transaction() as transaction:
            if not is_reject and len(self._schema):
                self._bring_in_fields(transaction)
            transaction.set_properties(state)
            transaction.add_files(
                paths,
                snapshot_properties={**state, _RUN: commit.state.run},
                check_duplicate_files=False,  # their names are of this run alone
            )

    def _bring_in_fields(self, transaction: Transaction) -> None:
        """Give the table the fields that the files have. Raises StoreLockedError where it has others meanwhile."""
        evolve(transaction, self._schema)
        numbered = with_ids(self._schema, transaction.table_metadata.schema())
        if not numbered.equals(self._schema, check_metadata=True):
            raise StoreLockedError(
                f"{self.name}: another changed the table's fields meanwhile; run it again"
            )

    def _explained(self) -> AbstractContextManager[None]:
        from pyiceberg.exceptions import CommitFailedException

        return explained_by("Iceberg", self.name, CommitFailedException)


def _location(path: Path) -> str:
    """As pyiceberg takes it: unlike in a URI, nothing is escaped."""
    return f"file://{path}"


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)


def evolve(transaction: Transaction, schema: pa.Schema) -> None:
    """Add the fields that a table lacks, and widen those that became wider; it keeps all others."""
    with transaction.update_schema() as update:
        update.union_by_name(schema)


def with_ids(schema: pa.Schema, known: Schema) -> pa.Schema:
    """The schema with the numbers by which readers of the table know the columns of a file."""
    ids = {known.find_column_name(n): n for n in known.field_ids}
    return pa.schema([_numbered(column, column.name, ids) for column in schema])


def _numbered(column: pa.Field, path: str, ids: dict[str | None, int]) -> pa.Field:
    kind = column.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(inner, f"{path}.{inner.name}", ids) for inner in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_numbered(kind.value_field, f"{path}.element", ids))
    elif pa.types.is_map(kind):
        kind = pa.map_(
            _numbered(kind.key_field, f"{path}.key", ids),
            _numbered(kind.item_field, f"{path}.value", ids),
        )
    return pa.field(column.name, kind, column.nullable, {"PARQUET:field_id": str(ids[path])})


def live_files(table: Table, location: str) -> dict[str, Any]:
    """pyiceberg's data files in a folder by name, but those with deleted rows and those of other partitions' specs."""
    spec = table.spec().spec_id
    planned = [task for task in table.scan().plan_files() if not task.delete_files]
    found = {Path(task.file.file_path).name: task.file for task in planned}
    return {
        name: file
        for name, file in found.items()
        if file.file_path == f"{location}/{name}" and file.spec_id == spec
    }


def data_file(name: str, file: Any) -> DataFile:
    """The same for a merge; its partition only tells it from others."""
    values = [file.partition[n] for n in range(len(file.partition))]
    partition = tuple((str(n), str(value)) for n, value in enumerate(values))
    tally = RowTally(file.record_count, None, None)
    return DataFile(name, file.file_size_in_bytes, tally, partition, {}, {})


def replace_files(
    table: Table, gone: Sequence[Any], paths: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Take files out of a table and those of these paths in, by one snapshot with these properties."""
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    with table.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=dict(properties))
        with update.overwrite() as overwriting:
            for file in gone:
                overwriting.delete_data_file(file)
            metadata = transaction.table_metadata
            for file in parquet_files_to_data_files(table.io, metadata, iter(paths)):
                overwriting.append_data_file(file)
