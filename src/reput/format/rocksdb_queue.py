"""Queue entries in RocksDB (`RocksDBConsumeQueueTable`, `RocksDBConsumeQueueOffsetTable`, tag rocketmq-all-5.3.3).

The database is the folder `consumequeue/` (`storeType=defaultRocksDB`). Column family `default` has the entries:

    key    length of the topic 4 | 1 | topic | 1 | queue id 4 | 1 | queue offset 8
    value  physical offset 8 | size 4 | tags code 8 | store timestamp 8

The first three fields of a value are the bytes of a ConsumeQueue entry. Column family `offset` has the ends of the
queues as last written:

    key    length of the topic 4 | 1 | topic | 1 | `max` or `min` | 1 | queue id 4
    value  physical offset 8 | queue offset 8, of the queue's last (`max`) or first (`min`) entry

One item of this family has another form: its topic is CHECKPOINT_TOPIC, with `max` and queue 0. Its value is 8 bytes:
the physical offset after the newest message in the database.

Fields are separated by bars. A number after a name is the length of the field in bytes. The fields `1` are separators:
one byte with the value 1. All integers are big endian, so keys sort by length of topic, topic, queue id, queue offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.format.consume_queue import ENTRY, ConsumeQueueEntry
from reput.format.java_string import decode_utf8, encode_utf8
from reput.format.layout import Layout

ENTRIES_FAMILY, OFFSETS_FAMILY = "default", "offset"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
VALUE = Layout(**ENTRY.codes, store_timestamp="q")
_OFFSETS = struct.Struct(">qq")
_SEPARATOR = b"\x01"
VALUE_BYTES = VALUE.size


class QueueEnd(NamedTuple):
    """The last entry of a queue: physical offset and queue offset of its message."""

    topic: str
    queue_id: int
    physical_offset: int
    queue_offset: int


def queue_prefix(topic: str, queue_id: int) -> bytes:
    """Return the common prefix of the keys of a queue's entries, which ends before the queue offset."""
    name = encode_utf8(topic)
    parts = _INT.pack(len(name)), name, _INT.pack(queue_id), b""
    return _SEPARATOR.join(parts)


def entry_key(prefix: bytes, queue_offset: int) -> bytes:
    return prefix + _LONG.pack(queue_offset)


def queue_offset_of(key: bytes, prefix: bytes) -> int | None:
    """Return the queue offset in the key of an entry of this queue; None for any other key."""
    if len(key) != len(prefix) + _LONG.size or not key.startswith(prefix):
        return None
    offset: int = _LONG.unpack_from(key, len(prefix))[0]
    return offset


def decode_value(value: bytes) -> tuple[ConsumeQueueEntry, int] | None:
    """Return the entry in a value, and its store timestamp (ms). Return None if the value is not an entry."""
    if len(value) != VALUE_BYTES:
        return None
    physical_offset, size, tags_code, store_timestamp = VALUE.struct.unpack(value)
    return ConsumeQueueEntry(physical_offset, size, tags_code), store_timestamp


def encode_value(entry: ConsumeQueueEntry, store_timestamp: int) -> bytes:
    return VALUE.struct.pack(*entry, store_timestamp)


def end_key(topic: str, queue_id: int, which: bytes = b"max") -> bytes:
    """Return the key of a queue's largest queue offset (`max`), or of its smallest (`min`), in the family `offset`."""
    name = encode_utf8(topic)
    return _SEPARATOR.join((_INT.pack(len(name)), name, which, _INT.pack(queue_id)))


CHECKPOINT_KEY = end_key(CHECKPOINT_TOPIC, 0)


def decode_end(key: bytes, value: bytes) -> QueueEnd | None:
    """Return the last entry of a queue from a `max` item of the family `offset`; None for any other item."""
    tail = _SEPARATOR + b"max" + _SEPARATOR
    stop = len(key) - _INT.size
    if len(value) != _OFFSETS.size or stop < _INT.size + 1 or key[stop - len(tail) : stop] != tail:
        return None
    name = key[_INT.size + 1 : stop - len(tail)]
    # A key of another form may contain the bytes of `tail` here by chance. So also check that the key begins with the
    # length of `name`.
    if len(name) != _INT.unpack_from(key)[0]:
        return None
    return QueueEnd(decode_utf8(name), _INT.unpack_from(key, stop)[0], *_OFFSETS.unpack(value))


def encode_end(physical_offset: int, queue_offset: int) -> bytes:
    return _OFFSETS.pack(physical_offset, queue_offset)


def decode_checkpoint(value: bytes | None) -> int:
    """Return the physical offset up to which the database has entries, or 0 if unknown."""
    if value is None or len(value) != _LONG.size:
        return 0
    return max(int(_LONG.unpack(value)[0]), 0)


def encode_checkpoint(physical_offset: int) -> bytes:
    return _LONG.pack(physical_offset)
