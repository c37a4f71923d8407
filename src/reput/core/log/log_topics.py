"""Find the topics that occur in a log, and its queues.

A key index has hashes of topic and key. So a search for a key in all topics needs the names of all topics of the log.
The folders in consumequeue/ do not show them: a topic may have been deleted, or its queues may be lost.

Scans of log files remember the topics of each file (`reput.core.log.known_ranges`). A map in the user's cache folder
joins these results: it has the stamps of the files, and the names of the topics that occur in them. Topics of expired
files remain in it, because a further name only costs a search of the index. Files that are not in the map are scanned
if they are short. In longer ones, and in the last file while it grows, records at some places are read, and the result
states that it is only spot-checked.

The queues whose messages are in a log tell a queue that was lost from a queue that never existed. Each file is examined
once: by remembered results, by a walk over all records of short files, which also finds further queues
(INNER_MULTI_DISPATCH), by a scan of longer ones, and by samples if they are too long to scan.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice

from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.walk import LogWalk, sampled_records
from reput.errors import ReputError, StoreError
from reput.io import OwnCache, Stamp

# Files without a known result are scanned if they have at most this many bytes together. The kernels take about half a
# second for it. Up to `_WALKED_BYTES` are walked in plain Python, which takes less time than loading the kernels.
_SCANNED_BYTES, _WALKED_BYTES, _LAST_BYTES = 256 << 20, 2 << 20, 64 << 10
# Otherwise, records are read at this many places: at the beginnings of files, or at equal distances in few files.
_PLACES, _RECORDS = 32, 4
# The same limits of a search for queues, which reads each file once.
_QUEUES_WALKED_BYTES, _QUEUES_PLACES = 8 << 20, 64
# Number of files whose own results one call adds to the map. Adding more would take longer than a query.
_MOST_READ = 128
# Version of the map, and maximum size of its file.
_FORM, _MOST_BYTES = 1, 64 << 20
# Errors that a damaged or foreign cache file can cause.
_WRONG_FORM = (ValueError, TypeError, LookupError, OverflowError, RecursionError)
_Stamps = dict[int, Stamp]
_Queues = frozenset[tuple[str, int]]


class TopicMap:
    """The topics of the files of a log that no longer grow, in the user's cache folder."""

    def __init__(self, log_name: str) -> None:
        self._name = f"{zlib.crc32(log_name.encode(errors='surrogateescape')):08x}.topics"
        self.stamps: _Stamps = {}
        self.names: frozenset[str] = frozenset()
        with suppress(ReputError, OSError, *_WRONG_FORM):
            data = self._cache.read(self._name, _MOST_BYTES)
            if data is not None:
                self.stamps, self.names = _decoded(data)

    @cached_property
    def _cache(self) -> OwnCache:
        return OwnCache("ranges")

    def has(self, file: CommitLogFile) -> bool:
        """Return whether `names` has all topics of a file as it is now."""
        stamp = self.stamps.get(file.start)
        return stamp is not None and stamp.is_of(file.path)

    def add(self, known: KnownFile) -> None:
        """Add a file. Its facts have a stamp and queues."""
        self.stamps[known.stamp[0]] = Stamp(*known.stamp[1:])
        self.names |= {one.topic for one in known.queues or ()}

    def write(self, files: Sequence[CommitLogFile]) -> None:
        """Write the map, without files that are not in the log."""
        starts = {file.start for file in files}
        self.stamps = {start: stamp for start, stamp in self.stamps.items() if start in starts}
        with suppress(ReputError, OSError):
            self._cache.write(self._name, _encoded(self.stamps, self.names))


def _encoded(stamps: _Stamps, names: frozenset[str]) -> bytes:
    head = json.dumps({"form": _FORM, "topics": sorted(names)})
    rows = array("q", [number for start, stamp in stamps.items() for number in (start, *stamp)])
    return head.encode() + b"\n" + rows.tobytes()


def _decoded(data: bytes) -> tuple[_Stamps, frozenset[str]]:
    """Decode the result of `_encoded`. Raises one of the exceptions in _WRONG_FORM for other bytes."""
    text, _, rest = data.partition(b"\n")
    head = json.loads(text)
    if head["form"] != _FORM:
        raise ValueError
    rows = array("q", rest)
    columns = [iter(rows)] * 4
    stamps = {start: Stamp(*stamp) for start, *stamp in zip(*columns, strict=True)}
    return stamps, frozenset(map(str, head["topics"]))


