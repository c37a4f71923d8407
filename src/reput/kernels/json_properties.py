"""Convert the properties in a line of JSON to the properties string that a broker would store."""

from __future__ import annotations

import numpy as np

from reput.format.java_string import hash_code
from reput.kernels.bytes_out import copy_bytes, put_byte
from reput.kernels.integers import byte_at, same_bytes, word_at
from reput.kernels.java_hash import java_hash
from reput.kernels.jit import njit
from reput.kernels.json_values import (
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    QUOTE,
    decode_string,
    skip_space,
)
from reput.kernels.properties_scan import bytes_below_3

MOST_PAIRS = 12
"""Maximum number of pairs in a HashMap of 16 buckets. With more pairs, it grows, and the properties' order changes."""
UNIQUE, TAG, KEY = (0, 8), (8, 12), (12, 16)
"""Start and end, in `_OWN`, of the property names for which a line of JSON has separate fields."""

_OWN = np.frombuffer(b"UNIQ_KEYTAGSKEYSDELAYINNER_MULTI_DISPATCH", np.uint8)
_DELAY, _MULTI = (16, 21), (21, 41)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_UNIQUE_BUCKET = (
    hash_code("UNIQ_KEY") & 0xFFFFFFFF ^ (hash_code("UNIQ_KEY") & 0xFFFFFFFF) >> 16
) & 15


@njit(inline="always")
def _is_own(text, start, stop, own):
    length = own[1] - own[0]
    return stop - start == length and same_bytes(text, start, _OWN, own[0], length)


@njit(cache=True, nogil=True)
def read_pairs(data, at, stop, text, used, pairs):
    """Read a JSON map, and write its names and values to `text`.

    at     position of the map's first pair in `data`
    used   number of bytes of `text` that are already used
    pairs  int64[MOST_PAIRS + 4, 6], one row per pair; four columns are set here: start and end of the name in `text`,
           start and end of the value in `text`; `put_properties` sets the last two columns

    Returns (position after the map, number of bytes of `text` that are used now, number of pairs). The position is -1
    if the map is malformed or has too many pairs.
    """
    count = np.int64(0)
    at = skip_space(data, at)
    if byte_at(data, at) == CLOSE:
        return at + 1, used, count
    while at < stop and count < MOST_PAIRS:
        if byte_at(data, at) != QUOTE:
            break
        pairs[count, 0] = used
        at, used = decode_string(data, at + 1, stop, text, used)
        if at < 0:
            break
        pairs[count, 1] = used
        at = skip_space(data, at)
        if byte_at(data, at) != COLON:
            break
        at = skip_space(data, at + 1)
        if byte_at(data, at) != QUOTE:
            break
        pairs[count, 2] = used
        at, used = decode_string(data, at + 1, stop, text, used)
        if at < 0:
            break
        pairs[count, 3] = used
        count += 1
        at = skip_space(data, at)
        byte = byte_at(data, at)
        if byte == CLOSE:
            return at + 1, used, count
        if byte != COMMA:
            break
        at = skip_space(data, at + 1)
    return np.int64(-1), used, count


@njit(cache=True, nogil=True)
def join_keys(data, at, stop, text, used):
    """Join the strings of a JSON list with spaces, and write the joined text to `text`.

    at    position of the list's first string in `data`
    used  number of bytes of `text` that are already used

    Returns (position after the list, number of bytes of `text` that are used now). The position is -1 if the list is
    malformed, or if a key is empty or contains a space: splitting the joined text would lose such a key.
    """
    at = skip_space(data, at)
    if byte_at(data, at) == CLOSE_LIST:
        return at + 1, used
    while at < stop:
        if byte_at(data, at) != QUOTE:
            break
        begin = used
        at, used = decode_string(data, at + 1, stop, text, used)
        if at < 0 or used == begin:
            break
        for index in range(begin, used):
            if byte_at(text, index) == 32:
                return np.int64(-1), used
        at = skip_space(data, at)
        byte = byte_at(data, at)
        if byte == CLOSE_LIST:
            return at + 1, used
        if byte != COMMA:
            break
        put_byte(text, used, 32)
        used += 1
        at = skip_space(data, at + 1)
    return np.int64(-1), used


