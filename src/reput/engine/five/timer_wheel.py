"""Check the wheel of a broker's timer (5.x) against the timer log, and write wrong slots anew.

A broker delivers the messages of an interval by the slot of the interval: it leads to the newest unit of the timer log,
and each unit to the previous one. Messages to which no slot leads are never delivered.

When a broker starts, it sets the slots of all units from a place near the end of the timer log on
(`TimerMessageStore.recover`, `TimerWheel.checkPhyPos`, tag rocketmq-all-5.3.3). So only the slots of intervals that
have all of their units before this place must be right in the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, counted
from reput.engine.five.timer_files import timer_check, timer_log_files
from reput.format.dtypes import TIMER_SLOT_DTYPE, TIMER_UNIT_DTYPE
from reput.format.file_names import TIMER_LOG_FOLDER, TIMER_WHEEL_FILE
from reput.format.timer_log import (
    MAGIC_BITS,
    RECALL_BIT,
    TIMER_INTERVALS_MS,
    TIMER_UNIT_BYTES,
    WHEEL_BYTES,
    WHEEL_SLOTS,
)
from reput.io import LOCAL, FileReader, FileWriter

_READ_BYTES = (1 << 16) * TIMER_UNIT_BYTES
Int64s = npt.NDArray[np.int64]


class _Units(NamedTuple):
    """Units of messages that are still to be delivered, in the order of the timer log.

    positions  in the timer log
    due        times in ms
    counts     1, or -1 for the recall of another message
    """

    positions: Int64s
    due: Int64s
    counts: Int64s


class _LogFile(NamedTuple):
    """A file of the timer log, the position after its last valid unit, and its units."""

    start: int
    size: int
    end: int
    units: list[_Units]


class TimerWheel:
    """The wheel of a store, and the slots that it should have.

    Attributes:
        path: the file, which may be missing
        slots: the slots of the file; blank if the file is missing, empty, or of another size
        wrong: the right values of the slots that a broker needs and the file does not have, by slot
    """

    def __init__(self, store: Path) -> None:
        """Read the wheel and the timer log. Raises StoreAccessError."""
        self.path = store / TIMER_WHEEL_FILE
        self.slots = np.zeros(WHEEL_SLOTS, TIMER_SLOT_DTYPE)
        self.wrong: dict[int, bytes] = {}
        self._has_other_size = False
        # The slots that the finding counts, and their messages without recalled ones.
        self._slots = self._messages = 0
        if LOCAL.entry(str(self.path)) is not None:
            with FileReader(str(self.path)) as reader:
                self._has_other_size = reader.size not in (0, WHEEL_BYTES)
                if reader.size == WHEEL_BYTES:
                    self.slots = np.frombuffer(reader.read(0, WHEEL_BYTES), TIMER_SLOT_DTYPE)
        self._compare(store)

    @property
    def finding(self) -> Finding | None:
        """Return the finding about wrong slots; None if all slots are right, or the file has another size."""
        if self._has_other_size or not self._slots:
            return None
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
        parts = [part for file in files for part in file.units]
        if not parts:
            return
        units = _Units(*map(np.concatenate, zip(*parts, strict=True)))
        starts, end = [file.start for file in files], files[-1].end
        set_from = _begin_of(starts, flushed - files[-1].size)
        # A slot that leads past the end makes a broker set the slots again from the oldest unit of this slot on.
        beyond = self.slots[self.slots["last"] > end]
        if len(beyond):
            set_from = min(set_from, _begin_of(starts, int(beyond["first"].min())))
        self._compare_slots(units, self._interval_ms(units), delivered_to, set_from)

    def _interval_ms(self, units: _Units) -> int:
        """Return the length of an interval: the one with which most units are in their slots, or the default."""

        def matches(interval_ms: int) -> int:
            times = units.due // interval_ms
            return int((self.slots["time"][times % WHEEL_SLOTS] == times).sum())

        return max(TIMER_INTERVALS_MS, key=matches)

    def _compare_slots(
        self, units: _Units, interval_ms: int, delivered_to: int, set_from: int
    ) -> None:
        times = units.due // interval_ms
        read_to = delivered_to // interval_ms
        # No message waits for longer than a turn of the wheel.
        waits = np.flatnonzero((read_to < times) & (times < read_to + WHEEL_SLOTS))
        intervals, first, which = np.unique(times[waits], return_index=True, return_inverse=True)
        last = np.zeros(len(intervals), np.int64)
        np.maximum.at(last, which, units.positions[waits])
        counts = units.counts[waits]
        messages = np.bincount(which, counts, len(intervals)).astype(np.int64)
        # No message depends on a slot that has only recalls.
        has_messages = np.bincount(which, counts > 0, len(intervals)) > 0
        present = self.slots[intervals % WHEEL_SLOTS]
        is_wrong = (present["time"] != intervals) | (present["last"] != last)
        for row in np.flatnonzero(is_wrong & (last < set_from)).tolist():
            slot = np.zeros(1, TIMER_SLOT_DTYPE)
            slot["time"], slot["first"] = intervals[row], units.positions[waits[first[row]]]
            slot["last"], slot["messages"] = last[row], messages[row]
            self.wrong[int(intervals[row] % WHEEL_SLOTS)] = slot.tobytes()
            self._slots += int(has_messages[row])
            self._messages += max(int(messages[row]), 0)


def _begin_of(starts: list[int], position: int) -> int:
    """Return the begin of the file that has a position of the timer log, or of the first file."""
    return starts[max(bisect_right(starts, position) - 1, 0)]


def _read_files(folder: str, delivered_to: int) -> Iterator[_LogFile]:
    """Yield the files of the timer log, with the units of messages that are due after `delivered_to` (ms)."""
    files = timer_log_files(folder, LOCAL) if LOCAL.entry(folder) is not None else []
    for start, _, path in files:
        with FileReader(path) as reader:
            file = _LogFile(start, reader.size, start, [])
            for position in range(0, reader.size, _READ_BYTES):
                data = reader.read(position, min(_READ_BYTES, reader.size - position))
                read = np.frombuffer(
                    data[: len(data) - len(data) % TIMER_UNIT_BYTES], TIMER_UNIT_DTYPE
                )
                is_unit = (read["size"] == TIMER_UNIT_BYTES) & (
                    read["magic"] | MAGIC_BITS == MAGIC_BITS
                )
                read = read[: len(read) if is_unit.all() else int(is_unit.argmin())]
                due = read["write_time"].astype(np.int64) + read["delay"]
                rows = np.flatnonzero(due > delivered_to)
                is_recall = read["magic"][rows] & RECALL_BIT != 0
                file.units.append(
                    _Units(
                        start + position + rows * TIMER_UNIT_BYTES,
                        due[rows],
                        np.where(is_recall, -1, 1),
                    )
                )
                file = file._replace(end=start + position + len(read) * TIMER_UNIT_BYTES)
                if len(read) * TIMER_UNIT_BYTES < len(data):
                    break
        yield file
