"""The fixed parts of a CommitLog record, and how they are joined; `reput.format.commit_log` tells what they mean."""

from __future__ import annotations

import struct

HEAD = struct.Struct(">iiiiiqqiq")  # TOTALSIZE .. BORNTIMESTAMP
STORE_TIMESTAMP = struct.Struct(">q")
TAIL = struct.Struct(">iqi")  # RECONSUMETIMES, PREPAREDTRANSACTIONOFFSET, body length
SIZE_AND_MAGIC = struct.Struct(">ii")
TOPIC_V1 = struct.Struct(">b")
TOPIC_V2 = struct.Struct(">h")
PROPERTIES = struct.Struct(">h")
FIXED_BYTES = HEAD.size + STORE_TIMESTAMP.size + TAIL.size + PROPERTIES.size
"""Bytes of a record besides its hosts, its body, its topic with the length of that, and its properties."""


def _fixed_part(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    parts = HEAD.format, f"{born_host_bytes}s", STORE_TIMESTAMP.format, f"{store_host_bytes}s"
    return struct.Struct(">" + "".join(part.lstrip(">") for part in (*parts, TAIL.format)))


_HOST_BYTES = (8, 20)  # IPv4 and IPv6
FIXED_PARTS = {
    (born, store): _fixed_part(born, store) for born in _HOST_BYTES for store in _HOST_BYTES
}
"""TOTALSIZE to the body's length, by the bytes of both hosts."""


def record_bytes(fixed_part: struct.Struct, body: int, topic: int, properties: int) -> int:
    """TOTALSIZE of a record with one of FIXED_PARTS; the others in bytes, the topic with its length before it."""
    return fixed_part.size + body + topic + PROPERTIES.size + properties


def join_record(
    fixed_part: bytes, body: bytes | memoryview, topic: bytes, properties: bytes
) -> bytes:
    """A record, of one of FIXED_PARTS packed, and what comes behind it; `topic` has its length before it.

    Raises struct.error for properties that do not fit their field.
    """
    return b"".join((fixed_part, body, topic, PROPERTIES.pack(len(properties)), properties))
