"""Parse plain lines of JSON into the columns from which messages are stored. Nearly all lines are plain.

A line is plain if it is one object with known fields. Each field occurs at most once and has the right type, and no two
fields contradict each other. Its strings are UTF-8, its body is not compressed, and its properties have no names that
the store must refuse or check. `reput.engine.messages.json_lines` reads all other lines, and explains errors.
"""

from __future__ import annotations

import numpy as np

from reput.format.message_fields import IGNORED_FIELDS, PUT_NAMES
from reput.kernels.bytes_out import copy_bytes
from reput.kernels.integers import byte_at, same_bytes
from reput.kernels.jit import njit
from reput.kernels.json_properties import (
    KEY,
    MOST_PAIRS,
    TAG,
    UNIQUE,
    complete_pairs,
    join_keys,
    put_properties,
    read_pairs,
)
from reput.kernels.json_values import (
    CLOSE,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    decode_base64,
    decode_string,
    is_null,
    parse_integer,
    plain_end,
    skip_space,
)

PADDING = 64
"""Bytes that must follow the lines in their buffer, because kernels load whole words."""

(
    _TOPIC, _BODY, _BODY_BASE64, _QUEUE_ID, _FLAG, _SYS_FLAG, _BORN_TIMESTAMP, _BORN_HOST, _RECONSUME_TIMES,
    _PREPARED_OFFSET, _UNIQUE_KEY, _TAGS, _KEYS, _PROPERTIES, _CRC_OK,
) = (
    PUT_NAMES.index(name)
    for name in (
        "topic", "body", "body_base64", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host",
        "reconsume_times", "prepared_transaction_offset", "unique_key", "tags", "keys", "properties", "body_crc_ok",
    )
)  # fmt: skip
_IGNORED_TEXTS, _IGNORED_INTEGERS = (
    tuple(
        PUT_NAMES.index(field.json_name)
        for field in IGNORED_FIELDS
        if (field.type in ("text", "host")) == is_text
    )
    for is_text in (True, False)
)
SPANS_DTYPE = np.dtype([("topic", "i8"), ("topic_stop", "i8"), ("host", "i8"), ("host_stop", "i8")])

_NAMES = np.frombuffer("".join(PUT_NAMES).encode() + bytes(8), np.uint8)
_ENDS = np.cumsum([0, *map(len, PUT_NAMES)])
_COUNT = len(PUT_NAMES)
_INT32 = 1 << 31


@njit(inline="always")
def _field(data, at, guess):
    """Return the index in PUT_NAMES of the name that begins at `at` and ends with a quote; -1 for an unknown name.

    Compare with the field `guess` first.
    """
    length = _ENDS[guess + 1] - _ENDS[guess]
    if same_bytes(data, at, _NAMES, _ENDS[guess], length) and byte_at(data, at + length) == QUOTE:
        return guess
    for number in range(_COUNT):
        length = _ENDS[number + 1] - _ENDS[number]
        if byte_at(data, at + length) == QUOTE and same_bytes(
            data, at, _NAMES, _ENDS[number], length
        ):
            return np.int64(number)
    return np.int64(-1)


