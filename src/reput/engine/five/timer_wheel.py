"""Check the wheel of a broker's timer (5.x) and the chains of the timer log, and write wrong slots anew.

A broker delivers the messages of an interval by the slot of the interval: it leads to the newest unit of the timer log,
and each unit to the previous one. Messages to which no slot and no chain leads are never delivered.

When a broker starts, it sets the slots of all units from a place near the end of the timer log on
(`TimerMessageStore.recover`, `TimerWheel.checkPhyPos`, tag rocketmq-all-5.3.3). So only the slots of intervals that
have all of their units before this place must be right in the file. It cuts the timer log at the first invalid unit
after this place, and writes the later units again.

A chain is compared with the order of the units in the timer log. Which of two units is wrong if they contradict each
other cannot be told, so chains are not written anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, counted
from reput.core import facts_of
from reput.engine.five.timer_files import timer_check, timer_log_files
from reput.format.dtypes import TIMER_SLOT_DTYPE, TIMER_UNIT_DTYPE
from reput.format.file_names import TIMER_LOG_FOLDER, TIMER_WHEEL_FILE
from reput.format.timer_log import (
    MAGIC_BITS,
    MIN_BLANK_BYTES,
    RECALL_BIT,
    TIMER_INTERVALS_MS,
    TIMER_UNIT_BYTES,
    WHEEL_BYTES,
    WHEEL_SLOTS,
)
from reput.io import LOCAL, FileReader, FileWriter

_READ_BYTES = (1 << 16) * TIMER_UNIT_BYTES
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
Int64s = npt.NDArray[np.int64]


class _Units(NamedTuple):
    """Units of messages that are still to be delivered, in the order of the timer log.

    positions  in the timer log
    due        times in ms
    counts     1, or -1 for the recall of another message
    previous   position of the unit to which each leads; -1 for none
    """

    positions: Int64s
    due: Int64s
    counts: Int64s
    previous: Int64s

    def rows(self, rows: npt.NDArray[Any]) -> _Units:
        return _Units(*(column[rows] for column in self))


_NO_UNITS = _Units(*(np.zeros(0, np.int64) for _ in range(4)))


class _LogFile(NamedTuple):
    """A file of the timer log.

    end      position after its last valid unit
    invalid  positions before `end` at which no valid unit begins
    units    the units that are still to be delivered
    """

    path: str
    start: int
    size: int
    end: int
    invalid: Int64s
    units: _Units

    def has_unit(self, position: int) -> bool:
        is_place = self.start <= position < self.end
        row = int(np.searchsorted(self.invalid, position))
        is_invalid = row < len(self.invalid) and self.invalid[row] == position
        return is_place and not (position - self.start) % TIMER_UNIT_BYTES and not is_invalid

    @property
    def stop(self) -> int:
        """Return the first position at which a broker that reads the file meets neither a unit nor the blank."""
        if len(self.invalid):
            return int(self.invalid[0])
        has_blank = self.start + self.size - self.end < TIMER_UNIT_BYTES + MIN_BLANK_BYTES
        return self.start + self.size if has_blank else self.end


class _UnitChains(NamedTuple):
    """Units by interval, and by position in each interval.

    times  number of each unit's interval
    wrong  rows of the units that do not lead to the previous one of their interval
    """

    units: _Units
    times: Int64s
    wrong: Int64s

    @classmethod
    def of(cls, units: _Units, delivered_to: int, interval_ms: int) -> _UnitChains:
        """Take the units that wait after the interval of `delivered_to` (ms)."""
        times, read_to = units.due // interval_ms, delivered_to // interval_ms
        # No message waits for longer than a turn of the wheel.
        waits = np.flatnonzero((read_to < times) & (times < read_to + WHEEL_SLOTS))
        order = waits[np.argsort(times[waits], kind="stable")]
        units, times = units.rows(order), times[order]
        before = np.roll(units.positions, 1)
        before[np.flatnonzero(np.diff(times, prepend=-1))] = -1
        return cls(units, times, np.flatnonzero(units.previous != before))

    def has_units(self, positions: Int64s, intervals: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each position whether the unit of an interval begins there."""
        order = np.argsort(self.units.positions)
        by_place = self.units.positions[order]
        rows = np.minimum(np.searchsorted(by_place, positions), len(order) - 1)
        found: npt.NDArray[np.bool_] = by_place[rows] == positions
        found &= self.times[order[rows]] == intervals
        return found

    def unreached(self) -> Iterator[int]:
        """Yield the rows to which no newer unit of their interval leads."""
        for interval in np.unique(self.times[self.wrong]).tolist():
            low, high = (int(np.searchsorted(self.times, interval, side)) for side in _SIDES)
            rows = dict(zip(self.units.positions[low:high].tolist(), range(low, high), strict=True))
            reached, row = set[int](), high - 1
            while row >= 0 and row not in reached:
                reached.add(row)
                row = rows.get(int(self.units.previous[row]), -1)
            yield from (row for row in range(low, high) if row not in reached)


