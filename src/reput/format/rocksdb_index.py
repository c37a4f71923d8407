"""The index of keys in RocksDB (RIP-82, RocketMQ 5.4): `IndexRocksDBRecord` and `IndexRocksDBStore`.

The database is `RocksDBMessageStore/` in the store, column family `default`:

    key    hour 8 | @ topic @ K @ key @ unique key @ | physical offset 8      a key of KEYS
    key    hour 8 | @ topic @ U @ unique key @       | physical offset 8      a unique key
    key    hour 8 | @ topic @ T @ tag @ unique key @ | physical offset 8      tags
    value  store timestamp 8

The hour is the store timestamp in milliseconds, rounded down to the hour. The value of `lastOffsetPy` is the physical
offset of the last indexed message. The value of `lastStoreTimeStamp` is a store timestamp. All integers are big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from reput.format.commit_log import SYS_FLAG_ROLLBACK, SYS_FLAG_TRANSACTION_MASK, MessageExt
from reput.format.index_file import KEY_TYPE, TAG_TYPE, UNIQUE_TYPE
from reput.format.java_string import decode_utf8, encode_utf8

INDEX_FAMILY = "default"
LAST_OFFSET_KEY, LAST_TIME_KEY = b"lastOffsetPy", b"lastStoreTimeStamp"
HOUR_MS = 3_600_000
_LONG = struct.Struct(">q")
_LATEST = (1 << 63) - 1
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
    return _LONG.pack(min(hour, _LATEST))


def first_of_topic(hour: int, before: bytes | None = None) -> bytes:
    """Return the least key of an hour's items, or of its items after those of the topic `before`."""
    begin = first_of_hour(hour) + _SEPARATOR.encode()
    # "A" is the byte that follows the separator.
    return begin if before is None else begin + before + b"A"


def prefixes(hour: int, name: IndexedKey) -> tuple[bytes, bytes]:
    """Return the two prefixes that a key's items of one hour can have.

    Items for a unique key have the first prefix, and items for one of KEYS have the second.
    """
    begin = first_of_hour(hour)
    unique, key = (
        encode_utf8(f"@{name.topic}@{kind}@{name.key}@") for kind in (UNIQUE_TYPE, KEY_TYPE)
    )
    return begin + unique, begin + key


def encode_offset(number: int) -> bytes:
    """Return the value of an item: a physical offset or a time."""
    return _LONG.pack(number)


def index_items(message: MessageExt) -> list[tuple[bytes, bytes]]:
    """Return the items that a broker puts for a message, with their values, in its order.

    A message that is rolled back, or that has no unique key or no store timestamp, gets no items.
    """
    unique, hour = message.unique_key, hour_of(message.store_timestamp)
    is_rolled_back = message.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK
    if not unique or not message.topic or is_rolled_back or hour <= 0:
        return []
    parts = [f"{KEY_TYPE}@{key}@{unique}@" for key in dict.fromkeys(message.keys)]
    if message.tags:
        parts.append(f"{TAG_TYPE}@{message.tags}@{unique}@")
    parts.append(f"{UNIQUE_TYPE}@{unique}@")
    end, value = _LONG.pack(message.physical_offset), _LONG.pack(message.store_timestamp)
    begin = first_of_hour(hour)
    return [(begin + encode_utf8(f"@{message.topic}@{part}") + end, value) for part in parts]


def item_offset(key: bytes) -> int | None:
    """Return the physical offset of any item; None for the progress marks and for malformed keys."""
    is_item = len(key) >= _LEAST_BYTES and key[_LONG.size : _LONG.size + 1] == _SEPARATOR.encode()
    return int(_LONG.unpack_from(key, len(key) - _LONG.size)[0]) if is_item else None


def decode_hour(item: bytes) -> int:
    """Return the hour of an item."""
    return int(_LONG.unpack_from(item)[0])


def topic_of(item: bytes) -> bytes:
    """Return the topic of an item, encoded."""
    return item[_LONG.size + 1 :].partition(_SEPARATOR.encode())[0]


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