@njit(cache=True, nogil=True)
def parse_lines(
    data, start, stop, rows, spans, body_at, bodies, head_at, heads, tail_at, tails, text
):
    """Read lines from data[start:stop], up to the first line that is not plain (see the module).

    Returns (number of messages, position of this line, number of lines before it). If all lines are plain, the position
    is `stop`.

    data      uint8, whole lines, with PADDING more bytes after `stop`
    rows      PUT_DTYPE[n], one more row than there can be messages; the caller sets topic, born_host and queue
    spans     SPANS_DTYPE[n], places of a row's topic and host in `data`; host and host_stop are equal without a host
    body_at, bodies     int64[n + 1], uint8: body r is bodies[body_at[r]:body_at[r + 1]]
    head_at, heads      properties strings, stored like the bodies. If a unique key must be created (rows.reserved is
                        1), only the part before this key
    tail_at, tails      the part of the properties string after the created key
    text                uint8, working space for the names and values of one line's properties
    bodies, heads, tails and text are each as long as `data`
    """
    pairs = np.zeros((MOST_PAIRS + 4, 6), np.int64)
    cut = np.empty(1, np.int64)
    # For each field, the field that followed it in the previous line. It is tried first, because most lines have the
    # same order.
    follows = np.zeros(_COUNT + 1, np.int64)
    row, lines, at = np.int64(0), np.int64(0), start
    body_used, head_used, tail_used = np.int64(0), np.int64(0), np.int64(0)
    body_at[0], head_at[0], tail_at[0] = 0, 0, 0
    while at < stop:
        line = at
        at = skip_space(data, at)
        if at >= stop or byte_at(data, at) == 10:
            at += 1
            lines += 1
            continue
        # Stop at a line that does not begin with {. The caller reads this line with `reput.engine.messages.json_lines`,
        # and then calls this kernel again for the next lines.
        if byte_at(data, at) != OPEN:
            return row, line, lines
        at = skip_space(data, at + 1)
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
        while at < stop and byte_at(data, at) == QUOTE:
            field = _field(data, at + 1, follows[before])
            if field < 0 or seen >> field & 1:
                break
            # `seen` has one bit per field. If a line has a field twice, the test above leaves the line to
            # `reput.engine.messages.json_lines`.
            seen |= np.int64(1) << field
            follows[before] = field
            before = field
            at = skip_space(data, at + 2 + _ENDS[field + 1] - _ENDS[field])
            if byte_at(data, at) != COLON:
                break
            at = skip_space(data, at + 1)
            byte = byte_at(data, at)
            # The value begins with n: null.
            if byte == 0x6E:
                is_optional = field not in (
                    _TOPIC, _QUEUE_ID, _FLAG, _SYS_FLAG, _RECONSUME_TIMES, _PREPARED_OFFSET, _CRC_OK,
                )  # fmt: skip
                if not (is_optional and is_null(data, at)):
                    break
                if field in (_BODY, _BODY_BASE64):
                    # A null body counts as missing.
                    seen &= ~(np.int64(1) << field)
                at += 4
            elif byte == QUOTE:
                if field == _BODY:
                    at, body = decode_string(data, at + 1, stop, bodies, body_used)
                elif field == _BODY_BASE64:
                    at, body = decode_base64(data, at + 1, bodies, body_used)
                elif field == _UNIQUE_KEY:
                    unique = used
                    at, used = decode_string(data, at + 1, stop, text, used)
                    unique_stop = used
                elif field == _TAGS:
                    tags = used
                    at, used = decode_string(data, at + 1, stop, text, used)
                    tags_stop = used
                elif field in (_TOPIC, _BORN_HOST) or field in _IGNORED_TEXTS:
                    end = plain_end(data, at + 1)
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
            elif byte == OPEN:
                if field != _PROPERTIES:
                    break
                at, used, count = read_pairs(data, at + 1, stop, text, used, pairs)
                if at < 0:
                    break
            elif byte == OPEN_LIST:
                if field != _KEYS:
                    break
                keys = used
                at, used = join_keys(data, at + 1, stop, text, used)
                if at < 0:
                    break
                keys_stop = used
            # Of all values, only `true` begins with t, and only the field `body_crc_ok` may be true. A line in which
            # `body_crc_ok` is false is left to `reput.engine.messages.json_lines`, which reports the error.
            elif byte == 0x74:
                is_true = (
                    byte_at(data, at + 1) == 0x72 and byte_at(data, at + 2) == 0x75
                    and byte_at(data, at + 3) == 0x65
                )  # fmt: skip
                if field != _CRC_OK or not is_true:
                    break
                at += 4
            else:
                at, value = parse_integer(data, at)
                if at < 0:
                    break
                is_int32 = -_INT32 <= value < _INT32
                if field == _BORN_TIMESTAMP:
                    record.born_timestamp = value
                elif field == _PREPARED_OFFSET:
                    record.prepared_transaction_offset = value
                # Exported lines have these fields. They are ignored, because the store sets them itself.
                elif field in _IGNORED_INTEGERS:
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
                    # Flag 1 states that the body is compressed.
                    if value & 1:
                        break
                    record.sys_flag = value
                elif field == _RECONSUME_TIMES:
                    record.reconsume_times = value
                else:
                    break
            at = skip_space(data, at)
            byte = byte_at(data, at)
            if byte == CLOSE:
                at = skip_space(data, at + 1)
                good = at >= stop or byte_at(data, at) == 10
                break
            if byte != COMMA:
                break
            at = skip_space(data, at + 1)
        has_body = (seen >> _BODY & 1) + (seen >> _BODY_BASE64 & 1) == 1
        if not (good and has_body and seen >> _TOPIC & 1):
            return row, line, lines
        if unique >= 0:
            count, used = complete_pairs(text, used, pairs, count, UNIQUE, unique, unique_stop)
        if tags >= 0 and count >= 0:
            count, used = complete_pairs(text, used, pairs, count, TAG, tags, tags_stop)
        if keys_stop > keys and count >= 0:
            count, used = complete_pairs(text, used, pairs, count, KEY, keys, keys_stop)
        end = np.int64(-1)
        if count >= 0:
            end = put_properties(text, pairs, count, heads, head_used, cut)
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
