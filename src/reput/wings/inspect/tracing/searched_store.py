"""Search one store for the messages of a trace, and record which parts of the log the look-ups have searched."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from reput import core
from reput.base import Finding, Kind, now_ms
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreNotFoundError
from reput.format import properties
from reput.format.commit_log import MessageExt, decode_located
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry
from reput.format.java_string import decimal_number
from reput.format.transactions import decided_places, half_place
from reput.wings.inspect.tracing.life import StoreCoverage

# A message that was stored less than _NEW_MS ago may not be dispatched yet. Wait up to _ROUNDS * _PATIENCE_S, one
# second, for its queue entry.
_NEW_MS = 10_000
_MOST_DIGITS = 18
_ROUNDS, _PATIENCE_S = 20, 0.05
_ORIGIN = properties.ORIGIN_MESSAGE_ID.encode()


def is_queued(store: core.MessageStore, message: MessageExt) -> bool:
    """Return whether the entry at a message's queue offset leads to the message.

    If the message was stored just now, wait up to a second for its entry.

    Raises StoreAccessError, StoreChangedError.
    """
    for _ in range(_ROUNDS):
        entry = _entry(store, message)
        if entry is not None and entry.physical_offset == message.physical_offset:
            return True
        if not 0 <= now_ms() - message.store_timestamp < _NEW_MS:
            return False
        time.sleep(_PATIENCE_S)
    return False


def due_ms(store: core.MessageStore, message: MessageExt) -> int | None:
    """Return the time (ms) at which a broker delivers a delayed message; None for a message without a delay.

    A message in the timer (5.x) states this time. For a scheduled message, it is the tags code of the ConsumeQueue
    entry. If the entry is missing, the time is computed from the delay level.
    """
    if message.topic == properties.TIMER_TOPIC:
        return _stated_ms(message.properties.get(properties.TIMER_OUT_MS, ""))
    delays = store.config.delay_table_ms()
    try:
        code = properties.tags_code(
            message.topic, message.properties, message.store_timestamp, delays
        )
        has_level = code != properties.tags_code(
            message.topic, message.properties, message.store_timestamp, []
        )
    except ValueError:
        return None
    if not has_level:
        return None
    entry = _entry(store, message)
    is_own = entry is not None and entry.physical_offset == message.physical_offset
    return entry.tags_code if entry is not None and is_own else code


def _stated_ms(text: str) -> int | None:
    return decimal_number(text, _MOST_DIGITS)


def _entry(store: core.MessageStore, message: MessageExt) -> ConsumeQueueEntry | None:
    try:
        queue = store.queues.queue(message.topic, message.queue_id)
        return queue.entry(message.queue_offset)
    except (MessageNotFoundError, core.LostEntriesError):
        return None


class UnindexedQueues:
    """Finds records without index entries by reading queues of one store, up to a limit of entries.

    Attributes:
        problems: The parts of the queues that could not be read.
        unread: Number of entries that were not read because of the limit.
    """

    def __init__(self, store: core.MessageStore, most_entries: int) -> None:
        self._store, self._budget = store, most_entries
        self.problems: list[Finding] = []
        self.unread = 0

    def ops_of(self, halves: Sequence[MessageExt]) -> Iterator[MessageExt]:
        """Yield for each of these half messages its first op message, if it has any."""
        for queue_id in sorted({half.queue_id for half in halves}):
            of_queue = [half for half in halves if half.queue_id == queue_id]
            places = {half_place(half) for half in of_queue}
            # An op message is stored after its half message.
            start = min(half.physical_offset for half in of_queue)
            for half_topic, op_topic in zip(
                properties.HALF_TOPICS, properties.OP_TOPICS, strict=True
            ):
                open_places = {place for place in places if place[0] == half_topic}
                for record in self._records(op_topic, queue_id, start) if open_places else ():
                    message = decode_located(record.data, record.layout)
                    decided = open_places.intersection(decided_places(message))
                    if decided:
                        yield message
                        open_places -= decided
                    if not open_places:
                        break

    def naming(
        self, ids: Collection[str], start: int | None, since_ms: int
    ) -> Iterator[MessageExt]:
        """Yield records that name one of these ids as their origin.

        Args:
            ids: Unique keys or offset message ids.
            start: Physical offset at which the search begins; None if it is unknown for this store.
            since_ms: Store time at which the search begins if `start` is None.
        """
        for topic, queue_id in self._store.list_queues():
            if topic != properties.SCHEDULE_TOPIC and not topic.startswith(
                (properties.RETRY_TOPIC_PREFIX, properties.DEAD_LETTER_TOPIC_PREFIX)
            ):
                continue
            for record in self._records(topic, queue_id, start, since_ms):
                # Most records have no property ORIGIN_MESSAGE_ID. Searching their bytes for its name is much cheaper
                # than decoding them.
                if _names_origin(record):
                    message = decode_located(record.data, record.layout)
                    if message.properties.get(properties.ORIGIN_MESSAGE_ID) in ids:
                        yield message

    def _records(
        self, topic: str, queue_id: int, start: int | None, since_ms: int = 0
    ) -> Iterator[core.LocatedRecord]:
        store = self._store
        try:
            queue = store.queues.queue(topic, queue_id)
            if start is None:
                position = store.offset_by_time(topic, queue_id, since_ms)
            else:
                position = queue.min_queue_offset(max(start, store.commit_log.min_offset))
            stop = queue.max_queue_offset()
        except (MessageNotFoundError, CorruptMessageError, core.LostEntriesError) as error:
            self._note(error)
            return
        while position < stop:
            try:
                for number, entry in queue.numbered(position, stop):
                    if not self._budget:
                        self.unread += stop - number
                        return
                    self._budget -= 1
                    position = max(position, number + 1)
                    if entry != PRE_BLANK:
                        yield from self._located(entry.physical_offset, entry.size)
                return
            except core.LostEntriesError as error:
                self._note(error)
                # Continue after the lost entries, but advance by at least one entry, so that the loop ends.
                position = max(error.resume_offset, position + 1)
            except (MessageNotFoundError, StoreNotFoundError):
                # The messages expired during the search.
                return

    def _located(self, physical_offset: int, size: int) -> Iterable[core.LocatedRecord]:
        log = self._store.commit_log
        try:
            return (log.locate(physical_offset, size),)
        except CorruptMessageError as error:
            self._note(error)
        except MessageNotFoundError:
            # The message has expired, or lies in a missing file. The search by key reports missing files.
            pass
        return ()

    def _note(self, error: Exception) -> None:
        if isinstance(error, CorruptMessageError):
            finding = Finding(
                Kind.UNREADABLE_RECORD,
                error.path,
                error.reason,
                error.offset,
                error.physical_offset,
            )
        elif isinstance(error, core.LostEntriesError):
            finding = Finding.of_error(Kind.QUEUE_GAP, error)
        else:  # The queue does not exist, so nothing is unreadable.
            return
        if finding not in self.problems:
            self.problems.append(finding)


def _names_origin(record: core.LocatedRecord) -> bool:
    """Return whether a record's properties contain the name ORIGIN_MESSAGE_ID. Only such records must be decoded."""
    _, data, layout = record
    start, stop = layout.properties_position, layout.properties_position + layout.properties_bytes
    return data.find(_ORIGIN, start, stop) >= 0


