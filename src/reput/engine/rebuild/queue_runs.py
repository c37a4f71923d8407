"""Runs: a run is a summary of the entries that one part of the log appends to one queue.

A run has five numbers. They suffice to compute the positions of the entries without reading them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.core import DispatchBatch
from reput.kernels.queue_entries import summarize_runs

RUN_DTYPE = np.dtype(
    [(name, np.int64) for name in ("entries", "first", "slack", "ahead", "highest")]
)
"""The fields of a run, which summarizes the entries that one part of the log appends to a queue.

`entries` is the number of these entries; it may be 0. `kernels.queue_entries.summarize_runs` explains the other fields.
"""
QueueRuns = npt.NDArray[np.void]
"""RUN_DTYPE[n]: for each of n queues, its run (the summary of the entries that one part of the log appends to it)."""


def new_runs(count: int) -> QueueRuns:
    """Return an empty run (a summary of 0 entries) for each of `count` queues."""
    return np.zeros(count, RUN_DTYPE)


def runs_of(batch: DispatchBatch) -> QueueRuns:
    """Return a run for each queue in `batch.queues`: a summary of the queue's entries in the batch."""
    bounds, _, queue_offset = batch.queue_entries()
    runs = new_runs(len(batch.queues))
    columns = [np.empty(len(runs), np.int64) for _ in range(4)]
    summarize_runs(bounds, queue_offset, *columns)
    runs["entries"] = np.diff(bounds)
    for name, column in zip(("first", "slack", "ahead", "highest"), columns, strict=True):
        runs[name] = column
    return runs


def joined(runs: QueueRuns, later: QueueRuns) -> QueueRuns:
    """Join the runs (summaries of entries, one per queue) of two consecutive parts of the log.

    `later` must begin with the queues of `runs`, in the same order. New queues may follow.
    """
    earlier = new_runs(len(later))
    earlier[: len(runs)] = runs
    has, goes_on = earlier["entries"] > 0, later["entries"] > 0
    result = np.where(has, earlier, later)
    joint = np.flatnonzero(has & goes_on)
    first, second = earlier[joint], later[joint]
    # `slack` and `ahead` are differences: the queue offset of an entry minus the entry's index in its run (see
    # `summarize_runs`). In the joined run, the entries of `second` come after the entries of `first`. So the indexes of
    # these later entries grow by the number of entries in `first`, and their differences shrink by this number.
    result["slack"][joint] = np.minimum(first["slack"], second["slack"] - first["entries"])
    result["ahead"][joint] = np.maximum(first["ahead"], second["ahead"] - first["entries"])
    result["highest"][joint] = np.maximum(first["highest"], second["highest"])
    result["entries"][joint] = first["entries"] + second["entries"]
    return result
