"""Scan CommitLog bytes into the columns of a DispatchBatch, as the broker's reput service does.

`reput.format.commit_log`, `.properties` and `.index_file` specify the rules; the tests compare both implementations.
`reput.kernels.record_walk` defines the state of the walk and its reasons to stop.

`scan_records` is long on purpose. If it called other functions, each array argument would cost two atomic changes of
a reference count. At eight million messages per second, such changes took three quarters of the time.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    PHYSICAL_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_POSITION,
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.kernels.integers import byte_at, read_i32, read_i64, same_bytes, wrapped_sum
from reput.kernels.java_hash import (
    hash_before_key,
    hash_before_tags,
    java_hash,
    positive_hash,
    signed_hash,
)
from reput.kernels.jit import njit
from reput.kernels.properties_scan import (
    find_index_properties,
    find_value,
    is_blank,
    next_space,
    parse_i64,
)
from reput.kernels.queue_table import NAME_BYTES_USED, QUEUES_USED, find_queue, queue_number
from reput.kernels.record_walk import (
    BAD_MULTI,
    BATCH_FULL,
    END_OFFSET,
    GAP,
    IN_PLACE,
    KEY_ROWS,
    MESSAGES,
    MISPLACED,
    MULTI_ROWS,
    NEEDED,
    OUT_OF_PLACE,
    POSITION,
    STOPPED,
    TABLE_FULL,
    UNREADABLE,
    bytes_out_of_place,
    check_record,
    equals,
    is_scheduled,
    store_timestamp_at,
)

_LMQ_PREFIX = np.frombuffer(b"%LMQ%", np.uint8)
_DELAY = np.frombuffer(b"DELAY", np.uint8)
_QUEUE_NAMES = np.frombuffer(b"INNER_MULTI_DISPATCH", np.uint8)
_QUEUE_OFFSETS = np.frombuffer(b"INNER_MULTI_QUEUE_OFFSET", np.uint8)
_COMMA = ord(",")
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


@njit(cache=True, nogil=True)
def scan_records(
    data, end, stop, base, at_file_end, multi_dispatch, lmq, tags_from, delays_ms, state,
    messages, key_hash, multi, used, slots, queues, names,
):  # fmt: skip
    """Walk records from state[POSITION] to the first record boundary >= stop; return why the walk stopped.

    data         uint8, a piece of one CommitLog file; data[:end] is valid
    stop         position in data; may lie after `end`
    base         physical offset of position 0
    at_file_end  whether the file ends at `end`
    tags_from    physical offset from which messages also have an index entry for their tags
    delays_ms    int64, delay of each level of SCHEDULE_TOPIC_XXXX
    messages, key_hash (int32), multi   rows to fill: per message, per index entry, per queue of
                                        INNER_MULTI_DISPATCH
    used, slots, queues, names          a QueueTable
    """
    position = state[POSITION]
    row, key_row, multi_row = state[MESSAGES], state[KEY_ROWS], state[MULTI_ROWS]
    end_offset, gap, in_place = state[END_OFFSET], state[GAP], state[IN_PLACE]
    topic_start, topic_count, topic_hash, topic_queue_id = 0, -1, 0, 0
    queue = 0
    status, needed = STOPPED, np.int64(0)
    while position < stop:
        # 1. Check all lengths, before any field is used.
        status, needed, topic_at, topic_bytes, properties_at = check_record(
            data, position, end, at_file_end
        )
        if status != STOPPED:
            break
        physical_offset = read_i64(data, position + PHYSICAL_OFFSET_POSITION)
        if in_place and physical_offset != base + position:
            status = OUT_OF_PLACE
            needed = bytes_out_of_place(data, position, end, stop, base, at_file_end, gap)
            break
        record_end = position + needed
        properties_bytes = record_end - properties_at
        sys_flag = read_i32(data, position + SYS_FLAG_POSITION)

        # 2. Check that there is room for all rows of this record. Each key and each further queue is
        # a row, and takes at least two bytes of the properties. So the length of the properties limits the rows.
        most = properties_bytes // 2 + 2
        further = most if multi_dispatch else 0
        if (
            row >= len(messages)
            or key_row + most > len(key_hash)
            or multi_row + further > len(multi)
        ):
            status = BATCH_FULL
            break
        name_bytes = topic_bytes + (properties_bytes if multi_dispatch else 0)
        if used[QUEUES_USED] + 1 + further > len(queues) or used[
            NAME_BYTES_USED
        ] + name_bytes > len(names):
            status = TABLE_FULL
            break

        # 3. Find the queue. Its topic is hashed only once for consecutive messages of one queue.
        queue_id = read_i32(data, position + QUEUE_ID_POSITION)
        same = topic_bytes == topic_count and same_bytes(
            data, topic_at, names, topic_start, topic_bytes
        )
        if not same or queue_id != topic_queue_id:
            if not same:
                topic_hash = java_hash(data, topic_at, topic_at + topic_bytes, 0)
            queue = find_queue(
                slots, queues, names, data, topic_at, topic_bytes, queue_id, topic_hash
            )
            if queue < 0:
                queue = queue_number(
                    used, slots, queues, names, data, topic_at, topic_bytes, queue_id, topic_hash
                )
            topic_start, topic_count = queues[queue].name_start, topic_bytes
            topic_queue_id = queue_id

        # 4. Find the properties that dispatch reads.
        unique, unique_stop, keys, keys_stop, tags, tags_stop, longest = find_index_properties(
            data, properties_at, record_end
        )
        store_timestamp = read_i64(data, store_timestamp_at(position, sys_flag))
        tags_code = signed_hash(java_hash(data, tags, tags_stop, 0))
        if is_scheduled(data, topic_at, topic_bytes):
            delay, delay_stop = find_value(data, properties_at, record_end, _DELAY)
            if delay < delay_stop:
                valid, level = parse_i64(data, delay, delay_stop)
                if not valid or level < _INT32_MIN or level > _INT32_MAX:
                    # The broker's reader throws NumberFormatException here, and stops.
                    status = UNREADABLE
                    break
                level = min(level, len(delays_ms))
                if level > 0:
                    tags_code = wrapped_sum(store_timestamp, delays_ms[level - 1])

        # 5. Hash the keys of the index entries: topic#key for the unique key, then for each of KEYS
        # (IndexService.buildIndex).
        first_key = key_row
        # Rolled-back messages, and messages before the index's end, get no index entries (IndexService.buildIndex).
        if (
            sys_flag & SYS_FLAG_TRANSACTION_MASK != SYS_FLAG_ROLLBACK
            and physical_offset >= end_offset
        ):
            prefix = hash_before_key(topic_hash)
            if unique < unique_stop:
                key_hash[key_row] = positive_hash(java_hash(data, unique, unique_stop, prefix))
                key_row += 1
            while keys < keys_stop:
                space = next_space(data, keys, keys_stop)
                if space > keys:
                    key_hash[key_row] = positive_hash(java_hash(data, keys, space, prefix))
                    key_row += 1
                keys = space + 1
            # Brokers of 5.4 and later also put topic#T#tags.
            if tags < tags_stop and physical_offset >= tags_from:
                prefix = hash_before_tags(prefix)
                key_hash[key_row] = positive_hash(java_hash(data, tags, tags_stop, prefix))
                key_row += 1
            # As in the broker, a message without keys does not move the index's end.
            if key_row > first_key:
                end_offset = physical_offset

        # 6. Write the message's row, and the rows of further queues.
        message = messages[row]
        message.physical_offset = physical_offset
        message.queue_offset = read_i64(data, position + QUEUE_OFFSET_POSITION)
        message.store_timestamp = store_timestamp
        message.tags_code = tags_code
        message.size = needed
        message.sys_flag = sys_flag
        message.queue = queue
        message.key_count = key_row - first_key
        # Prepared and rolled-back messages (flag 4) are in no queue. In most other messages, even the longest property
        # name is too short to be the name INNER_MULTI_QUEUE_OFFSET. Do not search such messages for this property.
        if multi_dispatch and sys_flag & SYS_FLAG_PREPARED == 0 and longest >= len(_QUEUE_OFFSETS):
            multi_row = _add_multi(
                data, properties_at, record_end, row, multi_row, queue_id, lmq, state, multi,
                used, slots, queues, names,
            )  # fmt: skip
        # Like the broker, dispatch a record that states a wrong offset. Count it for the report.
        if physical_offset != base + position:
            state[MISPLACED] += 1
        row += 1
        position += needed + gap
    state[POSITION], state[NEEDED] = position, needed
    state[MESSAGES], state[KEY_ROWS], state[MULTI_ROWS] = row, key_row, multi_row
    state[END_OFFSET] = end_offset
    return status


@njit(cache=True, nogil=True)
def _add_multi(
    data, start, stop, row, multi_row, queue_id, lmq, state, multi, used, slots, queues, names
):
    """Write one row per queue of INNER_MULTI_DISPATCH (ConsumeQueue.multiDispatchLmqQueue), and return the next row."""
    name, names_stop = find_value(data, start, stop, _QUEUE_NAMES)
    offset, offsets_stop = find_value(data, start, stop, _QUEUE_OFFSETS)
    if is_blank(data, name, names_stop) or is_blank(data, offset, offsets_stop):
        return multi_row
    parts = _parts(data, name, names_stop)
    # The broker skips a message whose lists of queues and offsets have different lengths.
    if parts != _parts(data, offset, offsets_stop):
        state[BAD_MULTI] += 1
        return multi_row
    for _ in range(parts):
        name_end = _part_end(data, name, names_stop)
        offset_end = _part_end(data, offset, offsets_stop)
        valid, queue_offset = parse_i64(data, offset, offset_end)
        # If a queue offset is invalid, write no rows for this queue and the later queues. The rows of earlier queues
        # stay, because a broker has already written their entries when it parses the invalid offset.
        if not valid:
            state[BAD_MULTI] += 1
            return multi_row
        to_lmq = lmq and name_end - name >= 5 and equals(data, name, 5, _LMQ_PREFIX)
        multi[multi_row].row = row
        multi[multi_row].queue_offset = queue_offset
        multi[multi_row].queue = queue_number(
            used, slots, queues, names, data, name, name_end - name,
            0 if to_lmq else queue_id, java_hash(data, name, name_end, 0),
        )  # fmt: skip
        multi_row += 1
        name, offset = name_end + 1, offset_end + 1
    return multi_row


@njit(inline="always")
def _part_end(data, position, stop):
    while position < stop and byte_at(data, position) != _COMMA:
        position += 1
    return position


@njit(cache=True, nogil=True)
def _parts(data, start, stop):
    """Count the parts between commas as Java's split does: empty parts at the end do not count."""
    while stop > start and byte_at(data, stop - 1) == _COMMA:
        stop -= 1
    if stop == start:
        return 0
    count = 1
    for position in range(start, stop):
        if byte_at(data, position) == _COMMA:
            count += 1
    return count
