"""Messages out of lines of JSON, as the columns of a put: the plain ones, which are nearly all.

A line is plain if it is one object of known fields, each once and of its type, whose strings are UTF-8, whose body is
not compressed, whose properties are a map with nothing that the store must refuse or think about, and whose fields do
not contradict each other. What is not plain is left to `reput.messages.json_lines`, which decides what it is: so this
kernel never has to say why a line is none.
"""

from __future__ import annotations

import numpy as np

from reput.format.java_string import hash_code
from reput.kernels.bytes_out import copy_bytes, put_byte, put_i64
from reput.kernels.integers import byte_at, read_i64, same_bytes, trailing_zeros, word_at
from reput.kernels.java_hash import java_hash, sequence_length
from reput.kernels.jit import njit

PADDING = 64
"""Bytes that must follow the lines in their buffer."""

FIELDS = (
    "topic", "body", "body_base64", "body_stored_base64", "queue_id", "flag", "sys_flag", "born_timestamp",
    "born_host", "reconsume_times", "prepared_transaction_offset", "unique_key", "tags", "keys", "properties",
    "properties_string", "properties_base64", "body_crc_ok", "body_error", "message_id", "queue_offset",
    "physical_offset", "size_bytes", "store_timestamp", "store_host", "transaction",
)  # fmt: skip
(
    _TOPIC, _BODY, _BODY_BASE64, _STORED_BASE64, _QUEUE_ID, _FLAG, _SYS_FLAG, _BORN_TIMESTAMP, _BORN_HOST,
    _RECONSUME_TIMES, _PREPARED_OFFSET, _UNIQUE_KEY, _TAGS, _KEYS, _PROPERTIES, _STRING, _STRING_BASE64, _CRC_OK,
    _BODY_ERROR, _MESSAGE_ID, _QUEUE_OFFSET, _PHYSICAL_OFFSET, _SIZE, _STORE_TIMESTAMP, _STORE_HOST, _TRANSACTION,
) = range(len(FIELDS))  # fmt: skip
SPANS_DTYPE = np.dtype([("topic", "i8"), ("topic_stop", "i8"), ("host", "i8"), ("host_stop", "i8")])

_NAMES = np.frombuffer("".join(FIELDS).encode() + bytes(8), np.uint8)
_ENDS = np.cumsum([0, *map(len, FIELDS)])
_COUNT = len(FIELDS)
_OWN = np.frombuffer(b"UNIQ_KEYTAGSKEYSDELAYINNER_MULTI_DISPATCH", np.uint8)
_UNIQUE, _TAG, _KEY, _DELAY, _MULTI = (0, 8), (8, 12), (12, 16), (16, 21), (21, 41)
_MOST_PAIRS = 12  # with more a HashMap has more buckets
_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
_ONES = np.uint64(0x0101010101010101)
_TOP_BITS = np.uint64(0x8080808080808080)
_SPACES = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
# What a short escape stands for, by its letter; 0 for none.
_ESCAPES = np.zeros(256, np.uint8)
for _letter, _char in zip('btnfr"\\/', '\b\t\n\f\r"\\/', strict=True):
    _ESCAPES[ord(_letter)] = ord(_char)
_DIGITS64 = np.full(256, 255, np.uint8)
for _value, _letter in enumerate(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
):
    _DIGITS64[ord(_letter)] = _value
_INT32 = 1 << 31
_THREES = np.uint64(0x0303030303030303)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_UNIQUE_BUCKET = (
    hash_code("UNIQ_KEY") & 0xFFFFFFFF ^ (hash_code("UNIQ_KEY") & 0xFFFFFFFF) >> 16
) & 15


@njit(inline="always")
def _special(word):
    """Bits of which the lowest marks the first of 8 bytes that is a quote, a backslash, a control or not ASCII."""
    quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
    found = (word - _SPACES) & ~word
    found |= (quotes - _ONES) & ~quotes
    found |= (backslashes - _ONES) & ~backslashes
    return (found | word) & _TOP_BITS


@njit(inline="always")
def _skip(data, at):
    """Over white space within a line."""
    while byte_at(data, at) == 32 or byte_at(data, at) == 9 or byte_at(data, at) == 13:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _plain_end(data, at):
    """The quote that ends a string of ASCII without escapes; -1 for other strings."""
    found = _special(word_at(data, at))
    while not found:
        at += 8
        found = _special(word_at(data, at))
    at += trailing_zeros(found) >> 3
    return at if byte_at(data, at) == _QUOTE else np.int64(-1)


