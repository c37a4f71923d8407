"""Overwrite bodies and properties of records in place, as `reput.format.erasure` describes.

A record keeps its length. If its properties have too little room for the tombstone, the body becomes shorter.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    BODY_CRC_POSITION,
    BODY_LENGTH_BYTES,
    CRC_PROPERTY,
    CRC_PROPERTY_BYTES,
    MAGIC_POSITION,
    PROPERTIES_LENGTH_BYTES,
    SYS_FLAG_BODY_FORM,
    SYS_FLAG_POSITION,
    encode_crc_property,
)
from reput.kernels.bytes_out import put_byte, put_i16, put_i32
from reput.kernels.checksum import crc32
from reput.kernels.integers import byte_at, read_i32, same_bytes
from reput.kernels.jit import njit
from reput.kernels.properties_scan import next_property
from reput.kernels.record_walk import (
    body_bytes_before,
    body_of,
    topic_bytes_before,
    topic_length_bytes,
)

SCRATCH_BYTES = 1 << 17
"""Room for a topic and properties. Each is below 32 KiB, but a length and a separator are added to them."""
_CRC_NAME = np.frombuffer(f"{CRC_PROPERTY}\x01".encode(), np.uint8).copy()
_CRC_PROPERTY = np.frombuffer(encode_crc_property(0), np.uint8).copy()
_CRC_BYTES, _CRC_DIGITS = CRC_PROPERTY_BYTES, 10


@njit(cache=True, nogil=True)
def erase_records(data, position, keeps_body, kept, kept_at, tombstone, scratch):
    """Erase whole records, and return the number of records that are too short for a tombstone.

    data        uint8, contains every record completely; the caller has checked the lengths in each record
    position    int64 per record
    keeps_body  uint8 per record: 1 to erase only its properties, because `erase_inner` has already erased all messages
                in its body
    kept, kept_at  names of properties that stay: name i is kept[kept_at[i]:kept_at[i + 1]]
    tombstone   uint8, the property that marks an erased record: the property's name, the byte 1, the property's value
    scratch     uint8[SCRATCH_BYTES]
    """
    bare = 0
    for row in range(len(position)):
        begin = position[row]
        sys_flag = read_i32(data, begin + SYS_FLAG_POSITION)
        # The new body is zeros, so clear the flags that would make readers decompress or unwrap it.
        if not keeps_body[row]:
            put_i32(data, begin + SYS_FLAG_POSITION, sys_flag & ~SYS_FLAG_BODY_FORM)
        body_at = body_of(begin, sys_flag)
        magic = read_i32(data, begin + MAGIC_POSITION)
        length_bytes = topic_length_bytes(magic)
        topic_at = body_at + body_bytes_before(data, body_at) + length_bytes
        topic = length_bytes + topic_bytes_before(data, topic_at, magic)
        end = begin + read_i32(data, begin)
        bare += not _erase(
            data, body_at, topic, end, keeps_body[row], kept, kept_at, tombstone, scratch
        )
    # Compute the CRCs last, because they cover the final bytes.
    seal_records(data, position)
    return bare


@njit(cache=True, nogil=True)
def erase_inner(data, body_at, end, kept, kept_at, tombstone, scratch):
    """Erase messages inside batches, and return the number of messages that are too short for a tombstone.

    body_at, end  int64 per message: position of its body, and end of the message

    The other arguments are as in `erase_records`.
    """
    bare = 0
    for row in range(len(body_at)):
        bare += not _erase(data, body_at[row], 0, end[row], 0, kept, kept_at, tombstone, scratch)
    return bare


@njit(cache=True, nogil=True)
def seal_records(data, position):
    """Recompute the CRCs of records: first the body's, then the whole record's (5.x), which covers the body's CRC."""
    for row in range(len(position)):
        begin = position[row]
        end = begin + read_i32(data, begin)
        body_at = body_of(begin, read_i32(data, begin + SYS_FLAG_POSITION))
        body = body_bytes_before(data, body_at)
        crc = 0
        if body:
            crc = crc32(data, body_at, body_at + body) & 0x7FFFFFFF
        put_i32(data, begin + BODY_CRC_POSITION, crc)
        if _has_crc(data, body_at, end):
            crc = crc32(data, begin, end - _CRC_BYTES) & 0x7FFFFFFF
            at = end - 1 - _CRC_DIGITS
            for digit in range(_CRC_DIGITS):
                put_byte(data, at + digit, 48 + crc % 10)
                crc //= 10


