r"""Extract columns from properties strings: wanted values, lists of keys, maps of all properties.

The rule is `reput.format.properties.decode_properties`. A chunk between two \x02 counts if its first \x01 is neither
its first nor its last character. If several properties have one name, the first determines the place, and the last the
value.
"""

from __future__ import annotations

import numpy as np

from reput.format.properties import UNIQ_KEY
from reput.kernels.bytes_out import put_word
from reput.kernels.integers import WORD_BYTES, trailing_zeros, word_at
from reput.kernels.java_hash import java_hash
from reput.kernels.java_utf8 import put_text, same_text
from reput.kernels.jit import njit
from reput.kernels.properties_scan import (
    find_index_properties,
    has_others,
    next_property,
    next_space,
    separators,
)
from reput.kernels.record_walk import equals

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
_UNIQ_KEY_NAME = np.frombuffer(UNIQ_KEY.encode(), np.uint8)
LEAST_UNIQUE_KEY_BYTES = len(_UNIQ_KEY_NAME) + 3
"""Minimum size, in bytes, of a UNIQ_KEY property: its name, two separators and one character."""
LEAST_PROPERTY_BYTES = 4
"""Minimum size, in bytes, of a property: name, value and two separators.

n bytes hold at most (n + 1) // 4 properties, because the last property may lack its second separator.
"""

_MAX_STRING_BYTES = 1 << 15
# Up to this number of names in a record, each name is compared with the names before it. Further names are searched for
# in a hash table.
_FEW = 24
_MIX = np.uint64(0x9E3779B97F4A7C15)
# Slots of the hash table of names: four for each property that the longest allowed properties string can contain.
_SLOTS = 1 << 15
_MASK = np.int64(_SLOTS - 1)
_ONE = np.uint64(1)
_UNIQ_KEY, _KEYS, _TAGS = (
    np.uint64(int.from_bytes(name, "little")) for name in (b"UNIQ_KEY", b"KEYS", b"TAGS")
)