class _Fault(NamedTuple):
    """How units lead to a wrong previous unit, and what this costs beside messages that are not delivered."""

    detail: str
    cost: str = ""


_NOT_OLDER = _Fault(
    "with a previous unit that is not older", "the timer follows such a chain without end"
)
_NO_UNIT = _Fault("with a previous position at which no unit begins")
_SKIPS = _Fault("with a previous unit that is not the newest older one of the interval")
_FOREIGN = _Fault(
    "with a previous unit of another interval", "messages are delivered at the wrong time"
)
_FAULTS = (_NOT_OLDER, _NO_UNIT, _SKIPS, _FOREIGN)


class TimerWheel:
    """The wheel of a store, the slots that it should have, and the chains of units to which they lead.

    Attributes:
        path: the file, which may be missing
        slots: the slots of the file; blank if the file is missing, empty, or of another size
        wrong: the right values of the slots that a broker needs and the file does not have, by slot
        chains: findings about units of the timer log that do not lead to the previous one of their interval
    """

    def __init__(self, store: Path) -> None:
        """Read the wheel and the timer log. Raises StoreAccessError."""
        self.path = store / TIMER_WHEEL_FILE
        self.slots = np.zeros(WHEEL_SLOTS, TIMER_SLOT_DTYPE)
        self.wrong: dict[int, bytes] = {}
        self.chains: list[Finding] = []
        self._has_other_size = False
        # The slots that the finding counts, and their messages without recalled ones. Slots of which only the oldest
        # unit is wrong.
        self._slots = self._messages = self._firsts = 0
        if LOCAL.entry(str(self.path)) is not None:
            with FileReader(str(self.path)) as reader:
                self._has_other_size = reader.size not in (0, WHEEL_BYTES)
                if reader.size == WHEEL_BYTES:
                    self.slots = np.frombuffer(reader.read(0, WHEEL_BYTES), TIMER_SLOT_DTYPE)
        self._compare(store)

    @property
    def findings(self) -> Iterator[Finding]:
        """Yield findings about wrong slots, unless the file has another size, and about chains."""
        if self._slots and not self._has_other_size:
            yield self._newest()
        if self._firsts and not self._has_other_size:
            yield Finding(
                Kind.TIMER_WHEEL, str(self.path),
                f"{counted(self._firsts, 'slot')} without the position of a unit of their interval as the oldest one",
                count=self._firsts,
                cost="after a crash, a broker may set slots from the wrong unit on",
                at_next_start="does not notice it",
            )  # fmt: skip
        yield from self.chains

    def _newest(self) -> Finding:
        messages = counted(self._messages, "message")
        of_messages = f"{messages} that the timer still has to deliver"
        # There are at least as many recalls as messages, but they may recall other messages.
        if not self._messages:
            of_messages, messages = "messages and recalls", "messages that no recall names"
        return Finding(
            Kind.TIMER_WHEEL, str(self.path),
            f"{counted(self._slots, 'slot')} of {of_messages} "
            f"{'does' if self._slots == 1 else 'do'} not lead to the newest unit in the timer log",
            count=self._slots,
            cost=f"{messages} {'is' if self._messages == 1 else 'are'} not delivered",
            at_next_start="does not notice it",
        )  # fmt: skip

    def write(self) -> None:
        """Write the wrong slots in place. Create the file first if it is missing or has another size.

        Raises StoreAccessError.
        """
        if self._has_other_size:
            with FileWriter(self.path, size=0):
                pass
        with FileWriter(self.path, size=WHEEL_BYTES) as file:
            for number, slot in self.wrong.items():
                file.write(slot, number * len(slot))
            file.sync()

    def _compare(self, store: Path) -> None:
        delivered_to, flushed = timer_check(str(store), LOCAL)
        if delivered_to <= 0:
            return
        files = list(_read_files(str(store / TIMER_LOG_FOLDER), delivered_to))
        if not files:
            return
        units = _Units(*map(np.concatenate, zip(*(file.units for file in files), strict=True)))
        starts = [file.start for file in files]
        set_from = _begin_of(starts, flushed - files[-1].size)
        end = _broker_end([file for file in files if file.start >= set_from])
        units = units.rows(units.positions < end)
        # A slot that leads past the end makes a broker set the slots again from the oldest unit of this slot on.
        beyond = self.slots[self.slots["last"] > end]
        if len(beyond):
            set_from = min(set_from, _begin_of(starts, int(beyond["first"].min())))
        chains = self._chains(units, delivered_to)
        self._compare_slots(chains, set_from)
        # Units before the begin of the timer log have expired with their messages.
        has_expired = facts_of(store).log.begin > 0
        self.chains += _check_chains(files, chains, has_expired)

    def _chains(self, units: _Units, delivered_to: int) -> _UnitChains:
        """Return the chains of the units that are still to be delivered.

        An interval has the length with which most units are in their slots. If several lengths are equal in this, as
        without a wheel, it has the one with the fewest wrong links.
        """

        def rank(chains: _UnitChains) -> tuple[int, int]:
            times = chains.times
            in_slots = int((self.slots["time"][times % WHEEL_SLOTS] == times).sum())
            return in_slots, -len(chains.wrong)

        every = (_UnitChains.of(units, delivered_to, length) for length in TIMER_INTERVALS_MS)
        return max(every, key=rank)

    def _compare_slots(self, chains: _UnitChains, set_from: int) -> None:
        units, times = chains.units, chains.times
        intervals, oldest, which = np.unique(times, return_index=True, return_inverse=True)
        newest = np.append(oldest[1:], len(times))[: len(oldest)] - 1
        first, last = units.positions[oldest], units.positions[newest]
        messages = np.bincount(which, units.counts, len(intervals)).astype(np.int64)
        # No message depends on a slot that has only recalls.
        has_messages = np.bincount(which, units.counts > 0, len(intervals)) > 0
        present = self.slots[intervals % WHEEL_SLOTS]
        is_wrong = (present["time"] != intervals) | (present["last"] != last)
        # A broker that sets a slot takes the first unit that it meets for the oldest one.
        is_first_wrong = ~is_wrong & ~chains.has_units(present["first"], intervals)
        self._firsts = int((is_first_wrong & (last < set_from)).sum())
        for row in np.flatnonzero((is_wrong | is_first_wrong) & (last < set_from)).tolist():
            slot = np.zeros(1, TIMER_SLOT_DTYPE)
            slot["time"], slot["first"] = intervals[row], first[row]
            slot["last"], slot["messages"] = last[row], messages[row]
            self.wrong[int(intervals[row] % WHEEL_SLOTS)] = slot.tobytes()
            self._slots += int(is_wrong[row] & has_messages[row])
            self._messages += max(int(messages[row]), 0) if is_wrong[row] else 0


