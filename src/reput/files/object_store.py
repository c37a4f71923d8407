"""Objects in a bucket or folder that several writers can replace without losing each other's changes.

Writers need two conditions: `put_new` creates an object only if none has its name, and `put_if_match` replaces only the
version that was read. S3, GCS and Azure implement them by If-None-Match and If-Match (through obstore, because
pyarrow.fs silently ignores them), a folder by a lock. An acknowledgement may be lost. So if a write is refused and the
object has exactly its bytes, the write counts as done. Each writer's bytes must therefore differ, for example by a
random number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from reput.errors import ObjectConflictError, StoreAccessError, StoreNotFoundError, UsageError

_MOST_NAME_BYTES = 900
MOST_PUT_BYTES = 64 << 20
"""The largest conditional write, which is one request: uploads in parts have no condition."""
MOST_GET_BYTES = 4 * MOST_PUT_BYTES
"""The largest object that is read at once; reput writes no larger object to be read so."""


class ObjectInfo(NamedTuple):
    """An object of a listing: its name, its bytes, and when it was written (ns since 1970)."""

    name: str
    size: int
    modified_ns: int


class StoredObject(NamedTuple):
    """The bytes of an object, and its version for `put_if_match`."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """Objects by name, below one place. For use from several threads; can be sent to another process.

    Every method raises StoreUnreachableError for a temporary fault, after which a write may or may not have happened.
    It raises StoreAccessError for a permanent fault, and UsageError for a name that no object can have.
    """

    place: str

    def put_new(self, name: str, data: bytes) -> str:
        """Create an object and return its version. Raises ObjectConflictError if it exists.

        Data of more than MOST_PUT_BYTES is refused with a UsageError, here and below.
        """

    def put_if_match(self, name: str, data: bytes, version: str) -> str:
        """Replace the object if it has this version; return the new one.

        Raises ObjectConflictError for another version.
        """

    def upload(self, name: str, chunks: Iterable[bytes]) -> int:
        """Write a large object in parts, whole or not at all, and return its bytes.

        Without a condition: the name must be the writer's own, for instance with a UUID in it. An object that exists
        before the upload begins is not replaced; of two simultaneous writers, the last wins. Raises ObjectConflictError
        if the object exists.
        """

    def get(self, name: str) -> StoredObject:
        """Return a whole object. Raises StoreNotFoundError, StoreAccessError for more than MOST_GET_BYTES."""

    def has_version(self, name: str, version: str) -> bool:
        """Return whether an object has the version that `get` returned. Raises StoreNotFoundError."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Read part of an object. Raises StoreChangedError if the object ends before, StoreNotFoundError."""

    def head(self, name: str) -> ObjectInfo:
        """Return an object's size and version. Raises StoreNotFoundError."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose names begin so, in any order."""

    def copy(self, source: str, name: str) -> None:
        """Write an object with the bytes of another, replacing an existing object.

        Raises StoreNotFoundError if the source is missing.
        """

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""


def check_conditions(store: ObjectStore, folder: str = "") -> None:
    """Try both conditions on a test object in a folder, whose name ends with /.

    Raises UsageError if one is ignored.
    """
    name = f"{folder}reput-probe-{uuid.uuid4().hex}"
    try:
        version = store.put_new(name, b"1")
        ignored = []
        with suppress(ObjectConflictError):
            store.put_new(name, b"2")
            ignored.append("If-None-Match")
        if not ignored:
            store.put_if_match(name, b"3", version)
            with suppress(ObjectConflictError):
                store.put_if_match(name, b"4", version)
                ignored.append("If-Match")
    finally:
        with suppress(StoreAccessError):
            store.delete(name)
    if ignored:
        raise UsageError(
            f"{store.place}: ignores conditional writes ({ignored[0]}), so two writers would overwrite each other; "
            "choose a bucket of S3, GCS or Azure, a newer server, or a folder"
        )


def check_name(name: str) -> None:
    """Raise UsageError for a name that would leave the place, or that not every store can have."""
    parts = name.split("/")
    if (
        not name
        or len(name.encode(errors="replace")) > _MOST_NAME_BYTES
        or any(part in ("", ".", "..") or part.startswith(".reput") for part in parts)
        or not name.isprintable()
        or "\\" in name
    ):
        raise UsageError(f"{name!r}: no name for an object")


def check_size(name: str, data: bytes) -> None:
    """Raise UsageError for more bytes than a conditional write accepts."""
    if len(data) > MOST_PUT_BYTES:
        raise UsageError(
            f"{name}: {len(data):,} bytes, but a conditional write takes at most {MOST_PUT_BYTES:,}; upload them under "
            "a name of their own, and write that name"
        )


def check_readable(place: str, size: int) -> None:
    """Raise StoreAccessError for more bytes than `get` returns."""
    if size > MOST_GET_BYTES:
        raise StoreAccessError(f"{place}: has {size:,} bytes; at most {MOST_GET_BYTES:,} are read")


def settle_conflict(
    store: ObjectStore, name: str, data: bytes, conflict: ObjectConflictError
) -> str:
    """Return the version of the object if it has this data, written by our own unacknowledged attempt.

    Otherwise raises the conflict.
    """
    try:
        found = store.get(name)
    except StoreNotFoundError:
        raise conflict from None
    if found.data != data:
        raise conflict
    return found.version
