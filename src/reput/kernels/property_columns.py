"""Columns out of properties strings: the wanted values, lists of keys, maps of all properties.

The rule is `reput.format.properties.decode_properties`: a chunk between two \\x02 counts if its first \\x01 is
neither its first nor its last character, and the last of several with one name wins, in the place of the first.
"""

from __future__ import annotations

import numpy as np

from reput.kernels.bytes_out import put_byte, put_i64
from reput.kernels.integers import byte_at, read_i64, trailing_zeros, word_at
from reput.kernels.java_hash import java_hash
from reput.kernels.java_utf8 import put_text, same_text
from reput.kernels.jit import njit
from reput.kernels.properties_scan import (
    bytes_below_3,
    find_index_properties,
    next_property,
    next_space,
)

SPANS_DTYPE = np.dtype(
    [
        ("unique_key", "i8"),
        ("unique_key_bytes", "i8"),
        ("keys", "i8"),
        ("keys_bytes", "i8"),
        ("tags", "i8"),
        ("tags_bytes", "i8"),
    ]
)
LEAST_PROPERTY_BYTES = 4
"""A name, a value, and two separators: a string of n bytes holds at most (n + 1) // 4 properties."""

_MAX_STRING_BYTES = 1 << 15
_FEW = 24  # names are compared one by one up to here
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_TOP_BITS = np.uint64(0x8080808080808080)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SLOTS = 1 << 15
_MASK = np.int64(_SLOTS - 1)


_UNIQ_KEY_MARK = np.uint64(int.from_bytes(b"UNIQ_KEY", "little"))
_KEYS_MARK = np.uint64(int.from_bytes(b"KEYS", "little"))
_TAGS_MARK = np.uint64(int.from_bytes(b"TAGS", "little"))


@njit(cache=True, nogil=True)
def find_spans(data, parts, spans):
    """Where UNIQ_KEY, KEYS and TAGS of each record lie, SPANS_DTYPE[n]; 0 bytes where there is none."""
    for row in range(len(parts)):
        _find_span(data, parts, row, spans[row])


@njit(inline="always")
def _find_span(data, parts, row, span):
    start = parts[row].properties
    stop = start + parts[row].properties_bytes
    unique, unique_stop, keys, keys_stop, tags, tags_stop, _ = find_index_properties(
        data, start, stop
    )
    span.unique_key, span.unique_key_bytes = unique, unique_stop - unique
    span.keys, span.keys_bytes = keys, keys_stop - keys
    span.tags, span.tags_bytes = tags, tags_stop - tags


@njit(cache=True, nogil=True)
def split_keys(data, start, count, lists, offsets, out):
    """The keys of each data[start[i]:start[i] + count[i]], between spaces; none is empty.

    lists    int32[n + 1], where the keys of each row begin
    offsets  int32, one more than there can be keys: where each begins in `out`
    Returns keys and bytes written.
    """
    keys, at = 0, np.int64(0)
    offsets[0], lists[0] = 0, 0
    for row in range(len(start)):
        position, stop = start[row], start[row] + count[row]
        while position < stop:
            space = next_space(data, position, stop)
            if space > position:
                at = put_text(out, at, data, position, space)
                keys += 1
                offsets[keys] = at
            position = space + 1
        lists[row + 1] = keys
    return keys, at


@njit(inline="always")
def _put_up_to_separator(out, at, data, position, stop):
    """Copy data[position:] up to the next byte 1 or 2, or `stop`; where that is, and the position behind the copy.

    The latter is -1 where a byte is not ASCII. Up to 7 bytes behind the copy may be overwritten.
    """
    while position < stop:
        if position + 8 > len(data) or at + 8 > len(out):
            byte = byte_at(data, position)
            if byte == 1 or byte == 2:
                break
            if byte >= 0x80:
                return position, np.int64(-1)
            put_byte(out, at, byte)
            position += 1
            at += 1
            continue
        word = word_at(data, position)
        below_3 = bytes_below_3(word)
        count = min(stop - position, 8)
        if below_3:
            count = min(count, np.int64(trailing_zeros(below_3) >> 3))
        if word & _TOP_BITS & ~_bytes_from(count):
            return position, np.int64(-1)
        put_i64(out, at, read_i64(data, position))
        position += count
        at += count
        if count < 8 and position < stop:
            if byte_at(data, position) != 0:
                break
            put_byte(out, at, 0)
            position += 1
            at += 1
    return position, at


@njit(inline="always")
def _bytes_from(count):
    """The bytes of a word from number 0 <= count <= 8 on."""
    return _ALL << np.uint64(8 * count) if count < 8 else np.uint64(0)


@njit(inline="always")
def _mark_of(data, start, stop):
    """A number that names have in common only if they are the same, or as good as never; 8 bytes can be read."""
    count = stop - start
    word = word_at(data, start)
    if count <= 8:
        return word & ~_bytes_from(count)
    return word ^ (word_at(data, stop - 8) * _MIX) ^ np.uint64(count)


