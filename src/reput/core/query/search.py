"""Answer queries exactly: read and compare every candidate, and scan ranges without an index.

A plan (`reput.core.index.plan`) divides the log into segments: ranges that are looked up in one IndexFile, and ranges
that are scanned. Segments are searched newest first until there are enough messages. If the index cannot be trusted
(`reput.core.index.key_index`), the segment's range is scanned instead, and the result reports this. In 5.x, a record
may have several unique keys (UNIQ_KEY), and the index has only the last one. The others are called replaced ids. They
are searched for separately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reput.base import Finding, counted, late
from reput.core.index.key_index import (
    ARCHIVED_KEYS,
    IndexPart,
    KeyHashes,
    TimeWindow,
    UntrustedIndexError,
    names_of,
)
from reput.core.index.plan import Planner, Segment
from reput.core.index.search import IndexSearch, lost_keys
from reput.core.log.files import CommitLogFile
from reput.core.log.known_file import KnownFile, TimedPiece
from reput.core.log.known_ranges import KnownRanges
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord, LocatedRecord
from reput.core.log.walk import WALKED_BYTES, LogWalk
from reput.core.query.answers import QueryRecords, RecordProgress
from reput.core.query.evidence import Evidence, Question
from reput.core.query.inner_batch import InnerBatches, may_hold_any
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, UsageError
from reput.format.commit_log import QUEUE_PLACE, crc_matches
from reput.format.index_file import tag_key
from reput.format.java_string import joined_surrogates
from reput.format.message_id import spellings
from reput.format.properties import may_be_replaced_id

_UNBOUNDED = 2**63
# A note in the coverage of an answer names at most this many offsets of messages with a wrong CRC.
_MOST_NAMED = 3
# Names of the searches for messages without index entries, in the evidence of an answer.
_INNER, _REPLACED = "inner batches", "replaced ids"
# Bounds of the store times of a scan without records.
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1
# Only queries of archives load the search of their keys.
_prefetch_archived = late("reput.wings.archive.key_search", "prefetch")


class KeyPredicate:
    """The condition of a query by key: which index entries to follow, and which records to take.

    A message must have one of the keys and, unless all topics are requested, one of the topics. Both are compared as
    Java strings. As in the broker's index, the keys of a message are its unique key and the parts of KEYS between
    spaces. A rolled-back message has no keys. In 5.x, a record may have several unique keys. A message matches by any
    of its unique keys, although the index has only the last one.

    Attributes:
        topics: the requested topics; None for all topics
        keys: the requested keys, and with `any_case` each id among them in upper case (see `spellings`)
        hashes: hashes of the index entries to follow
    """

    def __init__(
        self,
        topics: Sequence[str],
        keys: Collection[str],
        *,
        anywhere: bool = False,
        ids_only: bool = False,
        any_case: bool = True,
    ) -> None:
        """Prepare the condition.

        The index combines topic and key, so the keys are looked up with each of `topics`. With `anywhere`, messages of
        other topics match as well. With `ids_only`, only unique keys are compared, not KEYS. With `any_case`, ids in
        lower case match in upper case, too.
        """
        keys = spellings(*keys) if any_case else tuple(keys)
        self.topics = None if anywhere else frozenset(map(joined_surrogates, topics))
        self.keys = frozenset(map(joined_surrogates, keys))
        self.hashes: Collection[int] = KeyHashes(topics, keys)
        self._ids_only = ids_only

    def matches(self, record: KeyedRecord) -> bool:
        """Return whether a record meets the condition."""
        keys = (record.unique_key,) if self._ids_only else record.keys
        if self.keys.isdisjoint(keys) and self.keys.isdisjoint(record.own_ids):
            return False
        return self.topics is None or record.topic in self.topics


class TagsPredicate(KeyPredicate):
    """The condition of a query by tags: messages of a topic with these tags, compared as a whole. It has no keys."""

    def __init__(self, topic: str, tags: str) -> None:
        super().__init__((topic,), (tag_key(tags),))
        self.keys = frozenset()
        self._topic, self._tags = joined_surrogates(topic), joined_surrogates(tags)

    def matches(self, record: KeyedRecord) -> bool:
        """Return whether a record meets the condition."""
        return record.tags == self._tags and record.topic == self._topic


class Found(NamedTuple):
    """Result of a scan: offsets of records that match or may match, newest first, and the damage.

    position  physical offset after the last scanned byte; if `at_end`, this is the end of the log
    times     store times of all records read; None without records, or if they were not examined
    """

    offsets: list[int]
    damage: list[Finding]
    position: int
    at_end: bool
    times: TimedPiece | None = None


class Scanner:
    """A scanner of ranges for one query, message by message. With `by_tags`, the query's hashes are those of tags.

    The first `WALKED_BYTES` of a query are walked in plain Python, which takes less time than loading the kernels. The
    kernels scan the rest of a long range. Only sizes decide this, not whether the kernels are already loaded.
    """

    def __init__(
        self, log: CommitLogReader, predicate: KeyPredicate, *, by_tags: bool = False
    ) -> None:
        self._log, self._predicate, self._by_tags = log, predicate, by_tags
        # Bytes that this query may still walk in plain Python.
        self._left_bytes = WALKED_BYTES

    def scan(self, start: int, stop: int) -> Found:
        """Find records that begin in [start, stop). A record begins at `start`, and the range lies within one file.

        Raises StoreAccessError, StoreChangedError.
        """
        part = self._walk(start, min(stop, start + self._left_bytes))
        self._left_bytes = max(self._left_bytes - (part.position - start), 0)
        if part.at_end or part.position >= stop:
            return part
        from reput.core.log.kernel_scan import scan_with_kernel

        offsets, damage, position, times = scan_with_kernel(
            self._log, part.position, stop, self._predicate.hashes, by_tags=self._by_tags
        )
        if times is not None:
            times = TimedPiece.joined([one for one in (part.times, times) if one is not None])
        # Unreadable bytes remain. A walk decides whether they are the end of the log.
        if position < stop:
            rest = self._walk(position, stop)
            offsets, damage = rest.offsets + offsets, damage + rest.damage
            return Found(offsets + part.offsets, part.damage + damage, rest.position, rest.at_end)
        return Found(offsets + part.offsets, part.damage + damage, position, False, times)

    def _walk(self, start: int, stop: int) -> Found:
        walk, matches = LogWalk(self._log, start, stop), self._predicate.matches
        offsets: list[int] = []
        least, most, last = _LATEST, _EARLIEST, -1
        for located in walk:
            record = located.keyed()
            last, time = record.physical_offset, record.store_timestamp
            least, most = min(least, time), max(most, time)
            if matches(record):
                offsets.append(last)
        times = None if last < 0 else TimedPiece(start, walk.position, least, most, last)
        return Found(offsets[::-1], walk.damage, walk.position, walk.at_end, times)


class ReplacedIdSearch:
    """A search for records by their replaced ids, which are in no index.

    If a record has several unique keys, the index has only the last one. The others are its replaced ids. A record is
    found if the hash of a replaced id is one of the wanted hashes.

    damage  the unreadable ranges
    """

    def __init__(self, log: CommitLogReader, ranges: KnownRanges, hashes: Collection[int]) -> None:
        self._log, self._ranges, self._hashes = log, ranges, hashes
        self._files: dict[CommitLogFile, KnownFile] = {}
        self._damage: dict[Finding, None] = {}

    @property
    def damage(self) -> list[Finding]:
        return list(self._damage)

    def find(
        self, start: int, stop: int, matches: Callable[[KeyedRecord], bool]
    ) -> list[LocatedRecord]:
        """Return the wanted records that begin in [start, stop).

        Raises StoreAccessError, StoreChangedError.
        """
        records: list[LocatedRecord] = []
        for file, within in self._log.parts(start, stop):
            facts = self._files.get(file) or self._ranges.learn(file, with_ids=True)
            # `find` is called once for each segment of the log. A log file may contain several segments, so keep the
            # scan result of the file for the next call.
            self._files[file] = facts
            lost = [part for part in facts.damage if part.start < stop and start < part.stop]
            self._damage |= dict.fromkeys(lost)
            for offset in facts.ids.places(self._hashes, within) if facts.ids else ():
                try:
                    located = self._log.locate(offset)
                # The file has expired since it was scanned.
                except MessageNotFoundError:
                    continue
                # The record was damaged after its file was scanned.
                except CorruptMessageError as error:
                    self._damage[file.lost(offset, offset + 1, error.reason)] = None
                    continue
                if matches(located.keyed()):
                    records.append(located.alone())
        return records


class Search:
    """One query over the segments of a plan."""

    def __init__(
        self,
        log: CommitLogReader,
        predicate: KeyPredicate,
        *,
        begin: int | None = None,
        end: int | None = None,
        limit: int | None = None,
        after: int | None = None,
        max_bytes: int | None = None,
        ranges: KnownRanges | None = None,
        inner: InnerBatches | None = None,
        replaced: ReplacedIdSearch | None = None,
        most_scanned_bytes: int | None = None,
    ) -> None:
        """Prepare a search.

        Two further searches find messages without index entries. `inner` finds messages of inner batches. If a record
        has several unique keys (5.x), the index has only the last one, and `replaced` finds messages by the others. The
        answer has at most `max_bytes` of records, but at least one record. A segment that must be scanned is skipped if
        it is longer than `most_scanned_bytes`. A search by tags scans the log: a trusted index part has all keys of its
        messages, but may lack items for tags.
        """
        self._most_scanned_bytes = _UNBOUNDED if most_scanned_bytes is None else most_scanned_bytes
        self._inner, self._replaced = inner, replaced
        self._ranges = ranges or KnownRanges(log)
        if limit is not None and limit < 1:
            raise UsageError(f"limit must be at least 1, not {limit}", arguments=["limit"])
        self._log, self._predicate = log, predicate
        self._begin = -_UNBOUNDED if begin is None else begin
        self._end = _UNBOUNDED if end is None else end
        is_bounded = begin is not None or end is not None
        self._window = TimeWindow(self._begin, self._end) if is_bounded else None
        self._limit = _UNBOUNDED if limit is None else limit
        self._before = _UNBOUNDED if after is None else after
        self._left_bytes = _UNBOUNDED if max_bytes is None else max_bytes
        self._by_tags = isinstance(predicate, TagsPredicate)
        self._scanner = Scanner(log, predicate, by_tags=self._by_tags)
        self._records: list[LocatedRecord] = []
        self._further: dict[str, InnerBatches | ReplacedIdSearch] = {}
        if inner is not None:
            self._further[_INNER] = inner
        if replaced is not None:
            self._further[_REPLACED] = replaced
        self._evidence = Evidence(log.source.name, *self._further)
        self._log_end: int
        self._planner: Planner

    def run(self, planner: Planner) -> QueryRecords:
        """Return the complete answer. Raises StoreAccessError, StoreChangedError."""
        for _ in self._search(planner):
            pass
        return self.result()

    def steps(self, planner: Planner) -> Iterator[RecordProgress]:
        """Yield the answer in steps, newest first. Then `result` returns the whole answer. Raises as `run` does."""
        count = 0
        for stop in self._search(planner):
            records = self._up_to_limit()[count:]
            count += len(records)
            yield RecordProgress(tuple(records), stop)

    def _search(self, planner: Planner) -> Iterator[int]:
        """Yield the start of each segment after it has been searched."""
        segments = tuple(planner.scanned()) if self._by_tags else planner.segments()
        self._evidence.problems += planner.problems
        # If the log has grown since it was planned, the answer ends where the plan ends.
        self._planner = planner
        self._log_end = segments[0].stop if segments else self._log.files_end
        # Without a limit, all segments are searched, so their index parts can be fetched together in advance.
        if self._limit == _UNBOUNDED:
            self._prefetch(segments)
        for segment in segments:
            if segment.start < self._before and not self._passes_over(segment):
                if segment.part is not None:
                    self._look_up(segment, segment.part)
                else:
                    self._scan(segment)
                for name, further in self._further.items():
                    self._add_further(name, further, segment)
                yield segment.start
            if self._is_enough:
                break

    def _prefetch(self, segments: Sequence[Segment]) -> None:
        """Fetch the parts of an archive's index that the search needs, for all segments together."""
        parts = [
            (segment.part, segment.range)
            for segment in segments
            if segment.part is not None and segment.part.name.startswith(ARCHIVED_KEYS)
        ]
        if parts:
            window = self._window
            if window is not None:
                parts = [(part, part.at_times(self._log, window, within)) for part, within in parts]
            _prefetch_archived()(parts, self._predicate.hashes)

    def _passes_over(self, segment: Segment) -> bool:
        is_read = segment.part is not None or segment.records is not None
        return not is_read and segment.range.size_bytes > self._most_scanned_bytes

    @property
    def _is_enough(self) -> bool:
        # Search until one message beyond the limit is found. It shows that there are more messages, and the answer
        # needs a cursor.
        return len(self._records) > self._limit and len(self._up_to_limit()) < len(self._records)

    def _keep(self, record: LocatedRecord) -> None:
        """Add a found record.

        If the found records together are too large for one answer, the answer omits the oldest found record.
        """
        self._records.append(record)
        self._left_bytes -= len(record.data)
        if self._left_bytes < 0:
            count = len({record.physical_offset for record in self._records})
            self._limit = min(self._limit, max(count - 1, 1))

    def _add_further(
        self, name: str, search: InnerBatches | ReplacedIdSearch, segment: Segment
    ) -> None:
        """Add the messages of a segment that have no index entries."""
        stop = min(segment.stop, self._before)
        records = search.find(segment.start, stop, self._matches)
        self._evidence.further(name, segment.start, stop)
        # A scan of the segment compares all unique keys of a record, not only the last one. So if the segment was
        # scanned, the scan has already found the messages of `ReplacedIdSearch`: do not add these messages again.
        if isinstance(search, ReplacedIdSearch):
            offsets = {record.physical_offset for record in self._records}
            records = [record for record in records if record.physical_offset not in offsets]
        if records:
            # Messages of one record are sorted by descending queue offset.
            for record in records:
                self._keep(record)
            self._records.sort(key=_place, reverse=True)

    def _up_to_limit(self) -> list[LocatedRecord]:
        """Return the found messages, up to the limit of records. A record may contain several messages."""
        if self._inner is None or len(self._records) <= self._limit:
            return self._records[: min(len(self._records), self._limit)]
        offsets = list(dict.fromkeys(record.physical_offset for record in self._records))
        last = offsets[min(len(offsets), self._limit) - 1]
        return [record for record in self._records if record.physical_offset >= last]

    def result(self) -> QueryRecords:
        """Return the answer after all steps. Raises StoreAccessError, StoreChangedError."""
        cursor = None
        if self._is_enough:
            self._records = self._up_to_limit()
            cursor = self._records[-1].physical_offset
        start = self._log.min_offset if cursor is None else cursor
        answered = OffsetRange(start, max(min(self._log_end, self._before), start))
        self._evidence.damage += self._log.holes()
        names = names_of(self._predicate.topics, self._predicate.keys)
        self._evidence.damage += [
            lost for _, lost in self._planner.lost_records(names, self._window)
        ]
        for search in self._further.values():
            self._evidence.damage += [part for part in search.damage if part.start < self._log_end]
        # A search that continues at a cursor goes backwards from there, and does not include the end of the log. So do
        # not report that this end was lost.
        if self._before >= self._log_end and (lost := self._planner.lost_end(self._log_end)):
            self._evidence.damage.append(lost)
        coverage = self._evidence.coverage(
            answered,
            inner_messages=None if self._inner is None else self._inner.searched,
            notes=self._bad_bodies(),
            question=Question((), self._predicate.topics, *(self._window or (None, None))),
        )
        return QueryRecords(tuple(self._records), cursor, coverage)

    def _bad_bodies(self) -> tuple[str, ...]:
        """Return a note about bodies in the answer that are damaged, or still being written."""
        bad = [
            record.physical_offset
            for record in self._records
            if not crc_matches(record.data, record.layout)
        ]
        if not bad:
            return ()
        count = counted(len(bad), "message", verb="has")
        offsets = ", ".join(map(str, bad[:_MOST_NAMED])) + (", …" if bad[_MOST_NAMED:] else "")
        return (f"{count} a body with a wrong CRC: offset {offsets}.",)

    def _look_up(self, segment: Segment, part: IndexPart) -> None:
        mark = len(self._records)
        within = OffsetRange(segment.start, min(segment.stop, self._before))
        if self._window is not None:
            within = part.at_times(self._log, self._window, within)
        entries = IndexSearch(self._log, part, self._predicate.hashes, within, self._window)
        try:
            for located, record in entries:
                if self._matches(record):
                    self._keep(located.alone())
                    if self._is_enough:
                        break
        except UntrustedIndexError as error:
            # The segment will be scanned instead. Drop the messages found through its index entries, and no longer
            # count their bytes.
            self._left_bytes += sum(len(record.data) for record in self._records[mark:])
            del self._records[mark:]
            scanned = f"offsets {segment.start} to {segment.stop} were scanned"
            self._evidence.problems.append(Finding.of_error(error.kind, error, f"; {scanned}"))
            # The scan cannot find a message that has lost its key either.
            self._evidence.damage += lost_keys(self._log, error)
            self._scan_range(segment.start, segment.stop, entries.followed)
        else:
            self._evidence.indexed(segment.start, segment.stop, part)

    def _matches(self, record: KeyedRecord) -> bool:
        if not self._predicate.matches(record):
            return False
        is_within = self._begin <= record.store_timestamp <= self._end
        return is_within and record.physical_offset < self._before

    def _scan(self, segment: Segment) -> None:
        self._evidence.damage += segment.damage
        if segment.records is not None:
            self._take_read(segment.records, ())
            self._evidence.scanned(*segment.range)
        elif (tail := self._planner.short_tail(segment)) is not None:
            self._take_read(tail.records, tail.damage)
            self._log_end = min(self._log_end, tail.position)
            self._evidence.scanned(segment.start, min(tail.position, self._before))
        else:
            self._evidence.damage += self._planner.without_keys(*segment.range)
            self._scan_range(segment.start, segment.stop)

    def _take_read(self, records: Sequence[KeyedRecord], damage: Sequence[Finding]) -> None:
        for record in records:
            if self._matches(record):
                self._keep(self._log.locate(record.physical_offset).alone())
        self._evidence.damage += damage

    def _scan_range(self, start: int, stop: int, candidates: Sequence[int] = ()) -> None:
        """Scan file by file, newest first, until enough messages are found.

        Also test the messages at `candidates`, to which the index led: a scan of a damaged log may not reach them.
        """
        for _, part in reversed(list(self._log.parts(start, min(stop, self._before)))):
            if self._is_enough:
                return
            if self._is_outside(part):
                self._evidence.scanned(*part)
                continue
            result, (begin, end) = self._scan_part(part), part
            self._take_scan(result, [offset for offset in candidates if begin <= offset < end])
            self._evidence.scanned(begin, min(result.position, end))

    def _is_outside(self, part: OffsetRange) -> bool:
        """Return whether an earlier scan has shown that a range has no message of the time window."""
        if self._window is None:
            return False
        times = self._ranges.times(part)
        return times is not None and times.is_outside(*self._window)

    def _scan_part(self, part: OffsetRange) -> Found:
        # Take the stamp (such as inode, size and time of change) before the scan. If the file changes during the scan,
        # the stamp no longer matches, so the result of the scan is not used again.
        stamp = self._ranges.stamp(part)
        result = self._scanner.scan(*part)
        is_whole = result.position >= part.stop and not result.damage and not result.at_end
        if stamp and result.times is not None and is_whole:
            self._ranges.keep(part, stamp, result.times)
        return result

    def _take_scan(self, scan: Found, candidates: Sequence[int]) -> None:
        self._evidence.damage += scan.damage
        if scan.at_end:
            self._log_end = min(self._log_end, scan.position)
        for offset in sorted({*scan.offsets, *candidates}, reverse=True):
            try:
                located = self._log.locate(offset)
            except (MessageNotFoundError, CorruptMessageError):
                # The scan has already reported damage at offsets in `candidates`.
                continue
            if self._matches(located.keyed()):
                self._keep(located.alone())
                if self._is_enough:
                    return


