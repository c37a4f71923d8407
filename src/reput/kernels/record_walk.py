"""Define what all walks over CommitLog bytes share: their state, their reasons to stop, the checks of a record.

The checks of lengths follow `CommitLog.checkMessageAndReturnSize`, as `reput.format.commit_log` describes it. A walk
stops with a reason whenever its caller must act: pass more bytes, make more room, or decide how to continue after
unreadable bytes.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BODY_LENGTH_BYTES,
    HEAD,
    MAGIC_POSITION,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_POSITION,
    PROPERTIES_LENGTH_BYTES,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_HOSTS_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
    WIDER_HOST_BYTES,
)
from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES
from reput.kernels.integers import byte_at, read_i16, read_i32, read_i64, same_bytes
from reput.kernels.jit import njit

# Reasons why a walk stops at the next record. STOPPED means that nothing is wrong with this record.
STOPPED = 0  # The walk has reached the first record boundary at or after `stop`.
MORE_BYTES = 1  # The next record extends beyond the buffer, but not beyond the file.
BATCH_FULL = 2  # The batch may have too few free rows for the next record.
TABLE_FULL = 3  # The QueueTable may have too little room for the queues of the next record.
BLANK = 4  # The next record is not a message, but the blank record at the end of the file.
UNREADABLE = 5
SIZE_MISMATCH = 6  # TOTALSIZE is not the sum of the next record's parts. A broker continues where the parts end.
# A record, or several, state another physical offset than their place. Only walks with IN_PLACE stop there.
OUT_OF_PLACE = 8
SCHEDULED = 7  # The next record is a delayed message. A broker cannot read it if its property DELAY is not an integer.

# Indexes of the fields in a walk's state, an int64 array that is kept between calls.
POSITION = 0  # state[0]: position of the next record in the buffer.
MESSAGES = 1  # state[1]: number of filled rows of messages.
KEY_ROWS = 2  # state[2]: number of filled rows of index entries.
MULTI_ROWS = 3  # state[3]: number of filled rows of further queues (INNER_MULTI_DISPATCH).
# state[4]: physical offset of the last message that got index entries. As in the broker, a following message gets no
# index entries if its field PHYSICALOFFSET is lower.
END_OFFSET = 4
MISPLACED = 5  # state[5]: number of messages whose PHYSICALOFFSET is not their place.
BAD_MULTI = 6  # state[6]: number of messages whose INNER_MULTI_QUEUE_OFFSET is unreadable.
# state[7]: after MORE_BYTES, the least size of the next record; after SIZE_MISMATCH, the sum of the sizes of its parts;
# after OUT_OF_PLACE, the size of all records up to the next one in its place.
NEEDED = 7
GAP = 8  # state[8]: number of bytes between two records: the size of a header in a DLedger log, otherwise 0.
IN_PLACE = 9  # state[9]: 1 if the walk stops at records that state another physical offset than their place.
STATE_FIELDS = 10

# Distance from STORETIMESTAMP to the body in a record with an IPv4 store host.
_BODY_AFTER_STORE_TIMESTAMP = HEAD.size - STORE_TIMESTAMP_POSITION
_SCHEDULE_TOPIC = np.frombuffer(b"SCHEDULE_TOPIC_XXXX", np.uint8)


@njit(inline="always")
def check_record(data, position, end, at_file_end):
    """Compare the lengths in the record at `position` with each other and with `end`, before any length is used.

    at_file_end  whether the file ends at `end`

    Returns five numbers: the reason why the walk must stop at this record, or STOPPED if nothing is wrong with it; the
    record's size (with MORE_BYTES, its least size); position and length of its topic; and the position of its
    properties.
    """
    # A record never continues in the next file.
    beyond = UNREADABLE if at_file_end else MORE_BYTES
    if position + BLANK_BYTES > end:
        return beyond, BLANK_BYTES, 0, 0, 0
    total = read_i32(data, position)
    magic = read_i32(data, position + MAGIC_POSITION)
    if magic == BLANK_MAGIC:
        return BLANK, BLANK_BYTES, 0, 0, 0
    if (magic != MESSAGE_MAGIC and magic != MESSAGE_MAGIC_V2) or total < 0:
        return UNREADABLE, BLANK_BYTES, 0, 0, 0
    if position + MIN_RECORD_BYTES > end:
        return beyond, MIN_RECORD_BYTES, 0, 0, 0
    sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
    body = body_of(position, sys_flag)
    topic = body + topic_length_bytes(magic)
    if topic > end:
        return beyond, topic - position, 0, 0, 0
    topic += body_bytes_before(data, body)
    if topic > end:
        return beyond, topic - position, 0, 0, 0
    topic_bytes = topic_bytes_before(data, topic, magic)
    if topic_bytes < 0:
        return UNREADABLE, BLANK_BYTES, 0, 0, 0
    properties = topic + topic_bytes + PROPERTIES_LENGTH_BYTES
    if properties > end:
        return beyond, properties - position, 0, 0, 0
    properties_bytes = properties_bytes_before(data, properties)
    needed = properties + properties_bytes - position
    if position + needed > end:
        return beyond, needed, 0, 0, 0
    host_bytes = HOST_V6_BYTES if sys_flag & SYS_FLAG_HOSTS_V6 else HOST_V4_BYTES
    if total < max(host_bytes, topic_bytes, properties_bytes):
        # Java's reader copies hosts, topic and properties into an array of TOTALSIZE bytes. If one does not fit, it
        # throws.
        return UNREADABLE, BLANK_BYTES, 0, 0, 0
    if total != needed:
        return SIZE_MISMATCH, needed, 0, 0, 0
    return STOPPED, needed, topic, topic_bytes, properties


@njit(cache=True, nogil=True)
def bytes_out_of_place(data, position, end, stop, base, at_file_end, gap):
    """Return the size of the records from `position` up to the next one in its place.

    The size is 0 if the record at `position` states its place, `base` + `position`. See `check_record` and
    `commit_log_scan.scan_records` for the arguments.
    """
    begin = position
    while position < stop:
        status, needed, _, _, _ = check_record(data, position, end, at_file_end)
        if (
            status != STOPPED
            or read_i64(data, position + PHYSICAL_OFFSET_POSITION) == base + position
        ):
            break
        position += needed + gap
    return position - begin


@njit(inline="always")
def store_timestamp_at(position, sys_flag):
    """Return where STORETIMESTAMP is in the record at `position`: after the born host, whose size depends on a flag."""
    wider = WIDER_HOST_BYTES if sys_flag & SYS_FLAG_BORN_HOST_V6 else 0
    return position + STORE_TIMESTAMP_POSITION + wider


@njit(inline="always")
def body_of(position, sys_flag):
    """Return where the body is in the record at `position`: after its length, the last field of the head."""
    wider = WIDER_HOST_BYTES if sys_flag & SYS_FLAG_STORE_HOST_V6 else 0
    return store_timestamp_at(position, sys_flag) + wider + _BODY_AFTER_STORE_TIMESTAMP


@njit(inline="always")
def body_bytes_before(data, body):
    """Return the length of the body that begins at `body`. As in the broker, a negative length counts as 0."""
    return max(read_i32(data, body - BODY_LENGTH_BYTES), 0)


@njit(inline="always")
def topic_length_bytes(magic):
    """Return the size of the field with the length of the topic."""
    return 1 if magic == MESSAGE_MAGIC else 2


@njit(inline="always")
def topic_bytes_before(data, topic, magic):
    """Return the length of the topic that begins at `topic`. It may be negative."""
    if magic == MESSAGE_MAGIC:
        length = byte_at(data, topic - 1)
        return length - ((length & 0x80) << 1)
    return read_i16(data, topic - 2)


@njit(inline="always")
def properties_bytes_before(data, properties):
    """Return the length of the properties that begin at `properties`. A negative length counts as 0."""
    return max(read_i16(data, properties - PROPERTIES_LENGTH_BYTES), 0)


@njit(inline="always")
def is_scheduled(data, topic, topic_bytes):
    """Return whether the topic is SCHEDULE_TOPIC_XXXX. The tags code of its messages is their due time."""
    return equals(data, topic, topic_bytes, _SCHEDULE_TOPIC)


@njit(inline="always")
def equals(data, start, count, expected):
    """Return whether data[start:start + count] has the bytes of `expected`, uint8."""
    return count == len(expected) and same_bytes(data, start, expected, 0, count)
