"""Verify the record of an erasure: its signature, and the tombstones that it names in a store or an archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from os import PathLike, fspath

from reput.base import checked
from reput.core import MessageStore, unwrap
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.erasure import (
    ERASED_PROPERTY,
    KEPT_PROPERTIES,
    ErasedRecord,
    Erasure,
    decode_stored,
)
from reput.format.signature import Signature
from reput.io import Signer, size_of, storage_of
from reput.wings.erase.report import VerifyErasureReport

# A record of ten million erased messages is smaller.
_MOST_BYTES = 1 << 30


@checked
def verify_erasure(
    record: str | PathLike[str],
    store: str | PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> VerifyErasureReport:
    """Verify the signature of an erasure's record and, with a store, that its messages are erased there.

    Args:
        record: The file that `erase` has written; of an archive, `erasures/ID.json` in it.
        store: The copy of the store, or the archive, whose messages were erased; None to verify only the signature.
        storage_options: Options as for `open_store`.

    Returns:
        A report. It states the key that has signed the record: compare it with the key of the person who signs.

    Raises:
        FormatError: The file is not a record of an erasure.
        StoreNotFoundError, StoreAccessError, MissingExtraError.
    """
    path = fspath(record)
    erasure, signed, signature = _read(path, storage_options)
    problems: list[str] = []
    if signature is not None and not Signer.has_signed(signed, signature):
        problems.append("the signature does not match the record")
    tombstones = expired = 0
    if store is not None and not problems:
        with MessageStore(store, storage_options=storage_options) as opened:
            begin = opened.begin_offset()
            present = [erased for erased in erasure.records if erased.physical_offset >= begin]
            expired = len(erasure.records) - len(present)
            problems = list(_problems(opened, present))
            tombstones = len(present) - len(problems)
    return VerifyErasureReport(
        path, None if store is None else fspath(store), erasure.id, erasure.erased_at, erasure.by,
        erasure.reason, erasure.source, len(erasure.records), len(erasure.files), _signed_by(signature),
        tombstones, expired, tuple(problems),
    )  # fmt: skip


def _read(path: str, options: Mapping[str, str] | None) -> tuple[Erasure, bytes, Signature | None]:
    storage, place = storage_of(path, options, lists_all=False)
    if storage.is_archive:
        raise FormatError(path, 0, "is an archive; its records are the files in erasures/")
    if storage.entry(place) is None:
        raise StoreNotFoundError(f"{path}: no such file")
    with closing(storage.open(place)) as reader:
        size = size_of(place, storage)
        if size > _MOST_BYTES:
            raise FormatError(path, 0, f"has {size:,} bytes, more than an erasure record can have")
        data = reader.read(0, size)
    try:
        return decode_stored(data)
    except ValueError as error:
        raise FormatError(path, 0, str(error)) from None


def _signed_by(signature: Signature | None) -> str:
    return "" if signature is None else signature.public_key


def _problems(store: MessageStore, records: list[ErasedRecord]) -> Iterator[str]:
    """Yield a line per record that has content, or cannot be read."""
    for record in records:
        offset = record.physical_offset
        try:
            message = store.get(offset)
            if message.size_bytes != record.size:
                yield f"physical offset {offset:,}: has another message"
            elif not _is_tombstone(message, record.inner):
                yield f"physical offset {offset:,}: has content"
        except MessageNotFoundError:
            yield f"physical offset {offset:,}: the log does not have this message"
        except (CorruptMessageError, StoreNotFoundError) as error:
            yield f"physical offset {offset:,}: cannot be read: {error}"


def _is_tombstone(message: MessageExt, inner: tuple[int, ...] | None) -> bool:
    """Return whether a message, or the messages of a batch with these queue offsets, have no content."""
    if inner is None and _is_empty(message):
        return True
    parts = [part for part in unwrap(message) if inner is None or part.queue_offset in inner]
    return bool(parts) and all(map(_is_empty, parts))


def _is_empty(message: MessageExt) -> bool:
    return not any(message.body) and {*message.properties} <= {ERASED_PROPERTY, *KEPT_PROPERTIES}
