"""Write an Iceberg table without a JVM: pyarrow writes the files, and pyiceberg the snapshot.

The summary of each commit's snapshot contains the state, for example the offset up to which each store was exported.
So if a table is rolled back, the next export continues at the offsets of the restored snapshot. The state is also in a
property of the table, set in the same commit, because summaries disappear when snapshots expire.
Rejected rows go into a separate table, which is committed after the messages. If a run dies between the two commits,
the next run makes the second one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from reput.errors import StoreAccessError, StoreLockedError, UsageError
from reput.io import Parquet
from reput.wings.lakes.body_shape import Widenings
from reput.wings.lakes.commit import Commit, Staged, State, explained_by, with_column_shape
from reput.wings.lakes.compaction import Rewrite, request_of
from reput.wings.lakes.data_file import DataFile, RowTally
from reput.wings.lakes.lake_bucket import CONTROL_FOLDER, LakeBucket
from reput.wings.lakes.merging import most_small_files
from reput.wings.lakes.partitions import SORT_COLUMNS
from reput.wings.lakes.request import TEXT_PARTITIONS, ExportRequest
from reput.wings.lakes.table_files import BucketFiles, FolderFiles, TableFiles

DEFAULT_TABLE = "reput.messages"
_STATE, _RUN, _FENCE = "reput.state", "reput.run", "reput.fence"
_PLACE = "reput.place"
"""Name of the table property that states where exports write the files of the table."""
_SNAPSHOTS = "reput.snapshots"
"""Name of the table property that states how many snapshots a commit keeps. Without it, all are kept."""
# Each commit reads and writes all snapshots of a table, and the list of its manifests. These properties, which users
# may change, bound both.
_BOUNDS = {
    _SNAPSHOTS: "100",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}
_CATALOG = "catalog.db"
_TABLE = re.compile(r"([^\s./\\]+\.)+[^\s./\\]+")
_WIDENS: Widenings = frozenset({("int32", "int64"), ("float", "double")})
"""Type promotions that the specification allows: integers become longer integers, never doubles."""

_CATALOGS = {"http": "rest", "https": "rest", "thrift": "hive"}
"""Kinds of catalogs by the schemes of their URIs; others are SQL databases."""
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}
"""Synonyms of URI schemes (s3a for s3), each with the scheme that replaces it when two locations are compared."""
_IO_NAMES = {
    "endpoint": "s3.endpoint",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "token": "s3.session-token",
    "region": "s3.region",
}
"""pyiceberg's names of S3 settings, by object_store's names of the same settings."""

_IO_VARIABLES = {
    "s3.endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
}
"""For each S3 setting (pyiceberg's name), its environment variables. The first variable that is set has the value."""

_SOURCES = {
    **{name: name for name in TEXT_PARTITIONS}, "day": "store_timestamp", "hour": "store_timestamp",
}  # fmt: skip


class _Iceberg:
    """See `reput.wings.lakes.commit.Destination`."""

    def __init__(
        self,
        files: TableFiles,
        catalog: str | None,
        table: str,
        catalog_properties: Mapping[str, str] | None,
    ) -> None:
        """Open a table.

        Args:
            files: The files of the table.
            catalog: The URI of a catalog, or the name of one in pyiceberg's configuration; None for an SQLite file in
                the folder.
            table: NAMESPACE.NAME in the catalog.
            catalog_properties: Properties for pyiceberg, in addition to its configuration.

        Raises:
            UsageError: a name is invalid.
        """
        if catalog == "":
            raise UsageError(
                "catalog: give a name in pyiceberg's configuration, or a URI", arguments=["catalog"]
            )
        if not _TABLE.fullmatch(table):
            raise UsageError(
                f"table {table}: must have the form NAMESPACE.NAME", arguments=["table"]
            )
        self.name, self.layout, self._files = f"{files.name} ({table})", "iceberg", files
        # The URI is hashed, because it may contain a password.
        self.table = f"{table} of {hashlib.sha256((catalog or '').encode()).hexdigest()}"
        self.known_by: tuple[str, ...] = (_CATALOG, f"{table.rpartition('.')[2]}/metadata")
        self._table, self._rejects = table, f"{table}_rejects"
        self._catalog_name, self._properties = catalog, dict(catalog_properties or {})
        self._opened: Catalog | None = None
        self._schema = pa.schema([])
        self.widens = _WIDENS

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            # A catalog in an SQLite file is created in the table's folder, which must exist.
            self._files.create()
            named = self._catalog_name or f"sqlite:///{self._files.place(_CATALOG)}"
            properties = self._io_properties() | self._properties
            # If a catalog name has no scheme, pyiceberg looks up the name in its own configuration.
            if "://" in named:
                kind = _CATALOGS.get(named.partition("://")[0], "sql")
                properties = {"type": kind, "uri": named, **properties}
                if kind == "sql":
                    properties = {"warehouse": self._location(), **properties}
                properties = {**_io_environment(), **properties}
                named = "reput"
            with self._explained():
                self._opened = load_catalog(named, **properties)
        return self._opened

    def _location(self, name: str = "") -> str:
        """Return the location in pyiceberg's form: unlike a URI, without escapes."""
        place = self._files.place(name)
        return place if "://" in place else f"file://{place}"

    def _io_properties(self) -> dict[str, str]:
        """Return the properties with which pyiceberg accesses the files."""
        settings = self._files.settings()
        return {ours: settings[theirs] for theirs, ours in _IO_NAMES.items() if theirs in settings}

    def state(self, stores: Sequence[str]) -> State | None:
        table = self._load(self._table)
        if table is None:
            return None
        snapshot, is_current = table.current_snapshot(), True
        while snapshot is not None:
            # A table with no snapshots except those of `fence` belongs to an export that has not committed yet.
            is_current = is_current and _FENCE in _summary(snapshot)
            text = _summary(snapshot).get(_STATE)
            if text is not None:
                return self._state_of(text, table)
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        # The snapshots that contain the state of the exports may have expired. A property of the table contains it too.
        text = table.properties.get(_STATE)
        if text is not None and table.current_snapshot() is not None:
            return self._state_of(text, table)
        if not is_current:
            raise UsageError(
                f"{self.name}: this table exists, but reput has exported nothing to it; name another"
            )
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
        # Only requests with typed bodies or upserts can reject rows.
        if request.value_column is not None or request.upsert_by is not None:
            reject_table = self._load(self._rejects) or self._create(
                self._rejects, reject_schema, ()
            )
            rejects = with_ids(reject_schema, reject_table.schema())
        with self._explained():
            # This transaction is never committed: it only numbers new fields.
            transaction = table.transaction()
            evolve(transaction, schema)
            self._schema = with_ids(schema, transaction.table_metadata.schema())
        return self._schema, rejects

    @staticmethod
    def why_no_partition(column: str, text: str) -> str:
        return ""

    def publish(self, commit: Commit, staged: Staged) -> None:
        self._files.bring(self._places(commit), staged)

    def commit(self, commit: Commit) -> None:
        self._add(self._table, commit, is_reject=False)

    def has(self, run: str) -> bool:
        table = self._load(self._table)
        return table is not None and _is_in(table, run)

    def finish(self, commit: Commit, staged: Staged) -> None:
        if commit.numbered(is_reject=True):
            self._add(self._rejects, commit, is_reject=True)

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """See `reput.wings.lakes.compaction.Compactable`.

        Files of other writers, and files with deleted rows, stay as they are.
        """
        table = self._load(self._table)
        schema = request_of(state, self.name).columns_with(state.shape)
        if table is None or table.schema().as_arrow().names != schema.names:
            raise UsageError(
                f"{self.name}: another program changed its columns; it cannot be compacted"
            )
        place = f"{_folder_of(self._table)}/data"
        files_by_name = self._live_files(table)
        files = [data_file(name, file) for name, file in sorted(files_by_name.items())]
        old, new = rewrite(files, self._files.place(place), with_ids(schema, table.schema()))
        if new:
            replaced = [files_by_name[file.name] for file in old]
            publish(Commit(state, new), action=partial(self._replace, replaced))
        return len(old), len(new)

    def most_small_files(self, target_bytes: int) -> int:
        """See `reput.wings.lakes.compaction.CountsSmallFiles`."""
        table = self._load(self._table)
        files = {} if table is None else self._live_files(table)
        return most_small_files(
            [data_file(name, file) for name, file in files.items()], target_bytes
        )

    def _live_files(self, table: Table) -> dict[str, Any]:
        with self._explained():
            return live_files(table, self._location(f"{_folder_of(self._table)}/data"))

    def _replace(self, replaced: Sequence[Any], commit: Commit) -> None:
        table = self._load(self._table)
        if table is None:
            raise StoreAccessError(f"{self.name}: the table no longer exists")
        paths = self._paths(self._table, commit, is_reject=False)
        self._files.check_owner()
        properties = {_STATE: commit.state.as_text(), _RUN: commit.state.run}
        with self._explained(), table.transaction() as transaction:
            if len(self._schema):
                self._bring_in_fields(transaction)
            replace_files(transaction, table.io, replaced, paths, properties)

    def discard(self, commit: Commit) -> None:
        self._files.remove(name for name, _ in self._places(commit))

    def _places(self, commit: Commit) -> list[tuple[str, DataFile]]:
        return [
            (f"{_folder_of(table)}/data/{name}", file)
            for table, is_reject in ((self._table, False), (self._rejects, True))
            for name, file in commit.numbered(is_reject)
        ]

    def _paths(self, table: str, commit: Commit, is_reject: bool) -> list[str]:
        folder = self._location(f"{_folder_of(table)}/data")
        return [f"{folder}/{name}" for name, _ in commit.numbered(is_reject)]

    def datasets(self) -> list[Any]:
        """See `reput.wings.lakes.tables.opening.ReadableDestination`. The files also contain the partition columns."""
        tables = (self._load(name) for name in (self._table, self._rejects))
        datasets = []
        for table in tables:
            if table is not None:
                with self._explained():
                    paths = [task.file.file_path for task in table.scan().plan_files()]
                files, system = self._files.opened(paths)
                datasets.append(Parquet.dataset(files, system))
        return [dataset for dataset in datasets if dataset.files]

    def _load(self, name: str) -> Table | None:
        with self._explained():
            try:
                table = _without_retries(self._catalog.load_table(name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        # A catalog may choose another location than the requested one.
        place = table.properties.get(_PLACE) or table.location()
        if not _is_same_place(place, self._location(_folder_of(name))):
            # The lock is in the destination folder, so runs that export to this table with different folders would not
            # exclude each other. Refuse another folder.
            raise UsageError(
                f"{self.name}: {name} was exported to {place}; export to the same place, pass another table, "
                f"or set the property {_PLACE} of {name} if its files were moved",
                arguments=["table"],
            )
        return table

    def _create(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        transforms: dict[str, Any] = {
            **dict.fromkeys(TEXT_PARTITIONS, IdentityTransform()),
            "day": DayTransform(),
            "hour": HourTransform(),
        }
        location = self._location(_folder_of(name))
        with self._explained():
            self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            with self._catalog.create_table_transaction(
                name, schema, location, properties={_PLACE: location, **_BOUNDS}
            ) as transaction:
                with transaction.update_spec() as spec:
                    for part in partition_by:
                        named = part if part != _SOURCES[part] else None
                        spec.add_field(_SOURCES[part], transforms[part], named)
                with transaction.update_sort_order() as order:
                    for column in SORT_COLUMNS:
                        if column in schema.names:
                            order.asc(column, IdentityTransform())
            return _without_retries(self._catalog.load_table(name))

    def _add(self, name: str, commit: Commit, is_reject: bool) -> None:
        table = self._load(name)
        if table is None:
            raise StoreAccessError(f"{self.name}: the table {name} no longer exists")
        if _is_in(table, commit.state.run):
            return
        # Check the owner after loading the parent snapshot. If another run takes the table after this check, that run's
        # commit replaces the parent snapshot, and this run's commit fails.
        self._files.check_owner()
        paths = self._paths(name, commit, is_reject)
        state = {_STATE: commit.state.as_text()}
        with self._explained(), table.transaction() as transaction:
            if not is_reject and len(self._schema):
                self._bring_in_fields(transaction)
            transaction.set_properties(state)
            transaction.add_files(
                paths,
                snapshot_properties={**state, _RUN: commit.state.run},
                check_duplicate_files=False,  # Only this run uses these file names.
            )
            _expire_snapshots(transaction)

    def _bring_in_fields(self, transaction: Transaction) -> None:
        """Add the files' fields to the table.

        Raises StoreLockedError if another run has added different fields meanwhile.
        """
        evolve(transaction, self._schema)
        numbered = with_ids(self._schema, transaction.table_metadata.schema())
        if not numbered.equals(self._schema, check_metadata=True):
            raise StoreLockedError(
                f"{self.name}: another program changed the table's fields; run the command again"
            )

    def _explained(self) -> AbstractContextManager[None]:
        return explained_by("Iceberg", self.name, CommitFailedException)


class IcebergTable(_Iceberg):
    """A table in a folder."""

    def __init__(
        self,
        folder: Path,
        catalog: str | None = None,
        table: str = DEFAULT_TABLE,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(FolderFiles(folder), catalog, table, catalog_properties)
        self.folder, self.control = folder, folder / CONTROL_FOLDER

    def live(self) -> tuple[list[DataFile], Path]:
        """See `reput.wings.lakes.upsert.Upsertable`."""
        table = self._load(self._table)
        place = self.folder / _folder_of(self._table) / "data"
        if table is None:
            return [], place
        files = self._live_files(table)
        with self._explained():
            planned = list(table.scan().plan_files())
        if len(files) < len(planned):
            raise UsageError(
                f"{self.name}: other programs deleted rows of its files, or wrote files with another partition spec "
                "or in another folder; upsert_by cannot replace rows of such files"
            )
        return [data_file(name, file) for name, file in sorted(files.items())], place

    def replace(self, commit: Commit) -> None:
        """See `reput.wings.lakes.upsert.Upsertable`."""
        table = self._load(self._table)
        files = {} if table is None else self._live_files(table)
        if missing := [name for name in commit.replaces if name not in files]:
            raise StoreLockedError(
                f"{self.name}: another program removed {missing[0]}; run the export again"
            )
        self._replace([files[name] for name in commit.replaces], commit)


class IcebergBucketTable(_Iceberg):
    """A table in a bucket. See `reput.wings.lakes.control.BucketDestination`."""

    def __init__(
        self,
        bucket: LakeBucket,
        catalog: str | None = None,
        table: str = DEFAULT_TABLE,
        catalog_properties: Mapping[str, str] | None = None,
    ) -> None:
        if catalog is None:
            raise UsageError(
                f"{bucket.url}: an Iceberg table in a bucket needs a catalog: the URI of one (REST, Hive, SQL), or its "
                "name in pyiceberg's configuration",
                arguments=["catalog"],
            )
        super().__init__(BucketFiles(bucket), catalog, table, catalog_properties)
        self.bucket = bucket

    def fence(self) -> None:
        """See BucketDestination.

        A snapshot is committed only if its parent is still the current snapshot. So after an empty snapshot, commits
        that began earlier fail.
        """
        table = self._load(self._table)
        if table is None:
            return
        with (
            self._explained(),
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties={_FENCE: "1"}).fast_append(),
        ):
            pass


def _io_environment() -> dict[str, str]:
    """Return S3 settings from environment variables that other libraries read and pyiceberg ignores."""
    return {
        name: value
        for name, variables in _IO_VARIABLES.items()
        if (
            value := next(
                (os.environ[variable] for variable in variables if os.environ.get(variable)), None
            )
        )
    }


def _is_same_place(first: str, second: str) -> bool:
    """Return whether two URIs of tables name the same folder."""
    (scheme, one_path), (other_scheme, other_path) = map(_parts_of, (first, second))
    if scheme == other_scheme == "file":
        return os.path.realpath(one_path) == os.path.realpath(other_path)
    return (scheme, one_path) == (other_scheme, other_path)


def _parts_of(location: str) -> tuple[str, str]:
    scheme, _, path = location.rpartition("://")
    path = path.rstrip("/")
    if scheme in ("", "file"):
        return "file", path
    return _SCHEMES.get(scheme, scheme), path


def _folder_of(table: str) -> str:
    return table.rpartition(".")[2]


def _without_retries(table: Table) -> Table:
    """Return the table with retries disabled, so that its next commit fails if another commit precedes it.

    pyiceberg would repeat the commit on top of the other one, although this run may not own the table any more.
    """
    table.metadata.properties["commit.retry.num-retries"] = "0"
    return table


def _is_in(table: Table, run: str) -> bool:
    return any(_summary(snapshot).get(_RUN) == run for snapshot in table.metadata.snapshots)


def _summary(snapshot: Any) -> dict[str, str]:
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)


def _expire_snapshots(transaction: Transaction) -> None:
    """Expire the oldest snapshots of a table that keeps only some. Their files stay."""
    metadata = transaction.table_metadata
    text = metadata.properties.get(_SNAPSHOTS, "")
    if not text.isdecimal():
        return
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    ids = [snapshot.snapshot_id for snapshot in sorted(metadata.snapshots, key=_time_of)]
    old = [snapshot for snapshot in ids[: -max(int(text), 1)] if snapshot not in referenced]
    if old:
        with ExpireSnapshots(transaction) as expiry:
            expiry.by_ids(old)


def _time_of(snapshot: Any) -> tuple[int, int]:
    return snapshot.timestamp_ms, snapshot.sequence_number or 0


def evolve(transaction: Transaction, schema: pa.Schema) -> None:
    """Add fields that the table lacks, and widen fields if necessary; other fields stay."""
    with transaction.update_schema() as update:
        update.union_by_name(schema)


def with_ids(schema: pa.Schema, table_schema: Schema) -> pa.Schema:
    """Return the schema with field ids, by which readers of the table identify the columns of a file."""
    ids = {table_schema.find_column_name(n): n for n in table_schema.field_ids}
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
    """Return pyiceberg's data files in a folder, by name.

    Files with deleted rows or another partition spec are skipped.
    """
    spec = table.spec().spec_id
    planned = [task for task in table.scan().plan_files() if not task.delete_files]
    files = {Path(task.file.file_path).name: task.file for task in planned}
    return {
        name: file
        for name, file in files.items()
        if file.file_path == f"{location}/{name}" and file.spec_id == spec
    }


def data_file(name: str, file: Any) -> DataFile:
    """Convert pyiceberg's data file to a DataFile for a merge. The partition is only used to group files."""
    values = [file.partition[n] for n in range(len(file.partition))]
    partition = tuple((str(n), str(value)) for n, value in enumerate(values))
    tally = RowTally(file.record_count, None, None)
    return DataFile(name, file.file_size_in_bytes, tally, partition, {}, {})


def replace_files(
    transaction: Transaction,
    io: Any,
    replaced: Sequence[Any],
    paths: Sequence[str],
    properties: Mapping[str, str],
) -> None:
    """Remove files from a table and add the files at these paths, in one snapshot with these properties."""
    transaction.set_properties({_STATE: properties[_STATE]})
    update = transaction.update_snapshot(snapshot_properties=dict(properties))
    with update.overwrite() as overwriting:
        for file in replaced:
            overwriting.delete_data_file(file)
        metadata = transaction.table_metadata
        for file in parquet_files_to_data_files(io, metadata, iter(paths)):
            overwriting.append_data_file(file)
