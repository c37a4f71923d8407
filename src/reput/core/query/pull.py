"""Read consecutive messages of a queue, filtered by tags (`DefaultMessageStore.getMessage`, 4.9.3).

A store that another process writes is read without a lock. An entry is trusted if its message exists, has the entry's
size, and states this queue and this position. The newest entry may be half written, so its tags are taken from the
message. The same applies if the extension unit of an entry cannot be read (in RocketMQ: isTagsCodeLegal).

A record may state another queue offset than its entry. The rule is that of recovery (`reput.engine.compare.placement`):
an existing entry of a message keeps its queue offset, whatever the record states, because no checksum covers the queue
offset in a record. A broker serves by its entries alone. But an entry that was overwritten with another message's entry
hides a message. So such a record belongs to the entry only if no other entry leads to it, and if the log does not have
more messages of the queue before it than the queue has entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.walk import LogWalk
from reput.core.query.answers import PullStatus, UnreadableMessages
from reput.core.queues.by_time import QueueTimes
from reput.core.queues.queue_index import LostEntriesError, QueueReader
from reput.core.store.store_reader import StoreReader
from reput.errors import (
    CorruptMessageError,
    FormatError,
    MessageNotFoundError,
    StoreError,
    UsageError,
)
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry
from reput.format.consume_queue_ext import is_address
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, TAGS

_TAG_SEPARATOR = "||"
_ALL_TAGS = "*"
_NO_ENTRY: tuple[int, ConsumeQueueEntry | None] = (-1, None)
# One pull examines at most this many entries, whether they match or not.
_MOST_ENTRIES = 1 << 14
# Pauses before the newest entry, which may be half written, and its record are read again.
_PAUSES_S = (0.001, 0.01, 0.1)


class Pulled(NamedTuple):
    """The common content of PullResult and PulledRecords."""

    status: PullStatus
    records: list[LocatedRecord]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    unreadable: tuple[UnreadableMessages, ...] = ()


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

    The result ends before the first unreadable message. If the pull begins there, the error has a `resume_offset`. For
    `check_gap` see QueueEnds.
    """
    if max_messages < 1:
        raise UsageError(
            f"max_messages must be at least 1, not {max_messages}", arguments=["max_messages"]
        )
    tag_set = wanted_tags(tags)
    queue = store.queues.queue(topic, queue_id)
    least, most = queue.min_queue_offset(store.commit_log.min_offset), queue.max_queue_offset()
    if queue_offset < least:
        return Pulled(PullStatus.OFFSET_TOO_SMALL, [], least, least, most)
    if queue_offset > most:
        # `DefaultMessageStore.getMessage` corrects OFFSET_OVERFLOW_BADLY in this way in a queue that begins at 0.
        end = most if least else 0
        return Pulled(PullStatus.OFFSET_TOO_LARGE, [], end, least, most)
    # Entries of the schedule topic have the delivery time in place of the tags code.
    hashes = {hash_code(tag) for tag in tag_set} if topic != SCHEDULE_TOPIC else set()
    # In a batch queue (5.x), one entry covers several queue offsets.
    newest, position, size_bytes = queue.span(most - 1)[0], queue_offset, 0
    records: list[LocatedRecord] = []
    gap_stop, entry = 0, None
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
            # An entry states the size of its record. Do not read a record that does not fit.
            elif (
                records
                and not tag_set
                and max_bytes is not None
                and size_bytes + entry.size > max_bytes
            ):
                break
            # The newest entry may be half written, so read its message even if its tags code does not match.
            elif is_newest or _may_match(entry.tags_code, hashes):
                place = QueuePlace(topic, queue_id, number)
                read = _read_newest if is_newest else _verified
                record = read(store, queue, place, entry)
                if record is None:
                    break
                if _has_tag(record, tag_set):
                    size_bytes += record.layout.total_bytes
                    if records and max_bytes is not None and size_bytes > max_bytes:
                        break
                    records.append(record)
        # The file has expired meanwhile.
        except MessageNotFoundError:
            if not records:
                raise
            break
        except FormatError as error:
            if position > queue_offset:
                break
            if error.resume_offset is None and entry is not None:
                after = queue.after(number, entry)
                error.resume_offset = _resume(store, QueuePlace(topic, queue_id, after), most)
            raise
        position = queue.after(number, entry)
    status = PullStatus.NO_MATCHED_MESSAGE if position > queue_offset else PullStatus.NO_NEW_MESSAGE
    return Pulled(PullStatus.FOUND if records else status, records, position, least, most)


