"""The record of an erasure: which records were erased, by whom, why and when, without their content.

A record is named by its place and by the SHA-256 of its bytes before. So the owner of a copy can prove that
this message was erased. The signature is of the bytes as they are stored.
"""

from __future__ import annotations

import msgspec

from reput.format.signature import Signature

ERASURE_FORM = 1


class ErasedRecord(msgspec.Struct, frozen=True, array_like=True):
    """One record of the log.

    Attributes:
        physical_offset, size: where it lies
        sha256: of its bytes before; empty if the record has no hashes
        inner: queue offsets of the messages of a batch that were erased; None if all of the record was
    """

    physical_offset: int
    size: int
    sha256: str
    inner: tuple[int, ...] | None = None


class ChangedFile(msgspec.Struct, frozen=True):
    """A log file with such records.

    Attributes:
        begin: its first physical offset
        before, after: SHA-256 of its bytes; `before` is empty if the record has no hashes
    """

    begin: int
    before: str
    after: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an erasure.

    Attributes:
        id: drawn for it; the tombstones have it
        erased_at: in UTC
        by, reason: as they were stated
        source: the store or archive
        topics: the requested ones; keys and a query are not recorded, because they may be personal data
        records: in the order of the log
        files: the log files that have them
    """

    reput_erasure: int = ERASURE_FORM
    id: str
    erased_at: str
    by: str
    reason: str
    source: str
    topics: tuple[str, ...]
    records: tuple[ErasedRecord, ...]
    files: tuple[ChangedFile, ...]


class _Stored(msgspec.Struct, frozen=True):
    erasure: msgspec.Raw
    signature: Signature | None = None


def encode_erasure(erasure: Erasure) -> bytes:
    """Return the bytes that are signed."""
    return msgspec.json.encode(erasure)


def encode_stored(erasure: bytes, signature: Signature | None) -> bytes:
    """Return the stored form: the record and its signature."""
    return msgspec.json.encode(_Stored(msgspec.Raw(erasure), signature))


def decode_stored(data: bytes) -> tuple[Erasure, bytes, Signature | None]:
    """Return a record, the bytes that are signed, and the signature. Raises ValueError."""
    try:
        stored = msgspec.json.decode(data, type=_Stored)
        raw = bytes(stored.erasure)
        return msgspec.json.decode(raw, type=Erasure), raw, stored.signature
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"not the record of an erasure: {error}") from None