@njit(cache=True, nogil=True)
def _string(data, at, stop, out, used):
    """Decode the string that begins at `at` to out[used:]: what follows its quote, and the end of what was written.

    -1 for a string that is not plain. Up to 7 bytes behind the end may be overwritten.
    """
    while at < stop:
        found = _special(word_at(data, at))
        put_i64(out, used, read_i64(data, at))
        clean = np.int64(8) if not found else trailing_zeros(found) >> 3
        at += clean
        used += clean
        if clean == 8:
            continue
        byte = byte_at(data, at)
        if byte == _QUOTE:
            return (at + 1 if at < stop else np.int64(-1)), used
        if byte == _BACKSLASH:
            at, used = _escape(data, at + 1, out, used)
            if at < 0:
                break
        elif byte < 0x80:
            break
        else:
            length = sequence_length(data, at, stop)
            if length < 0:
                break
            for _ in range(length):
                put_byte(out, used, byte_at(data, at))
                at += 1
                used += 1
    return np.int64(-1), used


@njit(inline="always")
def _escape(data, at, out, used):
    letter = byte_at(data, at)
    if _ESCAPES[letter]:
        put_byte(out, used, np.int64(_ESCAPES[letter]))
        return at + 1, used + 1
    return _unit_escape(data, at, out, used)


@njit(cache=True, nogil=True)
def _unit_escape(data, at, out, used):
    if byte_at(data, at) != 0x75:
        return np.int64(-1), used
    point = _unit(data, at + 1)
    at += 5
    if (
        0xD800 <= point < 0xDC00
        and byte_at(data, at) == _BACKSLASH
        and byte_at(data, at + 1) == 0x75
    ):
        low = _unit(data, at + 2)
        if low < 0xDC00 or low > 0xDFFF:
            return np.int64(-1), used
        point = 0x10000 + (point - 0xD800 << 10) + (low - 0xDC00)
        at += 6
    if point < 0 or 0xD800 <= point < 0xE000:
        return np.int64(-1), used
    if point < 0x80:
        put_byte(out, used, point)
        return at, used + 1
    if point < 0x800:
        put_byte(out, used, 0xC0 | point >> 6)
        used += 1
    else:
        if point < 0x10000:
            put_byte(out, used, 0xE0 | point >> 12)
        else:
            put_byte(out, used, 0xF0 | point >> 18)
            put_byte(out, used + 1, 0x80 | point >> 12 & 0x3F)
            used += 1
        put_byte(out, used + 1, 0x80 | point >> 6 & 0x3F)
        used += 2
    put_byte(out, used, 0x80 | point & 0x3F)
    return at, used + 1


@njit(cache=True, nogil=True)
def _unit(data, at):
    """Four hexadecimal digits; a large negative number where they are none."""
    value = np.int64(0)
    for index in range(4):
        byte = byte_at(data, at + index)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte <= 102 or 65 <= byte <= 70:
            digit = (byte | 32) - 87
        else:
            return np.int64(-(1 << 40))
        value = value << 4 | digit
    return value


@njit(cache=True, nogil=True)
def _base64(data, at, out, used):
    """As `_string`, of a string in base64 with all its padding and no bits left over."""
    while True:
        first, second = _DIGITS64[byte_at(data, at)], _DIGITS64[byte_at(data, at + 1)]
        if first == 255 or second == 255:
            return (at + 1 if byte_at(data, at) == _QUOTE else np.int64(-1)), used
        third, fourth = _DIGITS64[byte_at(data, at + 2)], _DIGITS64[byte_at(data, at + 3)]
        put_byte(out, used, np.int64(first) << 2 | np.int64(second) >> 4)
        if third == 255 or fourth == 255:
            break
        put_byte(out, used + 1, (np.int64(second) & 15) << 4 | np.int64(third) >> 2)
        put_byte(out, used + 2, (np.int64(third) & 3) << 6 | np.int64(fourth))
        used += 3
        at += 4
    pad = 61
    if byte_at(data, at + 3) != pad or byte_at(data, at + 4) != _QUOTE:
        return np.int64(-1), used
    if third != 255:
        put_byte(out, used + 1, (np.int64(second) & 15) << 4 | np.int64(third) >> 2)
        return (at + 5 if not third & 3 else np.int64(-1)), used + 2
    is_right = byte_at(data, at + 2) == pad and not second & 15
    return (at + 5 if is_right else np.int64(-1)), used + 1