@njit(cache=True, nogil=True)
def find_spans(data, parts, spans):
    """Set spans[i] (SPANS_DTYPE) to the places of a record's UNIQ_KEY, KEYS and TAGS. Missing ones have length 0."""
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
    """Split each data[start[i]:start[i] + count[i]] at spaces into keys. Empty keys are dropped.

    lists    int32[n + 1], set to the index in `offsets` of each row's first key
    offsets  int32[m + 1] for at most m keys, set to the position in `out` at which each key begins

    Returns (number of keys, bytes written).
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


@njit(cache=True, nogil=True)
def split_unique_keys(data, start, count, lists, offsets, out):
    """Find every UNIQ_KEY of each properties string data[start[i]:start[i] + count[i]], in order.

    lists    int32[n + 1], set to the index in `offsets` of each row's first UNIQ_KEY
    offsets  int32[m + 1] for at most m unique keys, set to the position in `out` at which each begins

    Returns (number of unique keys, bytes written).
    """
    ids, at = 0, np.int64(0)
    offsets[0], lists[0] = 0, 0
    for row in range(len(start)):
        stop = start[row] + count[row]
        name, name_stop, value_stop = next_property(data, start[row], stop)
        while name < stop:
            if equals(data, name, name_stop - name, _UNIQ_KEY_NAME):
                at = put_text(out, at, data, name_stop + 1, value_stop)
                ids += 1
                offsets[ids] = at
            name, name_stop, value_stop = next_property(data, value_stop + 1, stop)
        lists[row + 1] = ids
    return ids, at


@njit(cache=True, nogil=True)
def split_properties(
    data, parts, spans, maps, name_offsets, names, value_offsets, values, progress
):  # fmt: skip
    """Split the properties of each record into names and values, up to the first record that is not plain.

    spans  as in `find_spans`; set here
    maps   int32[n + 1], set to the index of each row's first property in `name_offsets` and `value_offsets`
    name_offsets, value_offsets  int32[m + 1] for at most m properties, set to the positions in `names` and `values` at
                                 which each name and value begins
    names, values  uint8, 8 bytes longer than the texts
    progress  int64[2]: number of finished rows, and of their properties; increased here

    A record is not plain if its text is not ASCII, if it has many properties, or if two of them have the same name.
    Few logs have such records. `split_any_properties` splits them. It is a separate kernel, because it takes long to
    compile.

    One comparison finds all separators in 64 bytes, so that a loop takes one step per property.
    """
    marks = np.empty(_FEW, np.uint64)
    row, total = progress[0], progress[1]
    if row == 0:
        maps[0], name_offsets[0], value_offsets[0] = 0, 0, 0
    name_at, value_at = np.int64(name_offsets[total]), np.int64(value_offsets[total])
    while row < len(parts):
        start = parts[row].properties
        stop = start + parts[row].properties_bytes
        span = spans[row]
        span.unique_key = span.unique_key_bytes = 0
        span.keys = span.keys_bytes = 0
        span.tags = span.tags_bytes = 0
        count = np.int64(0)
        name, name_stop = start, np.int64(-1)
        block = start
        is_plain = True
        while block <= stop and is_plain:
            ones, ends = separators(data, block, stop)
            is_plain = not has_others(data, block, stop)
            while ends and is_plain:
                value_stop = block + trailing_zeros(ends)
                lowest = ends & (~ends + _ONE)
                before = ones & (lowest - _ONE)
                if name_stop < 0 and before:
                    name_stop = block + trailing_zeros(before)
                value = name_stop + 1
                if name_stop > name and value_stop > value:
                    mark, last_8 = _put_ascii(names, name_at, data, name, name_stop)
                    _put_ascii(values, value_at, data, value, value_stop)
                    # Only hashes of names are compared here. If two hashes are equal, the names may still differ, so
                    # leave the record to `split_any_properties`, which compares the names.
                    is_plain = count < _FEW
                    for other in range(count):
                        is_plain &= marks[other] != mark
                    if is_plain:
                        marks[count] = mark
                        _note_span(span, last_8, name_stop - name, value, value_stop)
                        count += 1
                        name_at += name_stop - name
                        value_at += value_stop - value
                        name_offsets[total + count] = name_at
                        value_offsets[total + count] = value_at
                ones ^= before
                ends ^= lowest
                name, name_stop = value_stop + 1, np.int64(-1)
            # The name ends in this block, but its value ends in a later one.
            if name_stop < 0 and ones:
                name_stop = block + trailing_zeros(ones)
            block += 64
        # `progress` still points to this record, so `split_any_properties` overwrites what was written for it.
        if not is_plain:
            break
        total += count
        row += 1
        maps[row] = total
    progress[0], progress[1] = row, total


@njit(cache=True, nogil=True)
def split_any_properties(
    data, parts, spans, maps, name_offsets, names, value_offsets, values, progress
):  # fmt: skip
    """Split the properties of the remaining records into names and values, after `split_properties` has stopped.

    This kernel can split the records at which `split_properties` stops, and takes the same arguments.
    """
    pairs = np.empty((_MAX_STRING_BYTES // LEAST_PROPERTY_BYTES + 1, 4), np.int64)
    slots = np.zeros(_SLOTS, np.int64)
    while progress[0] < len(parts):
        row, total = progress[0], progress[1]
        _find_span(data, parts, row, spans[row])
        name_at, value_at = np.int64(name_offsets[total]), np.int64(value_offsets[total])
        for pair in range(_find_pairs(data, parts, row, pairs, slots)):
            name_at = put_text(names, name_at, data, pairs[pair, 0], pairs[pair, 1])
            value_at = put_text(values, value_at, data, pairs[pair, 2], pairs[pair, 3])
            total += 1
            name_offsets[total], value_offsets[total] = name_at, value_at
        maps[row + 1] = total
        progress[0], progress[1] = row + 1, total
        # The following records probably have few properties, all in ASCII, and no name twice. `split_properties`, the
        # kernel for such records, is faster.
        split_properties(
            data, parts, spans, maps, name_offsets, names, value_offsets, values, progress
        )


@njit(inline="always")
def _put_ascii(out, at, data, start, stop):
    """Copy data[start:stop], at least one byte, to out[at:].

    There must be 8 bytes of data before `start`. Up to 7 bytes after the copy may be overwritten. Returns a hash of the
    text, which practically never collides, and a word with the text's last 8 bytes, or with the whole text if the text
    is shorter.
    """
    count = stop - start
    last = word_at(data, stop - WORD_BYTES)
    if count < WORD_BYTES:
        last >>= np.uint64(64 - 8 * count)
        put_word(out, at, last)
        return last, last
    first = word_at(data, start)
    put_word(out, at, first)
    step = np.int64(WORD_BYTES)
    while step < count - WORD_BYTES:
        put_word(out, at + step, word_at(data, start + step))
        step += WORD_BYTES
    put_word(out, at + count - WORD_BYTES, last)
    return first ^ (last * _MIX) ^ np.uint64(count), last


@njit(inline="always")
def _note_span(span, name, count, start, stop):
    """Store the place of a property's value in `span` if the property is UNIQ_KEY, KEYS or TAGS.

    name         the last 8 bytes of the property's name, or the whole name if it is shorter
    count        length of the name in bytes
    start, stop  place of the value
    """
    if count == 8 and name == _UNIQ_KEY:
        span.unique_key, span.unique_key_bytes = start, stop - start
    elif count == 4 and name == _KEYS:
        span.keys, span.keys_bytes = start, stop - start
    elif count == 4 and name == _TAGS:
        span.tags, span.tags_bytes = start, stop - start


@njit(cache=True, nogil=True)
def _find_pairs(data, parts, row, pairs, slots):
    """Find the properties of a record. Return the number of properties.

    pairs  set to start and stop of the name, and start and stop of the value, of each property
    slots  hash table of names, which all records share (see `_find_or_enter`)
    """
    position = parts[row].properties
    stop = position + parts[row].properties_bytes
    count = np.int64(0)
    position, name_stop, value_stop = next_property(data, position, stop)
    while position < stop:
        if count < _FEW:
            place = _find_name(data, pairs, count, position, name_stop)
        else:
            # From here on there are too many names to compare them one by one.
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
    """Return the index of the pair with this name; `count` if no pair has the name."""
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
    """Return the index of the pair with this name. If no pair has the name, enter it as pair `count`; return `count`.

    Each used slot of the hash table `slots` has the index of a pair in its lower 16 bits, and the pair's row + 1 in its
    upper bits. A slot of an earlier row counts as empty, so the table need not be cleared between rows.
    """
    slot = (java_hash(data, start, stop, 0) & 0x7FFFFFFF) * 0x9E3779B1 >> 16 & _MASK
    while slots[slot] >> 16 == row + 1:
        pair = slots[slot] & 0xFFFF
        if same_text(data, start, stop, pairs[pair, 0], pairs[pair, 1]):
            return np.int64(pair)
        slot = slot + 1 & _MASK
    slots[slot] = (row + 1) << 16 | count
    return np.int64(count)
