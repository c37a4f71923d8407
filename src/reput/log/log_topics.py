"""Find the topics that occur in a log.

A key index has hashes of topic and key. So a search for a key in all topics needs the names of all topics of the log.
The folders in consumequeue/ do not show them: a topic may have been deleted, or its queues may be lost.

Scans of log files remember the topics of each file (`reput.log.known_ranges`). Files without such a result are scanned
if they are short. In longer ones, and in the last file while it grows, records at some places are read, and the result
states that it is only spot-checked.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice

from reput.errors import StoreError
from reput.log.files import CommitLogFile
from reput.log.keyed_record import read_keyed_record
from reput.log.known_file import KnownFile
from reput.log.known_ranges import KnownRanges
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.samples import sampled_records
from reput.log.walk import LogWalk

# Files without a known result are scanned if they have at most this many bytes together. The kernels take about half a
# second for it. Up to `_WALKED_BYTES` are walked in plain Python, which takes less time than loading the kernels.
_SCANNED_BYTES, _WALKED_BYTES, _LAST_BYTES = 256 << 20, 2 << 20, 64 << 10
# Otherwise, records are read at this many places: at the beginnings of files, or at equal distances in few files.
_PLACES, _RECORDS = 32, 4
# Number of files whose results are read from the cache. Reading more would take longer than a query.
_MOST_READ = 128


class LogTopics:
    """The topics of one log. Results are kept in memory while the files are the same.

    Attributes:
        are_all: Whether the last call of `find` returned all topics: False if records were only sampled.
    """

    def __init__(self, log: CommitLogReader, known: KnownRanges) -> None:
        self._log, self._known = log, known
        self.are_all = True
        self._walked: dict[CommitLogFile, tuple[int, frozenset[str]]] = {}
        self._topics: dict[CommitLogFile, tuple[KnownFile, frozenset[str]]] = {}
        self._sampled: tuple[tuple[CommitLogFile, ...], frozenset[str]] = (), frozenset()

    def find(self) -> frozenset[str]:
        """Return the topics of the log. Raises StoreAccessError, StoreChangedError."""
        self.are_all = True
        names: set[str] = set()
        unknown: list[CommitLogFile] = []
        files = self._log.files
        for file in reversed(files):
            known = None if len(files) > _MOST_READ else self._known_topics(file)
            position = file.start
            if known is not None:
                names |= known[1]
                position = known[0].stop
            # Often, the last file has only few messages after the known ones.
            ends = file == files[-1] and self._walk(file, position, _LAST_BYTES, names)
            if position < file.end and not ends:
                unknown.append(file)
        unknown_bytes = sum(file.size for file in unknown)
        if unknown_bytes <= _WALKED_BYTES:
            unknown = [one for one in unknown if not self._walk(one, one.start, one.size, names)]
        # While a broker writes the last file, no result about it stays valid, so every query would have to scan it.
        elif (
            unknown_bytes > _SCANNED_BYTES
            or unknown == [files[-1]]
            or not self._log.source.is_local
        ):
            self.are_all = False
            return frozenset(names | self._sample(tuple(unknown)))
        for file in unknown:
            found = self._known.learn(file, with_queues=True)
            names.update(queue.topic for queue in found.queues or ())
        return frozenset(names)

    def _known_topics(self, file: CommitLogFile) -> tuple[KnownFile, frozenset[str]] | None:
        """Return the known facts about a file, and its topics; None if its topics are unknown."""
        known = self._known.remembered(file) or self._known.known(file)
        if known is None or known.queues is None:
            return None
        before = self._topics.get(file)
        if before is None or before[0] is not known:
            before = self._topics[file] = known, frozenset(one.topic for one in known.queues)
        return before

    def _walk(self, file: CommitLogFile, start: int, most_bytes: int, names: set[str]) -> bool:
        """Add the topics of a file from `start` on to `names`; return whether the walk reached the end of its messages.

        Later calls read only the records that were appended meanwhile.
        """
        position, topics = self._walked.get(file, (start, frozenset()))
        walk = LogWalk(self._log, max(position, start), min(file.end, position + most_bytes))
        topics |= {read_keyed_record(record).topic for record in walk}
        names |= topics
        if walk.damage:
            # Only a scan finds the messages after the damage.
            return False
        self._walked[file] = walk.position, topics
        return walk.at_end or walk.position >= file.end

    def _sample(self, files: tuple[CommitLogFile, ...]) -> frozenset[str]:
        if not self._log.source.is_local:
            # Each place takes a request over the network.
            return frozenset()
        if self._sampled[0] != files:
            names: set[str] = set()
            # A file may expire meanwhile.
            with suppress(StoreError):
                for file in files[:: -(-len(files) // _PLACES)]:
                    walk = LogWalk(self._log, file.start, file.end)
                    names.update(read_keyed_record(one).topic for one in islice(walk, _RECORDS))
                if len(files) < _PLACES:
                    whole = OffsetRange(files[-1].start, files[0].end)
                    for record in sampled_records(self._log, whole, _PLACES):
                        names.add(read_keyed_record(record).topic)
            self._sampled = files, frozenset(names)
        return self._sampled[1]
