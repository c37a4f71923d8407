"""Tiered storage (5.x, the plugin `tieredstore`, tag rocketmq-all-5.3.3): names of segments, and its index.

A queue has the folder `<root>/<hash>_<cluster>/<broker>/<topic>/<queue id>/`. Its segments lie in the subfolders
COMMIT_LOG, CONSUME_QUEUE and INDEX. The name of a segment is the first eight digits of the MD5 of its offset, then the
offset in 20 digits. A segment of the index has these parts, whose fields are given with their lengths in bytes:

    header  magic 4 | begin 8 | end 8 | used slots 4 | items 4             begin and end are times in ms
    slot    position 4 | bytes 4                                           where the slot's items are
    item    hash 4 | topic 4 | queue id 4 | offset 8 | size 4 | time 4     the offset is in the queue's COMMIT_LOG

The items of a slot are consecutive, newest first. The file that a broker is still filling has another magic. In this
file, all items are numbered from 1, and each slot contains the number of its newest item. An item has 32 bytes: the
fields above, and the number of the previous item in the slot. All integers are big endian.
"""

from __future__ import annotations

import struct
from hashlib import md5
from typing import NamedTuple

from reput.format.file_names import offset_file_name, parse_offset_file_name
from reput.format.index_file import index_key
from reput.format.java_string import hash_code

COMMIT_LOG, CONSUME_QUEUE, INDEX = "COMMIT_LOG", "CONSUME_QUEUE", "INDEX"
INDEX_TOPIC = "rmq_sys_INDEX"
SEALED_MAGIC = 0xBCC50285 - (1 << 32)
OPEN_MAGIC = 0xBCC50289 - (1 << 32)
_HEADER = struct.Struct(">iqqii")
_SLOT = struct.Struct(">ii")
_ITEM = struct.Struct(">iiiqii")
_LOCAL_ITEM = struct.Struct(">iiiqiii")
LOCAL_ITEM_BYTES = _LOCAL_ITEM.size
HEADER_BYTES, SLOT_BYTES, ITEM_BYTES = _HEADER.size, _SLOT.size, _ITEM.size
_HASH_DIGITS = 8


class TieredItem(NamedTuple):
    """An item of the index: the hash of a key, and the place of a record with this key."""

    key_hash: int
    topic_id: int
    queue_id: int
    position: int
    size: int
    seconds: int


class TieredIndexHeader(NamedTuple):
    """The header of a segment, and the number of its slots."""

    begin: int
    end: int
    slots: int
    items: int


def segment_name(offset: int) -> str:
    return md5(str(offset).encode(), usedforsecurity=False).hexdigest()[
        :_HASH_DIGITS
    ] + offset_file_name(offset)


def parse_segment_name(name: str) -> int | None:
    """Return the offset at which the segment of this name begins; None if the name is not a segment's."""
    offset = parse_offset_file_name(name[_HASH_DIGITS:])
    # A segment's name begins with digits of the MD5 of its offset. A name with other digits belongs to another file.
    return offset if offset is not None and segment_name(offset) == name else None


def tiered_key_hash(topic: str, key: str) -> int:
    """Return the hash of a key in the index.

    It differs from an IndexFile's hash only if the Java hash code is the smallest int.
    """
    value = hash_code(index_key(topic, key))
    # Java's Math.abs returns the smallest integer unchanged.
    return value if value == -(1 << 31) else abs(value)


def decode_tiered_header(data: bytes, segment_bytes: int) -> TieredIndexHeader:
    """Return the header. Raises ValueError if the segment is not a complete index file."""
    if len(data) < _HEADER.size:
        raise ValueError(f"{len(data)} bytes are too few for an index segment")
    magic, begin, end, _, items = _HEADER.unpack_from(data)
    # The header does not state the number of slots, so compute it from the size of the segment.
    slot_bytes = segment_bytes - _HEADER.size - items * _ITEM.size
    if magic != SEALED_MAGIC or items < 0 or slot_bytes <= 0 or slot_bytes % _SLOT.size:
        raise ValueError("not the header of an index segment")
    return TieredIndexHeader(begin, end, slot_bytes // _SLOT.size, items)


def decode_tiered_slot(data: bytes) -> tuple[int, int]:
    """Return position and length, in bytes, of a slot's items in the segment. Raises ValueError."""
    if len(data) != _SLOT.size:
        raise ValueError(f"{len(data)} bytes are not a slot")
    position, length = _SLOT.unpack(data)
    if length < 0 or length % _ITEM.size or position < 0:
        raise ValueError(f"invalid slot: {length} bytes of items at position {position}")
    return position, length


def decode_tiered_items(data: bytes) -> list[TieredItem]:
    """Return consecutive items. An incomplete item at the end is dropped."""
    # The last item may be incomplete if the data was cut off.
    whole = len(data) - len(data) % _ITEM.size
    return [TieredItem(*fields) for fields in _ITEM.iter_unpack(data[:whole])]


def decode_local_items(header: bytes) -> int:
    """Return the number of items in a file that a broker is still filling. Raises ValueError for any other file."""
    if len(header) < _HEADER.size:
        raise ValueError(f"{len(header)} bytes are too few for an index file")
    magic, _, _, _, items = _HEADER.unpack_from(header)
    if magic not in (OPEN_MAGIC, SEALED_MAGIC) or items < 0:
        raise ValueError("not the header of an index file")
    return int(items)


def decode_local_item(data: bytes) -> tuple[TieredItem, int]:
    """Return an item, and the number of the previous item in its slot. Raises ValueError for an incomplete item."""
    if len(data) != _LOCAL_ITEM.size:
        raise ValueError(f"an item has {_LOCAL_ITEM.size} bytes, not {len(data)}")
    *item, previous = _LOCAL_ITEM.unpack(data)
    return TieredItem(*item), previous
