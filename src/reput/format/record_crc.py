"""The CRC of a whole record, in its last property (`enabledAppendPropCRC`, tag rocketmq-all-5.3.3).

The property is 20 bytes long and ends the record: `__CRC32#`, 0x01, ten decimal digits with the least significant digit
first, 0x02. The number is the CRC-32, without its top bit, of all bytes of the record before the property.
"""

from __future__ import annotations

from zlib import crc32

CRC_PROPERTY_BYTES = 20
CRC_PROPERTY_END = 2
CRC_PROPERTY = "__CRC32#"
_NAME = f"{CRC_PROPERTY}\x01".encode()
_DIGITS = 10


def stated_record_crc(record: bytes | memoryview) -> int | None:
    """Return the CRC that a record states, or None if the property is missing or malformed."""
    if record[-1:] != b"\x02":
        return None
    tail = bytes(record[-CRC_PROPERTY_BYTES:])
    digits = tail[len(_NAME) : len(_NAME) + _DIGITS]
    if not tail.startswith(_NAME) or not digits.isdigit():
        return None
    return int(digits[::-1])


def record_crc(record: bytes | memoryview) -> int:
    """Compute the CRC of a record that ends with its CRC property."""
    # The broker drops the top bit, as for the CRC of a body (`UtilAll.crc32`).
    return crc32(record[:-CRC_PROPERTY_BYTES]) & 0x7FFFFFFF


def encode_crc_property(crc: int) -> bytes:
    return _NAME + f"{crc:0{_DIGITS}d}"[::-1].encode() + b"\x02"


def without_record_crc(properties: bytes) -> bytes:
    """Return the properties of a record without its CRC property."""
    has_crc = stated_record_crc(properties) is not None
    return properties[:-CRC_PROPERTY_BYTES] if has_crc else properties


def record_crc_ok(record: bytes | memoryview) -> bool:
    """Return whether a record matches the CRC that it states; True for a record without a CRC."""
    return stated_record_crc(record) is None or has_right_record_crc(record)


def has_right_record_crc(record: bytes | memoryview) -> bool:
    """Return whether a record states a CRC and matches it."""
    return stated_record_crc(record) == record_crc(record)
