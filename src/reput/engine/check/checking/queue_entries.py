"""Find wrong ConsumeQueue entries that lead into one log file.

In light queues (%LMQ%) the number of an entry may be smaller than the queue offset of its message. The difference is
the entry's lag. A task reads one log file and notes the lags of each light queue. `may_skew` then decides, in log
order, whether a broker can have caused a change of the lag.

A topic that is deleted loses its queues, but its messages stay in the log until they expire. If the topic is created
again, the queue offsets of its new messages begin at 0. So the messages before the one to which the queue's first entry
leads belong to the old topic if they do not fit before this entry. Recovery and rebuild follow the same rule
(`QueueMatching` in `reput.engine.writer.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.core import CommitLogReader, ConsumeQueueReader, Queue, StoreLog, is_light
from reput.engine.check.checking.tally import Tally
from reput.engine.compare import ExpectedEntries, FoundEntries, LogStretch, QueueRun, QueueSpan
from reput.errors import MessageNotFoundError, StoreError
from reput.format.consume_queue import may_skew

_UNNOTICED = "does not notice it"
Offsets = npt.NDArray[np.int64]


class _QueueBegin(NamedTuple):
    """The first entry of a queue that leads to a message: its number, and the physical offset of the message."""

    number: int
    physical_offset: int


def _begin_of(store: str, queue: Queue, folder: str) -> _QueueBegin | None:
    """Return the first entry of a queue that leads to a message with this queue offset; None if there is none."""
    with suppress(StoreError), closing(ConsumeQueueReader(folder)) as reader:
        for least in (0, 1):  # A pre-blank entry leads to physical offset 0.
            number = reader.min_queue_offset(least)
            try:
                at = reader.entry(number).physical_offset
            except MessageNotFoundError:
                continue
            with closing(CommitLogReader(StoreLog(store))) as log:
                is_own = log.locate(at).own_place() == (*queue, number)
            return _QueueBegin(number, at) if is_own else None
    return None


class SkewRun(NamedTuple):
    """Consecutive entries with the same lag.

    skew         the lag: queue offset of the message minus number of the entry
    taken        number of messages without an entry, in the log file between the last message of the previous run and
                 the first message of this run; each of these messages took a queue offset
    entries      number of entries
    first, last  the earliest and latest store timestamp (ms)
    finding      the finding for the first entry, which is reported if a broker cannot have caused the lag
    """

    skew: int
    taken: int
    entries: int
    first: int
    last: int
    finding: Finding


@dataclass(slots=True)
class LightQueue:
    """The entries of a light queue that lead into one log file.

    runs   the entries, divided into runs of consecutive entries with the same lag (the queue offset of the message
           minus the number of the entry)
    taken  number of messages that took a queue offset but have no entry, and are in the log after the message of the
           last entry
    """

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
        """Add the entries of the messages in a stretch of the log.

        Args:
            offsets: Physical offset of each entry's message, ascending.
            skew: Lag of each entry: queue offset of its message minus number of the entry.
            times: Store timestamp of each message, ms.
            taken: Physical offsets of the messages that took a queue offset but have no entry, ascending.
            finding: A function that returns the finding for an entry, given its index in `offsets`.
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
            last = self.runs.pop()
            run = last._replace(
                entries=last.entries + run.entries, first=min(last.first, run.first),
                last=max(last.last, run.last),
            )  # fmt: skip
        self.runs.append(run)


class _State(NamedTuple):
    skew: int
    is_wrong: bool
    taken: int


