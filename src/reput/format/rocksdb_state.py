"""Timers and half messages in RocksDB (5.4): `TimerRocksDBRecord`, `TransRocksDBRecord`, `MessageRocksDBStorage`.

The database that has the index of keys (`rocksdb_index`) has two further column families:

    timer  due time (ms) 8 | unique key                  size 4 | physical offset 8
    trans  physical offset 8 | @ topic @ unique key      number of checks 4 | size 4

Family `timer` also has two progress marks of 8 bytes. `timeline_checkpoint` is the time (ms) before which messages were
delivered. `sys_topic_scan_offset_checkpoint` is the queue offset, in the topic of timers, of the first message that is
not yet in the family. In family `trans`, the value of `lastOffsetPy` is the physical offset of the last half message.
The topic of a transaction is the one to which a commit delivers. All integers are big endian.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from reput.format.java_string import decode_utf8, encode_utf8

TIMER_FAMILY, TRANSACTION_FAMILY = "timer", "trans"
DELIVERED_TO_KEY, READ_TO_KEY = b"timeline_checkpoint", b"sys_topic_scan_offset_checkpoint"
_LONG = struct.Struct(">q")
_TIMER_VALUE, _TRANSACTION_VALUE = struct.Struct(">iq"), struct.Struct(">ii")
_SEPARATOR = "@"
_PARTS = 3


class TimelineItem(NamedTuple):
    """A timer message that waits in the database. `due` is in milliseconds."""

    due: int
    unique_key: str
    size: int
    physical_offset: int

    def encode(self) -> tuple[bytes, bytes]:
        """Return the key and the value of this item."""
        key = _LONG.pack(self.due) + encode_utf8(self.unique_key)
        return key, _TIMER_VALUE.pack(self.size, self.physical_offset)


class HalfItem(NamedTuple):
    """A half message about which the broker still asks its producer. `checks` is the number of these questions."""

    physical_offset: int
    topic: str
    unique_key: str
    checks: int
    size: int

    def encode(self) -> tuple[bytes, bytes]:
        """Return the key and the value of this item."""
        text = _SEPARATOR.join(("", self.topic, self.unique_key))
        key = _LONG.pack(self.physical_offset) + encode_utf8(text)
        return key, _TRANSACTION_VALUE.pack(self.checks, self.size)


def decode_timeline_item(key: bytes, value: bytes) -> TimelineItem | None:
    """Return an item of family `timer`; None for a progress mark, and for bytes that a broker skips."""
    if len(key) <= _LONG.size or len(value) != _TIMER_VALUE.size:
        return None
    size, offset = _TIMER_VALUE.unpack(value)
    due = int(_LONG.unpack_from(key)[0])
    if due <= 0 or size <= 0 or offset < 0:
        return None
    return TimelineItem(due, decode_utf8(key[_LONG.size :]), size, offset)


def decode_half_item(key: bytes, value: bytes) -> HalfItem | None:
    """Return an item of family `trans`; None for the progress mark, and for bytes that a broker skips."""
    if len(key) <= _LONG.size or len(value) != _TRANSACTION_VALUE.size:
        return None
    offset = int(_LONG.unpack_from(key)[0])
    parts = decode_utf8(key[_LONG.size :]).split(_SEPARATOR)
    checks, size = _TRANSACTION_VALUE.unpack(value)
    if offset < 0 or len(parts) != _PARTS or parts[0] or checks < 0 or size <= 0:
        return None
    return HalfItem(offset, parts[1], parts[2], checks, size)
