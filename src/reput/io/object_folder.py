"""Store objects in a local folder. Each object is a file, and one process at a time writes."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reput.errors import (
    ObjectConflictError,
    StoreLockedError,
    StoreNotFoundError,
    StoreUnreachableError,
    explained,
)
from reput.io.deadlines import POLICY
from reput.io.lock import locked
from reput.io.object_store import ObjectInfo, StoredObject, check_name, check_readable, check_size
from reput.io.reader import FileReader
from reput.io.writer import FileWriter, delete, make_folder, replacing, sync_folder, write_durable

_LOCK_FILE = ".reput-lock"
# Seconds between two attempts to take the lock.
_PAUSE_S = 0.002


class ObjectFolder:
    """See `reput.io.object_store.ObjectStore`. A version is the SHA-256 of the content."""

    def __init__(self, place: str, *, is_made: bool = True) -> None:
        """Open the folder. If the folder is missing and `is_made` is true, create it.

        If `is_made` is false, read a missing folder as an empty one.
        """
        self.place, self._root = place, Path(place).absolute()
        if is_made:
            make_folder(self._root)

    def put_new(self, name: str, data: bytes) -> str:
        path = self._path(name)
        check_size(name, data)
        # All conditional writes take this lock, so none can come between the test and the write.
        with self._locked():
            if path.exists():
                raise ObjectConflictError(f"{path}: exists already")
            self._write(path, [data])
        return _version_of(data)

    def put_if_match(self, name: str, data: bytes, version: str) -> str:
        path = self._path(name)
        check_size(name, data)
        with self._locked():
            if not path.exists() or self.get(name).version != version:
                raise ObjectConflictError(f"{path}: was replaced or deleted meanwhile")
            self._write(path, [data])
        return _version_of(data)

    def upload(self, name: str, chunks: Iterable[bytes]) -> int:
        path = self._path(name)
        if path.exists():
            raise ObjectConflictError(f"{path}: exists already")
        return self._write(path, chunks)

    def _write(self, path: Path, chunks: Iterable[bytes]) -> int:
        # The names of new folders must be durable as well, so the parent of each is synced at the end.
        missing = [folder for folder in path.parents if not folder.exists()]
        make_folder(path.parent)
        with replacing(path) as attempt:
            # This creates the file, which `FileWriter` then opens.
            write_durable(attempt, b"")
            size = 0
            with FileWriter(attempt) as file:
                for chunk in chunks:
                    file.write(chunk, size)
                    size += len(chunk)
                file.sync()
        for folder in {path.parent, *(parent.parent for parent in missing)}:
            sync_folder(folder)
        return size

    def get(self, name: str) -> StoredObject:
        with FileReader(str(self._path(name))) as reader:
            check_readable(reader.path, reader.size)
            data = reader.read(0, reader.size)
        return StoredObject(data, _version_of(data))

    def has_version(self, name: str, version: str) -> bool:
        return self.get(name).version == version

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with FileReader(str(self._path(name))) as reader:
            return reader.read(start, length)

    def head(self, name: str) -> ObjectInfo:
        path = self._path(name)
        with explained(path, "be looked at"):
            try:
                status = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                raise StoreNotFoundError(f"{path}: no longer exists") from None
        return ObjectInfo(name, status.st_size, status.st_mtime_ns)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        objects = []
        with explained(self._root, "be read"):
            for folder, _, files in os.walk(self._root):
                for file in files:
                    path = Path(folder, file)
                    name = str(path.relative_to(self._root))
                    # Temporary files and the lock are not objects.
                    is_ours = not file.endswith(".tmp") and file != _LOCK_FILE
                    if is_ours and name.startswith(prefix) and path.is_file():
                        status = path.stat()
                        objects.append(ObjectInfo(name, status.st_size, status.st_mtime_ns))
        yield from sorted(objects)

    def copy(self, source: str, name: str) -> None:
        data = self.get(source).data
        with self._locked():
            self._write(self._path(name), [data])

    def delete(self, name: str) -> None:
        path = self._path(name)
        with self._locked():
            if path.exists():
                delete(path)
                sync_folder(path.parent)

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._root / name

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock during the with block. The wait for the lock has the time limit of a bucket request.

        Raises StoreUnreachableError, StoreAccessError.
        """
        path, until = self._root / _LOCK_FILE, time.monotonic() + POLICY.data
        while True:
            try:
                with locked(path, "another process is writing there; run the command again later"):
                    yield
                return
            except StoreLockedError as error:
                if time.monotonic() > until:
                    raise StoreUnreachableError(str(error)) from None
            time.sleep(_PAUSE_S)


def _version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