@njit(inline="always")
def _integer(data, at):
    """(what follows, value) of a whole number of up to 18 digits; -1 for others."""
    negative = byte_at(data, at) == 45
    at += negative
    begin, value = at, np.int64(0)
    while 48 <= byte_at(data, at) <= 57 and at - begin < 19:
        value = value * 10 + (byte_at(data, at) - 48)
        at += 1
    following = byte_at(data, at)
    count = at - begin
    if count == 0 or count > 18 or (count > 1 and byte_at(data, begin) == 48):
        return np.int64(-1), value
    if following != _COMMA and following != _CLOSE and following != 32:
        return np.int64(-1), value
    return at, -value if negative else value


@njit(inline="always")
def _is_null(data, at):
    return (
        byte_at(data, at) == 0x6E and byte_at(data, at + 1) == 0x75
        and byte_at(data, at + 2) == 0x6C and byte_at(data, at + 3) == 0x6C
    )  # fmt: skip


@njit(inline="always")
def _field(data, at, guess):
    """The number of the field whose name begins at `at` and ends with a quote, or -1; `guess` is asked first."""
    length = _ENDS[guess + 1] - _ENDS[guess]
    if same_bytes(data, at, _NAMES, _ENDS[guess], length) and byte_at(data, at + length) == _QUOTE:
        return guess
    for number in range(_COUNT):
        length = _ENDS[number + 1] - _ENDS[number]
        if byte_at(data, at + length) == _QUOTE and same_bytes(
            data, at, _NAMES, _ENDS[number], length
        ):
            return np.int64(number)
    return np.int64(-1)


@njit(inline="always")
def _is_own(text, start, stop, own):
    length = own[1] - own[0]
    return stop - start == length and same_bytes(text, start, _OWN, own[0], length)


@njit(cache=True, nogil=True)
def _pairs(data, at, stop, text, used, pairs):
    """The map that begins behind its brace: (what follows, end of the text, how many pairs).

    pairs  int64[_MOST_PAIRS + 4, 6]: the first four columns are set to where names and values lie in `text`
    """
    count = np.int64(0)
    at = _skip(data, at)
    if byte_at(data, at) == _CLOSE:
        return at + 1, used, count
    while at < stop and count < _MOST_PAIRS:
        if byte_at(data, at) != _QUOTE:
            break
        pairs[count, 0] = used
        at, used = _string(data, at + 1, stop, text, used)
        if at < 0:
            break
        pairs[count, 1] = used
        at = _skip(data, at)
        if byte_at(data, at) != _COLON:
            break
        at = _skip(data, at + 1)
        if byte_at(data, at) != _QUOTE:
            break
        pairs[count, 2] = used
        at, used = _string(data, at + 1, stop, text, used)
        if at < 0:
            break
        pairs[count, 3] = used
        count += 1
        at = _skip(data, at)
        byte = byte_at(data, at)
        if byte == _CLOSE:
            return at + 1, used, count
        if byte != _COMMA:
            break
        at = _skip(data, at + 1)
    return np.int64(-1), used, count


@njit(cache=True, nogil=True)
def _joined_keys(data, at, stop, text, used):
    """The list that begins behind its bracket, joined with spaces: (what follows, end of the text).

    -1 for a key that is empty or has a space in it.
    """
    at = _skip(data, at)
    if byte_at(data, at) == _CLOSE_LIST:
        return at + 1, used
    while at < stop:
        if byte_at(data, at) != _QUOTE:
            break
        begin = used
        at, used = _string(data, at + 1, stop, text, used)
        if at < 0 or used == begin:
            break
        for index in range(begin, used):
            if byte_at(text, index) == 32:
                return np.int64(-1), used
        at = _skip(data, at)
        byte = byte_at(data, at)
        if byte == _CLOSE_LIST:
            return at + 1, used
        if byte != _COMMA:
            break
        put_byte(text, used, 32)
        used += 1
        at = _skip(data, at + 1)
    return np.int64(-1), used


@njit(cache=True, nogil=True)
def _completed(text, used, pairs, count, own, start, stop):
    """The pairs with this one, which a map may have already, and the end of the text; -1 where it has another value."""
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
    """Whether there may be a byte 0, 1 or 2; reads up to 7 bytes more."""
    found = np.uint64(0)
    position = start
    while position < stop:
        word = word_at(text, position)
        below_3 = (word - _THREES) & ~word & _TOP_BITS
        if stop - position < 8:
            below_3 &= ~(_ALL << np.uint64(8 * (stop - position)))
        found |= below_3
        position += 8
    return found != np.uint64(0)


@njit(inline="always")
def _bucket(text, start, stop):
    """Of a HashMap that has 16."""
    value = java_hash(text, start, stop, 0) & 0xFFFFFFFF
    return (value ^ value >> 16) & 15