def _may_match(tags_code: int, hashes: set[int]) -> bool:
    """Return whether an entry's message may have one of the tags.

    If the entry has the address of a lost extension unit in place of a tags code, the tags are unknown: return True.
    """
    return not hashes or tags_code in hashes or is_address(tags_code)


def _has_tag(record: LocatedRecord, tag_set: set[str]) -> bool:
    return not tag_set or record.properties().get(TAGS) in tag_set


def _resume(store: StoreReader, place: QueuePlace, stop: int) -> int:
    """Return the queue offset of the first readable message at or after a place, to continue after unreadable messages.

    At most `_MOST_ENTRIES` entries are examined. The queue ends at `stop`.
    """
    topic, queue_id, position = place
    queue = store.queues.queue(topic, queue_id)
    try:
        newest = queue.span(stop - 1)[0]
        for number, entry in queue.numbered(position, min(stop, position + _MOST_ENTRIES)):
            if entry == PRE_BLANK:
                return number
            try:
                read = _read_newest if number == newest else _verified
                read(store, queue, QueuePlace(topic, queue_id, number), entry)
                return number
            except CorruptMessageError:
                position = queue.after(number, entry)
    # Expired or lost entries have errors of their own.
    except StoreError:
        pass
    return position


def get_by_queue(store: StoreReader, topic: str, queue_id: int, queue_offset: int) -> LocatedRecord:
    """See MessageStore.get_by_queue."""
    queue, log = store.queues.queue(topic, queue_id), store.commit_log
    entry = queue.entry(queue_offset)
    try:
        record = log.locate(entry.physical_offset, entry.size)
    except MessageNotFoundError as error:
        if queue_offset < queue.min_queue_offset(log.min_offset):
            # The message has expired.
            raise
        raise _corrupt(log, entry.physical_offset, str(error)) from None
    # A batch (5.x) states its first queue offset.
    if record.queue_offset_in(topic, queue_id) != queue.span(queue_offset)[0] and not is_in_place(
        store, queue, QueuePlace(topic, queue_id, queue_offset), record
    ):
        reason = not_its_own(record, topic, queue_id, queue_offset)
        raise CorruptMessageError(
            queue.folder, queue_offset * ENTRY_BYTES, reason, entry.physical_offset
        )
    return record


def _read_newest(
    store: StoreReader, queue: QueueReader, place: QueuePlace, entry: ConsumeQueueEntry
) -> LocatedRecord | None:
    """Return the record of the newest entry; None if the entry is half written. Raises as `_verified` does."""
    with suppress(CorruptMessageError):
        return _verified(store, queue, place, entry)
    # A broker may be writing the entry, or its record may not be visible yet. Both are complete a moment later.
    for pause_s in _PAUSES_S:
        time.sleep(pause_s)
        if queue.entry(place.queue_offset) != entry:
            return None
        store.commit_log.refresh()
        with suppress(CorruptMessageError):
            return _verified(store, queue, place, entry)
    return _verified(store, queue, place, entry)


def _verified(
    store: StoreReader, queue: QueueReader, place: QueuePlace, entry: ConsumeQueueEntry
) -> LocatedRecord:
    """Return the record of an entry.

    Raises CorruptMessageError, and MessageNotFoundError if the message has expired.
    """
    log, offset = store.commit_log, entry.physical_offset
    try:
        record = log.locate(offset, entry.size)
        size = record.layout.total_bytes
        if size != entry.size:
            reason = f"a message of {size} bytes, but its entry states {entry.size}"
        elif is_in_place(store, queue, place, record):
            return record
        else:
            reason = not_its_own(record, *place)
    except CorruptMessageError as error:
        reason = error.reason
    except MessageNotFoundError as error:
        if place.queue_offset < queue.min_queue_offset(log.min_offset):
            # The message has expired meanwhile.
            raise
        reason = str(error)
    raise _corrupt(log, offset, reason)


def _corrupt(log: CommitLogReader, physical_offset: int, reason: str) -> CorruptMessageError:
    """Return the error for a message that cannot be read; its log file may be missing."""
    file = log.file_at(physical_offset)
    if file is None:
        return CorruptMessageError(log.source.name, 0, reason, physical_offset)
    return file.corrupt(physical_offset, reason)


def queue_times(store: StoreReader, topic: str, queue_id: int) -> QueueTimes:
    """Return the store times of a queue's messages. Raises MessageNotFoundError for an unknown queue."""
    queue = store.queues.queue(topic, queue_id)

    def timestamp_of(queue_offset: int, entry: ConsumeQueueEntry) -> int | None:
        place, log = QueuePlace(topic, queue_id, queue_offset), store.commit_log
        begin = entry.physical_offset
        if log.min_offset <= begin < log.files_end and log.file_at(begin) is None:
            return None
        return _verified(store, queue, place, entry).store_timestamp()

    return QueueTimes(queue, store.known_ranges, timestamp_of)


