"""Find messages of a queue in the log after the end of its ConsumeQueue, before its beginning, or in its gaps.

A queue whose last entries were zeroed, or whose last file was cut off, looks like a queue without new messages. But the
log has later messages of the queue. So the log is read from the queue's last message, up to a limited number of bytes
(the allowance). A message without an entry is damage, unless an owner is at work that has not dispatched it: no later
message, of any queue, has an entry yet.

A queue whose first file is lost or empty looks like a queue whose first messages have expired. If the remaining files
begin with entries of expired messages, the first messages have indeed expired. If not, the log is walked from its
beginning to the message of the first entry, with the same allowance. If the walk finds an earlier message of the queue,
entries are lost.

Pre-blank entries in the middle of a queue (a gap) usually mean that the log has lost their messages. To check this, the
log is walked between the messages of the entries before and after the gap. If the walk finds a message that belongs in
the gap, the message's entry was lost, and the gap is damage.

Messages name further queues in the property INNER_MULTI_DISPATCH. The map of known ranges has only the queues of the
messages themselves, because the properties of all messages take much longer to read. So a question about a light topic
(%LMQ%) without queues scans the messages of its window.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from reput.base import Finding, Kind
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.verdict import DispatchRules, ScanMode
from reput.core.log.walk import LogWalk, sampled_records
from reput.core.queues.kinds import is_light
from reput.core.queues.queue_index import LostEntriesError, QueueReader, check_order
from reput.core.store.store_reader import StoreReader
from reput.errors import (
    CorruptMessageError,
    FormatError,
    MessageNotFoundError,
    StoreError,
    StoreNotFoundError,
)
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.format.properties import LMQ_PREFIX, lite_topic_of

# The allowance is the number of log bytes that the checks of all queues may read. It is limited, and refilled over
# time. Otherwise, clients that poll idle queues would keep the disk busy.
_FIRST_ALLOWANCE_BYTES = 16 << 20
_ALLOWANCE_BYTES_PER_S = 2 << 20
_MOST_BYTES_A_LOOK = 4 << 20
# Maximum number of log bytes that one call of `check_gap` reads.
_MOST_GAP_BYTES = 256 << 20
_ENTRIES_BACK = 512
# Number of queues that are remembered, which bounds the memory.
_MOST_QUEUES = 1 << 12
# If the allowance is too small, files without remembered results are scanned up to this size together, which takes half
# a second, and results of this many files are read.
_MOST_SCANNED_BYTES, _MOST_READ = 256 << 20, 128
# Number of records that are read after a message to decide whether it was dispatched.
_RECORDS_AFTER = 64
# Dispatch writes one queue after the other. So a message may lack its entry for a moment, although later messages of
# other queues already have their entries. Before a missing entry is reported, wait this long, this many times.
_PATIENCE_S, _ROUNDS = 0.05, 20
# A scan for light topics of this many bytes takes about a second. In a longer log, messages at this many places are
# read.
_MOST_LIGHT_BYTES, _PLACES = 256 << 20, 64
# Number of light topics that are remembered, which bounds the memory.
_MOST_TOPICS = 1 << 16


class LostQueueError(FormatError):
    """Raised if the log has messages of a queue that does not exist, or has no entries."""


class QueueEnds:
    """Remembers how far the log was walked for each queue. Only one thread at a time may use it."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        # For each queue: its end, where the walk continues, and the lowest queue offset of a message without an entry.
        self._walked: OrderedDict[tuple[str, int], tuple[int, int, int]] = OrderedDict()
        # For each queue, a part of the log after its last message that could not be read.
        self._unread: OrderedDict[tuple[str, int], OffsetRange] = OrderedDict()
        self._begun: OrderedDict[tuple[str, int], tuple[int, int]] = OrderedDict()
        # For each queue, the gap (queue offsets with pre-blank entries) that was checked last. The check found no
        # message in the log that belongs in this gap.
        self._gaps: OrderedDict[tuple[str, int], range] = OrderedDict()
        # For each gap (topic, queue id, first queue offset of the gap) that was only partly checked, the physical
        # offset at which the search for its messages continues.
        self._searched: OrderedDict[tuple[str, int, int], int] = OrderedDict()
        # Queues that were found to lack their last entries, with their ends.
        self._short: OrderedDict[tuple[str, int, int], None] = OrderedDict()
        self._light = LightTopics(store)
        # Queues that were found to be lost.
        self._missing: set[tuple[str, int]] = set()
        self._allowance, self._refilled = float(_FIRST_ALLOWANCE_BYTES), time.monotonic()

    def check_missing(self, topic: str, queue_id: int) -> None:
        """Raise LostQueueError if the log has messages of this queue, but the queue does not exist, or is empty."""
        place = topic, queue_id
        if self._count(*place):
            return
        # The map of queues, from which the store knows its lost queues, lacks light queues.
        is_lost = self._store.has_lost(*place)
        if not is_lost and (not self._light.has(topic) or self._store.queues.list(topic)):
            return
        if place not in self._missing and self._store.is_live:
            # The queue's first messages may just be dispatched.
            for _ in range(_ROUNDS):
                time.sleep(_PATIENCE_S)
                if self._count(*place):
                    return
        self._missing.add(place)
        folder = os.path.join(self._store.path, CONSUME_QUEUE_FOLDER, topic, str(queue_id))
        reason = "the CommitLog has messages of this queue, but the queue is lost; rebuild the ConsumeQueues"
        raise LostQueueError(folder, 0, reason)

    def _count(self, topic: str, queue_id: int) -> int:
        """Return the end of a queue, 0 for a missing one."""
        with suppress(MessageNotFoundError):
            return self._store.queues.queue(topic, queue_id).max_queue_offset()
        return 0

    def check(self, topic: str, queue_id: int) -> None:
        """Raise FormatError if the message of the queue's last entry, or the entry of a later message, is lost."""
        queue = self._store.queues.queue(topic, queue_id)
        if end := queue.max_queue_offset():
            self._check_last(queue, topic, queue_id, end)
        self._check_later(queue, topic, queue_id, end, None)

    def check_later(self, topic: str, queue_id: int, before: int | None = None) -> bool:
        """Raise FormatError if the log contains a message of this queue that follows the queue's last entry.

        A message that begins at or after the physical offset `before` does not count. Return whether the log was
        searched to its end.
        """
        queue = self._store.queues.queue(topic, queue_id)
        return self._check_later(queue, topic, queue_id, queue.max_queue_offset(), before)

    def _check_later(
        self, queue: QueueReader, topic: str, queue_id: int, end: int, before: int | None
    ) -> bool:
        if not end:
            self.check_missing(topic, queue_id)
        missing, is_over = self._find(topic, queue_id, end)
        if missing is None:
            self._check_unread(queue, topic, queue_id, end, before)
            return is_over
        if before is not None and missing.physical_offset >= before:
            return is_over
        # Only an owner dispatches the newest messages. Without one, nothing will write their entries.
        if self._store.is_live and not self._is_dispatched(missing):
            return True
        if (topic, queue_id, end) not in self._short:
            for _ in range(_ROUNDS):
                if self._end(topic, queue_id) > end:
                    return True
                time.sleep(_PATIENCE_S)
        # The owner may still write the entries of this batch, one queue after the other: a slow disk takes longer than
        # this check waits. It indexes a batch after all its queues. So look at the index first, then at the queue.
        is_certain = self._is_indexed(missing) or not self._store.is_live
        if not is_certain or self._end(topic, queue_id) > end:
            return True
        self._short[topic, queue_id, end] = None
        if len(self._short) > _MOST_QUEUES:
            self._short.popitem(last=False)
        reason = (
            f"the queue ends before queue offset {end}, but the CommitLog has a later message of "
            f"it at offset "
            f"{missing.physical_offset}; rebuild the ConsumeQueues"
        )
        raise FormatError(queue.folder, end * ENTRY_BYTES, reason)

    def _check_unread(
        self, queue: QueueReader, topic: str, queue_id: int, end: int, before: int | None
    ) -> None:
        """Raise FormatError if messages of this queue may be in a part of the log that cannot be read.

        If any queue has an entry after this part, the part was dispatched before it was damaged, and the queues have
        entries for its messages.
        """
        lost = self._unread.get((topic, queue_id))
        if lost is None or self._store.is_live or (before is not None and lost.start >= before):
            return
        if self._store.newest_queued() >= lost.stop:
            del self._unread[topic, queue_id]
            return
        reason = (
            f"the queue ends before queue offset {end}, and may have messages in a part of the CommitLog that cannot "
            f"be read, from {lost.start} to {lost.stop}; no queue has an entry for a later message"
        )
        raise FormatError(queue.folder, end * ENTRY_BYTES, reason)

    def _end(self, topic: str, queue_id: int) -> int:
        """Return the queue's end now. An open reader does not list the files that were created since."""
        return self._store.queues.queue(topic, queue_id).max_queue_offset()

    def _check_last(self, queue: QueueReader, topic: str, queue_id: int, end: int) -> None:
        """Raise FormatError if the message of the last entry is after the end of the log."""
        log = self._store.commit_log
        try:
            offset, size = queue.entry(end - 1)[:2]
        except (MessageNotFoundError, FormatError):
            # The last entry is missing or damaged. A pull of this entry reports that.
            return
        try:
            if log.locate(offset, size).queue_offset_in(topic, queue_id) is None:
                self._check_foreign(queue, end - 1, offset)
            return
        except CorruptMessageError:
            # The message is damaged. A pull of this message reports that.
            return
        except MessageNotFoundError:
            if offset < log.min_offset:
                # The message has expired.
                return
        reason = (
            f"the newest message of the queue was at physical offset {offset}, but the CommitLog "
            f"has no message there; the newest messages are lost"
        )
        raise FormatError(queue.folder, (end - 1) * ENTRY_BYTES, reason)

    def _check_foreign(self, queue: QueueReader, queue_offset: int, physical_offset: int) -> None:
        """Raise FormatError if the newest entry still leads to a message of another queue, and is not half written."""
        time.sleep(_PATIENCE_S)
        with suppress(MessageNotFoundError):
            if queue.entry(queue_offset).physical_offset == physical_offset:
                reason = "the newest entry leads to a message of another queue; rebuild the ConsumeQueues"
                raise FormatError(queue.folder, queue_offset * ENTRY_BYTES, reason)

    def _find(self, topic: str, queue_id: int, end: int) -> tuple[LocatedRecord | None, bool]:
        """Search the log for the queue's first message after its last entry. Return it, and whether the search is over.

        The walk may stop early, because all checks share a limited number of bytes to read (the allowance). What scans
        have shown leads over the rest.
        """
        log = self._store.commit_log
        known_end, position, least = self._walked.get((topic, queue_id), (-1, 0, 0))
        # The remembered position is valid only for the remembered end. If the queue has another end now, begin after
        # its last message.
        if known_end != end:
            self._unread.pop((topic, queue_id), None)
            position, least = self._end_of_last(topic, queue_id, end)
        start = max(position, log.min_offset)
        record, walk = self._walk(topic, queue_id, start, least)
        if record is None and not walk.at_end:
            start = self._skip_scanned(topic, queue_id, end, walk.position)
            record, walk = self._walk(topic, queue_id, start, least)
        # If a message was found, the walk is still at the beginning of this message, so the next check finds it again.
        self._walked[topic, queue_id] = end, walk.position, least
        self._walked.move_to_end((topic, queue_id))
        if len(self._walked) > _MOST_QUEUES:
            self._walked.popitem(last=False)
        return record, record is not None or walk.at_end

    def _walk(
        self, topic: str, queue_id: int, start: int, least: int
    ) -> tuple[LocatedRecord | None, LogWalk]:
        """Walk from `start`, up to the allowance, to the first message that states at least `least`. Return both."""
        log = self._store.commit_log
        stop = min(log.files_end, start + self._take_allowance(log.files_end - start))
        walk = LogWalk(log, start, stop)
        match = None
        for record in walk:
            record_offset = record.queue_offset_in(topic, queue_id)
            if record_offset is not None and record_offset >= least:
                match = record
                break
        self._allowance -= max(walk.position - start, 0)
        self._keep_unread(topic, queue_id, walk.damage)
        return match, walk

    def _keep_unread(self, topic: str, queue_id: int, damage: Iterable[Finding]) -> None:
        for lost in damage:
            before = self._unread.get((topic, queue_id), OffsetRange(lost.start, lost.stop))
            joint = OffsetRange(min(before.start, lost.start), max(before.stop, lost.stop))
            self._unread[topic, queue_id] = joint
            if len(self._unread) > _MOST_QUEUES:
                self._unread.popitem(last=False)

    def _skip_scanned(self, topic: str, queue_id: int, end: int, start: int) -> int:
        """Return the first position from `start` on after which messages of the queue may lack entries.

        Files whose queues no scan has collected yet are scanned if they are short. The map of queues lacks light
        queues, which only properties of messages name.
        """
        store = self._store
        if is_light(topic):
            return start
        files = [file for file in store.commit_log.files if file.end > start]
        most = _MOST_SCANNED_BYTES if store.commit_log.source.is_local else 0
        for file in files[:_MOST_READ]:
            facts = store.known_ranges.known(file)
            if facts is None or facts.queues is None:
                most -= file.size
                if most < 0:
                    return start
                facts = store.known_ranges.learn(file, with_queues=True)
            self._keep_unread(topic, queue_id, facts.damage)
            last_offsets = [
                queue.last for queue in facts.queues or () if queue[:2] == (topic, queue_id)
            ]
            if max(last_offsets, default=-1) >= end:
                return start
            start = max(start, facts.stop)
            if start < file.end:
                return start
        return start

    def check_begin(self, topic: str, queue_id: int) -> None:
        """Raise FormatError if the log contains a message of this queue that precedes the queue's first entry."""
        log, queue = self._store.commit_log, self._store.queues.queue(topic, queue_id)
        least = queue.min_queue_offset(log.min_offset)
        # In light queues (LMQ), queue offsets restart at 0 with each start of the broker.
        if least <= 0 or topic.startswith(LMQ_PREFIX):
            return
        if least > (most := queue.max_queue_offset()):
            reason = f"the queue begins with queue offset {least}, but ends before {most}; rebuild the ConsumeQueues"
            raise FormatError(queue.folder, 0, reason)
        # A wrong entry may have hidden the entries before it.
        check_order(queue, least)
        try:
            stop = queue.entry(least).physical_offset
        except (MessageNotFoundError, FormatError):
            # The first entry is missing or damaged. A pull of this entry reports that.
            return
        with suppress(MessageNotFoundError, FormatError):
            queue.entry(least - 1)
            # The queue still has the entry before `least`, which belongs to an expired message. So at the queue's
            # beginning, no entry of a remaining message is missing.
            return
        known_least, position = self._begun.get((topic, queue_id), (-1, 0))
        start = max(position if known_least == least else 0, log.min_offset)
        walk = LogWalk(log, start, min(stop, start + self._take_allowance(stop - start)))
        for record in walk:
            record_offset = record.queue_offset_in(topic, queue_id)
            if record_offset is not None and record_offset < least:
                reason = (
                    f"the queue begins with queue offset {least}, but the CommitLog has an "
                    f"earlier message of it, "
                    f"queue offset {record_offset} at offset {record.physical_offset}; rebuild the "
                    f"ConsumeQueues"
                )
                raise FormatError(queue.folder, record_offset * ENTRY_BYTES, reason)
        self._allowance -= max(walk.position - start, 0)
        self._begun[topic, queue_id] = least, walk.position
        if len(self._begun) > _MOST_QUEUES:
            self._begun.popitem(last=False)

    def check_gap(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the first queue offset, from `queue_offset` on, whose entry is not pre-blank.

        The pre-blank entries before it are a gap. Raises LostEntriesError if the log has a message that belongs in the
        gap. One call searches only a part of a long log. If the search is not complete, LostEntriesError is raised as
        well, and the next call continues the search. Light queues are not checked: their entries may be pre-blank
        because a rebuild could not determine the queue offsets of the messages.
        """
        gap = self._gaps.get((topic, queue_id), range(0))
        if queue_offset in gap:
            return gap.stop
        log, queue = self._store.commit_log, self._store.queues.queue(topic, queue_id)
        stop, log_stop = queue_offset, log.files_end
        for number, entry in queue.numbered(queue_offset, queue.max_queue_offset()):
            if entry != PRE_BLANK:
                log_stop = entry.physical_offset
                break
            stop = number + 1
        if stop == queue_offset or topic.startswith(LMQ_PREFIX):
            return stop
        first, start = self._before_gap(queue, queue_offset)
        place = topic, queue_id, first
        # Continue where an earlier call stopped.
        start = max(start, self._searched.pop(place, start))
        walk = LogWalk(log, start, min(log_stop, start + _MOST_GAP_BYTES))
        for record in walk:
            record_offset = record.queue_offset_in(topic, queue_id)
            if record_offset is not None and first <= record_offset < stop:
                reason = (
                    f"the entries of queue offsets {first} to {stop - 1} are pre-blank, but the "
                    f"CommitLog has queue offset {record_offset} at offset {record.physical_offset}; "
                    f"rebuild the ConsumeQueues"
                )
                raise LostEntriesError(queue.folder, first * ENTRY_BYTES, reason, stop)
        if start < walk.position < log_stop and walk.position >= start + _MOST_GAP_BYTES:
            self._searched[place] = walk.position
            if len(self._searched) > _MOST_QUEUES:
                self._searched.popitem(last=False)
            reason = (
                f"the entries of queue offsets {first} to {stop - 1} are pre-blank; whether the "
                f"CommitLog has their messages is not known yet: it was searched to offset "
                f"{walk.position} of {log_stop}; repeat the request"
            )
            raise LostEntriesError(queue.folder, first * ENTRY_BYTES, reason, stop)
        self._gaps[topic, queue_id] = range(first, stop)
        self._gaps.move_to_end((topic, queue_id))
        if len(self._gaps) > _MOST_QUEUES:
            self._gaps.popitem(last=False)
        return stop

    def _before_gap(self, queue: QueueReader, queue_offset: int) -> tuple[int, int]:
        """Return the first queue offset of a gap, and where the message before the gap ends in the log.

        The gap contains `queue_offset`.
        """
        log = self._store.commit_log
        least, stop = queue.min_queue_offset(log.min_offset), queue_offset
        while stop > least:
            begin = max(stop - _ENTRIES_BACK, least)
            # If entries in this range are lost, continue with the range before it.
            with suppress(LostEntriesError):
                for number, entry in reversed(list(queue.numbered(begin, stop))):
                    if entry != PRE_BLANK:
                        return number + 1, self._end_of(entry)
            stop = begin
        return min(least, queue_offset), log.min_offset

    def _end_of(self, entry: ConsumeQueueEntry) -> int:
        """Return where an entry's message ends in the log. If it cannot be read, return where it begins."""
        try:
            record = self._store.commit_log.locate(entry.physical_offset, entry.size)
        except StoreError:
            return entry.physical_offset
        return record.physical_offset + record.layout.total_bytes

    def _take_allowance(self, wanted_bytes: int) -> int:
        now = time.monotonic()
        self._allowance += (now - self._refilled) * _ALLOWANCE_BYTES_PER_S
        self._allowance = min(self._allowance, _FIRST_ALLOWANCE_BYTES)
        self._refilled = now
        # Also limit the bytes of each search. Otherwise, one poll of an idle queue could use up the allowance, which
        # all queues share.
        return max(min(wanted_bytes, int(self._allowance), _MOST_BYTES_A_LOOK), 0)

    def _end_of_last(self, topic: str, queue_id: int, end: int) -> tuple[int, int]:
        """Return where the queue's last message ends in the log, and the lowest queue offset of a later message.

        Later messages lack an entry whatever they state, because a queue offset may be given twice. If the last message
        cannot be read, return the log's beginning and the queue's end: then only the queue offset shows which messages
        are later.
        """
        try:
            entry = self._store.queues.queue(topic, queue_id).entry(end - 1)
            record = self._store.commit_log.locate(entry.physical_offset, entry.size)
        except StoreError:
            return self._store.commit_log.min_offset, end
        stop = record.physical_offset + record.layout.total_bytes
        return stop, end if record.queue_offset_in(topic, queue_id) is None else 0

    def _is_dispatched(self, missing: LocatedRecord) -> bool:
        """Return whether dispatch has passed this message: its queue or the index has a later message."""
        offset = missing.physical_offset
        walk = LogWalk(self._store.commit_log, offset)
        for number, record in enumerate(walk):
            if record.physical_offset > offset and self._is_queued(record):
                return True
            if number == _RECORDS_AFTER:
                break
        return self._is_indexed(missing)

    def _is_indexed(self, missing: LocatedRecord) -> bool:
        """Return whether the index has this message or a later one."""
        return any(
            file.header().end_physical_offset >= missing.physical_offset
            for file in self._store.index.current()[-1:]
        )

    def _is_queued(self, record: LocatedRecord) -> bool:
        place = record.own_place()
        if place is None:
            return False
        topic, queue_id, queue_offset = place
        try:
            entry = self._store.queues.queue(topic, queue_id).entry(queue_offset)
        except (MessageNotFoundError, FormatError):
            return False
        return entry.physical_offset == record.physical_offset


def lost_light_queue(
    store: StoreReader, topic: str, ranges: Sequence[OffsetRange]
) -> Finding | None:
    """Return a finding if messages in ranges of the log name a queue of a light topic, or may name one.

    Each range lies in one file and begins at a record. Raises StoreAccessError, StoreChangedError.
    """
    folder = os.path.join(store.path, CONSUME_QUEUE_FOLDER, topic)
    if sum(part.size_bytes for part in ranges) > _MOST_LIGHT_BYTES:
        unknown = "there is no such queue, and too much of the log to search for its messages"
        return Finding(Kind.MISSING_QUEUE, folder, unknown)
    if any(topic in named for named in _topics_in(store, ranges)):
        detail = "the log has messages of this queue"
        if lite_topic_of(topic) is not None:
            detail += ", which a broker deletes when the Lite topic expires"
        return Finding(Kind.MISSING_QUEUE, folder, detail)
    return None


def _topics_in(store: StoreReader, ranges: Sequence[OffsetRange]) -> Iterator[set[str]]:
    """Yield the topics of the further queues of messages in ranges of the log, batch by batch."""
    # Import this late, because most questions need no kernels.
    from reput.core.log.scan import FileScan

    log, rules = store.commit_log, DispatchRules(multi_dispatch=True, lmq=True)
    for start, stop in ranges:
        if (file := log.file_at(start)) is None:
            continue
        scan = FileScan(
            file, start, stop, ScanMode.READER_SALVAGE, rules, open_file=log.source.open
        )
        with suppress(StoreNotFoundError):  # The file has expired meanwhile.
            for batch in scan.batches():
                yield {batch.queues[number].topic for number in batch.multi["queue"].tolist()}


class LightTopics:
    """The light topics that messages of a log name. Each part of the log is scanned once; a long log is sampled."""

    def __init__(self, store: StoreReader) -> None:
        self._store, self._until = store, 0
        self._topics: set[str] = set()
        self._sampled: tuple[CommitLogFile, ...] = ()

    def has(self, topic: str) -> bool:
        """Return whether the log is known to name this light topic.

        If too much of the log would have to be scanned, only messages at some places are read.

        Raises StoreAccessError, StoreChangedError.
        """
        store, log = self._store, self._store.commit_log
        if not is_light(topic) or store.has_all_entries or not log.files:
            return False
        end = store.known_ranges.end()
        ranges = [part for _, part in log.parts(self._until, end)]
        if sum(part.size_bytes for part in ranges) > _MOST_LIGHT_BYTES:
            if self._sampled != log.files:
                self._sampled = log.files
                self._add(_topics_at(log, OffsetRange(log.min_offset, end)))
            return topic in self._topics
        for topics in _topics_in(store, ranges):
            self._add(topics)
        self._until = max(self._until, end)
        return topic in self._topics

    def _add(self, topics: set[str]) -> None:
        if len(self._topics) < _MOST_TOPICS:
            self._topics |= topics


def _topics_at(log: CommitLogReader, within: OffsetRange) -> set[str]:
    """Return the topics of the further queues of messages at some places."""
    # Each place of a remote log takes a request over the network.
    if not log.source.is_local:
        return set()
    records = sampled_records(log, within, _PLACES)
    return {topic for record in records for topic, *_ in record.further_places()}
