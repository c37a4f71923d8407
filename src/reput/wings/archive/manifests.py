"""Change the manifest of an archive with optimistic concurrency, so that no archiver's changes are lost."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec

from reput.errors import ObjectConflictError, StoreNotFoundError, StoreUnreachableError, UsageError
from reput.format.archive import Manifest, chained, checksum_of, encode_manifest
from reput.format.file_names import ARCHIVE_MANIFEST
from reput.io import MOST_PUT_BYTES, Archive, ObjectStore

_MOST_TRIES = 100
Change = Callable[[Manifest], Manifest | None]
"""A function that returns the new manifest, or None for no change. It may be called several times."""


def commit(objects: ObjectStore, change: Change) -> Manifest:
    """Apply a change to the manifest, and return the new manifest. If another archiver commits first, try again.

    Raises StoreUnreachableError, StoreAccessError, FormatError, UsageError.
    """
    for _ in range(_MOST_TRIES):
        stored_manifest = objects.get(ARCHIVE_MANIFEST)
        before = Archive.manifest_of(objects, stored_manifest.data)
        after = change(before)
        if after is None:
            return before
        after = _sealed(after, before.generation + 1)
        try:
            objects.put_if_match(
                ARCHIVE_MANIFEST, _encoded(objects, after), stored_manifest.version
            )
        except ObjectConflictError:
            # Another archiver has committed first. Apply the change to its manifest.
            continue
        return after
    raise StoreUnreachableError(
        f"{objects.place}: other archivers keep changing it; run the command again"
    )


def create(objects: ObjectStore, manifest: Manifest) -> Manifest:
    """Create the manifest, or return the existing one. Raises the errors of `commit`."""
    try:
        return Archive.manifest_of(objects, objects.get(ARCHIVE_MANIFEST).data)
    except StoreNotFoundError:
        pass
    first = _sealed(manifest, 0)
    try:
        objects.put_new(ARCHIVE_MANIFEST, _encoded(objects, first))
    except ObjectConflictError:  # Another archiver has created the manifest first.
        return Archive.manifest_of(objects, objects.get(ARCHIVE_MANIFEST).data)
    return first


def _sealed(manifest: Manifest, generation: int) -> Manifest:
    sealed = msgspec.structs.replace(
        manifest, generation=generation, writer=uuid.uuid4().hex,
        chain=chained(manifest.log, manifest.before),
    )  # fmt: skip
    return msgspec.structs.replace(sealed, checksum=checksum_of(sealed))


def _encoded(objects: ObjectStore, manifest: Manifest) -> bytes:
    data = encode_manifest(manifest)
    if len(data) > MOST_PUT_BYTES:
        raise UsageError(
            f"{objects.place}: the archive's manifest would exceed {MOST_PUT_BYTES:,} bytes; "
            "choose a new, empty destination"
        )
    return data