@njit(cache=True, nogil=True)
def _put_properties(text, pairs, count, out, used, cut):
    """Write the properties string in a broker's order and return its end; -1 where the store must think about it.

    pairs  int64[_MOST_PAIRS + 4, 6]: the last two columns are set here, to the bucket and the order
    cut    int64[1], set to the end of what comes before the unique key that is to be made; -1 where it is there
    """
    has_unique = False
    for pair in range(count):
        start, stop = pairs[pair, 0], pairs[pair, 1]
        if start == stop or pairs[pair, 2] == pairs[pair, 3]:
            return np.int64(-1)
        if _has_separator(text, start, stop) or _has_separator(
            text, pairs[pair, 2], pairs[pair, 3]
        ):
            return np.int64(-1)
        if _is_own(text, start, stop, _DELAY) or _is_own(text, start, stop, _MULTI):
            return np.int64(-1)
        has_unique = has_unique or _is_own(text, start, stop, _UNIQUE)
        bucket = _bucket(text, start, stop)
        pairs[pair, 4] = bucket
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
    if count + (not has_unique) > _MOST_PAIRS:
        return np.int64(-1)
    cut[0] = -1
    begin = used
    for place in range(count):
        pair = pairs[place, 5]
        if not has_unique and cut[0] < 0 and pairs[pair, 4] > _UNIQUE_BUCKET:
            cut[0] = used
            begin = used  # what follows is a string of its own
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
    """Whether a name in the bucket of that place, or before it in the same bucket, is this one."""
    bucket, length = pairs[pairs[place, 5], 4], stop - start
    while place >= 0 and pairs[pairs[place, 5], 4] == bucket:
        other = pairs[place, 5]
        if pairs[other, 1] - pairs[other, 0] == length and same_bytes(
            text, start, text, pairs[other, 0], length
        ):
            return True
        place -= 1
    return False


