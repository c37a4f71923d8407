"""Extract columns from CommitLog records with checked lengths: fixed fields, texts, hosts.

The records come from a walk (`reput.kernels.commit_log_scan`), so every part lies inside the buffer.
`reput.format.commit_log` describes their layout.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    BODY_CRC_POSITION,
    MAGIC_POSITION,
    PROPERTIES_LENGTH_BYTES,
    STORE_HOST_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_POSITION,
)
from reput.kernels.bytes_out import copy_bytes, put_i64
from reput.kernels.checksum import crc32
from reput.kernels.integers import (
    WORD_BYTES,
    bits_of,
    byte_at,
    read_i32,
    read_i64,
    same_bytes,
    word_at,
)
from reput.kernels.java_utf8 import WORST_GROWTH, is_ascii, put_text
from reput.kernels.jit import njit
from reput.kernels.record_walk import (
    body_bytes_before,
    body_of,
    properties_bytes_before,
    store_timestamp_at,
    topic_bytes_before,
    topic_length_bytes,
)

PARTS_DTYPE = np.dtype(
    [
        ("record", "i8"),
        ("store_timestamp", "i8"),
        ("body", "i8"),
        ("body_bytes", "i8"),
        ("topic", "i8"),
        ("topic_bytes", "i8"),
        ("properties", "i8"),
        ("properties_bytes", "i8"),
    ]
)
# Distance from STORETIMESTAMP to STOREHOST.
_STORE_HOST_AFTER = STORE_HOST_POSITION - STORE_TIMESTAMP_POSITION
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@njit(cache=True, nogil=True)
def locate_parts(data, positions, parts):
    """Find the parts of each record, such as its body and topic.

    positions  position of each record in `data`
    parts      PARTS_DTYPE[n], set to the position of each part in `data`, and to its length
    """
    for row in range(len(positions)):
        at = positions[row]
        sys_flag = read_i32(data, at + SYS_FLAG_POSITION)
        part = parts[row]
        part.record = at
        part.store_timestamp = store_timestamp_at(at, sys_flag)
        body = body_of(at, sys_flag)
        body_bytes = body_bytes_before(data, body)
        part.body, part.body_bytes = body, body_bytes
        magic = read_i32(data, at + MAGIC_POSITION)
        topic = body + body_bytes + topic_length_bytes(magic)
        topic_bytes = topic_bytes_before(data, topic, magic)
        part.topic, part.topic_bytes = topic, topic_bytes
        properties = topic + topic_bytes + PROPERTIES_LENGTH_BYTES
        part.properties = properties
        part.properties_bytes = properties_bytes_before(data, properties)


@njit(cache=True, nogil=True)
def gather_i32(data, start, step, out):
    """Set out[i] (int32) to the integer that begins at data[start[i] + step]."""
    for row in range(len(start)):
        out[row] = read_i32(data, start[row] + step)


@njit(cache=True, nogil=True)
def gather_i64(data, start, step, out):
    """Set out[i] (int64) to the integer that begins at data[start[i] + step]."""
    for row in range(len(start)):
        out[row] = read_i64(data, start[row] + step)


@njit(cache=True, nogil=True)
def gather_micros(data, start, step, out, valid):
    """Convert the milliseconds (int64) that begin at data[start[i] + step] to microseconds, and write them to out[i].

    If the microseconds exceed int64, out[i] and valid[i] are 0. Otherwise, valid[i] is 1. Returns the number of times
    that exceed int64.
    """
    missing = 0
    # The largest time in milliseconds whose microseconds fit in an int64.
    limit = np.int64(9223372036854775)
    for row in range(len(start)):
        stamp = read_i64(data, start[row] + step)
        fits = -limit <= stamp <= limit
        valid[row] = fits
        out[row] = stamp * 1000 if fits else 0
        missing += not fits
    return missing


@njit(cache=True, nogil=True)
def bodies_match(data, parts, out):
    """Set out[i] (uint8) to whether a body has the CRC that its record states. An empty body always matches."""
    for row in range(len(parts)):
        start, count = parts[row].body, parts[row].body_bytes
        # A record states the CRC without its top bit (`UtilAll.crc32`).
        stated = read_i32(data, parts[row].record + BODY_CRC_POSITION)
        out[row] = count == 0 or (crc32(data, start, start + count) & 0x7FFFFFFF) == stated


@njit(cache=True, nogil=True)
def worst_text_bytes(data, start, count):
    """Return an upper bound of the bytes that `copy_texts` writes for the texts data[start[i]:start[i] + count[i]].

    A text can grow, because Java replaces malformed UTF-8 by U+FFFD, which has three bytes.
    """
    total = np.int64(0)
    for row in range(len(start)):
        ascii_only = is_ascii(data, start[row], start[row] + count[row])
        total += count[row] if ascii_only else WORST_GROWTH * count[row]
    return total


@njit(cache=True, nogil=True)
def copy_runs(data, start, count, offsets, out):
    """Concatenate data[start[i]:start[i] + count[i]]; set offsets, int32[n + 1]."""
    at = np.int64(0)
    offsets[0] = 0
    for row in range(len(start)):
        copy_bytes(out, at, data, start[row], count[row])
        at += count[row]
        offsets[row + 1] = at


@njit(cache=True, nogil=True)
def copy_texts(data, start, count, offsets, out, valid):
    """Copy texts, and replace malformed UTF-8 as Java does. Return the bytes written and the number of empty texts.

    valid[i], uint8, is 0 for an empty text.
    """
    at, empty = np.int64(0), 0
    offsets[0] = 0
    for row in range(len(start)):
        at = put_text(out, at, data, start[row], start[row] + count[row])
        offsets[row + 1] = at
        valid[row] = count[row] > 0
        empty += count[row] == 0
    return at, empty


@njit(cache=True, nogil=True)
def number_runs(data, start, step, stop, slots, first, number):
    """Assign numbers to the distinct byte strings data[start[i] + step:stop[i]]. Return the number of distinct strings.

    Each string has 8 bytes or more.

    slots   int32, zeros; its length is a power of two of at least 2n
    first   int64[n], set to the first row of each distinct string
    number  int32[n], set to the number of each row's string
    """
    used = 0
    mask = len(slots) - 1
    found = -1
    for row in range(len(start)):
        at = start[row] + step
        count = stop[row] - at
        # Consecutive rows are often equal, so compare with the previous row's string first.
        if found < 0 or not _same_run(data, at, count, start, step, stop, first[found]):
            slot = _slot_of(data, at, count) & mask
            while True:
                found = slots[slot] - 1
                if found < 0:
                    found = used
                    slots[slot] = used + 1
                    first[used] = row
                    used += 1
                    break
                if _same_run(data, at, count, start, step, stop, first[found]):
                    break
                slot = (slot + 1) & mask
        number[row] = found
    return used


@njit(inline="always")
def _same_run(data, at, count, start, step, stop, row):
    other = start[row] + step
    return stop[row] - other == count and same_bytes(data, at, data, other, count)


@njit(inline="always")
def _slot_of(data, at, count):
    mixed = np.uint64(0)
    end = at + count
    while at + WORD_BYTES <= end:
        mixed = (mixed ^ word_at(data, at)) * _MIX
        mixed ^= mixed >> _SHIFT
        at += WORD_BYTES
    while at < end:
        mixed = (mixed ^ np.uint64(byte_at(data, at))) * _MIX
        at += 1
    return np.int64(mixed >> _SHIFT)


@njit(cache=True, nogil=True)
def put_message_ids(data, start, physical_offset, offsets, out):
    """Write the offset id of each record in hexadecimal: the store host, then the physical offset.

    start            int64[n], positions of STORETIMESTAMP in `data`; the store host follows it
    physical_offset  int64[n]
    offsets          int32[n + 1], set by the caller: id i is out[offsets[i]:offsets[i + 1]], 32 or (IPv6) 56 digits
    """
    for row in range(len(start)):
        # The last 16 digits are the physical offset. The others are the host, which has 8 or 20 bytes.
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1]) - 16
        host = start[row] + _STORE_HOST_AFTER
        while at < stop:
            _put_digits(out, at, read_i32(data, host))
            host += 4
            at += 8
        _put_digits(out, at, physical_offset[row] >> 32)
        _put_digits(out, at + 8, physical_offset[row])


@njit(inline="always")
def _put_digits(out, at, value):
    """Write the lower 32 bits of a number in hexadecimal.

    All eight digits are converted in parallel: they are first spread to one per byte, then turned into characters.
    """
    digits = bits_of(value) & np.uint64(0xFFFFFFFF)
    digits = (digits | digits << np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    digits = (digits | digits << np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    digits = (digits | digits << np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    is_letter = (digits + np.uint64(0x0606060606060606)) >> np.uint64(4) & np.uint64(
        0x0101010101010101
    )
    put_i64(out, at, np.int64(digits + np.uint64(0x3030303030303030) + is_letter * np.uint64(7)))
