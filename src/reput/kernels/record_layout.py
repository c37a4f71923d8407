"""Lay out many records in a CommitLog file at once, from columns.

The bytes are those of `reput.format.commit_log.join_record`, with magic V2 for topics that need it. The caller has
checked that every length fits its field.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    BLANK_BYTES,
    BODY_CRC_POSITION,
    BODY_LENGTH_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    CRC_PROPERTY,
    FIXED_BYTES,
    FLAG_POSITION,
    HEAD,
    MAGIC_POSITION,
    MAX_TOPIC_BYTES,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    PHYSICAL_OFFSET_POSITION,
    PREPARED_OFFSET_POSITION,
    PROPERTIES_LENGTH_BYTES,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECONSUME_TIMES_POSITION,
    STORE_HOST_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_PREPARED,
    SYS_FLAG_STORE_HOST_V6,
    encode_crc_property,
)
from reput.format.host import HOST_V6_BYTES
from reput.kernels.bytes_out import copy_bytes, put_byte, put_i16, put_i32, put_i64, release
from reput.kernels.checksum import crc32, crc32_after
from reput.kernels.jit import njit

PUT_DTYPE = np.dtype(
    [
        ("born_timestamp", "i8"),
        ("prepared_transaction_offset", "i8"),
        ("queue", "i4"),
        ("queue_id", "i4"),
        ("topic", "i4"),
        ("born_host", "i4"),
        ("flag", "i4"),
        ("sys_flag", "i4"),
        ("reconsume_times", "i4"),
        ("reserved", "i4"),
    ]
)
# Distances between fields that lie after a host, whose size differs.
_STORE_HOST_AFTER = STORE_HOST_POSITION - STORE_TIMESTAMP_POSITION
_PREPARED_OFFSET_AFTER = PREPARED_OFFSET_POSITION - RECONSUME_TIMES_POSITION
_BODY_LENGTH_AFTER = BODY_LENGTH_POSITION - RECONSUME_TIMES_POSITION
_BODY_AFTER = HEAD.size - RECONSUME_TIMES_POSITION
_NAME_SEPARATOR, _PROPERTY_SEPARATOR = 1, 2
_CRC_PROPERTY = np.frombuffer(bytearray(encode_crc_property(0)), np.uint8)
_CRC_DIGITS_AT, _CRC_DIGITS = len(CRC_PROPERTY) + 1, 10


@njit(cache=True, nogil=True)
def lay_out_records(
    out, base, progress, rows, bodies, body_at, properties, property_at, names, name_at,
    topics, topic_at, hosts, host_at, store_host, store_timestamp, next_offset, physical_offset,
    queue_offset, is_five, has_crc,
):  # fmt: skip
    """Write the records of rows from `progress` on. Stop before a record after which no blank would fit.

    out          uint8, a whole CommitLog file whose physical offset is `base`
    progress     int64[2]: next row, and physical offset of its record; advanced with each record
    bodies, body_at          uint8; int64[n + 1]: row r has bodies[body_at[r]:body_at[r + 1]]
    properties, property_at  uint8; int64[p, n + 1]: values of p properties; empty values are omitted
    names, name_at           uint8; int64[p + 1]: names of the p properties; if a name is empty, its values are whole
                             properties strings
    topics, topic_at, hosts, host_at   texts, indexed by the rows' `topic` and `born_host`
    next_offset  int64, indexed by the rows' `queue`; advanced here
    physical_offset, queue_offset      int64[n], set here
    is_five      whether each named property ends with a separator, as in 5.x
    has_crc      whether the record ends with the property of its CRC (reput.format.commit_log)
    """
    head = np.empty(BLANK_BYTES, np.uint8)
    store_bytes = len(store_host)
    store_flag = SYS_FLAG_STORE_HOST_V6 if store_bytes == HOST_V6_BYTES else 0
    row, position = progress[0], progress[1] - base
    while row < len(rows):
        record = rows[row]
        body_start = body_at[row]
        body_bytes = body_at[row + 1] - body_start
        topic_start = topic_at[record.topic]
        topic_bytes = topic_at[record.topic + 1] - topic_start
        born_start = host_at[record.born_host]
        born_bytes = host_at[record.born_host + 1] - born_start
        properties_bytes = _joined_bytes(property_at, name_at, is_five, row)
        properties_bytes += len(_CRC_PROPERTY) if has_crc else 0
        length_bytes = 1 if topic_bytes <= MAX_TOPIC_BYTES else 2
        magic = MESSAGE_MAGIC if topic_bytes <= MAX_TOPIC_BYTES else MESSAGE_MAGIC_V2
        total = FIXED_BYTES + born_bytes + store_bytes + body_bytes + length_bytes + topic_bytes
        total += properties_bytes
        # A blank must fit after the last record of a file (CommitLog's END_FILE_MIN_BLANK_LENGTH).
        if total + BLANK_BYTES > len(out) - position:
            break
        # Prepared and rolled-back messages have the queue offset 0, and their queue does not grow (4.9.3:
        # CommitLog.DefaultAppendMessageCallback).
        counts = record.sys_flag & SYS_FLAG_PREPARED == 0
        number = next_offset[record.queue] if counts else 0
        # The host flags describe the hosts that are written, even if the row has other flags.
        sys_flag = record.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
        sys_flag |= store_flag | (SYS_FLAG_BORN_HOST_V6 if born_bytes == HOST_V6_BYTES else 0)
        crc = 0
        if body_bytes > 0:
            crc = crc32(bodies, body_start, body_start + body_bytes) & 0x7FFFFFFF
        put_i32(out, position + BODY_CRC_POSITION, crc)
        put_i32(out, position + QUEUE_ID_POSITION, record.queue_id)
        put_i32(out, position + FLAG_POSITION, record.flag)
        put_i64(out, position + QUEUE_OFFSET_POSITION, number)
        put_i64(out, position + PHYSICAL_OFFSET_POSITION, base + position)
        put_i32(out, position + SYS_FLAG_POSITION, sys_flag)
        put_i64(out, position + BORN_TIMESTAMP_POSITION, record.born_timestamp)
        at = position + BORN_HOST_POSITION
        copy_bytes(out, at, hosts, born_start, born_bytes)
        at += born_bytes
        put_i64(out, at, store_timestamp)
        at += _STORE_HOST_AFTER
        copy_bytes(out, at, store_host, 0, store_bytes)
        at += store_bytes
        put_i32(out, at, record.reconsume_times)
        put_i64(out, at + _PREPARED_OFFSET_AFTER, record.prepared_transaction_offset)
        put_i32(out, at + _BODY_LENGTH_AFTER, body_bytes)
        at += _BODY_AFTER
        copy_bytes(out, at, bodies, body_start, body_bytes)
        at += body_bytes
        if length_bytes == 1:
            put_byte(out, at, topic_bytes)
        else:
            put_i16(out, at, topic_bytes)
        copy_bytes(out, at + length_bytes, topics, topic_start, topic_bytes)
        at += length_bytes + topic_bytes
        put_i16(out, at, properties_bytes)
        _join(
            out, at + PROPERTIES_LENGTH_BYTES, properties, property_at, names, name_at, is_five, row
        )
        if has_crc:
            put_i32(head, 0, total)
            put_i32(head, MAGIC_POSITION, magic)
            _put_crc(out, position, position + total, head)
        # Size and magic are written last, so that no concurrent reader takes half a record for a whole one.
        release()
        put_i32(out, position + MAGIC_POSITION, magic)
        release()
        put_i32(out, position, total)
        physical_offset[row] = base + position
        queue_offset[row] = number
        if counts:
            next_offset[record.queue] = number + 1
        position += total
        row += 1
        progress[0] = row
        progress[1] = base + position


@njit(inline="always")
def _put_crc(out, start, stop, head):
    """Write the CRC property at the end of a record. Size and magic, `head`, are not yet in `out`."""
    at = stop - len(_CRC_PROPERTY)
    crc = crc32_after(head, 0, len(head), 0)
    crc = crc32_after(out, start + len(head), at, crc) & 0x7FFFFFFF
    copy_bytes(out, at, _CRC_PROPERTY, 0, len(_CRC_PROPERTY))
    for digit in range(_CRC_DIGITS):
        put_byte(out, at + _CRC_DIGITS_AT + digit, 48 + crc % 10)
        crc //= 10


@njit(inline="always")
def _joined_bytes(property_at, name_at, is_five, row):
    """Return the length of a row's properties string."""
    total = 0
    for column in range(len(property_at)):
        value_bytes = property_at[column, row + 1] - property_at[column, row]
        name_bytes = name_at[column + 1] - name_at[column]
        if value_bytes > 0:
            total += value_bytes + (name_bytes + 1 if name_bytes > 0 else 0)
            if is_five:
                total += 1 if name_bytes > 0 else 0
            # 4.9 writes a separator before each property except the first one.
            else:
                total += 1 if total > value_bytes + name_bytes + 1 else 0
    return total


