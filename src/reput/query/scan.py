"""Reading a range of the log message by message, for what no IndexFile covers.

A short range is walked in plain Python, which is over before the kernels are loaded; what is left
of a long one goes to them.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from reput.query.wanted import Wanted
from reput.store.commit_log import CommitLog
from reput.store.damage import Damage
from reput.store.keyed_record import read_keyed_record
from reput.store.log_walk import LogWalk

_KERNEL_MODULE = "reput.query.kernel_scan"
_WALKED_BYTES = 8 << 20
_WALKED_BYTES_WITH_KERNEL = 256 << 10


class Found(NamedTuple):
    """What a scan found: offsets of records that match (or may), newest first; the damage met.

    position  the end of what was read; `at_end` when that is the end of the log
    """

    offsets: list[int]
    damage: list[Damage]
    position: int
    at_end: bool


class Scanner:
    """Scans ranges for one query."""

    def __init__(self, log: CommitLog, wanted: Wanted) -> None:
        self._log, self._wanted = log, wanted
        loaded = _KERNEL_MODULE in sys.modules
        self._left_bytes = _WALKED_BYTES_WITH_KERNEL if loaded else _WALKED_BYTES

    def scan(self, start: int, stop: int) -> Found:
        """Records that begin in [start, stop); one begins at `start`, all is within one file.

        Raises StoreAccessError, StoreChangedError.
        """
        found = self._walk(start, min(stop, start + self._left_bytes))
        self._left_bytes = max(self._left_bytes - (found.position - start), 0)
        if found.at_end or found.position >= stop:
            return found
        from reput.query.kernel_scan import scan_with_kernel

        offsets, damage, position = scan_with_kernel(
            self._log, found.position, stop, self._wanted.hashes
        )
        if (
            position < stop
        ):  # nothing readable there: whether it is the end of the log, a walk decides
            rest = self._walk(position, stop)
            offsets, damage = rest.offsets + offsets, damage + rest.damage
            return Found(offsets + found.offsets, found.damage + damage, rest.position, rest.at_end)
        return Found(offsets + found.offsets, found.damage + damage, position, False)

    def _walk(self, start: int, stop: int) -> Found:
        walk, matches = LogWalk(self._log, start, stop), self._wanted.matches
        offsets = [record.physical_offset for record in walk if matches(read_keyed_record(record))]
        return Found(offsets[::-1], walk.damage, walk.position, walk.at_end)
