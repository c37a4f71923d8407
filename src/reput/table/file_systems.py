"""Files wherever they lie: on this machine, or on any file system that pyarrow.fs or fsspec opens."""

from __future__ import annotations

import fnmatch
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs

from reput.errors import StoreAccessError, StoreChangedError, StoreNotFoundError, UsageError
from reput.files.reader import FileReader, RangeReader

OpenFile = Callable[[str], RangeReader]

_S3_OPTIONS = "s3."
_FSSPEC_OPTIONS = "fsspec."
_GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True)
class FileSystem:
    """One file system.

    arrow     lists files and opens those that are not local
    is_local  whether the paths are this machine's
    prefix    what a path was cut off of: the scheme of its URL
    """

    arrow: pa.fs.FileSystem
    is_local: bool
    prefix: str = ""

    @property
    def open_file(self) -> OpenFile:
        """Opens a file to be read in ranges; can be sent to another process."""
        return FileReader if self.is_local else RemoteFiles(self.arrow, self.prefix)

    def place(self, path: str) -> str:
        """The same for all paths that lead to one file or folder."""
        return os.path.realpath(path) if self.is_local else self.prefix + path

    def info(self, path: str) -> pa.fs.FileInfo:
        """Raises StoreAccessError."""
        with _explained(self.prefix + path):
            return self.arrow.get_file_info(path)

    def entries(self, folder: str) -> list[pa.fs.FileInfo]:
        """What is in a folder, by name. Raises StoreAccessError."""
        with _explained(self.prefix + folder):
            found = self.arrow.get_file_info(pa.fs.FileSelector(folder, allow_not_found=True))
        return sorted(found, key=lambda info: str(info.path))

    def expand(self, pattern: str) -> list[str]:
        """The paths that a pattern with * ? [] in any of its parts stands for, in order; itself if it has none."""
        if not _GLOB_CHARACTERS & set(pattern):
            return [pattern]
        folder, _, name = pattern.rstrip("/").rpartition("/")
        found = []
        for parent in self.expand(folder):
            if not _GLOB_CHARACTERS & set(name):
                path = f"{parent}/{name}"
                if self.info(path).type != pa.fs.FileType.NotFound:
                    found.append(path)
                continue
            names = (posixpath.basename(info.path) for info in self.entries(parent or "/"))
            found += [f"{parent}/{entry}" for entry in names if fnmatch.fnmatchcase(entry, name)]
        return found


def resolve(url: str, options: Mapping[str, str]) -> tuple[FileSystem, str]:
    """The file system of a path or URL, and the path there.

    options  `s3.NAME` are arguments of pyarrow.fs.S3FileSystem, `fsspec.NAME` of the fsspec file system

    Raises UsageError for a scheme that nothing opens, StoreAccessError.
    """
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme in ("", "file"):
        path = url.removeprefix("file:").removeprefix("//")  # Hadoop writes file:/data
        return FileSystem(pa.fs.LocalFileSystem(), is_local=True), path.rstrip("/") or "/"
    prefix, rest = f"{scheme}://", url.partition("://")[2].rstrip("/")
    s3 = _of_prefix(options, _S3_OPTIONS)
    with _explained(url):
        if scheme == "s3" and s3:
            return FileSystem(_s3(s3), is_local=False, prefix=prefix), rest
        if scheme in ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"):
            # A pattern is no URL: its ? would begin the query.
            bucket, slash, path = rest.partition("/")
            arrow, root = pa.fs.FileSystem.from_uri(prefix + bucket)
            return FileSystem(arrow, is_local=False, prefix=prefix), f"{root}{slash}{path}"
    return _fsspec(url, scheme, _of_prefix(options, _FSSPEC_OPTIONS))


def _of_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)
    }


def _s3(options: dict[str, str]) -> pa.fs.FileSystem:
    arguments: dict[str, Any] = {
        name: value == "true" if value in ("true", "false") else value
        for name, value in options.items()
    }
    try:
        return pa.fs.S3FileSystem(**arguments)
    except TypeError as error:
        raise UsageError(f"s3 options: {error}") from None


def _fsspec(url: str, scheme: str, options: dict[str, str]) -> tuple[FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{url}: pyarrow opens no {scheme}:// paths; install fsspec and what it needs for them"
        ) from None
    try:
        with _explained(url):
            opened, path = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {error}") from None
    arrow = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(opened))
    return FileSystem(arrow, is_local=False, prefix=f"{scheme}://"), path


@dataclass(frozen=True)
class RemoteFiles:
    """Opens files of one file system; can be sent to another process."""

    arrow: pa.fs.FileSystem
    prefix: str

    def __call__(self, path: str) -> RangeReader:
        return RemoteReader(self.arrow, self.prefix, path)


class RemoteReader:
    """A `reput.files.reader.RangeReader` over a file that is not local.

    Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """

    def __init__(self, arrow: pa.fs.FileSystem, prefix: str, path: str) -> None:
        self.path = path
        self._name = prefix + path
        with _explained(self._name):
            self._file = arrow.open_input_file(path)
            self._size = self._file.size()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        view, done = buffer.data, 0
        while done < len(view):
            with _explained(self._name):
                data = self._file.read_at(len(view) - done, position + done)
            if not data:
                raise StoreChangedError(
                    f"{self._name}: ends at {position + done}, was longer when the job began"
                )
            view[done : done + len(data)] = data
            done += len(data)

    def read(self, position: int, length: int) -> bytes:
        buffer = np.empty(length, np.uint8)
        self.read_into(buffer, position)
        return buffer.tobytes()

    def next_run(self, position: int) -> tuple[int, int] | None:
        """No remote file system tells where its holes are."""
        return (position, self._size) if position < self._size else None


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise StoreNotFoundError(f"{path}: not there any more") from None
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, StoreAccessError):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise StoreAccessError(f"{path}: cannot be read: {reason}") from error