@dataclass(frozen=True, slots=True)
class Unindexed:
    """What an index may lack although it is trusted: inner messages, and unique keys that were replaced.

    inner_topics      topics whose records may be inner batches (5.x)
    has_replaced_ids  whether a record may have several unique keys, of which the index has only the last (5.x)
    """

    ranges: KnownRanges
    inner_topics: frozenset[str] = frozenset()
    has_replaced_ids: bool = False

    def search(self, log: CommitLogReader, predicate: KeyPredicate, **bounds: int | None) -> Search:
        """Return a search that also finds the messages without index entries."""
        inner = replaced = None
        if self.inner_topics:
            # A predicate without keys may match any message.
            may_hold = may_hold_any(predicate.keys) if predicate.keys else lambda batch: True
            inner = InnerBatches(log, self.inner_topics, may_hold)
        if self.has_replaced_ids and any(map(may_be_replaced_id, predicate.keys)):
            replaced = ReplacedIdSearch(log, self.ranges, predicate.hashes)
        return Search(log, predicate, ranges=self.ranges, inner=inner, replaced=replaced, **bounds)


def _place(record: LocatedRecord) -> tuple[int, int]:
    offset, data, layout = record
    _, queue_offset = QUEUE_PLACE.unpack_from(data, layout.position)
    return offset, queue_offset


