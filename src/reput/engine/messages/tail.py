"""Read the end of a log: its last messages, and then the messages that any process appends.

The last messages are found through the ConsumeQueues, or through the index if a key is given. The log after the last
dispatched message is walked. New messages are read in the order of the log. No lock is taken.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import merge
from itertools import chain, islice
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core import (
    CommitLogFile,
    Coverage,
    Evidence,
    LocatedRecord,
    LogWalk,
    LostEntriesError,
    MessageStore,
    OffsetRange,
    Question,
    QueuePlace,
    QueueReader,
    WindowEvidence,
    finding_of,
    further_findings,
    further_queues,
    is_in_place,
    lost_beside,
    lost_end,
    sampled_records,
)
from reput.errors import (
    CorruptMessageError,
    FormatError,
    MessageNotFoundError,
    StoreChangedError,
    StoreError,
    StoreNotFoundError,
)
from reput.format.commit_log import MessageExt, crc_matches, is_dispatched
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry, may_skew
from reput.format.consume_queue_ext import is_address
from reput.format.file_names import CONSUME_QUEUE_FOLDER, is_folder_name
from reput.format.java_string import hash_code
from reput.format.message_id import spellings
from reput.format.properties import (
    INNER_MULTI_DISPATCH,
    LMQ_PREFIX,
    SCHEDULE_TOPIC,
    TAGS,
    index_keys,
)

# Entries per read: the first read is small, because often few messages are wanted.
_FIRST_ENTRIES, _MOST_ENTRIES = 32, 4096
# Maximum number of messages that one query by key returns.
_PAGE = 256
# To find missing ConsumeQueues, a range of the log is read completely if it has at most `_WALKED_BYTES`. In a longer
# range, records are read at `_PLACES` places.
_WALKED_BYTES, _PLACES = 1 << 20, 64
_FURTHER = INNER_MULTI_DISPATCH.encode()
# Greater than every physical offset.
_AFTER_ALL = 1 << 63
_OUT_OF_ORDER = "the entry leads to an earlier message than an entry before it"


class QueuedEntry(NamedTuple):
    """An entry, and its place in the queue.

    unnumbered  how many queue offsets between this entry and the next have no entry of their own (batches, 5.x)
    """

    physical_offset: int
    size: int
    tags_code: int
    topic: str
    queue_id: int
    queue_offset: int
    unnumbered: int = 0


class _Read(NamedTuple):
    """An entry whose record was read.

    number  queue offset of the entry
    stated  queue offset that the record states
    """

    number: int
    stated: int
    physical_offset: int


class QueueTail:
    """A reader of a store's queues, from their ends backwards.

    damage    errors of entries and of their messages; each unreadable record is named with its range of the log
    position  physical offset of the last entry that `records` has examined
    """

    def __init__(
        self,
        store: MessageStore,
        takes_queue: Callable[[str, int], bool],
        begin: int | None = None,
        end: int | None = None,
        *,
        topic: str | None = None,
        before: int | None = None,
        damage: list[Finding] | None = None,
    ) -> None:
        """Read the queues that `takes_queue` accepts. `topic` is their topic, if it is only one.

        Messages that were stored before `begin` or after `end`, or begin at or after the physical offset `before`, may
        be skipped. Errors are added to `damage`.
        """
        self._store, self._log, self._takes_queue = store, store.commit_log, takes_queue
        self._begin, self._end, self._before, self._topic = begin, end, before, topic
        self.damage: list[Finding] = [] if damage is None else damage
        self.position = _AFTER_ALL
        self._newer: dict[tuple[str, int], _Read] = {}

    def entries(self, *, check: bool = False) -> Iterator[QueuedEntry]:
        """Yield entries of the queues, newest first, without verifying their records.

        With `check`, report entries that are not in the order of their queue.
        """
        queues = [self._entries_back(topic, queue_id, check) for topic, queue_id in self._list()]
        return merge(*queues, key=lambda entry: -entry.physical_offset)

    def _list(self) -> list[tuple[str, int]]:
        queues = self._store.queues.list(self._topic)
        return [queue for queue in queues if self._takes_queue(*queue)]

    def records(
        self, stop: int, tags: Collection[str], most_damage: int | None = None
    ) -> Iterator[LocatedRecord]:
        """Yield records before `stop` that may have one of these tags, newest first, each once.

        Report entries that lead to a record of another queue, and missing or repeated queue offsets. End if there are
        more than `most_damage` findings.
        """
        hashes = {hash_code(tag) for tag in tags}
        expected: dict[tuple[str, int], int] = {}
        # A message may have entries in several queues, but is yielded once. `offset` is the physical offset of the last
        # yielded message.
        offset = -1
        for entry in self.entries(check=True):
            if entry.physical_offset >= stop:
                continue
            is_first = self.position == _AFTER_ALL
            if most_damage is not None and len(self.damage) > most_damage and not is_first:
                return
            queue, self.position = (entry.topic, entry.queue_id), entry.physical_offset
            # Entries are read newest first, so the expected queue offset decreases by 1 with each entry. A batch (5.x)
            # has several queue offsets, but only one entry, for the first of these offsets. So for a batch, also
            # subtract the number of its other queue offsets.
            if entry.unnumbered and queue in expected:
                expected[queue] -= entry.unnumbered
            if hashes and not _may_match(entry, hashes):
                if queue in expected:
                    expected[queue] -= 1
                continue
            record = self._record(entry, expected)
            if record is None and queue in expected:
                # The message is reported, so it is not missing as well.
                expected[queue] -= 1
            elif record is not None and record.physical_offset != offset:
                offset = record.physical_offset
                yield record

    def check_ends(self, before: int) -> None:
        """Report queues that have no entries for their newest messages before a physical offset."""
        for topic, queue_id in self._list():
            try:
                self._store.check_later(topic, queue_id, before)
            except FormatError as error:
                self.damage.append(Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error))
            # The queue has expired since it was listed.
            except MessageNotFoundError:
                continue

    def _record(
        self, entry: QueuedEntry, expected: dict[tuple[str, int], int]
    ) -> LocatedRecord | None:
        """Return the record that belongs to an entry, or report why there is none."""
        mark = len(self.damage)
        record = self._read(entry)
        if record is not None and self._follows(entry, record, expected):
            return record
        # The newest entry may have been half written, or its record may be in a new file. Both are complete now.
        with suppress(StoreError):
            has_grown = self._log.refresh()
            queue = self._store.queues.queue(entry.topic, entry.queue_id)
            offset, size, tags_code = queue.entry(entry.queue_offset)[:3]
            again = entry._replace(physical_offset=offset, size=size, tags_code=tags_code)
            if again != entry or has_grown:
                del self.damage[mark:]
                return self._record(again, expected)
        return None

    def _read(self, entry: QueuedEntry) -> LocatedRecord | None:
        try:
            return self._log.locate(entry.physical_offset, entry.size)
        except (MessageNotFoundError, CorruptMessageError) as error:
            at, file = entry.physical_offset, self._log.file_at(entry.physical_offset)
            # A message before the log's first file has expired. This is no damage.
            self.damage += [hole for hole in self._log.holes() if hole.start <= at < hole.stop]
            if file is not None:
                reason = getattr(error, "reason", "no message begins there")
                self.damage.append(file.lost(at, at + entry.size, reason))
            elif at >= self._log.files_end:
                lost = Finding(
                    Kind.UNREADABLE_RECORD, self._log.source.name, str(error),
                    physical_offset=at, length=entry.size,
                )  # fmt: skip
                self.damage.append(lost)
            return None

    def _follows(
        self, entry: QueuedEntry, record: LocatedRecord, expected: dict[tuple[str, int], int]
    ) -> bool:
        """Return whether a record belongs to its entry. `expected` has the next queue offset of each queue."""
        queue = entry.topic, entry.queue_id
        stated = record.queue_offset_in(*queue)
        if stated is None or record.layout.total_bytes != entry.size:
            reason = "the entry leads to a message of another queue or queue offset"
            self._report(Kind.FOREIGN_QUEUE_ENTRY, entry, reason)
            return False
        if record.is_restarted(entry.topic, stated):
            # This is not the message's own queue, but a further queue that INNER_MULTI_DISPATCH names. A restarted
            # broker numbers messages in further queues from 0 again. Entries are read newest first, so the next entry
            # leads to an older message, from before the restart. Its queue offset cannot be predicted.
            expected.pop(queue, None)
            return True
        awaited = expected.get(queue)
        if awaited not in (None, stated) and self._is_skewed(entry, record, stated):
            awaited = stated
        is_odd = stated < entry.queue_offset or (awaited is not None and stated > awaited)
        if is_odd and not self._is_in_place(entry, record):
            reason = "the entry leads to a message that another entry of the queue has"
            self._report(Kind.FOREIGN_QUEUE_ENTRY, entry, reason)
            return False
        if awaited is not None and stated < awaited:
            reason = f"messages are missing after it, queue offsets {stated + 1} to {awaited}"
            self._report(Kind.MISSING_QUEUE_ENTRY, entry, reason)
        expected[queue] = stated - 1
        self._newer[queue] = _Read(entry.queue_offset, stated, entry.physical_offset)
        return True

    def _is_in_place(self, entry: QueuedEntry, record: LocatedRecord) -> bool:
        queue = self._store.queues.queue(entry.topic, entry.queue_id)
        place = QueuePlace(entry.topic, entry.queue_id, entry.queue_offset)
        return is_in_place(self._store, queue, place, record)

    def _is_skewed(self, entry: QueuedEntry, record: LocatedRecord, stated: int) -> bool:
        """Return whether the broker itself may have skipped or repeated queue offsets after an entry of a light queue.

        If so, a gap in the queue offsets is no sign of lost messages. See `may_skew` for the broker's reasons.
        """
        queue = entry.topic, entry.queue_id
        newer = self._newer.get(queue)
        if newer is None or not entry.topic.startswith(LMQ_PREFIX):
            return False
        undispatched = dispatched = 0
        begin = entry.physical_offset + record.layout.total_bytes
        for between in LogWalk(self._log, begin, newer.physical_offset):
            if any((topic, id_) == queue for topic, id_, _ in between.further_places()):
                dispatched += is_dispatched(between.layout.sys_flag)
                undispatched += not is_dispatched(between.layout.sys_flag)
        follows = dispatched == newer.number - entry.queue_offset - 1
        before, after = stated - entry.queue_offset, newer.stated - newer.number
        return follows and may_skew(before, after, undispatched)

    def _report(self, kind: Kind, entry: QueuedEntry, reason: str) -> None:
        folder = self._store.queues.queue(entry.topic, entry.queue_id).folder
        self.damage.append(Finding(kind, folder, f"queue offset {entry.queue_offset}: {reason}"))

    def _spans(self, topic: str, queue_id: int) -> list[range]:
        """Return ranges of queue offsets that contain all requested messages, newest first."""
        store, queue = self._store, self._store.queues.queue(topic, queue_id)
        least, stop = queue.min_queue_offset(self._log.min_offset), queue.max_queue_offset()
        has_window, spans = self._begin is not None or self._end is not None, [range(least, stop)]
        with suppress(FormatError, MessageNotFoundError):
            if self._before is not None:
                stop = min(stop, queue.min_queue_offset(self._before))
            # The times of a damaged queue do not show where to begin, so the whole queue is read.
            if has_window:
                if self._end is not None:
                    stop = min(
                        stop, store.end_offset_by_time(topic, queue_id, self._end, check=False)
                    )
                if self._begin is not None:
                    first = store.offset_by_time(topic, queue_id, self._begin, check=False)
                    least = max(least, queue.span(first)[0] if first < stop else first)
                window = (
                    -_AFTER_ALL if self._begin is None else self._begin,
                    _AFTER_ALL if self._end is None else self._end,
                )
                spans = store.spans_by_time(topic, queue_id, *window)
        if has_window:
            self.damage += lost_beside(store, topic, queue_id, range(least, stop))
        return [range(max(span.start, least), min(span.stop, stop)) for span in spans]

    def _entries_back(self, topic: str, queue_id: int, check: bool) -> Iterator[QueuedEntry]:
        """Yield the entries of a queue that have not expired, newest first."""
        queue = self._store.queues.queue(topic, queue_id)
        # Queue offset of the entry after the current one in the queue. The loop reads entries newest first, so it has
        # already read that entry. None at the queue's end, or if that entry is lost.
        newer: int | None = None
        # Most of thousands of queues are only asked for their newest entry.
        is_fast = not check and self._begin is None and self._end is None
        if is_fast and (newest := self._newest(queue)) is not None:
            newer, last = newest
            yield QueuedEntry(*last, topic, queue_id, newer)
        step = _FIRST_ENTRIES
        for span in self._spans(topic, queue_id):
            stop = span.stop if newer is None else min(span.stop, newer)
            while span.start < stop:
                start = max(stop - step, span.start)
                try:
                    entries = self._entries_within(queue, start, stop)
                except (StoreNotFoundError, MessageNotFoundError):
                    return
                if check:
                    self._check_order(queue, (topic, queue_id), entries)
                for number, item in reversed(entries):
                    if item is not None and item != PRE_BLANK:
                        unnumbered = 0 if newer is None else newer - number - 1
                        yield QueuedEntry(*item, topic, queue_id, number, unnumbered)
                    newer = None if item is None else number
                # Entries are read from the end of the queue to its beginning. The entry with the lowest queue offset in
                # this read may be a batch that begins before `start`. So the next read, of earlier entries, must end
                # where that batch begins.
                stop = queue.span(start)[0]
                step = min(2 * step, _MOST_ENTRIES)
        try:
            self._store.check_begin(topic, queue_id)
        except FormatError as error:
            self.damage.append(Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error))
        # The file has expired meanwhile.
        except MessageNotFoundError:
            return

    def _entries_within(
        self, queue: QueueReader, start: int, stop: int
    ) -> list[tuple[int, ConsumeQueueEntry | None]]:
        """Return entries with their queue offsets. An item with None in place of an entry marks lost entries."""
        entries: list[tuple[int, ConsumeQueueEntry | None]] = []
        position = start
        while position < stop:
            try:
                for number, entry in queue.numbered(position, stop):
                    entries.append((number, entry))
                    position = max(position, number + 1)
                break
            except LostEntriesError as error:
                # The queue is read backwards, so the previous read covered the entries from `stop` on. If a range of
                # lost entries crosses `stop`, the previous read has already reported this range.
                if error.resume_offset <= stop:
                    self.damage.append(Finding.of_error(Kind.QUEUE_GAP, error))
                position = max(error.resume_offset, position + 1)
                entries.append((position, None))
        return entries

    def _newest(self, queue: QueueReader) -> tuple[int, ConsumeQueueEntry] | None:
        """Return a queue's last entry and its queue offset, with few reads.

        None if only a search of the whole queue shows the last entry that has not expired.
        """
        with suppress(StoreError):
            stop = queue.max_queue_offset()
            for number, entry in queue.numbered(stop - 1, stop):
                if entry != PRE_BLANK and entry.physical_offset >= self._log.min_offset:
                    return number, entry
        return None

    def _check_order(
        self,
        queue: QueueReader,
        place: tuple[str, int],
        entries: Sequence[tuple[int, ConsumeQueueEntry | None]],
    ) -> None:
        """Report the first of some successive entries that leads to an earlier message than an entry before it.

        Such an entry would hide the entries before it, because the entries of all queues are merged by their offsets.
        """
        highest = -1
        if entries:
            with suppress(StoreError):
                highest = queue.entry(entries[0][0] - 1).physical_offset
        for number, entry in entries:
            if entry is None or entry == PRE_BLANK:
                continue
            if entry.physical_offset < highest:
                # The newest entry may have been half written. Then it is complete now.
                with suppress(StoreError):
                    entry = queue.entry(number)
                if entry.physical_offset < highest:
                    self._report(
                        Kind.FOREIGN_QUEUE_ENTRY, QueuedEntry(*entry, *place, number), _OUT_OF_ORDER
                    )
                    return
            highest = max(highest, entry.physical_offset)

    def check_next(self) -> None:
        """Report the entries before the last ones that were read, if they do not lead to the messages before these.

        Such an entry may hide a message that is newer than the oldest one returned.
        """
        for (topic, queue_id), newer in self._newer.items():
            queue = self._store.queues.queue(topic, queue_id)
            if newer.number <= queue.min_queue_offset(self._log.min_offset):
                continue
            try:
                self._store.get_by_queue(topic, queue_id, newer.number - 1)
            except CorruptMessageError as error:
                self.damage.append(replace(finding_of(error), physical_offset=None))
            except FormatError as error:
                self.damage.append(finding_of(error))
            # A pre-blank entry, or it has expired.
            except MessageNotFoundError:
                continue


def _may_match(entry: QueuedEntry, hashes: Collection[int]) -> bool:
    """Return whether a message may have one of the tags, according to its entry.

    Entries of delayed messages have the due time in place of the tags code, so a delayed message may have any tag.
    """
    code = entry.tags_code
    return entry.topic == SCHEDULE_TOPIC or code in hashes or is_address(code)


@dataclass(frozen=True, slots=True)
class TailFilter:
    """A filter of messages. A message must meet all given conditions.

    Attributes:
        tags: any of these tags; empty for all messages
        begin, end: store times in milliseconds, both inclusive
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    tags: frozenset[str] = frozenset()
    begin: int | None = None
    end: int | None = None

    @property
    def has_window(self) -> bool:
        """Return whether only messages of a time window are accepted."""
        return self.begin is not None or self.end is not None

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        return self.topic in (None, topic) and self.queue_id in (None, queue_id)

    def takes(self, record: LocatedRecord) -> bool:
        """Return whether the filter accepts a message. Messages of open and rolled-back transactions are excluded."""
        # Without conditions, the message need not be decoded.
        if self == _ALL_OF_LOG:
            return True
        message = record.message()
        if not self.takes_time(message.store_timestamp) or not self._takes_queue_of(message):
            return False
        if not is_dispatched(message.sys_flag):
            return False
        properties = message.properties
        if self.tags and properties.get(TAGS) not in self.tags:
            return False
        return self.key is None or not self._spellings.isdisjoint(index_keys(properties))

    @property
    def _spellings(self) -> frozenset[str]:
        return frozenset(spellings(self.key or ""))

    def takes_time(self, time: int) -> bool:
        """Return whether the filter accepts a store time (ms)."""
        return (self.begin is None or self.begin <= time) and (self.end is None or time <= self.end)

    def _takes_queue_of(self, message: MessageExt) -> bool:
        """Return whether the message is in a requested queue.

        A message may be in further queues (INNER_MULTI_DISPATCH) besides its own. These are compared only if a topic is
        requested.
        """
        if self.takes_queue(message.topic, message.queue_id):
            return True
        if self.topic is None or _FURTHER not in message.properties_bytes:
            return False
        return any(
            self.takes_queue(topic, queue_id)
            for topic, queue_id, _ in further_queues(message.properties, message.queue_id)
        )


