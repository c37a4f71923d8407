"""Assign a number to each queue that a scan finds.

A hash table, which kernels can use, maps topic bytes and queue id to the number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.kernels.bytes_out import copy_bytes
from reput.kernels.integers import bits_of, same_bytes
from reput.kernels.jit import new_rows, njit

QUEUE_DTYPE = np.dtype(
    [("name_hash", "i8"), ("name_start", "i8"), ("name_bytes", "i4"), ("queue_id", "i4")]
)
QUEUES_USED, NAME_BYTES_USED = range(2)
# At most a quarter of the slots are used, so a search soon meets the queue or an empty slot.
_SLOTS_PER_QUEUE = 4
_MIX_NAME, _MIX_ID, _ONE = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77), np.uint64(1)


class QueueTable(NamedTuple):
    """Arrays of an open-addressing hash table. Kernels take each array as a separate argument, in this order.

    used    int64[2], number of queues, and number of bytes used in `names`
    slots   int32, the number of a queue in each slot; -1 if the slot is empty
    queues  QUEUE_DTYPE, one row per queue
    names   uint8, the bytes of all names
    """

    used: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    queues: npt.NDArray[np.void]
    names: npt.NDArray[np.uint8]

    def name(self, number: int) -> bytes:
        queue = self.queues[number]
        start = int(queue["name_start"])
        return self.names[start : start + int(queue["name_bytes"])].tobytes()


def new_queue_table(queues: int, name_bytes: int) -> QueueTable:
    """Return an empty table with room for `queues` queues, and for names of `name_bytes` bytes in all.

    `queues` must be a power of two.
    """
    return QueueTable(
        used=np.zeros(2, np.int64),
        slots=np.full(queues * _SLOTS_PER_QUEUE, -1, np.int32),
        queues=new_rows(queues, QUEUE_DTYPE),
        names=np.zeros(name_bytes, np.uint8),
    )


def grown(table: QueueTable) -> QueueTable:
    """Return a table of twice the size in which each queue keeps its number."""
    larger = new_queue_table(2 * len(table.queues), 2 * len(table.names))
    # The queues are added in the order of their numbers, so each gets its old number again.
    for queue in table.queues[: int(table.used[QUEUES_USED])]:
        start, count = int(queue["name_start"]), int(queue["name_bytes"])
        queue_id, name_hash = np.int64(queue["queue_id"]), np.int64(queue["name_hash"])
        queue_number(*larger, table.names, start, count, queue_id, name_hash)
    return larger


@njit(inline="always")
def find_queue(slots, queues, names, data, start, count, queue_id, name_hash):
    """Return the number of the queue with this id and the name data[start:start+count].

    If the table lacks the queue, return -1 - slot, where `slot` is the free slot for this queue.
    """
    # The shift by one bit makes the result a positive int64.
    mixed = np.int64((bits_of(name_hash) * _MIX_NAME + bits_of(queue_id) * _MIX_ID) >> _ONE)
    mask = len(slots) - 1
    slot = (mixed ^ (mixed >> 29)) & mask
    while True:
        number = np.int64(slots[slot])
        if number < 0:
            return -1 - slot
        if (
            queues[number].queue_id == queue_id
            and queues[number].name_hash == name_hash
            and queues[number].name_bytes == count
            and same_bytes(names, queues[number].name_start, data, start, count)
        ):
            return number
        slot = (slot + 1) & mask


@njit(cache=True, nogil=True)
def queue_number(used, slots, queues, names, data, start, count, queue_id, name_hash):
    """Return the number of the queue with this id and the name data[start:start+count].

    If the table lacks the queue, add it. The caller has made room.
    """
    number = find_queue(slots, queues, names, data, start, count, queue_id, name_hash)
    if number >= 0:
        return number
    slot = -1 - number
    number = used[QUEUES_USED]
    name_start = used[NAME_BYTES_USED]
    copy_bytes(names, name_start, data, start, count)
    slots[slot] = number
    queues[number].queue_id = queue_id
    queues[number].name_start = name_start
    queues[number].name_bytes = count
    queues[number].name_hash = name_hash
    used[QUEUES_USED] = number + 1
    used[NAME_BYTES_USED] = name_start + count
    return number