@njit(cache=True, nogil=True)
def parse_lines(
    data, start, stop, rows, spans, body_at, bodies, head_at, heads, tail_at, tails, text
):
    """Read plain lines from data[start:stop] until one is not plain: (rows, where that line begins or `stop`, lines).

    data      uint8, whole lines, PADDING more bytes behind `stop`
    rows      PUT_DTYPE[n], n one more than there can be messages; topic, born_host and queue are set by the caller
    spans     SPANS_DTYPE[n]: where topic and host of a row lie in `data`; the same place twice for no host
    body_at, bodies     int64[n + 1], uint8: body r is bodies[body_at[r]:body_at[r + 1]]
    head_at, heads      the same of properties strings; where a unique key is to be made, which rows.reserved says by
                        a 1, of what comes before it
    tail_at, tails      and of what comes behind it
    text                uint8; like bodies, heads and tails as long as `data`
    """
    pairs = np.zeros((_MOST_PAIRS + 4, 6), np.int64)
    cut = np.empty(1, np.int64)
    follows = np.zeros(_COUNT + 1, np.int64)  # which field came after which in the line before
    row, lines, at = np.int64(0), np.int64(0), start
    body_used, head_used, tail_used = np.int64(0), np.int64(0), np.int64(0)
    body_at[0], head_at[0], tail_at[0] = 0, 0, 0
    while at < stop:
        line = at
        at = _skip(data, at)
        if at >= stop or byte_at(data, at) == 10:
            at += 1
            lines += 1
            continue
        if byte_at(data, at) != _OPEN:
            return row, line, lines
        at = _skip(data, at + 1)
        seen = np.int64(0)
        record, span = rows[row], spans[row]
        record.born_timestamp, record.prepared_transaction_offset = -9223372036854775808, 0
        record.queue_id = record.flag = record.sys_flag = record.reconsume_times = 0
        record.queue = record.topic = record.born_host = record.reserved = 0
        span.topic = span.topic_stop = span.host = span.host_stop = 0
        used, count = np.int64(0), np.int64(0)
        body = body_used
        unique, unique_stop = np.int64(-1), np.int64(-1)
        tags, tags_stop, keys, keys_stop = np.int64(-1), np.int64(-1), np.int64(-1), np.int64(-1)
        good, before = False, np.int64(_COUNT)
        while at < stop and byte_at(data, at) == _QUOTE:
            field = _field(data, at + 1, follows[before])
            if field < 0 or seen >> field & 1:
                break
            seen |= np.int64(1) << field
            follows[before] = field
            before = field
            at = _skip(data, at + 2 + _ENDS[field + 1] - _ENDS[field])
            if byte_at(data, at) != _COLON:
                break
            at = _skip(data, at + 1)
            byte = byte_at(data, at)
            if byte == 0x6E:
                is_optional = field not in (
                    _TOPIC, _QUEUE_ID, _FLAG, _SYS_FLAG, _RECONSUME_TIMES, _PREPARED_OFFSET, _CRC_OK,
                )  # fmt: skip
                if not (is_optional and _is_null(data, at)):
                    break
                if field in (_BODY, _BODY_BASE64):
                    seen &= ~(np.int64(1) << field)  # as if it were not there
                at += 4
            elif byte == _QUOTE:
                if field == _BODY:
                    at, body = _string(data, at + 1, stop, bodies, body_used)
                elif field == _BODY_BASE64:
                    at, body = _base64(data, at + 1, bodies, body_used)
                elif field == _UNIQUE_KEY:
                    unique = used
                    at, used = _string(data, at + 1, stop, text, used)
                    unique_stop = used
                elif field == _TAGS:
                    tags = used
                    at, used = _string(data, at + 1, stop, text, used)
                    tags_stop = used
                elif field in (_TOPIC, _BORN_HOST, _MESSAGE_ID, _STORE_HOST, _TRANSACTION):
                    end = _plain_end(data, at + 1)
                    if field == _TOPIC:
                        span.topic, span.topic_stop = at + 1, end
                    elif field == _BORN_HOST:
                        if end == at + 1:
                            break
                        span.host, span.host_stop = at + 1, end
                    at = end + 1 if end >= 0 else np.int64(-1)
                else:
                    break
                if at < 0:
                    break
            elif byte == _OPEN:
                if field != _PROPERTIES:
                    break
                at, used, count = _pairs(data, at + 1, stop, text, used, pairs)
                if at < 0:
                    break
            elif byte == _OPEN_LIST:
                if field != _KEYS:
                    break
                keys = used
                at, used = _joined_keys(data, at + 1, stop, text, used)
                if at < 0:
                    break
                keys_stop = used
            elif byte == 0x74:
                is_true = (
                    byte_at(data, at + 1) == 0x72 and byte_at(data, at + 2) == 0x75
                    and byte_at(data, at + 3) == 0x65
                )  # fmt: skip
                if field != _CRC_OK or not is_true:
                    break
                at += 4
            else:
                at, value = _integer(data, at)
                if at < 0:
                    break
                is_int32 = -_INT32 <= value < _INT32
                if field == _BORN_TIMESTAMP:
                    record.born_timestamp = value
                elif field == _PREPARED_OFFSET:
                    record.prepared_transaction_offset = value
                elif field in (_QUEUE_OFFSET, _PHYSICAL_OFFSET, _SIZE, _STORE_TIMESTAMP):
                    pass
                elif not is_int32:
                    break
                elif field == _QUEUE_ID:
                    if value < 0:
                        break
                    record.queue_id = value
                elif field == _FLAG:
                    record.flag = value
                elif field == _SYS_FLAG:
                    if value & 1:
                        break
                    record.sys_flag = value
                elif field == _RECONSUME_TIMES:
                    record.reconsume_times = value
                else:
                    break
            at = _skip(data, at)
            byte = byte_at(data, at)
            if byte == _CLOSE:
                at = _skip(data, at + 1)
                good = at >= stop or byte_at(data, at) == 10
                break
            if byte != _COMMA:
                break
            at = _skip(data, at + 1)
        has_body = (seen >> _BODY & 1) + (seen >> _BODY_BASE64 & 1) == 1
        if not (good and has_body and seen >> _TOPIC & 1):
            return row, line, lines
        if unique >= 0:
            count, used = _completed(text, used, pairs, count, _UNIQUE, unique, unique_stop)
        if tags >= 0 and count >= 0:
            count, used = _completed(text, used, pairs, count, _TAG, tags, tags_stop)
        if keys_stop > keys and count >= 0:
            count, used = _completed(text, used, pairs, count, _KEY, keys, keys_stop)
        end = np.int64(-1)
        if count >= 0:
            end = _put_properties(text, pairs, count, heads, head_used, cut)
        if end < 0:
            return row, line, lines
        if cut[0] >= 0:
            record.reserved = 1
            copy_bytes(tails, tail_used, heads, cut[0], end - cut[0])
            tail_used += end - cut[0]
            end = cut[0]
        head_used = end
        head_at[row + 1], tail_at[row + 1] = head_used, tail_used
        body_used = body
        body_at[row + 1] = body
        row += 1
        lines += 1
        at += 1
    return row, at, lines