@njit(cache=True, nogil=True)
def split_properties(data, parts, spans, maps, name_offsets, names, value_offsets, values):
    """All properties of each record as names and values.

    spans  as `find_spans` sets them
    maps   int32[n + 1], where the properties of each row begin
    name_offsets, value_offsets  int32, one more than there can be properties
    Returns properties, bytes of names, bytes of values.

    Texts are copied while their ends are searched. That cannot be done with texts that are not ASCII, and with many
    properties or two of one name: such a row begins again.
    """
    pairs = np.empty((_MAX_STRING_BYTES // LEAST_PROPERTY_BYTES + 1, 4), np.int64)
    slots = np.zeros(_SLOTS, np.int64)
    marks = np.empty(_FEW, np.uint64)
    total, name_at, value_at = np.int64(0), np.int64(0), np.int64(0)
    maps[0], name_offsets[0], value_offsets[0] = 0, 0, 0
    for row in range(len(parts)):
        position = parts[row].properties
        stop = position + parts[row].properties_bytes
        span = spans[row]
        span.unique_key = span.unique_key_bytes = 0
        span.keys = span.keys_bytes = 0
        span.tags = span.tags_bytes = 0
        first, first_name, first_value = total, name_at, value_at
        is_plain = True
        while position < stop:
            name_stop, name_end = _put_up_to_separator(names, name_at, data, position, stop)
            if name_end >= 0 and name_stop >= stop:
                break
            if name_end >= 0 and byte_at(data, name_stop) == 2:
                position = name_stop + 1
                continue
            start = name_stop + 1
            value_stop, value_end = start, name_end
            if name_end >= 0:
                value_stop, value_end = _put_up_to_separator(values, value_at, data, start, stop)
            while value_end >= 0 and value_stop < stop and byte_at(data, value_stop) == 1:
                put_byte(values, value_end, 1)
                value_stop, value_end = _put_up_to_separator(
                    values, value_end + 1, data, value_stop + 1, stop
                )
            count = total - first
            if value_end < 0 or count == _FEW or position + 8 > len(data):
                is_plain = False
                break
            if name_stop > position and value_stop > start:
                mark = _mark_of(data, position, name_stop)
                for other in range(count):
                    is_plain &= marks[other] != mark
                if not is_plain:
                    break
                marks[count] = mark
                _note_span(span, mark, name_stop - position, start, value_stop)
                total += 1
                name_at, value_at = name_end, value_end
                name_offsets[total], value_offsets[total] = name_at, value_at
            position = value_stop + 1
        if not is_plain:
            _find_span(data, parts, row, span)
            count = _find_pairs(data, parts, row, pairs, slots)
            total, name_at, value_at = first, first_name, first_value
            for pair in range(count):
                name_at = put_text(names, name_at, data, pairs[pair, 0], pairs[pair, 1])
                value_at = put_text(values, value_at, data, pairs[pair, 2], pairs[pair, 3])
                total += 1
                name_offsets[total], value_offsets[total] = name_at, value_at
        maps[row + 1] = total
    return total, name_at, value_at


@njit(inline="always")
def _note_span(span, mark, count, start, stop):
    """Note the value of a property whose name has this mark and length, if it is a wanted one."""
    if count == 8 and mark == _UNIQ_KEY_MARK:
        span.unique_key, span.unique_key_bytes = start, stop - start
    elif count == 4 and mark == _KEYS_MARK:
        span.keys, span.keys_bytes = start, stop - start
    elif count == 4 and mark == _TAGS_MARK:
        span.tags, span.tags_bytes = start, stop - start


@njit(cache=True, nogil=True)
def _find_pairs(data, parts, row, pairs, slots):
    """The properties of a record, whatever they are: starts and stops of names and values; how many."""
    position = parts[row].properties
    stop = position + parts[row].properties_bytes
    count = np.int64(0)
    position, name_stop, value_stop = next_property(data, position, stop)
    while position < stop:
        if count < _FEW:
            place = _find_name(data, pairs, count, position, name_stop)
        else:
            if count == _FEW:
                _enter_all(data, pairs, count, slots, row)
            place = _find_or_enter(data, pairs, count, slots, row, position, name_stop)
        if place == count:
            pairs[place, 0], pairs[place, 1] = position, name_stop
            count += 1
        pairs[place, 2], pairs[place, 3] = name_stop + 1, value_stop
        position, name_stop, value_stop = next_property(data, value_stop + 1, stop)
    return count


@njit(inline="always")
def _find_name(data, pairs, count, start, stop):
    """The place of the pair of this name, or `count`."""
    for pair in range(count):
        if same_text(data, start, stop, pairs[pair, 0], pairs[pair, 1]):
            return np.int64(pair)
    return count


@njit(cache=True, nogil=True)
def _enter_all(data, pairs, count, slots, row):
    for pair in range(count):
        _find_or_enter(data, pairs, np.int64(pair), slots, row, pairs[pair, 0], pairs[pair, 1])


@njit(cache=True, nogil=True)
def _find_or_enter(data, pairs, count, slots, row, start, stop):
    """The same through a table: a slot of this row holds its number above and a pair below."""
    slot = (java_hash(data, start, stop, 0) & 0x7FFFFFFF) * 0x9E3779B1 >> 16 & _MASK
    while slots[slot] >> 16 == row + 1:
        pair = slots[slot] & 0xFFFF
        if same_text(data, start, stop, pairs[pair, 0], pairs[pair, 1]):
            return np.int64(pair)
        slot = slot + 1 & _MASK
    slots[slot] = (row + 1) << 16 | count
    return np.int64(count)