class SearchedStore:
    """A store, and the coverage of all look-ups in it."""

    def __init__(self, store: core.MessageStore, most_entries: int) -> None:
        self.store = store
        self.unindexed = UnindexedQueues(store, most_entries)
        self._answers: list[core.Coverage] = []
        self._is_shortened = False

    def add(self, answer: core.QueryResult) -> None:
        self._answers.append(answer.coverage)
        self._is_shortened |= answer.cursor is not None

    def add_place(self, message: MessageExt) -> None:
        """Add a message that was found by its offset id. Only the bytes of the message count as searched.

        If a look-up has already added a searched range, that range stays, and nothing is added.
        """
        if not self._answers:
            self._answers.append(core.answer_of(self.store, message).coverage)

    def add_unread(self, message_id: str) -> None:
        """Add the evidence of the place that an offset id names, if the message there cannot be read."""
        coverage = core.coverage_of_id(self.store, message_id)
        if coverage is not None and not coverage.is_complete:
            self._answers.append(coverage)

    def coverage(self) -> StoreCoverage:
        coverage = core.joined(self._answers)
        # A trace follows keys through all topics of the log.
        notes = tuple(dict.fromkeys((*coverage.notes, *self.store.notes_on_topics())))
        return StoreCoverage(
            self.store.path,
            replace(coverage, notes=notes),
            tuple(self.unindexed.problems),
            self.unindexed.unread,
            self._is_shortened,
        )
