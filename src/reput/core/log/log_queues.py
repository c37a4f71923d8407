"""Find the queues whose messages are in a log, to tell a queue that was lost from a queue that never existed.

| files of the log | how their queues are found |
|---|---|
| scanned before | remembered results (`reput.core.log.known_ranges`) |
| short | a walk over all records, which also finds further queues (INNER_MULTI_DISPATCH) |
| longer | a scan |
| too long to scan | samples |
"""

from __future__ import annotations

from collections.abc import Iterable

from reput.core.log.files import CommitLogFile
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.walk import LogWalk, sampled_records

# Files without a remembered result are walked in plain Python up to the first size together, and scanned up to the
# second size.
_WALKED_BYTES, _SCANNED_BYTES = 8 << 20, 256 << 20
# In longer files, records are read at this many places.
_PLACES = 64
# Number of files whose results are read from the cache.
_MOST_READ = 128
_Queues = frozenset[tuple[str, int]]


class LogQueues:
    """The queues of one log. Each file is examined once.

    Messages that are appended later are not examined: their dispatch creates their queues.

    Attributes:
        are_all: Whether the last call of `find` returned all queues: False if records were only sampled.
    """

    def __init__(self, log: CommitLogReader, known: KnownRanges) -> None:
        self._log, self._known = log, known
        self._of_file: dict[CommitLogFile, _Queues] = {}
        self._sampled: set[CommitLogFile] = set()

    @property
    def are_all(self) -> bool:
        return self._sampled.isdisjoint(self._of_file)

    def find(self) -> _Queues:
        """Return (topic, queue id) of queues with messages in the log. Raises StoreAccessError, StoreChangedError."""
        files, queues = self._log.files, self._of_file
        self._of_file = {file: queues[file] for file in files if file in queues}
        self._examine([file for file in files if file not in queues])
        return frozenset().union(*self._of_file.values())

    def _examine(self, files: list[CommitLogFile]) -> None:
        unknown = files[:-_MOST_READ]
        for file in files[-_MOST_READ:]:
            known = self._known.known(file)
            if known is None or known.queues is None:
                unknown.append(file)
            else:
                self._of_file[file] = frozenset(one[:2] for one in known.queues if one.first >= 0)
        unknown_bytes = sum(file.size for file in unknown)
        if unknown_bytes > _SCANNED_BYTES or not self._log.source.is_local:
            self._sample(unknown)
            return
        for file in unknown:
            walk = LogWalk(self._log, file.start, file.end)
            self._of_file[file] = (
                _queues_of(walk) if unknown_bytes <= _WALKED_BYTES else frozenset()
            )
            # After damage, only a scan finds readable messages.
            if unknown_bytes > _WALKED_BYTES or walk.damage:
                queues = self._known.learn(file, with_queues=True).queues or ()
                self._of_file[file] |= {one[:2] for one in queues if one.first >= 0}

    def _sample(self, files: list[CommitLogFile]) -> None:
        found: _Queues = frozenset()
        # Each place of a remote log takes a request over the network.
        if self._log.source.is_local:
            whole = OffsetRange(files[0].start, files[-1].end)
            found = _queues_of(sampled_records(self._log, whole, _PLACES))
        self._of_file |= dict.fromkeys(files, found)
        self._sampled.update(files)


def _queues_of(records: Iterable[LocatedRecord]) -> _Queues:
    found: set[tuple[str, int]] = set()
    for record in records:
        if (place := record.own_place()) is not None:
            found.add(place[:2])
            found.update((topic, queue_id) for topic, queue_id, _ in record.further_places())
    return frozenset(found)