class LogTopics:
    """The topics of one log. Results are kept in memory while the files are the same.

    Attributes:
        are_all: Whether the last call of `find` returned all topics: False if records were only sampled.
    """

    def __init__(self, log: CommitLogReader, known: KnownRanges) -> None:
        self._log, self._known = log, known
        self.are_all = True
        self._walked: dict[CommitLogFile, tuple[int, frozenset[str]]] = {}
        self._sampled: tuple[tuple[CommitLogFile, ...], frozenset[str]] = (), frozenset()
        # The facts about the last file, and the topics in them.
        self._of_last: tuple[KnownFile | None, frozenset[str]] = None, frozenset()

    @cached_property
    def topic_map(self) -> TopicMap:
        return TopicMap(self._log.source.name)

    def keep(self) -> None:
        """Add the known results of all files to the map. This never scans."""
        self._unknown(self._log.files, len(self._log.files), set())

    def find(self) -> frozenset[str]:
        """Return the topics of the log. Raises StoreAccessError, StoreChangedError."""
        self.are_all = True
        files = self._log.files
        *whole, last = files
        names: set[str] = set()
        unknown = self._unknown(whole, _MOST_READ, names)
        known = self._known.known(last)
        position = last.start
        if known is not None and known.queues is not None:
            if known is not self._of_last[0]:
                self._of_last = known, frozenset(one.topic for one in known.queues)
            names |= self._of_last[1]
            position = known.stop
        # Often, the last file has only few messages after the known ones.
        if position < last.end and not self._walk(last, position, _LAST_BYTES, names):
            unknown.append(last)
        names |= self.topic_map.names
        if not unknown:
            return frozenset(names)
        unknown_bytes = sum(file.size for file in unknown)
        if unknown_bytes <= _WALKED_BYTES:
            unknown = [one for one in unknown if not self._walk(one, one.start, one.size, names)]
        # While a broker writes the last file, no result about it stays valid, so every query would have to scan it.
        elif unknown_bytes > _SCANNED_BYTES or unknown == [last] or not self._log.source.is_local:
            self.are_all = False
            return frozenset(names | self._sample(tuple(unknown)))
        for file in unknown:
            topics = self._known.learn(file, with_queues=True)
            names.update(queue.topic for queue in topics.queues or ())
        self._unknown([one for one in unknown if one != last], _MOST_READ, names)
        return frozenset(names)

    def _unknown(
        self, files: Sequence[CommitLogFile], most: int, names: set[str]
    ) -> list[CommitLogFile]:
        """Return the files whose topics are unknown.

        The own results of at most `most` files are read: add them to the map, or to `names` if they cannot be kept.
        """
        unknown, added = [], 0
        for file in files:
            if self.topic_map.has(file):
                continue
            known = self._known.known(file) if most > 0 else None
            most -= 1
            if known is None or known.queues is None:
                unknown.append(file)
            elif known.stamp and not known.damage and self._log.source.is_local:
                self.topic_map.add(known)
                added += 1
            else:
                names.update(one.topic for one in known.queues)
                # The last file with messages may precede an empty one.
                is_read = known.stop >= file.end
                if not is_read and not self._walk(file, known.stop, _LAST_BYTES, names):
                    unknown.append(file)
        if added:
            self.topic_map.write(self._log.files)
        return unknown

    def _walk(self, file: CommitLogFile, start: int, most_bytes: int, names: set[str]) -> bool:
        """Add the topics of a file from `start` on to `names`; return whether the walk reached the end of its messages.

        Later calls read only the records that were appended meanwhile.
        """
        position, topics = self._walked.get(file, (start, frozenset()))
        walk = LogWalk(self._log, max(position, start), min(file.end, position + most_bytes))
        topics |= {record.topic() for record in walk}
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
                for file in files[::-1][:: -(-len(files) // _PLACES)]:
                    walk = LogWalk(self._log, file.start, file.end)
                    names.update(one.topic() for one in islice(walk, _RECORDS))
                if len(files) < _PLACES:
                    whole = OffsetRange(files[0].start, files[-1].end)
                    for record in sampled_records(self._log, whole, _PLACES):
                        names.add(record.topic())
            self._sampled = files, frozenset(names)
        return self._sampled[1]


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
                _queues_of(walk) if unknown_bytes <= _QUEUES_WALKED_BYTES else frozenset()
            )
            # After damage, only a scan finds readable messages.
            if unknown_bytes > _QUEUES_WALKED_BYTES or walk.damage:
                queues = self._known.learn(file, with_queues=True).queues or ()
                self._of_file[file] |= {one[:2] for one in queues if one.first >= 0}

    def _sample(self, files: list[CommitLogFile]) -> None:
        found: _Queues = frozenset()
        # Each place of a remote log takes a request over the network.
        if self._log.source.is_local:
            whole = OffsetRange(files[0].start, files[-1].end)
            found = _queues_of(sampled_records(self._log, whole, _QUEUES_PLACES))
        self._of_file |= dict.fromkeys(files, found)
        self._sampled.update(files)


def _queues_of(records: Iterable[LocatedRecord]) -> _Queues:
    found: set[tuple[str, int]] = set()
    for record in records:
        if (place := record.own_place()) is not None:
            found.add(place[:2])
            found.update((topic, queue_id) for topic, queue_id, _ in record.further_places())
    return frozenset(found)