@njit(inline="always")
def _has_crc(data, start, end):
    """Return whether the record that ends at `end` ends with the CRC property."""
    at = end - _CRC_BYTES
    if at < start or byte_at(data, end - 1) != 2:
        return False
    return same_bytes(data, at, _CRC_NAME, 0, len(_CRC_NAME))


@njit(cache=True, nogil=True)
def _erase(data, body_at, topic, end, keeps_body, kept, kept_at, tombstone, scratch):
    """Erase body and properties of a record or inner message; return whether a tombstone was written.

    body_at     position of the body
    topic       number of bytes of the topic and its length field, which stay between body and properties; 0 for an
                inner message, which has no topic
    end         end of the record
    keeps_body  1 to erase only the properties, because all messages inside the body are already erased
    """
    body = body_bytes_before(data, body_at)
    old = body_at + body + topic + PROPERTIES_LENGTH_BYTES
    # First copy the topic and the kept properties to `scratch`, because their old and new places may overlap.
    for index in range(topic):
        scratch[index] = data[body_at + body + index]
    own = topic
    name, name_stop, stop = next_property(data, old, end)
    while name < end:
        for number in range(len(kept_at) - 1):
            length = kept_at[number + 1] - kept_at[number]
            if length == name_stop - name and same_bytes(data, name, kept, kept_at[number], length):
                for index in range(stop - name):
                    scratch[own + index] = data[name + index]
                own += stop - name
                scratch[own] = 2
                own += 1
                break
        name, name_stop, stop = next_property(data, stop + 1, end)
    # Only a whole record can end with a CRC property. A message inside a batch is not a whole record: it has no topic,
    # so `topic` is 0.
    crc = _CRC_BYTES if topic and end - old >= _CRC_BYTES and _has_crc(data, old, end) else 0
    room = end - old - (own - topic) - crc
    value = _value_bytes(tombstone)
    # The tombstone takes bytes of the body if the properties have too little room.
    wanted = 0 if keeps_body else min(max(len(tombstone) + 1 - room, 0), body)
    # The tombstone is a property. It is written if its name, two separators and one character of its value fit into the
    # record. The rest of its value may be cut.
    has_tombstone = room + wanted >= len(tombstone) - value + 2
    if not has_tombstone:
        # In `scratch`, each kept property ends with a separator. If the record's last property had no separator, the
        # kept properties can be one byte longer than all old properties.
        if room < 0:
            own -= 1
            room = 0
        wanted = 0 if keeps_body else -room
    new_body = body - wanted
    at = body_at + body if keeps_body else body_at
    for index in range(at, end):
        data[index] = 0
    put_i32(data, body_at - BODY_LENGTH_BYTES, new_body)
    at = body_at + new_body
    for index in range(topic):
        data[at + index] = scratch[index]
    at += topic
    put_i16(data, at, end - at - PROPERTIES_LENGTH_BYTES)
    at += PROPERTIES_LENGTH_BYTES
    for index in range(topic, own):
        data[at] = scratch[index]
        at += 1
    if has_tombstone:
        stop = end - crc - 1
        for index in range(stop - at):
            data[at + index] = tombstone[index] if index < len(tombstone) else 32
        data[stop] = 2
    if crc:
        for index in range(crc):
            data[end - crc + index] = _CRC_PROPERTY[index]
    return has_tombstone


@njit(inline="always")
def _value_bytes(tombstone):
    at = 0
    while tombstone[at] != 1:
        at += 1
    return len(tombstone) - at - 1