def _begin_of(starts: list[int], position: int) -> int:
    """Return the begin of the file that has a position of the timer log, or of the first file."""
    return starts[max(bisect_right(starts, position) - 1, 0)]


def _broker_end(checked: list[_LogFile]) -> int:
    """Return the position at which a broker that starts ends the timer log, from the files that it checks."""
    cut = (file.stop for file in checked if file.stop < file.start + file.size)
    return next(cut, checked[-1].stop)


def _check_chains(
    files: list[_LogFile], chains: _UnitChains, has_expired: bool
) -> Iterator[Finding]:
    """Yield a finding for each kind of fault of the chains: the first unit with it, and the number of units.

    `has_expired`: whether units before the first file may have expired.
    """
    units, wrong = chains.units, chains.wrong
    in_interval = chains.has_units(units.previous[wrong], chains.times[wrong])
    faults: dict[int, _Fault] = {}
    for row, is_own in zip(wrong.tolist(), in_interval.tolist(), strict=True):
        position, previous = int(units.positions[row]), int(units.previous[row])
        if not (has_expired and 0 <= previous < files[0].start):
            faults[row] = _fault_of(files, position, previous, is_own)
    lost = Counter(
        # The nearest wrong unit after it does not lead to it.
        faults.get(int(wrong[np.searchsorted(wrong, row, "right")]))
        for row in chains.unreached()
        if units.counts[row] > 0
    )
    for fault in _FAULTS:
        positions = [int(units.positions[row]) for row in faults if faults[row] is fault]
        if not positions:
            continue
        position = min(positions)
        file = _file_of(files, position)
        messages = lost[fault]
        is_lost = "is not delivered" if messages == 1 else "are not delivered"
        costs = [f"{counted(messages, 'message')} {is_lost}"] if messages else []
        yield Finding(
            Kind.TIMER_LOG, file.path, f"{counted(len(positions), 'unit')} {fault.detail}",
            position - file.start, count=len(positions),
            cost="; ".join([*costs, *filter(None, [fault.cost])]),
            at_next_start="does not notice it",
        )  # fmt: skip