@njit(inline="always")
def _join(out, at, properties, property_at, names, name_at, is_five, row):
    begin = at
    for column in range(len(property_at)):
        value_start = property_at[column, row]
        value_bytes = property_at[column, row + 1] - value_start
        name_bytes = name_at[column + 1] - name_at[column]
        if value_bytes > 0:
            if at > begin and not is_five:
                put_byte(out, at, _PROPERTY_SEPARATOR)
                at += 1
            if name_bytes > 0:
                copy_bytes(out, at, names, name_at[column], name_bytes)
                put_byte(out, at + name_bytes, _NAME_SEPARATOR)
                at += name_bytes + 1
            copy_bytes(out, at, properties, value_start, value_bytes)
            at += value_bytes
            if is_five and name_bytes > 0:
                put_byte(out, at, _PROPERTY_SEPARATOR)
                at += 1


@njit(cache=True, nogil=True)
def joined_bytes(property_at, name_at, is_five, lengths):
    """Write the length of every row's properties string to `lengths`, an int64[n]."""
    for row in range(len(lengths)):
        lengths[row] = _joined_bytes(property_at, name_at, is_five, row)


@njit(cache=True, nogil=True)
def write_unique_keys(out, prefix, elapsed_ms, counter):
    """Write consecutive keys of 32 hexadecimal digits: 20 of `prefix`, 8 of `elapsed_ms`, 4 of the counter.

    When the counter restarts at 0, the time advances by one, so that no two keys are equal.
    """
    width = len(prefix) + 12
    for key in range(len(out) // width):
        at = key * width
        copy_bytes(out, at, prefix, 0, len(prefix))
        at += len(prefix)
        time = elapsed_ms + ((counter + key) >> 16)
        for digit in range(8):
            put_byte(out, at + digit, _digit((time >> (28 - 4 * digit)) & 15))
        for digit in range(4):
            put_byte(out, at + 8 + digit, _digit(((counter + key) >> (12 - 4 * digit)) & 15))


@njit(inline="always")
def _digit(value):
    return value + (48 if value < 10 else 55)
