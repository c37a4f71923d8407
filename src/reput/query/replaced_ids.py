"""Messages by an id that a later one of the same record replaces (5.x), which no IndexFile has.

A scan of each file of the log finds these ids once; what it found is kept (`reput.log.known_ranges`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.findings import Finding
from reput.log.files import CommitLogFile
from reput.log.keyed_record import KeyedRecord, read_keyed_record
from reput.log.known_file import KnownFile
from reput.log.known_ranges import KnownRanges
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader, LocatedRecord


class ReplacedIdSearch:
    """The records of which a replaced id has one of some hashes.

    damage  what could not be read
    """

    def __init__(self, log: CommitLogReader, known: KnownRanges, hashes: Collection[int]) -> None:
        self._log, self._known, self._hashes = log, known, hashes
        self._files: dict[CommitLogFile, KnownFile] = {}
        self._damage: dict[Finding, None] = {}

    @property
    def damage(self) -> list[Finding]:
        return list(self._damage)

    def find(
        self, start: int, stop: int, is_wanted: Callable[[KeyedRecord], bool]
    ) -> list[LocatedRecord]:
        """Those that are wanted, of records that begin in [start, stop).

        Raises StoreAccessError, StoreChangedError.
        """
        found: list[LocatedRecord] = []
        for file in self._log.files:
            within = OffsetRange(max(start, file.start), min(stop, file.end))
            if within.start >= within.stop:
                continue
            known = self._files.get(file) or self._known.learn(file, with_ids=True)
            self._files[file] = known  # of one search: it asks for each segment
            lost = [one for one in known.damage if one.start < stop and start < one.stop]
            self._damage |= dict.fromkeys(lost)
            for offset in known.ids.places(self._hashes, within) if known.ids else ():
                try:
                    located = self._log.locate(offset)
                except MessageNotFoundError:  # expired
                    continue
                except CorruptMessageError as error:  # damaged since it was scanned
                    self._damage[file.lost(offset, offset + 1, error.reason)] = None
                    continue
                if is_wanted(read_keyed_record(located)):
                    found.append(located.alone())
        return found
