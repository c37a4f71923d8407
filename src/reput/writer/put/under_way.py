"""Puts that are under way: what has to be counted once their records are in the log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.log.dispatch_batch import Queue


class PutUnderWay(NamedTuple):
    """One record, from the end of the log to `end`; it is in the log when its size and magic are.

    next_offsets  what the next message of each of its queues gets
    """

    end: int
    store_timestamp: int
    next_offsets: tuple[tuple[tuple[str, int], int], ...]


class ColumnsUnderWay(NamedTuple):
    """Many records, counted as they are written.

    progress      int64[2]: rows that are in the log, and where the last ends
    next_offsets  int64[n]: what the next message of each of `queues` gets
    """

    progress: npt.NDArray[np.int64]
    store_timestamp: int
    queues: list[Queue]
    next_offsets: npt.NDArray[np.int64]
