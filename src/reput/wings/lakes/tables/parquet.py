"""Write a folder of Parquet files with Hive's partitions, in a file system or a bucket. It grows by whole commits.

DEST/
  topic=orders/day=2026-10-14/<run>-00000.parquet
DEST.reput/
  rejects/<run>-00001.parquet
  commits/00000000000000000001.json   the manifest of a commit: its files with checksums, and the state of the table

DEST contains only the table, because not every reader skips names that begin with an underscore. Two kinds of tables
have their manifests in DEST/_reput and their rejects in DEST/_rejects: tables of reput 0.2, and tables whose DEST is a
mount point, because files cannot be renamed across file systems.

The manifest is the commit: it is linked into place atomically while the files are still staged. Then the files are
moved into DEST. If the run dies before it has moved all files, the next run moves the rest. So a reader of all files in
DEST sees only committed messages, and each at most once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds

from reput.errors import UsageError, explained
from reput.format.untrusted_json import parse_json
from reput.io import DISK, FileReader, Parquet, resolve
from reput.wings.lakes.body_shape import NUMBERS
from reput.wings.lakes.commit import Commit, Staged, State, understood
from reput.wings.lakes.compaction import Rewrite, request_of
from reput.wings.lakes.control import folder_beside
from reput.wings.lakes.data_file import DataFile, RowTally, bring, make_folders
from reput.wings.lakes.lake_bucket import CONTROL_FOLDER, LakeBucket
from reput.wings.lakes.merging import most_small_files
from reput.wings.lakes.request import ExportRequest

OLD_REJECTS = "_rejects"
_COMMITS = "commits"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Common file systems limit a file name to this many bytes.
MOST_NAME_BYTES = 255
# The form of names that exports give to files.
_OURS = re.compile(r"[0-9a-f]{32}-\d{5,}\.parquet")
# Hive and Spark escape these characters in the names of folders.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f")


class ParquetTable:
    """See `reput.wings.lakes.commit.Destination`."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = str(folder), folder
        self.layout, self.table = "parquet", "messages"
        self.known_by: tuple[str, ...] = ()
        # Each file has its own schema, so new files can have a wider type of number.
        self.widens = NUMBERS
        inside = folder / CONTROL_FOLDER
        is_inside = inside.exists() or os.path.ismount(folder)
        self.control = inside if is_inside else folder_beside(folder)
        self._rejects = folder / OLD_REJECTS if is_inside else self.control / "rejects"
        self._commits = self.control / _COMMITS

    def state(self, stores: Sequence[str]) -> State | None:
        last = self._last()
        has_files = next(self.folder.rglob("*.parquet"), None) is not None
        if last is None:
            # Refuse Parquet files that no manifest lists: an export would not know that the messages in these files are
            # already exported, and would write the messages again.
            if has_files:
                raise UsageError(
                    f"{self.name}: has files, but their manifests in {self._commits} are missing; "
                    "restore them, or name another folder"
                )
            return None
        commit = self._read(last)
        # The files were deleted, but the manifest still has the offsets up to which the logs were exported. An export
        # that continues at these offsets would skip the messages of the deleted files.
        if commit.rows.rows and not has_files:
            raise UsageError(
                f"{self.name}: its files are missing, but exports to it are recorded in {self.control}; "
                f"restore the files, or delete {self.control} to start over"
            )
        return commit.state

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        DISK.create_folder(self._commits)
        DISK.create_folder(self.folder)
        return without(schema, request.partition_by), reject_schema

    @staticmethod
    def why_no_partition(column: str, text: str) -> str:
        if text in ("", _NO_VALUE):
            # Escaping the value in the folder's name would not help. Readers unescape the name before they compare it
            # with the name that stands for null.
            return f"readers would take the folder of this {column} for the folder of null values"
        length = len(os.fsencode(f"{column}={_escaped(text)}"))
        if length > MOST_NAME_BYTES:
            return f"the folder of this {column} would have a name of more than {MOST_NAME_BYTES} bytes"
        return ""

    def publish(self, commit: Commit, staged: Path) -> None:
        """Create only the folders. Readers see every file in a folder, so `finish` moves the files after the commit."""
        make_folders(self._places(commit))

    def commit(self, commit: Commit) -> None:
        last = self._last()
        number = 1 if last is None else int(last.stem) + 1
        text = json.dumps(commit.as_json(), indent=1)
        DISK.create_durable(self._commits / f"{number:020d}.json", text.encode())
        DISK.sync_folder(self._commits)

    def has(self, run: str) -> bool:
        last = self._last()
        return last is not None and self._read(last).state.run == run

    def finish(self, commit: Commit, staged: Path) -> None:
        if commit.replaces:
            self._swap(commit, staged / "table")
            return
        bring(self._places(commit), staged)

    def compact(
        self, state: State, rewrite: Rewrite, publish: Callable[..., None], target_bytes: int
    ) -> tuple[int, int]:
        """See `reput.wings.lakes.compaction.Compactable`."""
        if self.control.is_relative_to(self.folder):
            raise UsageError(
                f"{self.name}: cannot be compacted, because it is a mount point or was written by reput 0.2; "
                "export the table again, into a folder that is not a mount point"
            )
        schema = request_of(state, self.name).columns_with(state.shape)
        partition_by = state.request.get("partition_by") or ()
        old, new = rewrite(self._files(), str(self.folder), without(schema, partition_by))
        if new:
            publish(Commit(state, new, [file.name for file in old]), action=self.commit)
        return len(old), len(new)

    def most_small_files(self, target_bytes: int) -> int:
        """See `reput.wings.lakes.compaction.CountsSmallFiles`."""
        return most_small_files(self._files(), target_bytes)

    def _files(self) -> list[DataFile]:
        """Return the files that exports wrote, sorted by name, so that files of one run are adjacent."""
        with explained(self.folder, "be read"):
            paths = [path for path in self.folder.rglob("*.parquet") if _OURS.fullmatch(path.name)]
            return [
                DataFile(
                    str(path.relative_to(self.folder)), path.stat().st_size,
                    _rows_of(path),
                    tuple(map(_value_of, path.relative_to(self.folder).parts[:-1])), {}, {},
                )
                for path in sorted(paths)
            ]  # fmt: skip

    def _swap(self, commit: Commit, whole: Path) -> None:
        """Replace the table's folder atomically by a folder with the new files and hard links to the kept files.

        A reader that has listed the old files may no longer find some of them, but never reads a row twice.
        """
        replaced = set(commit.replaces)
        if not any((self.folder / name).exists() for name in replaced):
            # An interrupted run has already exchanged the folders.
            return
        DISK.remove_tree(whole)
        with explained(self.folder, "be read"):
            remaining = [
                path.relative_to(self.folder)
                for path in self.folder.rglob("*")
                if not path.is_dir()
            ]
        for name in remaining:
            if str(name) not in replaced:
                DISK.create_folder((whole / name).parent)
                DISK.link(self.folder / name, whole / name)
        for path, file in self._places(commit):
            place = whole / path.relative_to(self.folder)
            DISK.create_folder(place.parent)
            DISK.link(whole.parent / file.name, place)
        # Make the new folder durable before it replaces the table's folder: a power cut must not damage the table.
        DISK.sync_tree(whole)
        DISK.exchange(self.folder, whole)
        DISK.sync_folder(self.folder.parent)

    def discard(self, commit: Commit) -> None:
        """Do nothing: staged files are deleted with their folder."""

    def datasets(self) -> list[Any]:
        """See `reput.wings.lakes.tables.opening.ReadableDestination`."""
        last = self._last()
        names = () if last is None else self._read(last).state.request.get("partition_by", ())
        hive = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names]))
        datasets = [Parquet.dataset(self.folder, partitioning=hive)]
        if self._rejects.is_dir():
            datasets.append(Parquet.dataset(self._rejects))
        return datasets

    def _places(self, commit: Commit) -> list[tuple[Path, DataFile]]:
        rows = [
            (self.folder.joinpath(*hive_folders(file)) / name, file)
            for name, file in commit.numbered(is_reject=False)
        ]
        rejects = [(self._rejects / name, file) for name, file in commit.numbered(is_reject=True)]
        return [*rows, *rejects]

    def _last(self) -> Path | None:
        with explained(self._commits, "be read"):
            paths = self._commits.glob("*.json") if self._commits.is_dir() else ()
            return max((path for path in paths if path.stem.isdigit()), default=None)

    def _read(self, path: Path) -> Commit:
        text = FileReader.text_of(path)
        with understood(path):
            return Commit.from_json(parse_json(text))


