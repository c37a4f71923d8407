"""The last messages of queues, newest first, and what is wrong with the queues on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from typing import NamedTuple

from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, StoreNotFoundError
from reput.findings import Finding, Kind
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry
from reput.format.consume_queue_ext import is_address
from reput.format.java_string import hash_code
from reput.format.properties import LMQ_PREFIX, SCHEDULE_TOPIC
from reput.log.queued_record import (
    further_places,
    is_dispatched,
    is_restarted,
    may_skew,
    queue_offset_in,
)
from reput.log.reader import LocatedRecord
from reput.log.walk import LogWalk
from reput.query.message_store import MessageStore
from reput.queues.queue_index import LostEntriesError

_FIRST_ENTRIES, _MOST_ENTRIES = 32, 4096


class QueuedEntry(NamedTuple):
    """An entry, and the place of the queue where it stands.

    unnumbered  queue offsets before the next entry's that have no entry of their own (batches, 5.x)
    """

    physical_offset: int
    size: int
    tags_code: int
    topic: str
    queue_id: int
    queue_offset: int
    unnumbered: int = 0


class _Read(NamedTuple):
    """An entry whose record was read: its number, the queue offset that the record states, where it lies."""

    number: int
    stated: int
    physical_offset: int


class QueueTail:
    """The queues of a store from their ends back.

    damage  what is wrong with entries, and messages that they lead to
    """

    def __init__(
        self,
        store: MessageStore,
        takes_queue: Callable[[str, int], bool],
        begin: int | None = None,
        end: int | None = None,
    ) -> None:
        """Entries of messages stored before `begin` or after `end` may be left out."""
        self._store, self._log, self._takes_queue = store, store.commit_log, takes_queue
        self._begin, self._end = begin, end
        self.damage: list[Finding] = []
        self._newer: dict[tuple[str, int], _Read] = {}

    def entries(self) -> Iterator[QueuedEntry]:
        """Entries of the queues, newest first; nothing says that their records are there."""
        queues = [
            self._entries_back(topic, queue_id)
            for topic, queue_id in self._store.queues.list()
            if self._takes_queue(topic, queue_id)
        ]
        return merge(*queues, key=lambda entry: -entry.physical_offset)

    def records(self, stop: int, tags: Collection[str]) -> Iterator[LocatedRecord]:
        """Records before `stop` that may have one of these tags, newest first, each once.

        An entry that leads to a record of another queue is reported, and so are queue offsets that are missing or
        come twice.
        """
        hashes = {hash_code(tag) for tag in tags}
        expected: dict[tuple[str, int], int] = {}
        offset = -1  # a message may be in several queues
        for entry in self.entries():
            if entry.physical_offset >= stop:
                continue
            queue = entry.topic, entry.queue_id
            if entry.unnumbered and queue in expected:
                expected[queue] -= entry.unnumbered
            if hashes and not _may_match(entry, hashes):
                if queue in expected:
                    expected[queue] -= 1
                continue
            record = self._read(entry)
            if record is None or not self._follows(entry, record, expected):
                continue
            if entry.physical_offset != offset:
                offset = entry.physical_offset
                yield record

    def check_ends(self) -> None:
        """Report queues that end although the log has later messages of them."""
        for topic, queue_id in self._store.queues.list():
            if self._takes_queue(topic, queue_id):
                try:
                    self._store.check_end(topic, queue_id)
                except FormatError as error:
                    self.damage.append(Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error))
                except MessageNotFoundError:  # expired since it was listed
                    continue

    def _read(self, entry: QueuedEntry) -> LocatedRecord | None:
        try:
            return self._log.locate(entry.physical_offset, entry.size)
        except (MessageNotFoundError, CorruptMessageError) as error:
            at, file = entry.physical_offset, self._log.file_at(entry.physical_offset)
            if file is not None:  # has not expired
                reason = getattr(error, "reason", "no message begins there")
                self.damage.append(file.lost(at, at + entry.size, reason))
            return None

    def _follows(
        self, entry: QueuedEntry, record: LocatedRecord, expected: dict[tuple[str, int], int]
    ) -> bool:
        """Whether a record belongs where its entry stands; `expected` are the queue offsets that come next."""
        queue = entry.topic, entry.queue_id
        stated = queue_offset_in(record, *queue)
        if stated is None or record.layout.total_bytes != entry.size:
            reason = "the entry leads to a message that is not its own"
            self._report(Kind.FOREIGN_QUEUE_ENTRY, entry, reason)
            return False
        if is_restarted(record, entry.topic, stated):
            expected.pop(queue, None)
            return True
        awaited = expected.get(queue)
        if awaited not in (None, stated) and self._is_skewed(entry, record, stated):
            awaited = stated
        if awaited is not None and stated > awaited:
            reason = "the entry leads to a message that is in the queue already"
            self._report(Kind.FOREIGN_QUEUE_ENTRY, entry, reason)
            return False
        if awaited is not None and stated < awaited:
            reason = f"messages are missing after it, queue offsets {stated + 1} to {awaited}"
            self._report(Kind.MISSING_QUEUE_ENTRY, entry, reason)
        expected[queue] = stated - 1
        self._newer[queue] = _Read(entry.queue_offset, stated, entry.physical_offset)
        return True

    def _is_skewed(self, entry: QueuedEntry, record: LocatedRecord, stated: int) -> bool:
        """Whether it is a broker's doing that the queue offsets of a light queue do not follow each other here."""
        queue = entry.topic, entry.queue_id
        newer = self._newer.get(queue)
        if newer is None or not entry.topic.startswith(LMQ_PREFIX):
            return False
        taken = passed = 0
        begin = entry.physical_offset + record.layout.total_bytes
        for between in LogWalk(self._log, begin, newer.physical_offset):
            if any((topic, id_) == queue for topic, id_, _ in further_places(between)):
                passed += is_dispatched(between.layout.sys_flag)
                taken += not is_dispatched(between.layout.sys_flag)
        follows = passed == newer.number - entry.queue_offset - 1
        before, after = stated - entry.queue_offset, newer.stated - newer.number
        return follows and may_skew(before, after, taken)

    def _report(self, kind: Kind, entry: QueuedEntry, reason: str) -> None:
        folder = self._store.queues.queue(entry.topic, entry.queue_id).folder
        self.damage.append(Finding(kind, folder, f"queue offset {entry.queue_offset}: {reason}"))

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return queue offsets [least, stop) that hold all messages of the window."""
        queue = self._store.queues.queue(topic, queue_id)
        least, stop = queue.min_queue_offset(self._log.min_offset), queue.max_queue_offset()
        try:
            if self._end is not None:
                stop = min(stop, self._store.end_offset_by_time(topic, queue_id, self._end))
            if self._begin is not None:
                first = self._store.offset_by_time(topic, queue_id, self._begin, check=False)
                least = max(least, queue.span(first)[0] if first < stop else first)
        except (CorruptMessageError, FormatError, MessageNotFoundError):
            pass  # the times of a damaged queue do not say where to begin: read all of it
        return least, stop

    def _entries_back(self, topic: str, queue_id: int) -> Iterator[QueuedEntry]:
        """Entries of a queue, newest first, as far as they have not expired."""
        queue = self._store.queues.queue(topic, queue_id)
        least, stop = self._bounds(topic, queue_id)
        step = _FIRST_ENTRIES
        newer: int | None = None  # the queue offset of the entry that comes next
        while least < stop:
            start = max(stop - step, least)
            found: list[tuple[int, ConsumeQueueEntry | None]] = []  # None where some are lost
            position = start
            while position < stop:
                try:
                    for number, entry in queue.numbered(position, stop):
                        found.append((number, entry))
                        position = max(position, number + 1)
                    break
                except (StoreNotFoundError, MessageNotFoundError):
                    return
                except LostEntriesError as error:
                    if error.resume_offset <= stop:  # else it was reported with those that follow
                        self.damage.append(Finding.of_error(Kind.QUEUE_GAP, error))
                    position = max(error.resume_offset, position + 1)
                    found.append((position, None))
            for number, entry_there in reversed(found):
                if entry_there is not None and entry_there != PRE_BLANK:
                    unnumbered = 0 if newer is None else newer - number - 1
                    yield QueuedEntry(*entry_there, topic, queue_id, number, unnumbered)
                newer = None if entry_there is None else number
            stop = queue.span(start)[0]  # a batch may begin before `start`
            step = min(2 * step, _MOST_ENTRIES)
        try:
            self._store.check_begin(topic, queue_id)
        except FormatError as error:
            self.damage.append(Finding.of_error(Kind.MISSING_QUEUE_ENTRY, error))
        except MessageNotFoundError:  # expired meanwhile
            return


def _may_match(entry: QueuedEntry, hashes: Collection[int]) -> bool:
    """Whether a message may have one of the tags; where it waits for its time, that stands in their place."""
    code = entry.tags_code
    return entry.topic == SCHEDULE_TOPIC or code in hashes or is_address(code)
