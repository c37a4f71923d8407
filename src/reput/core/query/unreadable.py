"""Remember the messages that could not be read while a store was served, and log each range once.

Consumers that poll a queue meet the same damage again and again. So a range is reported once: in the log of the server,
in the metrics, and in the findings of the store.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from threading import Lock

from reput.core.query.answers import UnreadableMessages

_log = logging.getLogger("reput.serve")
# Number of remembered ranges, and of clients that were informed of a range. The oldest are forgotten first.
_MOST_RANGES, _MOST_TOLD = 1 << 10, 1 << 14
# At most `_BURST` lines are logged at once, and then one per second.
_BURST = 20.0


class UnreadableRanges:
    """The unreadable messages that requests have met in one store. Any thread may use it."""

    def __init__(self, path: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock_s = path, clock_s
        self._guard = Lock()
        self._ranges: OrderedDict[tuple[str, int, int], UnreadableMessages] = OrderedDict()
        self._told: OrderedDict[Hashable, None] = OrderedDict()
        self._count = self._unlogged = 0
        self._lines, self._logged_s = _BURST, clock_s()

    @property
    def count(self) -> int:
        """Return the number of ranges met since the store was opened."""
        return self._count

    def ranges(self) -> list[UnreadableMessages]:
        """Return the ranges, oldest first."""
        with self._guard:
            return list(self._ranges.values())

    def note(self, messages: Iterable[UnreadableMessages]) -> None:
        """Record ranges that a request has met, and log the new ones.

        Ranges of a queue with the same end are parts of one range, because pulls may begin anywhere in a range.
        """
        for each in messages:
            with self._guard:
                place = each.topic, each.queue_id, each.end
                before = self._ranges.get(place)
                if before is None or each.begin < before.begin:
                    self._ranges[place] = each
                if before is not None:
                    continue
                self._count += 1
                if len(self._ranges) > _MOST_RANGES:
                    self._ranges.popitem(last=False)
                line = self._line(each)
            if line is not None:
                _log.warning("%s", line)

    def tell(self, client: Hashable, messages: UnreadableMessages) -> bool:
        """Return whether a client still has to be informed of a range. Only the first call returns True."""
        with self._guard:
            name = client, messages.topic, messages.queue_id, messages.end
            if name in self._told:
                self._told.move_to_end(name)
                return False
            self._told[name] = None
            if len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)
            return True

    def _line(self, messages: UnreadableMessages) -> str | None:
        """Return the line to log for a range; None if too many lines were logged just now."""
        now = self._clock_s()
        self._lines = min(self._lines + now - self._logged_s, _BURST)
        self._logged_s = now
        if self._lines < 1:
            self._unlogged += 1
            return None
        self._lines -= 1
        others = f" (and {self._unlogged:,} further ranges)" if self._unlogged else ""
        self._unlogged = 0
        return f"{self._path}: {messages}{others}"