class LightQueues:
    """Finds wrong lags of entries in light queues (LMQ).

    The lag of an entry is the queue offset of its message minus the number of the entry. A lag is wrong if a broker
    cannot have caused it. Call `take` for each log file, in log order.
    """

    def __init__(self, log_begin: int) -> None:
        self._from_zero = log_begin == 0
        self._states: dict[Queue, _State] = {}

    def take(self, queues: dict[Queue, LightQueue]) -> Iterator[Finding]:
        """Yield the findings of the next log file."""
        tally = Tally()
        for queue, light in queues.items():
            for run in light.runs:
                self._take_run(queue, run, tally)
            state = self._states.get(queue, _State(0, False, 0))
            self._states[queue] = state._replace(taken=state.taken + light.taken)
        yield from tally.findings()

    def _take_run(self, queue: Queue, run: SkewRun, tally: Tally) -> None:
        state = self._states.get(queue)
        # The lag is the queue offset of the message minus the number of the entry. If no messages of the log have
        # expired, the lag of the queue's first entries must be 0. If messages have expired, nothing shows how large the
        # lag should be, so accept any lag that is not negative.
        if state is None:
            state = _State(0 if self._from_zero else max(run.skew, 0), False, 0)
        skew, is_wrong, taken = state
        taken += run.taken
        if not may_skew(skew, run.skew, taken):
            is_wrong = True
        elif not 0 <= run.skew - skew <= taken:
            # The broker restarted, and assigns queue offsets from 0 again.
            is_wrong = False
        if is_wrong and run.skew:
            times = np.array([run.first, run.last], np.int64)
            tally.add(run.finding, run.entries, times)
        self._states[queue] = _State(run.skew, is_wrong, 0)