@njit(cache=True, nogil=True)
def complete_pairs(text, used, pairs, count, own, start, stop):
    """Add the property `own` with the value text[start:stop] to `pairs`, unless `pairs` already has it.

    The name of an added property is written to `text`, of which `used` bytes are already used.

    Returns (number of pairs, number of bytes of `text` that are used now). The number of pairs is -1 if `pairs` has the
    property with another value.
    """
    for pair in range(count):
        if _is_own(text, pairs[pair, 0], pairs[pair, 1], own):
            length = stop - start
            is_same = pairs[pair, 3] - pairs[pair, 2] == length and same_bytes(
                text, start, text, pairs[pair, 2], length
            )
            return (count if is_same else np.int64(-1)), used
    length = np.int64(own[1] - own[0])
    copy_bytes(text, used, _OWN, own[0], length)
    pairs[count, 0], pairs[count, 1] = used, used + length
    pairs[count, 2], pairs[count, 3] = start, stop
    return count + 1, used + length


@njit(inline="always")
def _has_separator(text, start, stop):
    """Return whether the text may contain a byte 0, 1 or 2. Up to 7 bytes after the text are read."""
    found = np.uint64(0)
    position = start
    while position < stop:
        word = word_at(text, position)
        below_3 = bytes_below_3(word)
        if stop - position < 8:
            below_3 &= ~(_ALL << np.uint64(8 * (stop - position)))
        found |= below_3
        position += 8
    return found != np.uint64(0)


@njit(inline="always")
def _bucket(text, start, stop):
    """Return the bucket of a name in a HashMap of 16 buckets."""
    value = java_hash(text, start, stop, 0) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15


@njit(cache=True, nogil=True)
def put_properties(text, pairs, count, out, used, cut):
    """Write the properties string in a broker's order, and return its end.

    Returns -1 for properties that this kernel cannot write. `reput.engine.messages.json_lines` then reads the line
    again.

    pairs  int64[MOST_PAIRS + 4, 6], from `read_pairs` and `complete_pairs`; the last two columns are set here: the
           bucket of each pair, and the sorted order
    cut    int64[1], set to the position at which a unique key must be inserted; -1 if `pairs` has a unique key
    """
    has_unique = False
    for pair in range(count):
        start, stop = pairs[pair, 0], pairs[pair, 1]
        # A broker's parser drops properties with an empty name or value.
        if start == stop or pairs[pair, 2] == pairs[pair, 3]:
            return np.int64(-1)
        # A separator in a name or value would change how the string is parsed.
        if _has_separator(text, start, stop) or _has_separator(
            text, pairs[pair, 2], pairs[pair, 3]
        ):
            return np.int64(-1)
        if _is_own(text, start, stop, _DELAY) or _is_own(text, start, stop, _MULTI):
            return np.int64(-1)
        has_unique = has_unique or _is_own(text, start, stop, UNIQUE)
        bucket = _bucket(text, start, stop)
        pairs[pair, 4] = bucket
        # Insertion sort by the bucket in Java's HashMap. Pairs of one bucket keep the order of their insertion.
        place = pair
        while place > 0 and pairs[pairs[place - 1, 5], 4] >= bucket:
            other = pairs[place - 1, 5]
            if pairs[other, 4] == bucket:
                if _is_twice(text, pairs, place - 1, start, stop):
                    return np.int64(-1)
                break
            pairs[place, 5] = other
            place -= 1
        pairs[place, 5] = pair
    # A missing UNIQ_KEY is added later, so it counts as one more pair.
    if count + (not has_unique) > MOST_PAIRS:
        return np.int64(-1)
    cut[0] = -1
    begin = used
    for place in range(count):
        pair = pairs[place, 5]
        if not has_unique and cut[0] < 0 and pairs[pair, 4] > _UNIQUE_BUCKET:
            cut[0] = used
            # The properties after the unique key form a separate string, so no separator is written before the first.
            begin = used
        if used > begin:
            put_byte(out, used, 2)
            used += 1
        length = pairs[pair, 1] - pairs[pair, 0]
        copy_bytes(out, used, text, pairs[pair, 0], length)
        used += length
        put_byte(out, used, 1)
        length = pairs[pair, 3] - pairs[pair, 2]
        copy_bytes(out, used + 1, text, pairs[pair, 2], length)
        used += 1 + length
    if not has_unique and cut[0] < 0:
        cut[0] = used
    return used


@njit(cache=True, nogil=True)
def _is_twice(text, pairs, place, start, stop):
    """Return whether another pair already has the name text[start:stop].

    Pairs are sorted by their bucket in Java's HashMap. Equal names have the same bucket, so the name is compared only
    with the pair at sorted position `place`, and with the earlier pairs of that bucket.
    """
    bucket, length = pairs[pairs[place, 5], 4], stop - start
    while place >= 0 and pairs[pairs[place, 5], 4] == bucket:
        other = pairs[place, 5]
        if pairs[other, 1] - pairs[other, 0] == length and same_bytes(
            text, start, text, pairs[other, 0], length
        ):
            return True
        place -= 1
    return False
