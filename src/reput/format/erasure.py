"""Erasure records: which records of the log were erased, by whom, why and when, without their content.

An erased record is identified by its place and by the SHA-256 of its former bytes. So a person with a copy of the
message can prove that it was erased. An erasure record is stored as JSON. If it is signed, the signature covers exactly
these JSON bytes.

An erased record stays in the log as a tombstone, marked by a property. A tombstone keeps its record's length, header
and topic. Its body is zeros. Of the properties, it keeps those on which queues depend: destination and due time of a
delayed message, the queue offsets of a batch, and the further queues (INNER_MULTI_DISPATCH) that get an entry for the
message.
"""

from __future__ import annotations

import msgspec

from reput.format import properties
from reput.format.signature import Signature, decode_signed, encode_signed

ERASURE_FORM = 1

ERASED_PROPERTY = "REPUT_ERASED"
"""Name of the property that marks an erased message. Its value is the id of the erasure, padded with spaces."""

KEPT_PROPERTIES = (
    properties.DELAY,
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.TIMER_OUT_MS,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
    properties.TIMER_ROLL_TIMES,
    "TIMER_DELAY_LEVEL",
    properties.INNER_NUM,
    properties.INNER_BASE,
    properties.INNER_MULTI_DISPATCH,
    properties.INNER_MULTI_QUEUE_OFFSET,
    properties.PREPARED,
    properties.PRODUCER_GROUP,
    properties.TRANSACTION_CHECK_TIMES,
    "TRAN_PREPARED_QUEUE_OFFSET",
    properties.RETRY_TOPIC,
    properties.WAIT,
    properties.CLUSTER,
)
"""Properties that a tombstone keeps. Without REAL_QID, a broker would not deliver later messages of the delay level."""


class ErasedRecord(msgspec.Struct, frozen=True, array_like=True):
    """One erased record of the log.

    Attributes:
        physical_offset, size: its place
        sha256: SHA-256 of its former bytes; empty if the erasure was recorded without hashes
        inner: queue offsets of the erased messages of a batch; None if the whole record was erased
    """

    physical_offset: int
    size: int
    sha256: str
    inner: tuple[int, ...] | None = None


class ChangedFile(msgspec.Struct, frozen=True):
    """A log file with erased records.

    Attributes:
        begin: physical offset at which it begins
        before, after: SHA-256 of the file before and after the erasure; `before` is empty if the erasure was recorded
            without hashes
    """

    begin: int
    before: str
    after: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure record.

    Attributes:
        id: random id of the erasure, which its tombstones contain
        erased_at: time in UTC
        by, reason: the person who requested it and the reason, as the caller stated them
        source: the store or archive
        topics: the requested topics; keys and queries are not recorded, because they may be personal data
        records: the erased records, in the order of the log
        files: the log files that contained them
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


def encode_erasure(erasure: Erasure) -> bytes:
    """Return an erasure record as JSON. These bytes are signed."""
    return msgspec.json.encode(erasure)


def encode_stored(erasure: bytes, signature: Signature | None) -> bytes:
    """Return the stored form of an encoded erasure record: a JSON object with the record and its signature."""
    return encode_signed("erasure", erasure, signature)


def decode_stored(data: bytes) -> tuple[Erasure, bytes, Signature | None]:
    """Return three values: a stored erasure record, its JSON bytes, and the signature of these bytes.

    Raises ValueError for any other data.
    """
    return decode_signed(data, "erasure", Erasure, "an erasure record")