class QueueFindings:
    """Explains the differences between entries and messages of one log file, stretch by stretch.

    A stretch is a part of the log file that is compared in one step.

    without_queue  for each queue that has no ConsumeQueue: number of its messages, and physical offset of the first one
    light          for each light queue (LMQ), the lag of each entry: queue offset of the message minus number of the
                   entry, see `LightQueues`
    """

    def __init__(
        self,
        queues: tuple[QueueSpan, ...],
        dispatched_to: int,
        dispatched_from: int | None,
        tally: Tally,
        store: str,
    ) -> None:
        """Prepare to compare entries of these queues. `LogTask` describes the other arguments."""
        self._store = store
        self._begins: dict[Queue, _QueueBegin | None] = {}
        self._dispatched_to, self._dispatched_from = dispatched_to, dispatched_from
        self._tally = tally
        self.without_queue: dict[Queue, tuple[int, int]] = {}
        self.light = {
            span.queue: LightQueue()
            for span in queues
            if is_light(span.queue.topic) and span.queue.queue_id == 0
        }

    def explain(self, run: QueueRun, stretch: LogStretch) -> None:
        """Add a finding for each wrong or missing entry of the messages in a stretch of the log."""
        expected, entries, place = run.expected, run.found, run.place
        if place is None:
            offsets = expected.offsets
            count, first = self.without_queue.get(run.queue, (0, int(offsets[0])))
            self.without_queue[run.queue] = count + len(offsets), first
            return
        if not np.array_equal(expected.offsets, entries.offsets):
            expected, entries = self._paired(stretch, place, expected, entries)
        self._note_wrong(place, expected, entries)
        light = self.light.get(run.queue)
        if light is not None:
            taken = np.array(stretch.taken.get(run.queue, ()), np.int64)
            light.add(
                entries.offsets, expected.numbers - entries.numbers, expected.times, taken,
                lambda row: _misplaced(place, entries, expected, row),
            )  # fmt: skip
            return
        misplaced = np.flatnonzero(entries.numbers != expected.numbers)
        if len(misplaced):
            finding = _misplaced(place, entries, expected, int(misplaced[0]))
            self._tally.add(finding, len(misplaced), expected.times[misplaced])

    def _paired(
        self,
        stretch: LogStretch,
        place: QueueSpan,
        expected: ExpectedEntries,
        entries: FoundEntries,
    ) -> tuple[ExpectedEntries, FoundEntries]:
        """Note messages that lack an entry, and entries that lead to no message. Return the matching pairs."""
        has_entry = np.isin(expected.offsets, entries.offsets)
        self._note_missing(place, expected.at(~has_entry))
        # Ignore entries that repeat another one. The check of the queue has reported them as out of order.
        first = np.sort(np.unique(entries.offsets, return_index=True)[1])
        entries = entries.at(first)
        has_message = np.isin(entries.offsets, expected.offsets)
        foreign = entries.at(~has_message & ~stretch.in_damage(entries.offsets))
        if len(foreign.numbers):
            leads = f"entry {foreign.numbers[0]} leads to {foreign.offsets[0]}"
            detail = f"{leads}, where no message of this queue begins"
            self._note(Kind.FOREIGN_QUEUE_ENTRY, place, foreign, detail)
        entries = entries.at(has_message)
        # Sort the found entries by physical offset, because the expected ones are in this order.
        order = np.argsort(entries.offsets, kind="stable")
        return expected.at(has_entry), entries.at(order)

    def _note_missing(self, place: QueueSpan, missing: ExpectedEntries) -> None:
        late = missing.offsets >= self._dispatched_to
        old = ~late & self._is_older(place, missing)
        # After a restart, a broker assigns queue offsets of a light queue a second time, and drops the entries of the
        # new messages. Such entries are reported as LMQ_OFFSETS_RESTARTED, not as MISSING_QUEUE_ENTRY.
        again = (missing.numbers < place.stop) & is_light(place.queue.topic) & ~late
        kinds = (
            (Kind.UNDISPATCHED_TAIL, late),
            (Kind.LMQ_OFFSETS_RESTARTED, again),
            (Kind.TOPIC_RECREATED, old & ~again),
            (Kind.MISSING_QUEUE_ENTRY, ~late & ~again & ~old),
        )
        for kind, mask in kinds:
            if not mask.any():
                continue
            of_kind = missing.at(mask)
            entry = int(of_kind.numbers[0])
            path: str
            position: int | None
            path, position = place.files.place(entry)
            name = f"queue {place.queue.queue_id} of {place.queue.topic}"
            detail = f"no entry {entry} of {name}"
            if kind is Kind.TOPIC_RECREATED:
                path, position = place.files.folder, None
                detail = f"{name} has no entry for older messages: the topic was deleted and created again"
            finding = Finding(
                kind, path, detail, position, int(of_kind.offsets[0]), at_next_start=self._at_next_start(kind),
            )  # fmt: skip
            self._tally.add(finding, len(of_kind.offsets), of_kind.times)

    def _is_older(self, place: QueueSpan, missing: ExpectedEntries) -> npt.NDArray[np.bool_]:
        """Return which messages are older than the queue, because their topic was deleted and created again."""
        queue = place.queue
        if queue not in self._begins:
            self._begins[queue] = _begin_of(self._store, queue, place.files.folder)
        begin = self._begins[queue]
        if begin is None:
            return np.zeros(len(missing.offsets), np.bool_)
        is_before = missing.offsets < begin.physical_offset
        is_older: npt.NDArray[np.bool_] = is_before & (missing.numbers >= begin.number)
        return is_older

    def _at_next_start(self, kind: Kind) -> str:
        if kind is Kind.UNDISPATCHED_TAIL:
            return (
                f"dispatches messages from {self._dispatched_from} on; indexes those that do not begin before the end "
                "of the newest IndexFile"
            )
        if kind is Kind.TOPIC_RECREATED:
            return "keeps the queue as it is"
        return "does not notice it; the entries stay missing"

    def _note_wrong(
        self, place: QueueSpan, expected: ExpectedEntries, entries: FoundEntries
    ) -> None:
        wrong = np.flatnonzero((entries.sizes != expected.sizes) | (entries.tags != expected.tags))
        if not len(wrong):
            return
        theirs, ours = entries.at(wrong), expected.at(wrong)
        detail = (
            f"entry {theirs.numbers[0]} has size {theirs.sizes[0]} and tags code {theirs.tags[0]}, "
            f"but its message has {ours.sizes[0]} and {ours.tags[0]}"
        )
        self._note(Kind.WRONG_QUEUE_ENTRY, place, theirs, detail, ours.times)

    def _note(
        self,
        kind: Kind,
        place: QueueSpan,
        wrong: FoundEntries,
        detail: str,
        times: Offsets | None = None,
    ) -> None:
        path, position = place.files.place(int(wrong.numbers[0]))
        at = int(wrong.offsets[0])
        finding = Finding(kind, path, detail, position, at, at_next_start=_UNNOTICED)
        self._tally.add(finding, len(wrong.numbers), times)


def _misplaced(
    place: QueueSpan, entries: FoundEntries, expected: ExpectedEntries, row: int
) -> Finding:
    number = int(entries.numbers[row])
    path, position = place.files.place(number)
    detail = f"entry {number} belongs to the message with queue offset {expected.numbers[row]}"
    at = int(entries.offsets[row])
    return Finding(Kind.MISPLACED_QUEUE_ENTRY, path, detail, position, at, at_next_start=_UNNOTICED)