_ALL_OF_LOG = TailFilter()


class LogTail:
    """The end of the log of an open store.

    Attributes:
        position: physical offset after the last returned message
        damage: unreadable ranges found so far; callers may clear the list
    """

    def __init__(self, store: MessageStore, predicate: TailFilter) -> None:
        self._store, self._log, self._filter = store, store.commit_log, predicate
        self.position = self._log.min_offset
        self.damage: list[Finding] = []
        self._evidence = Evidence(self._log.source.name)
        self._notes: tuple[str, ...] = ()
        self._unsettled: MessageExt | None = None

    def last(self, count: int) -> list[MessageExt]:
        """Return the last `count` messages of the current log, oldest first. `new` continues after these messages.

        Raises StoreAccessError, StoreChangedError, UsageError.
        """
        return [record.message() for record in self.last_records(count)]

    def last_records(self, count: int) -> list[LocatedRecord]:
        """Return the messages of `last` as records."""
        self._store.check_open()
        self._log.refresh()
        entries = self._entries()
        newest = next(entries, None)
        entries = filter(self._leads_to_record, chain(() if newest is None else (newest,), entries))
        # The newest message that is both in a ConsumeQueue and in the log.
        last = next(entries, None)
        dispatched = self._log.min_offset if last is None else last.physical_offset + last.size
        records = self._behind(dispatched, count)
        self._check_end(-1 if newest is None else newest.physical_offset)
        missing = count - len(records)
        if missing > 0 and last is not None:
            records = self._before(dispatched, missing, chain((last,), entries)) + records
        self._report_bad_bodies(records)
        if count > 0:
            self._report_uncovered(records[0].physical_offset if len(records) == count else None)
        return records

    def _report_uncovered(self, cursor: int | None) -> None:
        """Report why the answer's evidence does not cover the log from the oldest message to the end."""
        self.damage += further_findings(self.coverage(cursor).unreadable, self.damage)

    def coverage(self, cursor: int | None = None) -> Coverage:
        """Return the coverage of the messages that `last` returned. `cursor` is the oldest one if there are more."""
        start = self._log.min_offset if cursor is None else cursor
        self._evidence.damage += self.damage
        limits = self._filter
        topics = None if limits.topic is None else frozenset({limits.topic})
        question = Question((), topics, limits.begin, limits.end)
        log = OffsetRange(start, max(self.position, start))
        return self._evidence.coverage(log, notes=self._notes, question=question)

    def _report_bad_bodies(self, records: Iterable[LocatedRecord]) -> None:
        """Report bodies that are damaged, or still being written."""
        for offset, data, layout in records:
            if not crc_matches(data, layout):
                self.report_wrong_crc(offset)

    def report_wrong_crc(self, offset: int) -> None:
        """Report that the body of the message at a physical offset has a wrong CRC."""
        if (file := self._log.file_at(offset)) is not None:
            detail = "the body of this message has a wrong CRC"
            self.damage.append(file.lost(offset, offset, detail, Kind.BODY_CRC))

    def new(self, *, to_the_end: bool = False) -> Iterator[MessageExt]:
        """Yield messages after `position`, in order.

        The last record of the log may not be written completely yet. It is yielded when it is complete and unchanged
        since the previous call, or immediately with `to_the_end`.

        Raises StoreAccessError, and StoreChangedError if the log now ends before `position`.
        """
        return (record.message() for record in self.new_records(to_the_end=to_the_end))

    def new_records(self, *, to_the_end: bool = False) -> Generator[LocatedRecord]:
        """Yield the messages that the method `new` would return, as records. See `new` for `to_the_end`."""
        self._store.check_open()
        self._log.refresh()
        self._check_position()
        walk = LogWalk(self._log, self.position)
        last: LocatedRecord | None = None
        try:
            for record in walk:
                if last is not None and self._filter.takes(last):
                    self._report_bad_bodies([last])
                    yield last.alone()
                self.position = record.physical_offset
                last = record
        # Report the damage even if the caller stops before the end.
        finally:
            self._tell(walk)
        if to_the_end:
            self._check_end(-1, walk.position)
        if last is not None and walk.at_end and not (to_the_end or self._is_settled(last)):
            self._unsettled = last.message()
            return
        if last is not None and self._filter.takes(last):
            self._report_bad_bodies([last])
            yield last.alone()
        self.position = walk.position

    def _check_end(self, newest_entry: int, log_end: int | None = None) -> None:
        """Report if the log has lost its newest messages: a queue or IndexFile refers to a message after the log's end.

        `newest_entry` is the highest physical offset of the queues' entries.
        """
        end = self.position if log_end is None else log_end
        lost = self._store.lost_end(end)
        if lost is None and newest_entry >= end:
            lost = lost_end(self._log.files, end, newest_entry, "a queue")
        if lost is not None:
            self.damage.append(lost)

    def _is_settled(self, last: LocatedRecord) -> bool:
        message = last.message()
        return message == self._unsettled and message.body_crc_ok

    def _check_position(self) -> None:
        folder, end = self._log.source.name, self._log.files_end
        if self.position > end:
            raise StoreChangedError(
                f"{folder}: the log ends at {end}, but was read up to {self.position} before; "
                "it was truncated or replaced, so read it again from its beginning"
            )
        if self.position < self._log.min_offset:
            self.damage.append(self._log.files[0].expired_before(self.position))

    def _tell(self, walk: LogWalk) -> None:
        self.damage += walk.damage

    def _matching(self, walk: LogWalk) -> Iterator[LocatedRecord]:
        for record in walk:
            if self._filter.takes(record):
                yield record.alone()
        self._tell(walk)

    def _behind(self, start: int, count: int) -> list[LocatedRecord]:
        """Return the last `count` messages at or after `start`, oldest first. Walk the newest file first."""
        records: list[LocatedRecord] = []
        self.position = max(start, self._log.files_end)
        for file in reversed(self._log.files):
            if file.end <= start:
                break
            begin = max(start, file.start)
            walk = LogWalk(self._log, begin, file.end)
            # Messages of an earlier file go before the messages already found.
            records[:0] = deque(self._matching(walk), maxlen=count - len(records))
            self._evidence.scanned(begin, walk.position)
            if walk.at_end:
                self.position = walk.position
            if len(records) == count and walk.position > begin:
                start = begin
                break
        self.damage += [lost for lost in self._log.holes() if lost.start >= start]
        return records

    def _before(self, stop: int, count: int, entries: Iterable[QueuedEntry]) -> list[LocatedRecord]:
        """Return the last `count` messages before `stop`, oldest first.

        `stop` is the end of the newest dispatched message, so queues and IndexFiles can lead to the messages. `entries`
        are those of the dispatched messages, newest first.
        """
        if self._filter == _ALL_OF_LOG:
            offsets = [entry.physical_offset for entry in islice(entries, count)]
            # If the queues have fewer than `count` entries, the log may still have more messages, so walk all of it.
            start = offsets[-1] if len(offsets) == count else self._log.min_offset
            walk = LogWalk(self._log, start, stop)
            records = list(deque(self._matching(walk), maxlen=count))
            self._evidence.scanned(start, walk.position)
            return records
        if self._filter.key is not None:
            return list(islice(self._by_key(stop), count))[::-1]
        limits = self._filter
        queues = QueueTail(
            self._store, limits.takes_queue, limits.begin, limits.end,
            topic=limits.topic, damage=self.damage,
        )  # fmt: skip
        records = list(islice(self._by_queue(queues, stop), count))[::-1]
        if len(records) == count:
            queues.check_next()
        start = records[0].physical_offset if len(records) == count else self._log.min_offset
        self._check_queues(start, stop)
        self._prove(OffsetRange(start, stop))
        return records

    def _prove(self, within: OffsetRange) -> None:
        """Report the evidence of the queues in a range of the log, and the damage that withdraws it."""
        limits = self._filter
        window = WindowEvidence(
            self._store, limits.takes_queue, limits.begin, limits.end, topic=limits.topic
        )
        coverage = window.coverage(within, Question())
        self._notes = window.notes
        self._evidence.answered(coverage)
        self.damage += further_findings(coverage.unreadable, self.damage)

    def _check_queues(self, start: int, stop: int) -> None:
        """Report queues that have no ConsumeQueue, although the log has messages of the queues that the filter accepts.

        The log is searched from `start` to `stop`. In a short range, all messages are read. In a longer range, only
        samples are read, so a missing ConsumeQueue of a queue with few messages may go unnoticed.
        """
        within = self._window(start, stop)
        records: Iterable[LocatedRecord]
        if within.size_bytes <= _WALKED_BYTES:
            records = LogWalk(self._log, *within)
        else:
            records = sampled_records(self._log, within, _PLACES)
        queues = set(self._store.queues.list())
        missing: dict[tuple[str, int], int] = {}
        for record in records:
            place = record.own_place()
            if place is None or (queue := place[:2]) in queues or queue in missing:
                continue
            # A topic whose name cannot be a folder has no ConsumeQueue.
            if is_folder_name(place[0]) and self._filter.takes(record):
                missing[queue] = record.physical_offset
        for queue, offset in sorted(missing.items()):
            folder = os.path.join(self._store.path, CONSUME_QUEUE_FOLDER, queue[0], str(queue[1]))
            detail = "the log has messages of this queue"
            self.damage.append(Finding(Kind.MISSING_QUEUE, folder, detail, physical_offset=offset))

    def _window(self, start: int, stop: int) -> OffsetRange:
        """Return the part of [start, stop) whose files may have messages of the requested time."""
        files, limits = self._log.files, self._filter

        def time_of(file: CommitLogFile) -> int:
            try:
                return self._log.get(file.start + file.gap).store_timestamp
            except (MessageNotFoundError, CorruptMessageError):
                return 0

        first = last = None
        if limits.begin is not None:
            # The last file that begins before the window may also have messages of the window.
            first = bisect_left(files, limits.begin, key=time_of) - 1
        if limits.end is not None:
            last = bisect_right(files, limits.end, key=time_of)
        begin = files[first].start if first is not None and first > 0 else self._log.min_offset
        end = files[last].start if last is not None and last < len(files) else stop
        begin = max(begin, start)
        return OffsetRange(begin, max(begin, min(end, stop)))

    def _by_key(self, stop: int) -> Iterator[LocatedRecord]:
        """Yield the messages with the key, newest first."""
        assert self._filter.key is not None
        cursor: int | None = stop
        while cursor is not None:
            result = self._store.find_records(
                self._filter.topic, self._filter.key, self._filter.begin, self._filter.end,
                limit=_PAGE, after=cursor, any_case=True,
            )  # fmt: skip
            # Before the records, because a caller that has enough of them asks for no more.
            self._evidence.answered(result.coverage)
            yield from filter(self._filter.takes, result.records)
            self.damage += result.coverage.unreadable
            cursor = result.cursor

    def _by_queue(self, queues: QueueTail, stop: int) -> Iterator[LocatedRecord]:
        """Yield the messages of the queues, newest first."""
        queues.check_ends(stop)
        for record in queues.records(stop, self._filter.tags):
            if self._filter.takes(record):
                yield record.alone()

    def _entries(self) -> Iterator[QueuedEntry]:
        """Yield entries of all queues, newest first, one per message."""
        # A message may have entries in several queues. Yield only the first of them.
        offset = -1
        for entry in QueueTail(self._store, lambda topic, queue_id: True).entries():
            if entry.physical_offset != offset:
                offset = entry.physical_offset
                yield entry

    def _leads_to_record(self, entry: QueuedEntry) -> bool:
        try:
            record = self._log.locate(entry.physical_offset, entry.size)
        except (MessageNotFoundError, CorruptMessageError):
            return False
        return record.layout.total_bytes == entry.size
