"""ConsumeQueue extension files (`ConsumeQueueExt`, tag rocketmq-all-5.3.3, as in 4.9.3), for `enableConsumeQueueExt`.

A queue's files lie in `consumequeue_ext/<topic>/<queue id>/`. Each is named by the byte offset of its first unit. A
unit is big endian:

    size 2 | tags code 8 | store timestamp 8 | size of the bit map 2 | bit map

If the file has no room for the next unit and four more bytes, it ends with a size of -1, then zeros. The ConsumeQueue
entry of a unit has the unit's address in place of the tags code. The address is the unit's position in the queue's
extension files plus the smallest 64-bit integer. Tags codes are 32-bit hashes or times, so none is as small as an
address.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_UNIT = struct.Struct(">hqqh")
UNIT_BYTES = _UNIT.size
"""Size of a unit without a bit map, including its length field."""
FILE_END = b"\xff\xff"
"""The marker after the last unit of a file that has no room for another unit."""
END_BYTES = 4
"""Bytes that must remain free in a file after each unit."""
MAX_UNIT_BYTES = (1 << 15) - 1
_FIRST_ADDRESS = -(1 << 63)
# A tags code is a hash or the address of a unit. Addresses are negative: even the greatest one
# (`ConsumeQueueExt.MAX_ADDR`) is smaller than every 32-bit hash.
LAST_ADDRESS = -(1 << 31) - 1


class ExtensionUnit(NamedTuple):
    """The extension of a ConsumeQueue entry. `bit_map` serves the broker's SQL filters."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes

    @property
    def size_bytes(self) -> int:
        return UNIT_BYTES + len(self.bit_map)


def is_address(tags_code: int) -> bool:
    """Return whether the tags code of an entry is the address of a unit.

    In RocketMQ: isExtAddr, getExt.
    """
    return tags_code <= LAST_ADDRESS


def position_of(address: int) -> int:
    """Return the byte offset, in the queue's extension files, of the unit with this address."""
    return address - _FIRST_ADDRESS


def address_of(position: int) -> int:
    return position + _FIRST_ADDRESS


def unit_size(data: bytes) -> int:
    """Return the size of a unit, which is in its first two bytes. Raises struct.error for fewer bytes.

    A size below UNIT_BYTES is invalid.
    """
    size: int = struct.unpack_from(">h", data)[0]
    return size


def decode_unit(data: bytes) -> ExtensionUnit | None:
    """Return the unit at the start of these bytes; None if it is incomplete or its sizes contradict each other."""
    if len(data) < UNIT_BYTES:
        return None
    size, tags_code, store_timestamp, bit_map_bytes = _UNIT.unpack_from(data)
    if bit_map_bytes < 0 or size != UNIT_BYTES + bit_map_bytes or size > len(data):
        return None
    return ExtensionUnit(tags_code, store_timestamp, bytes(data[UNIT_BYTES:size]))


def encode_unit(unit: ExtensionUnit) -> bytes:
    """Return the bytes of a unit. Raises struct.error for a bit map of 32 KiB or more."""
    return (
        _UNIT.pack(unit.size_bytes, unit.tags_code, unit.store_timestamp, len(unit.bit_map))
        + unit.bit_map
    )
