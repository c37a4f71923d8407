"""Walk CommitLog bytes to find only the places and queues of records, which is all that readers need.

This walk finds the same records as `reput.kernels.commit_log_scan` in a third of the time. It compiles in less than
half of the time.
"""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import (
    PHYSICAL_OFFSET_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_POSITION,
)
from reput.kernels.integers import read_i32, read_i64, same_bytes
from reput.kernels.java_hash import java_hash
from reput.kernels.jit import njit
from reput.kernels.queue_table import NAME_BYTES_USED, QUEUES_USED, find_queue, queue_number
from reput.kernels.record_walk import (
    BATCH_FULL,
    GAP,
    IN_PLACE,
    MESSAGES,
    MISPLACED,
    NEEDED,
    OUT_OF_PLACE,
    POSITION,
    SCHEDULED,
    STOPPED,
    TABLE_FULL,
    bytes_out_of_place,
    check_record,
    is_scheduled,
    store_timestamp_at,
)


@njit(cache=True, nogil=True)
def scan_places(
    data, end, stop, base, at_file_end, state, messages, used, slots, queues, names
):  # fmt: skip
    """Walk records from state[POSITION] to the first record boundary >= stop; return why the walk stopped.

    The arguments are those of `commit_log_scan.scan_records`. Rows have no tags code and no index entries.

    The walk also stops at a delayed message. A broker cannot read a delayed message whose property DELAY is not an
    integer. This walk cannot check DELAY, because the walk reads no properties.
    """
    position, row = state[POSITION], state[MESSAGES]
    gap, in_place = state[GAP], state[IN_PLACE]
    topic_start, topic_count, topic_hash, topic_queue_id = 0, -1, 0, 0
    queue = np.int64(0)
    status, needed = STOPPED, np.int64(0)
    while position < stop:
        status, needed, topic, topic_bytes, _ = check_record(data, position, end, at_file_end)
        if status != STOPPED:
            break
        physical_offset = read_i64(data, position + PHYSICAL_OFFSET_POSITION)
        if in_place and physical_offset != base + position:
            status = OUT_OF_PLACE
            needed = bytes_out_of_place(data, position, end, stop, base, at_file_end, gap)
            break
        if row >= len(messages):
            status = BATCH_FULL
            break
        # Any record may belong to a new queue. So stop before the record if the table has no room for another queue.
        if used[QUEUES_USED] >= len(queues) or used[NAME_BYTES_USED] + topic_bytes > len(names):
            status = TABLE_FULL
            break
        queue_id = read_i32(data, position + QUEUE_ID_POSITION)
        # Consecutive messages often have the same topic. Comparing it is faster than hashing it.
        same = topic_bytes == topic_count and same_bytes(
            data, topic, names, topic_start, topic_bytes
        )
        if not same or queue_id != topic_queue_id:
            if not same:
                if is_scheduled(data, topic, topic_bytes):
                    status = SCHEDULED
                    break
                topic_hash = java_hash(data, topic, topic + topic_bytes, 0)
            queue = find_queue(slots, queues, names, data, topic, topic_bytes, queue_id, topic_hash)
            if queue < 0:
                queue = queue_number(
                    used, slots, queues, names, data, topic, topic_bytes, queue_id, topic_hash
                )
            topic_start, topic_count = queues[queue].name_start, topic_bytes
            topic_queue_id = queue_id
        sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
        message = messages[row]
        message.physical_offset = physical_offset
        message.queue_offset = read_i64(data, position + QUEUE_OFFSET_POSITION)
        message.store_timestamp = read_i64(data, store_timestamp_at(position, sys_flag))
        message.tags_code = 0
        message.size = needed
        message.sys_flag = sys_flag
        message.queue = queue
        message.key_count = 0
        # Like the broker, accept a record that states a wrong offset. Count it for the report.
        if physical_offset != base + position:
            state[MISPLACED] += 1
        row += 1
        position += needed + gap
    state[POSITION], state[NEEDED], state[MESSAGES] = position, needed, row
    return status
