"""Access the files of a table in a folder or a bucket, for Delta and Iceberg. Names are relative to the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.fs

from reput.errors import explained
from reput.io import DISK, Parquet, StagedFiles, resolve
from reput.wings.lakes.commit import Staged
from reput.wings.lakes.data_file import DataFile, bring
from reput.wings.lakes.lake_bucket import LakeBucket

Placed = Sequence[tuple[str, DataFile]]
"""Pairs of a final name and the staged file that gets this name."""


class TableFiles(Protocol):
    """The files of a table. Every method raises StoreAccessError."""

    name: str

    def place(self, name: str = "") -> str:
        """Return the path or URL of a file or folder, in the form that pyiceberg and deltalake accept."""

    def create(self) -> None:
        """Create the folder of the table; do nothing in a bucket."""

    def settings(self) -> Mapping[str, str]:
        """Return settings for libraries that access the table with the Rust crate `object_store`."""

    def opened(self, paths: Iterable[str]) -> tuple[list[str], pa.fs.FileSystem | None]:
        """Return the paths of data files, and the pyarrow file system that opens them; None for local files."""

    def bring(self, places: Placed, staged: Staged) -> None:
        """Move staged files to their places. An interrupted run may have moved some of them."""

    def remove(self, names: Iterable[str]) -> None:
        """Delete files. Missing files are skipped."""

    def schema_of(self, name: str) -> pa.Schema:
        """Return the schema of a data file."""

    def check_owner(self) -> None:
        """Raise StoreLockedError if another run has taken the table."""


class FolderFiles:
    """See TableFiles. A lock excludes other runs."""

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = str(folder), folder

    def place(self, name: str = "") -> str:
        return str(self._folder / name)

    def create(self) -> None:
        DISK.create_folder(self._folder)

    def settings(self) -> Mapping[str, str]:
        return {}

    def opened(self, paths: Iterable[str]) -> tuple[list[str], pa.fs.FileSystem | None]:
        return [path.removeprefix("file://") for path in paths], None

    def bring(self, places: Placed, staged: Staged) -> None:
        bring([(self._folder / name, file) for name, file in places], staged)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            DISK.remove_tree(self._folder / name)

    def schema_of(self, name: str) -> pa.Schema:
        path = self._folder / name
        with explained(path, "be read"), Parquet.opened(path) as file:
            return file.schema_arrow

    def check_owner(self) -> None:
        """Do nothing: the lock excludes other runs."""


class BucketFiles:
    """See TableFiles. The provider copies objects on the server side."""

    def __init__(self, bucket: LakeBucket) -> None:
        self.name, self._bucket = bucket.url, bucket

    def place(self, name: str = "") -> str:
        return f"{self._bucket.url}/{name}" if name else self._bucket.url

    def create(self) -> None:
        """Do nothing: buckets have no folders."""

    def settings(self) -> Mapping[str, str]:
        return self._bucket.store.settings()

    def opened(self, paths: Iterable[str]) -> tuple[list[str], pa.fs.FileSystem | None]:
        system, _ = resolve(self._bucket.url, self._bucket.options)
        return [path.partition("://")[2] for path in paths], system.arrow

    def bring(self, places: Placed, staged: Staged) -> None:
        below = [(self._name(name), file) for name, file in places]
        self._bucket.bring(below, str(staged).rpartition("/")[2])

    def remove(self, names: Iterable[str]) -> None:
        self._bucket.remove([self._name(name) for name in names])

    def schema_of(self, name: str) -> pa.Schema:
        with (
            StagedFiles.reading(self._bucket.url_of(self._name(name))) as path,
            Parquet.opened(path) as file,
        ):
            return file.schema_arrow

    def check_owner(self) -> None:
        self._bucket.check_owner()

    def _name(self, name: str) -> str:
        return f"{self._bucket.leaf}/{name}"
