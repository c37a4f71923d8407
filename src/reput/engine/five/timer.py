"""Read messages that wait for their time (5.x), from the timer log of a broker's wheel, and from RocksDB (5.4).

A broker with timers in RocksDB reads the topic of timers in order, and puts each message into the database by the time
at which it is due. A recall deletes the item of its message. Items stay in the database for some time after their
delivery, so a progress mark decides which messages wait. Messages that the broker has not yet put into the database
wait in the topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from reput.base import Finding, Kind
from reput.core import MessageStore, facts_of, finding_of
from reput.engine.five.timer_files import (
    check_timer_files,
    lost_units,
    timer_check,
    timer_log_files,
    timer_queue_offset,
)
from reput.engine.writer import MessageDatabase
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.file_names import TIMER_LOG_FOLDER
from reput.format.message_id import spellings
from reput.format.properties import (
    REAL_TOPIC,
    TIMER_OUT_MS,
    TIMER_RECALLED,
    TIMER_TOPIC,
    index_keys,
)
from reput.format.rocksdb_state import TimelineItem
from reput.format.timer_log import (
    TIMER_UNIT_BYTES,
    TimerUnit,
    decode_timer_unit,
    is_timer_blank,
    recall_key,
    recalled_key,
    timer_due_ms,
)

_READ_UNITS, _READ_MESSAGES = 1 << 12, 512
# The default of timerRocksDBPrecisionMs: a broker delivers the messages of one such interval at once.
_INTERVAL_MS = 1000
WAITING = ("waiting", "rolled")
"""The states of messages that are still to be delivered."""
LOST = "lost"
"""The state of messages that are still to be delivered, but that the log no longer has."""


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A message in the timer log, or in RocksDB.

    Attributes:
        unit: place and due time of the message
        state: `waiting`; `rolled` (waits longer than one turn of the wheel, then is written again); `recalled` (a
            recall has cancelled it, so it is never delivered); `recall` (waits to cancel another message); `lost`
            (waits, but the log no longer has it, or has another message in its place);
            `delivered`; `done` (a recall whose time has passed, or a rolled message that was written again)
        message: the waiting message, under the timer's topic; None if the log no longer has it
    """

    unit: TimerUnit | TimelineItem
    state: str
    message: MessageExt | None

    @property
    def real_topic(self) -> str | None:
        """Return the topic to which the message is delivered; None if unknown."""
        return None if self.message is None else self.message.properties.get(REAL_TOPIC)

    def has_key(self, key: str) -> bool:
        """Return whether this is a message with the key or unique key, or the recall of one with the unique key.

        An id may be in lower case. The keys of a message that the log no longer has are unknown, except its unique key
        in RocksDB.
        """
        keys = {_unique_key(self)}
        if self.message is not None:
            properties = self.message.properties
            keys |= {*index_keys(properties), properties.get(TIMER_RECALLED, "").partition("+")[2]}
        return not keys.isdisjoint(spellings(key))


class Timers:
    """The timer messages of an open store: those of its timer log, and those of its databases.

    Attributes:
        exists: whether the store has a timer log, or a database that may have timers
        unread: number of messages in the timer's topic, if no timer exists
        damage: unreadable parts; complete after the iteration
    """

    def __init__(self, store: MessageStore) -> None:
        """Open the timers.

        Raises:
            MissingExtraError: The timers are in RocksDB, and rocksdict is not installed.
            StoreAccessError: A folder cannot be read.
        """
        facts = facts_of(store.path, storage=store.storage)
        self._parts: list[TimerLog | RocksTimers] = [
            RocksTimers(store, folder) for folder in facts.message_databases
        ]
        if store.storage.entry(os.path.join(store.path, TIMER_LOG_FOLDER)) is not None:
            self._parts.insert(0, TimerLog(store))
        self.exists = bool(self._parts)
        self.unread = 0
        if not self.exists and TIMER_TOPIC in store.queues.topics():
            self.unread = store.max_queue_offset(TIMER_TOPIC, 0) - store.min_queue_offset(
                TIMER_TOPIC, 0
            )
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[TimedMessage]:
        self.damage = []
        # A broker that moves its timers into RocksDB may keep a message in both.
        offsets: set[int] = set()
        for part in self._parts:
            for timed in part:
                if timed.unit.physical_offset not in offsets:
                    offsets.add(timed.unit.physical_offset)
                    yield timed
            self.damage += part.damage


