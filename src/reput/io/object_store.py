"""Define object stores: several writers can replace the same object without losing each other's changes.

Writers need two conditions. `put_new` creates an object only if none has its name. `put_if_match` replaces only the
version that was read. S3, GCS and Azure implement the conditions by If-None-Match and If-Match. The conditions are sent
through obstore, because pyarrow.fs silently ignores them. A local folder implements them by a lock.

The acknowledgement of a successful write may be lost, and a retry is then refused. So a refused write counts as done if
the object has exactly its bytes. Each writer's bytes must therefore differ, for example by a random number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

from reput.errors import ObjectConflictError, StoreAccessError, StoreNotFoundError, UsageError

# Maximum size of a name. S3 allows 1,024 bytes for a name and the path (folder in the bucket) before it, so at least
# 124 bytes remain for the path.
_MOST_NAME_BYTES = 900
MOST_PUT_BYTES = 64 << 20
"""The largest conditional write. It is a single request, because an upload in parts cannot be conditional."""
MOST_GET_BYTES = 4 * MOST_PUT_BYTES
"""The largest object that `get` reads. Larger objects are read by ranges."""


class ObjectInfo(NamedTuple):
    """An object of a listing: name, size in bytes, and time of its last write (ns since 1970)."""

    name: str
    size: int
    modified_ns: int


class StoredObject(NamedTuple):
    """The content of an object, and its version for `put_if_match`."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """A store of objects by name, in one bucket or folder. Any thread may use the store.

    The store can be sent to another process.

    Every method raises StoreUnreachableError for a temporary fault, after which a write may or may not have happened.
    It raises StoreAccessError for a permanent fault, and UsageError for an invalid object name.
    """

    place: str

    def put_new(self, name: str, data: bytes) -> str:
        """Create an object and return its version. Raises ObjectConflictError if it exists.

        Raises UsageError for more than MOST_PUT_BYTES, as does `put_if_match`.
        """

    def put_if_match(self, name: str, data: bytes, version: str) -> str:
        """Replace the object if it has this version, and return the new version.

        Raises ObjectConflictError if it has another version.
        """

    def upload(self, name: str, chunks: Iterable[bytes]) -> int:
        """Write a large object in parts, and return its size. Readers see the whole object or none.

        Whether an object of this name exists is checked only before the upload. If two writers upload the same name at
        the same time, the last one replaces the object of the other. So the name must be unique to the writer, for
        example by a UUID.

        Raises ObjectConflictError if the object exists before the upload.
        """

    def get(self, name: str) -> StoredObject:
        """Return a whole object. Raises StoreNotFoundError; StoreAccessError if it has more than MOST_GET_BYTES."""

    def has_version(self, name: str, version: str) -> bool:
        """Return whether an object has the version that `get` returned. Raises StoreNotFoundError."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return part of an object. Raises StoreNotFoundError, and StoreChangedError if the object is too short."""

    def head(self, name: str) -> ObjectInfo:
        """Return an object's size and time of writing. Raises StoreNotFoundError."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects whose names begin with `prefix`, in any order."""

    def copy(self, source: str, name: str) -> None:
        """Write an object with the bytes of another, replacing an existing object.

        Raises StoreNotFoundError if the source is missing.
        """

    def delete(self, name: str) -> None:
        """Delete an object if it exists."""


def check_conditions(store: ObjectStore, folder: str = "") -> None:
    """Test with a temporary object whether the store heeds the conditions of `put_new` and `put_if_match`.

    `folder` is empty, or the name of a folder for this object, which ends with /.

    Raises UsageError if the store ignores a condition.
    """
    name = f"{folder}reput-probe-{uuid.uuid4().hex}"
    try:
        # A server that does not support conditional writes ignores the condition, and writes. So test with writes that
        # must be refused.
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
    """Raise UsageError for a name that leads out of the bucket or folder, or that some object stores refuse."""
    parts = name.split("/")
    if (
        not name
        or len(name.encode(errors="replace")) > _MOST_NAME_BYTES
        # Names that begin with .reput are reserved, for example for the lock of a local folder.
        or any(part in ("", ".", "..") or part.startswith(".reput") for part in parts)
        or not name.isprintable()
        or "\\" in name
    ):
        raise UsageError(f"{name!r}: is not a valid object name")


def check_size(name: str, data: bytes) -> None:
    """Raise UsageError for more bytes than a conditional write accepts."""
    if len(data) > MOST_PUT_BYTES:
        raise UsageError(
            f"{name}: {len(data):,} bytes, but a conditional write takes at most {MOST_PUT_BYTES:,}; upload the "
            f"data as a separate object, and write the name of that object into {name}"
        )


def check_readable(place: str, size: int) -> None:
    """Raise StoreAccessError for an object that is larger than the limit of `get`."""
    if size > MOST_GET_BYTES:
        raise StoreAccessError(
            f"{place}: is not read, because it has {size:,} bytes; reput never writes more than "
            f"{MOST_GET_BYTES:,} bytes there, so another program must have written it"
        )


def settle_conflict(
    store: ObjectStore, name: str, data: bytes, conflict: ObjectConflictError
) -> str:
    """Settle a conflict in which an earlier attempt of this process may have written the object `name`.

    If the object has exactly this data, that attempt wrote it: return its version. Otherwise, raise the conflict.
    """
    try:
        present = store.get(name)
    except StoreNotFoundError:
        raise conflict from None
    if present.data != data:
        raise conflict
    return present.version
