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


def join_record(
    head: tuple[int, int, int, int, int, int, int, int],
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    tail: tuple[int, int, int],
    body: bytes | memoryview,
    topic: bytes,
    properties: bytes,
) -> bytes:
    """A record. `head` is MAGIC to BORNTIMESTAMP, `tail` RECONSUMETIMES to the body's length, `topic` has its length.

    Raises struct.error for a number that does not fit its field.
    """
    total = (
        FIXED_BYTES + len(born_host) + len(store_host) + len(body) + len(topic) + len(properties)
    )
    return b"".join((
        HEAD.pack(total, *head), born_host, STORE_TIMESTAMP.pack(store_timestamp), store_host,
        TAIL.pack(*tail), body, topic, PROPERTIES.pack(len(properties)), properties,
    ))  # fmt: skip