class ParquetBucketTable:
    """A ParquetTable in a bucket. See `reput.wings.lakes.control.BucketDestination`.

    The object `head` names the last manifest, so replacing the head is the commit. Objects cannot be renamed, so staged
    objects are copied to their places after the commit, and then deleted.
    """

    def __init__(self, bucket: LakeBucket) -> None:
        self.bucket, self.name = bucket, bucket.url
        self.layout, self.table = "parquet", "messages"
        self.known_by: tuple[str, ...] = ()
        self.widens = NUMBERS

    def state(self, stores: Sequence[str]) -> State | None:
        last = self.bucket.last()
        return None if last is None else self.bucket.read_commit(last).state

    def prepare(
        self, request: ExportRequest, schema: pa.Schema, reject_schema: pa.Schema
    ) -> tuple[pa.Schema, pa.Schema]:
        return without(schema, request.partition_by), reject_schema

    @staticmethod
    def why_no_partition(column: str, text: str) -> str:
        if not text.isprintable():
            return f"the folder of this {column} would have a name that buckets refuse"
        return ParquetTable.why_no_partition(column, text)

    def publish(self, commit: Commit, staged: Staged) -> None:
        """Do nothing: `finish` copies the objects after the commit. Readers would see them if they were copied now."""

    def commit(self, commit: Commit) -> None:
        pending = self.bucket.pending()
        assert pending is not None
        self.bucket.change(commit=pending["manifest"])

    def has(self, run: str) -> bool:
        last = self.bucket.read_last()
        return last is not None and self.bucket.read_commit(last).state.run == run

    def fence(self) -> None:
        """Do nothing: this run replaced the object `head` when it took the table, so commits of earlier owners fail."""

    def finish(self, commit: Commit, staged: Staged) -> None:
        rejects = f"{self.bucket.control}/rejects"
        rows = [
            ("/".join([self.bucket.leaf, *hive_folders(file), name]), file)
            for name, file in commit.numbered(is_reject=False)
        ]
        rejected = [(f"{rejects}/{name}", file) for name, file in commit.numbered(is_reject=True)]
        self.bucket.bring([*rows, *rejected], commit.state.run)

    def discard(self, commit: Commit) -> None:
        """Do nothing: `BucketControl.clear_staging` deletes the staged objects."""

    def datasets(self) -> list[Any]:
        """See `reput.wings.lakes.tables.opening.ReadableDestination`."""
        last = self.bucket.last()
        names = (
            ()
            if last is None
            else self.bucket.read_commit(last).state.request.get("partition_by", ())
        )
        hive = ds.HivePartitioning(pa.schema([(name, pa.string()) for name in names]))
        system, folder = resolve(self.bucket.url, self.bucket.options)
        datasets = [Parquet.dataset(folder, system.arrow, partitioning=hive)]
        rejects = f"{self.bucket.control}/rejects"
        if next(self.bucket.store.list(f"{rejects}/"), None) is not None:
            system, folder = resolve(self.bucket.url_of(rejects), self.bucket.options)
            datasets.append(Parquet.dataset(folder, system.arrow))
        return datasets


def _rows_of(path: Path) -> RowTally:
    with Parquet.opened(path) as file:
        return RowTally(file.metadata.num_rows, None, None)


def without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([column for column in schema if column.name not in names])


def hive_folders(file: DataFile) -> list[str]:
    """Return the folders of a data file's partition, as Hive names them."""
    return [f"{name}={_escaped(value) if value else _NO_VALUE}" for name, value in file.partition]


def _value_of(folder: str) -> tuple[str, str | None]:
    name, _, value = folder.partition("=")
    return name, None if value == _NO_VALUE else unquote(value)


def _escaped(value: str) -> str:
    return "".join(f"%{ord(c):02X}" if c < " " or c in _ESCAPED else c for c in value)
