"""Read consecutive messages of a queue, filtered by tags (`DefaultMessageStore.getMessage`, 4.9.3).

A store that another process writes is read without a lock. An entry is trusted if its message exists, has the entry's
size, and states this queue and this position. The newest entry may be half written, so its tags are taken from the
message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, UsageError
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry
from reput.format.consume_queue_ext import is_address
from reput.format.java_string import hash_code
from reput.format.properties import LMQ_PREFIX, SCHEDULE_TOPIC, TAGS
from reput.log.keyed_record import read_properties, store_timestamp
from reput.log.queued_record import is_restarted, own_place, queue_offset_in
from reput.log.reader import LocatedRecord
from reput.log.walk import LogWalk
from reput.query.answers import PullStatus
from reput.queues.by_time import QueueTimes
from reput.queues.queue_index import QueueReader
from reput.store.store_reader import StoreReader

_TAG_SEPARATOR = "||"
_ALL = "*"
_NO_ENTRY: tuple[int, ConsumeQueueEntry | None] = (-1, None)
# One pull examines at most this many entries, whether they match or not.
_MOST_ENTRIES = 1 << 14
# Pause before a half-written entry is read again.
_PATIENCE_S = 0.001
# At most this many bytes of the log are searched for messages that are missing between two entries of a queue.
_MOST_WALKED_BYTES = 4 << 20


class QueuePlace(NamedTuple):
    """A queue, and a queue offset in it."""

    topic: str
    queue_id: int
    queue_offset: int


class Pulled(NamedTuple):
    """The common content of PullResult and PulledRecords."""

    status: PullStatus
    records: list[LocatedRecord]
    next_begin_offset: int
    min_offset: int
    max_offset: int


def pull(
    store: StoreReader,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    tags: str | None,
    max_bytes: int | None,
    check_gap: Callable[[str, int, int], int],
) -> Pulled:
    """Pull as MessageStore.pull_records does. Also raises MessageNotFoundError if files expire meanwhile.

    For `check_gap` see QueueEnds.
    """
    if max_messages < 1:
        raise UsageError(
            f"max_messages must be at least 1, not {max_messages}", arguments=["max_messages"]
        )
    wanted = wanted_tags(tags)
    queue = store.queues.queue(topic, queue_id)
    least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
    if queue_offset < least:
        return Pulled(PullStatus.OFFSET_TOO_SMALL, [], least, least, most)
    if queue_offset > most:
        # `DefaultMessageStore.getMessage` corrects OFFSET_OVERFLOW_BADLY in this way in a queue that begins at 0.
        end = most if least else 0
        return Pulled(PullStatus.OFFSET_TOO_LARGE, [], end, least, most)
    # Entries of the schedule topic have the delivery time in place of the tags code.
    hashes = {hash_code(tag) for tag in wanted} if topic != SCHEDULE_TOPIC else set()
    # In a batch queue (5.x), one entry covers several queue offsets.
    newest, position, size_bytes = queue.span(most - 1)[0], queue_offset, 0
    records: list[LocatedRecord] = []
    gap_stop = 0
    entries = queue.numbered(queue_offset, min(most, queue_offset + _MOST_ENTRIES))
    while len(records) < max_messages:
        try:
            number, entry = next(entries, _NO_ENTRY)
            if entry is None:
                break
            is_newest = number == newest
            # A pre-blank entry leads to no message. Only a search of the log shows whether the log has the message that
            # belongs there.
            if entry == PRE_BLANK:
                if number >= gap_stop:
                    gap_stop = check_gap(topic, queue_id, number)
            # The newest entry may be half written, so read its message even if its tags code does not match.
            elif is_newest or _may_match(entry.tags_code, hashes):
                place = QueuePlace(topic, queue_id, number)
                record = _read(store, queue, place, entry, is_newest)
                if record is None and is_newest:
                    break
                if record is not None and _has_tag(record, wanted):
                    size_bytes += record.layout.total_bytes
                    if records and max_bytes is not None and size_bytes > max_bytes:
                        break
                    records.append(record)
        # The file has expired meanwhile.
        except MessageNotFoundError:
            if not records:
                raise
            break
        position = queue.after(number, entry)
    status = PullStatus.NO_MATCHED_MESSAGE if position > queue_offset else PullStatus.NO_NEW_MESSAGE
    return Pulled(PullStatus.FOUND if records else status, records, position, least, most)


def _may_match(tags_code: int, hashes: set[int]) -> bool:
    """Return whether an entry's message may have one of the tags.

    If the entry has the address of a lost extension unit in place of a tags code, the tags are unknown: return True.
    """
    return not hashes or tags_code in hashes or is_address(tags_code)


def _has_tag(record: LocatedRecord, wanted: set[str]) -> bool:
    return not wanted or read_properties(record).get(TAGS) in wanted


def get_by_queue(store: StoreReader, topic: str, queue_id: int, queue_offset: int) -> LocatedRecord:
    """See MessageStore.get_by_queue."""
    queue, log = store.queues.queue(topic, queue_id), store.commit_log
    entry = queue.entry(queue_offset)
    try:
        record = log.locate(entry.physical_offset, entry.size)
    except MessageNotFoundError as error:
        file = log.file_at(entry.physical_offset)
        if entry.physical_offset >= log.files_end:
            # The offset is after the end of all files, so the message cannot have expired.
            raise CorruptMessageError(
                log.source.name, 0, str(error), entry.physical_offset
            ) from None
        if file is None:
            # The message has expired.
            raise
        raise file.corrupt(entry.physical_offset, str(error)) from None
    stated = queue_offset_in(record, topic, queue_id)
    is_own = stated == queue_offset or (stated is not None and is_restarted(record, topic, stated))
    # A 5.x broker leaves gaps in the queue offsets of light queues, so a record may state a higher offset than the
    # position of its entry.
    if not is_own and topic.startswith(LMQ_PREFIX):
        is_own = _is_in_place(store, queue, QueuePlace(topic, queue_id, queue_offset), record)
    if not is_own and stated != queue.span(queue_offset)[0]:
        reason = _not_its_own(record, topic, queue_id, queue_offset)
        raise CorruptMessageError(
            queue.folder, queue_offset * ENTRY_BYTES, reason, entry.physical_offset
        )
    return record


def _read(
    store: StoreReader,
    queue: QueueReader,
    place: QueuePlace,
    entry: ConsumeQueueEntry,
    is_newest: bool,
) -> LocatedRecord | None:
    """Return the record of an entry; None if its log file is missing or the entry is half written.

    Raises CorruptMessageError, and MessageNotFoundError if the message has expired.
    """
    log, offset = store.commit_log, entry.physical_offset
    try:
        record = log.locate(offset, entry.size)
        size = record.layout.total_bytes
        if size != entry.size:
            reason = f"a message of {size} bytes, but its entry states {entry.size}"
        elif _is_in_place(store, queue, place, record):
            return record
        else:
            reason = _not_its_own(record, *place)
    except CorruptMessageError as error:
        reason = error.reason
    except MessageNotFoundError as error:
        if offset < log.min_offset:
            raise
        if log.file_at(offset) is None and not is_newest and offset < log.files_end:
            return None
        reason = str(error)
    if is_newest:
        # A broker may be writing the entry. Then it is half written now, and complete a moment later.
        time.sleep(_PATIENCE_S)
        if queue.entry(place.queue_offset) != entry:
            return None
    file = log.file_at(offset)
    if file is None:
        raise CorruptMessageError(log.source.name, 0, reason, offset)
    raise file.corrupt(offset, reason)


def _is_in_place(
    store: StoreReader, queue: QueueReader, place: QueuePlace, record: LocatedRecord
) -> bool:
    """Return whether the entry at `place` may lead to `record`.

    Either the record states this queue and queue offset, or it follows lost messages. A broker reserves no positions in
    a queue for messages that the log has lost. So later messages have lower positions than their records state. Such a
    record still belongs to its entry if its queue offset directly follows the queue offset of the previous entry's
    record, or if the log has no message of the queue between the two records.
    """
    topic, queue_id, queue_offset = place
    stated = queue_offset_in(record, topic, queue_id)
    if stated is None or stated == queue_offset:
        return stated is not None
    if is_restarted(record, topic, stated):
        return True
    if stated < queue_offset:
        return False
    if queue_offset <= queue.min_queue_offset(store.commit_log.min_offset):
        # All earlier entries have expired, so there is no previous message to compare this one with.
        return True
    try:
        entry = queue.entry(queue_offset - 1)
        before = store.commit_log.locate(entry.physical_offset, entry.size)
    except StoreError:
        return False
    previous = queue_offset_in(before, topic, queue_id)
    if previous is None or previous >= stated:
        return False
    if previous == stated - 1:
        return True
    start = before.physical_offset + before.layout.total_bytes
    stop = min(record.physical_offset, start + _MOST_WALKED_BYTES)
    return not any(
        queue_offset_in(between, topic, queue_id) is not None
        for between in LogWalk(store.commit_log, start, stop)
    )


def _not_its_own(record: LocatedRecord, topic: str, queue_id: int, queue_offset: int) -> str:
    """Return a description such as `the entry of T/0, queue offset 5, leads to a message of U/1, queue offset 3`."""
    own = own_place(record)
    whose = "of no queue" if own is None else f"of {own[0]}/{own[1]}, queue offset {own[2]}"
    return (
        f"the entry of {topic}/{queue_id}, queue offset {queue_offset}, leads to a message {whose}"
    )


def queue_times(store: StoreReader, topic: str, queue_id: int) -> QueueTimes:
    """Return the store times of a queue's messages. Raises MessageNotFoundError for an unknown queue."""
    queue = store.queues.queue(topic, queue_id)

    def timestamp_of(queue_offset: int, entry: ConsumeQueueEntry) -> int | None:
        place = QueuePlace(topic, queue_id, queue_offset)
        record = _read(store, queue, place, entry, is_newest=False)
        return None if record is None else store_timestamp(record)

    return QueueTimes(queue, store.known_ranges, timestamp_of)


def wanted_tags(tags: str | None) -> set[str]:
    """Return the tags of an expression `a || b`. An empty set means all tags.

    Raises UsageError for an expression without a tag, such as `||`.
    """
    if tags is None or tags.strip() in ("", _ALL):
        return set()
    wanted = {tag for part in tags.split(_TAG_SEPARATOR) if (tag := part.strip())}
    if not wanted:
        raise UsageError(
            f"tags {tags!r}: there is no tag in this text; write 'a || b', or '*' for all",
            arguments=["tags"],
        )
    return wanted
