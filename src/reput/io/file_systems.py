"""Open files on remote file systems through pyarrow.fs or fsspec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs

from reput.base import Closing, first_line
from reput.errors import (
    StoreAccessError,
    StoreChangedError,
    StoreNotFoundError,
    StoreUnreachableError,
    UsageError,
)
from reput.io.deadlines import CONNECT_S, OF_CACHES, POLICY, Deadlines, within
from reput.io.reader import RangeReader

_S3_OPTIONS = "s3."
_FSSPEC_OPTIONS = "fsspec."
_TRANSIENT = re.compile(
    r"HTTP status (408|429|5\d\d)|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING|REQUEST_TIMEOUT"
    r"|NETWORK_CONNECTION"
)
"""Matches pyarrow's error texts for faults that the provider's library calls retryable."""


@dataclass(frozen=True)
class FileSystem:
    """A remote file system.

    arrow   lists and opens files
    prefix  part of a URL before the path: its scheme
    limits  deadlines of its requests
    """

    arrow: pa.fs.FileSystem
    prefix: str
    limits: Deadlines = POLICY

    def info(self, path: str) -> pa.fs.FileInfo:
        """Return the type and size of a path. Raises StoreAccessError."""
        place = self.prefix + path
        with _explained(place):
            return within(self.limits.metadata, place, lambda: self.arrow.get_file_info(path))

    def entries(self, folder: str, recursive: bool = False) -> list[pa.fs.FileInfo]:
        """Return the entries of a folder, sorted by path; if `recursive`, also those of its subfolders.

        Raises StoreAccessError.
        """
        selector = pa.fs.FileSelector(folder, allow_not_found=True, recursive=recursive)
        place, limit = self.prefix + folder, self.limits.data if recursive else self.limits.metadata
        with _explained(place):
            infos = within(limit, place, lambda: self.arrow.get_file_info(selector))
        return sorted(infos, key=lambda info: str(info.path))


def resolve(url: str, options: Mapping[str, str]) -> tuple[FileSystem, str]:
    """Return the file system of a URL, and the path in it.

    options  `s3.NAME` are arguments of pyarrow.fs.S3FileSystem, `fsspec.NAME` of the fsspec file system

    Raises StoreAccessError, and UsageError for a scheme that no library opens.
    """
    # "::" chains fsspec file systems. It is used for caches, which fetch whole files.
    limits = OF_CACHES if "::" in url else _limits(options)
    return within(limits.metadata, url, lambda: _resolve(url, options, limits))


def _limits(options: Mapping[str, str]) -> Deadlines:
    """Return the deadlines. A deadline shorter than s3.request_timeout is extended to it. Raises UsageError."""
    try:
        timeout_s = float(options.get("s3.request_timeout", 0))
    except ValueError as error:
        raise UsageError(f"s3 options: request_timeout: {error}") from None
    return Deadlines(max(POLICY.metadata, timeout_s), max(POLICY.data, timeout_s))


def _resolve(url: str, options: Mapping[str, str], limits: Deadlines) -> tuple[FileSystem, str]:
    scheme = urlsplit(url).scheme
    prefix, rest = f"{scheme}://", url.partition("://")[2].rstrip("/")
    s3 = _of_prefix(options, _S3_OPTIONS)
    with _explained(url):
        if scheme == "s3" and s3:
            return FileSystem(_s3(s3), prefix, limits), rest
        if scheme in ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"):
            # Only the bucket is parsed as a URL. The path may be a pattern, whose ? would begin the query of a URL.
            bucket, slash, path = rest.partition("/")
            arrow, root = pa.fs.FileSystem.from_uri(prefix + bucket)
            return FileSystem(arrow, prefix, limits), f"{root}{slash}{path}"
    return _fsspec(url, scheme, _of_prefix(options, _FSSPEC_OPTIONS), limits)


def _of_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name[len(prefix) :]: value for name, value in options.items() if name.startswith(prefix)
    }


def _s3(options: dict[str, str]) -> pa.fs.FileSystem:
    try:
        arguments: dict[str, Any] = {
            name: value == "true"
            if value in ("true", "false")
            # All options arrive as text, but S3FileSystem accepts only numbers (seconds) as time-outs.
            else float(value)
            if name.endswith("_timeout")
            else value
            for name, value in options.items()
        }
        return pa.fs.S3FileSystem(**{"connect_timeout": CONNECT_S, **arguments})
    except (TypeError, ValueError) as error:
        raise UsageError(f"s3 options: {error}") from None


def _fsspec(
    url: str, scheme: str, options: dict[str, str], limits: Deadlines
) -> tuple[FileSystem, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(
            f"{url}: pyarrow does not support {scheme}://; pip install fsspec, and its package for this scheme"
        ) from None
    try:
        with _explained(url):
            system, path = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: {error}") from None
    arrow = pa.fs.PyFileSystem(pa.fs.FSSpecHandler(system))
    return FileSystem(arrow, f"{scheme}://", limits), path


@dataclass(frozen=True)
class RemoteFiles:
    """A function that opens files of one file system by their URLs. It can be sent to another process."""

    system: FileSystem

    def __call__(self, url: str) -> RangeReader:
        return RemoteReader(self.system, url.removeprefix(self.system.prefix))


class RemoteReader(Closing):
    """A `reput.io.reader.RangeReader` of a remote file.

    Its methods raise StoreNotFoundError, StoreAccessError, StoreChangedError.
    """

    def __init__(self, system: FileSystem, path: str) -> None:
        self.path = path
        self._name, self._limits = system.prefix + path, system.limits
        with _explained(self._name):
            self._file, size = within(
                self._limits.metadata, self._name, lambda: _opened(system.arrow, path)
            )
        self.size: int = size

    def close(self) -> None:
        self._file.close()

    def read_into(self, buffer: npt.NDArray[np.uint8], position: int) -> None:
        # A file system may return fewer bytes than requested, so the rest is requested again.
        view, done = buffer.data, 0
        while done < len(view):
            with _explained(self._name):
                data = self._read_at(len(view) - done, position + done)
            if not data:
                raise StoreChangedError(
                    f"{self._name}: ends at {position + done}, but was longer when the job began"
                )
            view[done : done + len(data)] = data
            done += len(data)

    def _read_at(self, length: int, position: int) -> bytes:
        limit = self._limits.for_bytes(length)
        data: bytes = within(limit, self._name, lambda: self._file.read_at(length, position))
        return data

    def read(self, position: int, length: int) -> bytes:
        buffer = np.empty(length, np.uint8)
        self.read_into(buffer, position)
        return buffer.tobytes()

    def stop_read_ahead(self) -> None:
        """Do nothing: read-ahead does harm only in a file with holes, and remote files have none."""

    def next_run(self, position: int) -> tuple[int, int] | None:
        """Return the rest of the file as one run: remote file systems do not report holes."""
        return (position, self.size) if position < self.size else None


def _opened(arrow: pa.fs.FileSystem, path: str) -> tuple[Any, int]:
    file = arrow.open_input_file(path)
    return file, file.size()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise StoreNotFoundError(f"{path}: no longer exists") from None
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, StoreAccessError):
            raise
        # Use only the first line of an error. Later lines contain the response body.
        reason = first_line(error)
        kind = StoreUnreachableError if _TRANSIENT.search(reason) else StoreAccessError
        raise kind(f"{path}: cannot be read: {reason}") from error