def search_steps(
    log: CommitLogReader,
    planner: Planner,
    predicate: KeyPredicate,
    unindexed: Unindexed,
    **bounds: int | None,
) -> Iterator[RecordProgress | QueryRecords]:
    """Yield the steps of a search, then its result. If files of the log expire meanwhile, search again.

    Raises UsageError, StoreAccessError, StoreChangedError.
    """
    oldest = _UNBOUNDED
    while True:
        log.refresh()
        begin_offset = log.min_offset
        search = unindexed.search(log, predicate, **bounds)
        try:
            # If the search has begun again, skip the records that were already yielded.
            for step in search.steps(planner):
                new = tuple(record for record in step.records if record.physical_offset < oldest)
                oldest = new[-1].physical_offset if new else oldest
                yield RecordProgress(new, step.searched_to)
            yield search.result()
            return
        except StoreError:
            log.refresh()
            if log.min_offset == begin_offset:
                # No file has expired, so the error has another reason.
                raise


def find_end(log: CommitLogReader, segments: Sequence[Segment]) -> int:
    """Return the end of the log. Raises StoreAccessError, StoreChangedError."""
    end = log.files_end
    for segment in segments:
        if segment.part is not None:
            break
        scan = Scanner(log, KeyPredicate((), ())).scan(segment.start, segment.stop)
        if not scan.at_end:
            break
        end = scan.position
    return end
