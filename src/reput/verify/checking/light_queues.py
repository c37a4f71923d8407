"""Light queues (%LMQ%): entries whose numbers are not the queue offsets of their messages, as a broker wants it.

A task sees one file of the log and notes how far the entries of each light queue lag behind. Whether each change of
that is the broker's is decided in the order of the log, by `may_skew`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.findings import Finding, Kind
from reput.format.commit_log import SYS_FLAG_PREPARED, locate
from reput.format.properties import LMQ_PREFIX
from reput.log.dispatch_batch import Queue
from reput.log.queued_record import further_places, may_skew
from reput.log.reader import LocatedRecord
from reput.log.scan import Piece
from reput.verify.checking.tally import Tally

Offsets = npt.NDArray[np.int64]


class SkewRun(NamedTuple):
    """Entries that follow each other and lag behind alike.

    skew         queue offset of the message less number of the entry
    taken        queue offsets given to messages without an entry since the entry before, as far as this file goes
    entries      how many
    first, last  the earliest and latest store timestamp (ms)
    finding      what is wrong with the first of them, if it is not the broker's doing
    """

    skew: int
    taken: int
    entries: int
    first: int
    last: int
    finding: Finding


@dataclass(slots=True)
class LightQueue:
    """What one file of the log shows of a light queue; `taken` are queue offsets given after its last entry."""

    runs: list[SkewRun] = field(default_factory=list)
    taken: int = 0

    def add(
        self,
        offsets: Offsets,
        skew: Offsets,
        times: Offsets,
        taken: Offsets,
        finding: Callable[[int], Finding],
    ) -> None:
        """Add the entries of a chunk: physical offsets, skews, store timestamps.

        Args:
            offsets: Ascending.
            skew: Of each.
            times: Of each, ms.
            taken: Physical offsets of the messages that took a queue offset without an entry, ascending.
            finding: Makes the finding of an entry, by its row.
        """
        if not len(offsets):
            self.taken += len(taken)
            return
        starts = [0, *(np.flatnonzero(np.diff(skew)) + 1).tolist()]
        before = np.searchsorted(taken, offsets)
        for begin, end in zip(starts, [*starts[1:], len(offsets)], strict=True):
            since = int(before[begin] - before[begin - 1]) if begin else int(before[0]) + self.taken
            first, last = int(times[begin:end].min()), int(times[begin:end].max())
            run = SkewRun(int(skew[begin]), since, end - begin, first, last, finding(begin))
            self._append(run)
        self.taken = len(taken) - int(before[-1])

    def _append(self, run: SkewRun) -> None:
        if self.runs and self.runs[-1].skew == run.skew:
            known = self.runs.pop()
            run = known._replace(
                entries=known.entries + run.entries, first=min(known.first, run.first),
                last=max(known.last, run.last),
            )  # fmt: skip
        self.runs.append(run)


class _State(NamedTuple):
    skew: int
    is_wrong: bool
    taken: int


class LightQueues:
    """Decides, file by file in the order of the log."""

    def __init__(self, log_begin: int) -> None:
        self._from_zero = log_begin == 0
        self._states: dict[Queue, _State] = {}

    def take(self, queues: dict[Queue, LightQueue]) -> Iterator[Finding]:
        """The findings of the next file of the log."""
        tally = Tally()
        for queue, found in queues.items():
            for run in found.runs:
                self._take_run(queue, run, tally)
            state = self._states.get(queue, _State(0, False, 0))
            self._states[queue] = state._replace(taken=state.taken + found.taken)
        yield from tally.findings()

    def _take_run(self, queue: Queue, run: SkewRun, tally: Tally) -> None:
        state = self._states.get(queue)
        if state is None:  # how far it lagged in messages that have expired, nobody knows
            state = _State(0 if self._from_zero else max(run.skew, 0), False, 0)
        skew, is_wrong, taken = state
        taken += run.taken
        if not may_skew(skew, run.skew, taken):
            is_wrong = True
        elif not 0 <= run.skew - skew <= taken:  # counted afresh
            is_wrong = False
        if is_wrong and run.skew:
            times = np.array([run.first, run.last], np.int64)
            finding, path = run.finding, run.finding.file
            tally.add(Kind.MISPLACED_QUEUE_ENTRY, path, run.entries, lambda: finding, times)
        self._states[queue] = _State(run.skew, is_wrong, 0)


def is_light(queue: Queue) -> bool:
    return queue.topic.startswith(LMQ_PREFIX) and queue.queue_id == 0


def taken_offsets(piece: Piece) -> Iterator[tuple[Queue, int]]:
    """Light queues in which messages of open or rolled-back transactions take a queue offset, with their offsets."""
    open_rows = np.flatnonzero(piece.batch.messages["sys_flag"] & SYS_FLAG_PREPARED)
    for row in open_rows.tolist():
        where = piece.record(row)
        begin = where.start - piece.base
        data = piece.data[begin : where.stop - piece.base].tobytes()
        record = LocatedRecord(where.start, data, locate(data, 0, len(data)))
        for topic, queue_id, _ in further_places(record):
            yield Queue(topic, queue_id), where.start
