"""When the messages of ranges of a log were stored, as scans found out; kept under the user's cache folder.

A file's first and last message do not say when the others were stored: clocks are put back. A scan to the end of a file
that has another after it sees all store timestamps, and nothing is appended to such a file any more. Whoever has a
window of time to scan can leave out a range whose timestamps all lie outside it.

The file is the same one while its inode, size and time of change are, and the last message of it is where it was: one
that was cut short and written over has lost that one. A range in which something could not be read is not kept.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

from reput.errors import ReputError
from reput.files.own_cache import OwnCache
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader

_FORM = 1
_MOST_BYTES = 1 << 10
_LEAST_RANGE_BYTES = 1 << 20  # a shorter one is read in no time
_WRONG_FORM = (ValueError, TypeError, LookupError, OverflowError, RecursionError)


class SeenTimes(NamedTuple):
    """The earliest and the latest store timestamp of some records, ms, and the physical offset of the last record."""

    least: int
    most: int
    last: int

    def are_outside(self, begin: int, end: int) -> bool:
        """Whether none of the records was stored between two times, both inclusive."""
        return self.most < begin or end < self.least


def joined(earlier: SeenTimes | None, later: SeenTimes | None) -> SeenTimes | None:
    """Of the records of two ranges, the first of which lies before the other; None are those of no records."""
    if earlier is None or later is None:
        return later or earlier
    least, most = min(earlier.least, later.least), max(earlier.most, later.most)
    return SeenTimes(least, most, later.last)


class KnownTimes:
    """What this user knows of the ranges of one log: nothing, where it is not on this machine."""

    def __init__(self, log: CommitLogReader) -> None:
        self._log, self._cache = log, OwnCache("times")

    def stamp(self, within: OffsetRange) -> list[int] | None:
        """To be taken before a range within one file is scanned, for `keep`; None where that is not to be."""
        file = self._file(within)
        if file is None or file == self._log.files[-1] or within.stop != file.end:
            return None
        with suppress(OSError):
            return _stamp(file)
        return None

    def keep(self, within: OffsetRange, stamp: list[int], seen: SeenTimes) -> bool:
        """Keep what a scan of all of a range saw, in which there is no damage; whether it could be kept."""
        file = self._file(within)
        with suppress(ReputError, OSError):
            if file is not None and _stamp(file) == stamp:
                kept = {"form": _FORM, "range": list(within), "stamp": stamp, "seen": list(seen),
                        "witness": self._witness(seen.last)}  # fmt: skip
                self._cache.write(_name(file), json.dumps(kept).encode())
                return True
        return False

    def of(self, within: OffsetRange) -> SeenTimes | None:
        """What is known of a range within one file, or of a longer one that it is part of, and still holds."""
        file = self._file(within)
        if file is None:
            return None
        with suppress(ReputError, OSError, *_WRONG_FORM):
            data = self._cache.read(_name(file), _MOST_BYTES)
            return None if data is None else self._still_right(json.loads(data), file, within)
        return None

    def _still_right(
        self, kept: dict[str, Any], file: CommitLogFile, within: OffsetRange
    ) -> SeenTimes | None:
        """Raises one of _WRONG_FORM for what no `keep` has written."""
        start, stop = map(int, kept["range"])
        seen = SeenTimes(*map(int, kept["seen"]))
        holds = (
            kept["form"] == _FORM
            and start <= within.start
            and within.stop <= stop
            and kept["stamp"] == _stamp(file)
            and kept["witness"] == self._witness(seen.last)
        )
        return seen if holds else None

    def _file(self, within: OffsetRange) -> CommitLogFile | None:
        is_worth_it = self._log.source.is_local and within.size_bytes >= _LEAST_RANGE_BYTES
        return self._log.file_at(within.start) if is_worth_it else None

    def _witness(self, last: int) -> int:
        return zlib.crc32(self._log.read_record(last))


def _name(file: CommitLogFile) -> str:
    status = os.stat(file.path)
    return f"{status.st_dev:x}-{status.st_ino:x}.json"


def _stamp(file: CommitLogFile) -> list[int]:
    status = os.stat(file.path)
    return [file.start, status.st_ino, status.st_size, status.st_ctime_ns]
