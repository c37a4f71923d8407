"""Summarize the messages of a batch: store times per piece of a log file, and the queue offsets of each queue."""

from __future__ import annotations

import numpy as np

from reput.format.commit_log import SYS_FLAG_PREPARED, SYS_FLAG_ROLLBACK, SYS_FLAG_TRANSACTION_MASK
from reput.kernels.integers import wrapped_difference
from reput.kernels.jit import njit

PIECE_DTYPE = np.dtype(
    [(name, np.int64) for name in ("first", "stop", "least", "most", "steps_back")]
)
"""The messages of a batch in one piece of a file: their rows, the range of their store times, and how many of them are
older than the previous message."""


@njit(cache=True, nogil=True)
def summarize_times(messages, offsets, first, piece_bytes, pieces):
    """Divide messages from row `first` on at multiples of `piece_bytes`, and summarize the store times of each piece.

    messages  columns of a DispatchBatch
    offsets   int64, where the messages begin; empty if they begin where they state
    pieces    rows of PIECE_DTYPE, set here

    Returns the number of pieces. They may end before the last message, if there is no room for all of them.
    """
    count = 0
    begin, previous = np.int64(0), np.int64(0)
    for row in range(first, len(messages)):
        message = messages[row]
        offset = offsets[row] if len(offsets) else message.physical_offset
        stored = message.store_timestamp
        # A damaged message may state any offset.
        distance = wrapped_difference(offset, begin)
        if count == 0 or offset < begin or distance < 0 or distance >= piece_bytes:
            if count == len(pieces):
                break
            begin = wrapped_difference(offset, offset % piece_bytes)
            piece = pieces[count]
            piece.first, piece.least, piece.most, piece.steps_back = row, stored, stored, 0
            count += 1
        # A step back from one piece to the next does not count.
        elif stored < previous:
            pieces[count - 1].steps_back += 1
        piece = pieces[count - 1]
        piece.least, piece.most = min(piece.least, stored), max(piece.most, stored)
        piece.stop = row + 1
        previous = stored
    return count


@njit(cache=True, nogil=True)
def find_queue_ends(messages, first, last):
    """Extend the range of the queue offsets of each queue. Return the number of rolled-back messages.

    messages     columns of a DispatchBatch; prepared and rolled-back messages are in no queue
    first, last  int64, the lowest and the highest queue offset of each queue
    """
    rolled_back = 0
    for row in range(len(messages)):
        message = messages[row]
        if message.sys_flag & SYS_FLAG_PREPARED == 0:
            queue, offset = message.queue, message.queue_offset
            first[queue] = min(first[queue], offset)
            last[queue] = max(last[queue], offset)
        elif message.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_ROLLBACK:
            rolled_back += 1
    return rolled_back
