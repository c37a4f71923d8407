"""The index of keys in RocksDB (RIP-82, RocketMQ 5.4): `IndexRocksDBRecord` and `IndexRocksDBStore`.

The database is `RocksDBMessageStore/` in the store, column family `default`:

    key    hour 8 | @ topic @ K @ key @ unique key @ | physical offset 8      a key of KEYS
    key    hour 8 | @ topic @ U @ unique key @       | physical offset 8      a unique key
    key    hour 8 | @ topic @ T @ tag @ unique key @ | physical offset 8      tags
    value  store timestamp 8

The hour is the store timestamp in milliseconds, rounded down to the hour. The value of `lastOffsetPy` is the physical
offset of the last indexed message. All integers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from reput.format.java_string import decode_utf8, encode_utf8

INDEX_FAMILY = "default"
LAST_OFFSET_KEY = b"lastOffsetPy"
HOUR_MS = 3_600_000
KEY_TYPE, UNIQUE_TYPE = "K", "U"
_LONG = struct.Struct(">q")
_SEPARATOR = "@"
_LEAST_BYTES = 2 * _LONG.size + len("@t@U@u@")


class IndexedKey(NamedTuple):
    """A topic and a key of this topic."""

    topic: str
    key: str


class RocksIndexItem(NamedTuple):
    """An item of the index.

    A key may contain the separator, so the stored key can be split in several ways. `names` has the result of each way.
    """

    hour: int
    physical_offset: int
    names: tuple[IndexedKey, ...]


def hour_of(store_timestamp: int) -> int:
    return store_timestamp - store_timestamp % HOUR_MS


def first_of_hour(hour: int) -> bytes:
    """Return the common prefix of all keys of an hour."""
    return _LONG.pack(hour)


def prefixes(hour: int, name: IndexedKey) -> tuple[bytes, bytes]:
    """Return the two prefixes that a key's items of one hour can have.

    Items for a unique key have the first prefix, and items for one of KEYS have the second.
    """
    begin = first_of_hour(hour)
    unique, key = (
        encode_utf8(f"@{name.topic}@{kind}@{name.key}@") for kind in (UNIQUE_TYPE, KEY_TYPE)
    )
    return begin + unique, begin + key


def decode_offset(value: bytes | None) -> int | None:
    """Return the number in a value of eight bytes; None for any other value."""
    return int(_LONG.unpack(value)[0]) if value is not None and len(value) == _LONG.size else None


def decode_item(key: bytes) -> RocksIndexItem | None:
    """Return the item with this key; None for items of tags and for malformed keys."""
    if len(key) < _LEAST_BYTES:
        return None
    text = decode_utf8(key[_LONG.size : -_LONG.size])
    if text[0] != _SEPARATOR or text[-1] != _SEPARATOR:
        return None
    topic, _, rest = text[1:-1].partition(_SEPARATOR)
    kind, _, rest = rest.partition(_SEPARATOR)
    if kind == UNIQUE_TYPE:
        keys = [rest]
    elif kind == KEY_TYPE:
        # The key and the unique key after it may contain "@", so any "@" may be the end of the key.
        keys = list(_beginnings(rest))
    else:
        return None
    names = tuple(IndexedKey(topic, one) for one in keys if one)
    hour, offset = _LONG.unpack_from(key)[0], _LONG.unpack_from(key, len(key) - _LONG.size)[0]
    return RocksIndexItem(hour, offset, names)


def _beginnings(text: str) -> Iterator[str]:
    """Yield the beginning of a text before each separator, shortest first."""
    at = text.find(_SEPARATOR)
    while at >= 0:
        yield text[:at]
        at = text.find(_SEPARATOR, at + 1)