def _fault_of(files: list[_LogFile], position: int, previous: int, is_own: bool) -> _Fault:
    """Return what is wrong with the previous unit of the unit at a position. `is_own`: it has the same interval."""
    if previous >= position:
        return _NOT_OLDER
    if previous == -1 or is_own:
        return _SKIPS
    return _FOREIGN if _file_of(files, previous).has_unit(previous) else _NO_UNIT


def _file_of(files: list[_LogFile], position: int) -> _LogFile:
    return files[max(bisect_right(files, position, key=attrgetter("start")) - 1, 0)]


def _read_files(folder: str, delivered_to: int) -> Iterator[_LogFile]:
    """Yield the files of the timer log, with the units of messages that are due after `delivered_to` (ms)."""
    for start, _, path in timer_log_files(folder, LOCAL):
        end, invalid, units = start, [np.zeros(0, np.int64)], [_NO_UNITS]
        with FileReader(path) as reader:
            for position in range(0, reader.size, _READ_BYTES):
                data = reader.read(position, min(_READ_BYTES, reader.size - position))
                read = np.frombuffer(
                    data[: len(data) - len(data) % TIMER_UNIT_BYTES], TIMER_UNIT_DTYPE
                )
                is_unit = (read["size"] == TIMER_UNIT_BYTES) & (
                    read["magic"] | MAGIC_BITS == MAGIC_BITS
                )
                places = start + position + np.arange(len(read)) * TIMER_UNIT_BYTES
                invalid.append(places[~is_unit])
                if is_unit.any():
                    end = int(places[is_unit][-1]) + TIMER_UNIT_BYTES
                due = read["write_time"].astype(np.int64) + read["delay"]
                rows = np.flatnonzero(is_unit & (due > delivered_to))
                is_recall = read["magic"][rows] & RECALL_BIT != 0
                previous = read["previous"][rows].astype(np.int64)
                units.append(_Units(places[rows], due[rows], np.where(is_recall, -1, 1), previous))
            without = np.concatenate(invalid)
            joined = _Units(*map(np.concatenate, zip(*units, strict=True)))
            yield _LogFile(path, start, reader.size, end, without[without < end], joined)
