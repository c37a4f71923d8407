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


def _fixed(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    """TOTALSIZE to the body's length."""
    parts = HEAD.format, f"{born_host_bytes}s", STORE_TIMESTAMP.format, f"{store_host_bytes}s"
    return struct.Struct(">" + "".join(part.lstrip(">") for part in (*parts, TAIL.format)))


_HOST_BYTES = (8, 20)  # IPv4 and IPv6
_FIXED = {(born, store): _fixed(born, store) for born in _HOST_BYTES for store in _HOST_BYTES}


def join_record(
    fields: tuple[int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int],
    body: bytes | memoryview,
    topic: bytes,
    properties: bytes,
) -> bytes:
    """A record. `fields` is MAGIC to the body's length with both hosts as bytes, `topic` has its length before it.

    Raises struct.error for a number that does not fit its field.
    """
    _, _, _, _, _, _, _, _, born_host, _, store_host, _, _, _ = fields
    fixed = _FIXED[len(born_host), len(store_host)]
    total = fixed.size + len(body) + len(topic) + PROPERTIES.size + len(properties)
    return b"".join(
        (fixed.pack(total, *fields), body, topic, PROPERTIES.pack(len(properties)), properties)
    )