class RocksTimers:
    """The timer messages of one database. It iterates over them by the time at which they are due.

    Attributes:
        damage: unreadable parts; complete after the iteration
    """

    def __init__(self, store: MessageStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[TimedMessage]:
        self.damage = []
        with MessageDatabase(self._folder) as database:
            items = list(database.timeline())
            delivered_to, read_to = database.delivered_to(), database.timers_read_to()
        timers = [self._timed(item, delivered_to) for item in items]
        timers += self._unread(read_to, timers)
        yield from sorted(timers, key=lambda timed: timed.unit.due)

    def _timed(self, item: TimelineItem, delivered_to: int) -> TimedMessage:
        message = self._message(item.physical_offset)
        is_over = item.due < delivered_to
        # The mark is the begin of the last interval that was delivered.
        if not is_over and item.due < delivered_to + _INTERVAL_MS and message is not None:
            is_over = self._has_copy(message)
        return TimedMessage(item, "delivered" if is_over else "waiting", message)

    def _has_copy(self, message: MessageExt) -> bool:
        """Return whether the topic of a timer message has the copy that the broker delivered."""
        topic, unique_key = message.properties.get(REAL_TOPIC), message.unique_key
        if topic is None or unique_key is None:
            return False
        due = message.properties.get(TIMER_OUT_MS)
        copies = self._store.query(topic, unique_key).messages
        return any(copy.properties.get(TIMER_OUT_MS) == due for copy in copies)

    def _unread(self, read_to: int, timers: list[TimedMessage]) -> Iterator[TimedMessage]:
        """Yield the messages that are not in the database yet, and let the recalls among them change `timers`."""
        begin = max(read_to, timer_queue_offset(self._store.path, self._store.storage))
        places = {(timed.unit.due, _unique_key(timed)): n for n, timed in enumerate(timers)}
        waiting: dict[tuple[int, str], TimedMessage] = {}
        for message in self._queued(begin):
            due = timer_due_ms(message.properties)
            item = TimelineItem(
                due, message.unique_key or "", message.size_bytes, message.physical_offset
            )
            named = message.properties.get(TIMER_RECALLED)
            if named is None:
                waiting[due, item.unique_key] = TimedMessage(item, "waiting", message)
                continue
            yield TimedMessage(item, "recall", message)
            # The name in a recall is the topic, "+", and the unique key of the message to delete.
            key = due, named.partition("+")[2]
            if key in waiting:
                yield replace(waiting.pop(key), state="recalled")
            if (place := places.get(key)) is not None and timers[place].state == "waiting":
                timers[place] = replace(timers[place], state="recalled")
        yield from waiting.values()

    def _queued(self, begin: int) -> Iterator[MessageExt]:
        try:
            least = self._store.min_queue_offset(TIMER_TOPIC, 0)
            position, stop = max(begin, least), self._store.max_queue_offset(TIMER_TOPIC, 0)
        except MessageNotFoundError:
            return
        except FormatError as error:
            self.damage.append(finding_of(error))
            return
        while position < stop:
            pulled = self._store.pull(TIMER_TOPIC, 0, position, _READ_MESSAGES, on_corrupt="skip")
            yield from pulled.messages
            for lost in pulled.unreadable:
                self.damage.append(lost.finding)
            if pulled.next_begin_offset <= position:
                return
            position = pulled.next_begin_offset

    def _message(self, offset: int) -> MessageExt | None:
        return _message_at(self._store, offset, self.damage)


class TimerLog:
    """The timer log of an open store. It iterates over its messages, in the order in which they were scheduled.

    Attributes:
        delivered_to: messages due before this time (ms) were delivered; 0 if the store does not state it
        damage: unreadable parts; complete after the iteration
    """

    def __init__(self, store: MessageStore) -> None:
        """Open the timer log. Raises StoreAccessError, and StoreNotFoundError if the store has none."""
        self._store, self._storage = store, store.storage
        self._folder = os.path.join(store.path, TIMER_LOG_FOLDER)
        if self._storage.entry(self._folder) is None:
            raise StoreNotFoundError(f"{store.path}: has no {TIMER_LOG_FOLDER}/")
        self.delivered_to, self._flushed = timer_check(store.path, self._storage)
        self.damage: list[Finding] = []

    def __iter__(self) -> Iterator[TimedMessage]:
        recalled = self._recalled()
        # `_recalled` has read the timer log and listed its damage. The pass below lists it again, so clear the list.
        self.damage = []
        lost = list[TimerUnit]()
        for unit in self._units():
            message = self._message(unit)
            state = self._state(unit, message, recalled)
            if state in WAITING and (message is None or message.topic != TIMER_TOPIC):
                lost.append(unit)
                state, message = LOST, None
            yield TimedMessage(unit, state, message)
        if lost:
            at = min(unit.physical_offset for unit in lost)
            self.damage.append(
                Finding(
                    Kind.TIMER_MESSAGE_LOST, self._folder, "the timer log leads to messages that the log does not have",
                    physical_offset=at, count=len(lost), cost="these messages are not delivered",
                    at_next_start="does not notice it; its timer stalls, or delivers another message",
                )
            )  # fmt: skip

    def _recalled(self) -> set[tuple[str, str]]:
        """Return the keys of all recalled messages.

        In the timer log, the recall of a message follows the message. So all recalls must be read before the state of
        the first message is determined.
        """
        messages = (self._message(unit) for unit in self._units() if unit.deletes)
        keys = (recalled_key(message.properties) for message in messages if message is not None)
        return {key for key in keys if key is not None}

    def _message(self, unit: TimerUnit) -> MessageExt | None:
        return _message_at(self._store, unit.physical_offset, self.damage)

    def _state(
        self, unit: TimerUnit, message: MessageExt | None, recalled: set[tuple[str, str]]
    ) -> str:
        is_over = unit.due <= self.delivered_to
        if unit.deletes:
            return "done" if is_over else "recall"
        if unit.is_rolled and is_over:
            return "done"
        if message is not None and recall_key(message.properties) in recalled:
            return "recalled"
        if is_over:
            return "delivered"
        return "rolled" if unit.is_rolled else "waiting"

    def _units(self) -> Iterator[TimerUnit]:
        self.damage += check_timer_files(
            self._store.path, self._storage, self._store.begin_offset()
        )
        for start, size, path in timer_log_files(self._folder, self._storage):
            try:
                yield from self._units_of(path, start, size)
            # The file has expired meanwhile.
            except StoreNotFoundError:
                continue

    def _units_of(self, path: str, start: int, size: int) -> Iterator[TimerUnit]:
        """Yield the units of a file that begins at `start`, and report bytes that are no unit.

        All units have one size, so they are found after such bytes, too.
        """
        lost: int | None = None
        for position, data in self._places(path, size):
            unit = decode_timer_unit(data)
            if unit is None and lost is None:
                lost = position
            if unit is not None:
                if lost is not None:
                    self._lose(path, start, lost, position)
                    lost = None
                yield unit
            elif is_timer_blank(data, 0, size - position):
                size = position
                break
            elif start + position >= self._flushed:
                if any(data) and lost == position:
                    detail = (
                        "no unit of the timer log begins here; the rest of the file is not read"
                    )
                    self.damage.append(Finding(Kind.FOREIGN_FILE, path, detail, position))
                size = position
                break
        if lost is not None and lost < size:
            self._lose(path, start, lost, size)

    def _places(self, path: str, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield each position of a file at which a unit may begin, and the bytes of this unit."""
        step = _READ_UNITS * TIMER_UNIT_BYTES
        with self._storage.open(path) as reader:
            for position in range(0, size, step):
                data = reader.read(position, min(step, size - position))
                for at in range(0, len(data), TIMER_UNIT_BYTES):
                    yield position + at, data[at : at + TIMER_UNIT_BYTES]

    def _lose(self, path: str, start: int, begin: int, end: int) -> None:
        lost = lost_units(self._folder, start + begin, start + end)
        self.damage.append(replace(lost, file=path, file_offset=begin))


def _message_at(store: MessageStore, offset: int, damage: list[Finding]) -> MessageExt | None:
    try:
        return store.get(offset)
    # The message has expired.
    except MessageNotFoundError:
        pass
    except CorruptMessageError as error:
        lost = Finding.of_error(Kind.UNREADABLE_RECORD, error)
        # All messages after a lost end of the log have the same error.
        if damage[-1:] != [lost]:
            damage.append(lost)
    return None


def _unique_key(timed: TimedMessage) -> str:
    return timed.unit.unique_key if isinstance(timed.unit, TimelineItem) else ""