def wanted_tags(tags: str | None) -> set[str]:
    """Return the tags of an expression `a || b`. An empty set means all tags.

    Raises UsageError for an expression without a tag, such as `||`.
    """
    if tags is None or tags.strip() in ("", _ALL_TAGS):
        return set()
    tag_set = {tag for part in tags.split(_TAG_SEPARATOR) if (tag := part.strip())}
    if not tag_set:
        raise UsageError(
            f"tags {tags!r}: there is no tag in this text; write 'a || b', or '*' for all",
            arguments=["tags"],
        )
    return tag_set


# Number of entries in which the previous message is searched.
_ENTRIES_BACK = 64
# At most this many bytes of the log are searched for messages that are missing between two entries of a queue.
_MOST_WALKED_BYTES = 4 << 20


class QueuePlace(NamedTuple):
    """A queue, and a queue offset in it."""

    topic: str
    queue_id: int
    queue_offset: int


def is_in_place(
    store: StoreReader, queue: QueueReader, place: QueuePlace, record: LocatedRecord
) -> bool:
    """Return whether the entry at `place` may lead to `record`.

    Brokers write records that state other queue offsets than their entries: after messages were lost (the queue has no
    positions for them), after a queue offset was given twice (a replica that became the master), and in further queues
    (INNER_MULTI_DISPATCH) after a restart.
    """
    topic, queue_id, queue_offset = place
    record_offset = record.queue_offset_in(topic, queue_id)
    if record_offset is None or record_offset == queue_offset:
        return record_offset is not None
    # With two wrong offsets, nothing shows that the record was written for this place.
    if record.stated_offset() != record.physical_offset:
        return False
    if record.is_restarted(topic, record_offset):
        return True
    least = queue.min_queue_offset(store.commit_log.min_offset)
    if least <= record_offset and _leads_to(queue, record_offset, record):
        return False
    number, previous = _previous(store, queue, place, record.physical_offset)
    if previous is None:
        # There is no previous message to compare this one with: all earlier entries have expired, or are lost.
        return True
    try:
        before = store.commit_log.locate(previous.physical_offset, previous.size)
    except (CorruptMessageError, MessageNotFoundError):
        begin = previous.physical_offset + 1
    else:
        begin = before.physical_offset + before.layout.total_bytes
        if (number, before.queue_offset_in(topic, queue_id)) == (
            queue_offset - 1,
            record_offset - 1,
        ):
            return True
    stop = min(record.physical_offset, begin + _MOST_WALKED_BYTES)
    between = sum(
        between_record.queue_offset_in(topic, queue_id) is not None
        for between_record in LogWalk(store.commit_log, begin, stop)
    )
    return between < queue_offset - number


def _leads_to(queue: QueueReader, queue_offset: int, record: LocatedRecord) -> bool:
    try:
        return queue.entry(queue_offset).physical_offset == record.physical_offset
    except StoreError:
        return False


def _previous(
    store: StoreReader, queue: QueueReader, place: QueuePlace, stop: int
) -> tuple[int, ConsumeQueueEntry | None]:
    """Return the last entry of a message that begins before `stop`, and its queue offset.

    Only the entries shortly before `place` are examined. Without such an entry, the second value is None.
    """
    log = store.commit_log
    position = max(queue.min_queue_offset(log.min_offset), place.queue_offset - _ENTRIES_BACK)
    number = position - 1
    previous: ConsumeQueueEntry | None = None
    while position < place.queue_offset:
        try:
            for entry_offset, entry in queue.numbered(position, place.queue_offset):
                begin = -1 if previous is None else previous.physical_offset
                if entry != PRE_BLANK and begin < entry.physical_offset < stop:
                    number, previous = entry_offset, entry
            break
        except LostEntriesError as error:
            position = max(error.resume_offset, position + 1)
    return number, previous


def not_its_own(record: LocatedRecord, topic: str, queue_id: int, queue_offset: int) -> str:
    """Return a description such as `the entry of T/0, queue offset 5, leads to a message of U/1, queue offset 3`."""
    location = record.own_place()
    owner = (
        "of no queue"
        if location is None
        else f"of {location[0]}/{location[1]}, queue offset {location[2]}"
    )
    return (
        f"the entry of {topic}/{queue_id}, queue offset {queue_offset}, leads to a message {owner}"
    )
