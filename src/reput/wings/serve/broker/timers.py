"""Deliver timer messages, which state the time of their delivery.

Mirrors `TimerMessageStore` and `RecallMessageProcessor` (tag rocketmq-all-5.3.3).

A timer message waits in queue 0 of `rmq_sys_wheel_timer`. Its property TIMER_OUT_MS states when it is due. A broker
enters it into a wheel in files (`timerlog/`, `timerwheel`). Here, the waiting messages are in memory. When the store is
opened, their queue is read from the first undelivered message on. The position of this message is in config/timercheck,
which a broker reads as well if it takes over the store. After a crash, messages that were delivered after the last
write of this file are delivered again, as in a broker.

If the store has a broker's timer log, timer messages are neither accepted nor delivered here: only the broker may do
so.
"""

from __future__ import annotations

import logging
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from reput.base import now_ms
from reput.core import PullResult
from reput.engine.writer import Message
from reput.errors import MessageNotFoundError, MessageRefusedError, StoreError, StoreNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.file_names import CONFIG_FOLDER, TIMER_CHECK_FILE, TIMER_LOG_FOLDER
from reput.format.java_string import decimal_number
from reput.format.properties import (
    REAL_TOPIC,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_RECALLED,
    TIMER_ROLL_TIMES,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from reput.format.real_queue import held_queue
from reput.format.timer_log import recall_key, recalled_key
from reput.io import Disk, FileReader
from reput.wings.serve.broker.sending import encoded

if TYPE_CHECKING:
    from reput.engine.writer import WritableStore

# The fields of config/timercheck (`TimerCheckpoint`): lastReadTimeMs, lastTimerLogFlushPos, lastTimerQueueOffset,
# masterTimerQueueOffset, and the data version's stateVersion, timestamp and counter.
_CHECK = struct.Struct(">qqqqqqq")
_CHECK_BYTES = 4096
_MOST_AT_ONCE = 256
_STEP_MS = 1000
_MOST_WAITING = 1_000_000
_MOST_REPEATED = 1000
_MOST_DIGITS = 18
_HANDLE_VERSION, _RECALL_TAG, RECALL_BODY = "v1", "_RECALL_TAG_", b"0"
_log = logging.getLogger("reput.broker")


class RecallHandle(NamedTuple):
    """A handle with which a client can recall a timer message."""

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        text = " ".join(
            (_HANDLE_VERSION, self.topic, self.broker_name, str(self.due_ms), self.unique_key)
        )
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Decode a handle. Raises ValueError for an invalid handle."""
        try:
            version, topic, broker_name, due, key = urlsafe_b64decode(text).decode().split(" ")[:5]
            if version != _HANDLE_VERSION:
                raise ValueError(version)
            return cls(topic, broker_name, int(due), key)
        except ValueError:
            raise ValueError("recall handle is invalid") from None


def recalling(handle: RecallHandle, queue_properties: dict[str, str]) -> dict[str, str]:
    """Return the properties of a message that recalls the message of this handle."""
    return {
        TIMER_RECALLED: f"{handle.topic}+{handle.unique_key}",
        UNIQ_KEY: handle.unique_key,
        TIMER_DELIVER_MS: str(handle.due_ms),
        TAGS: _RECALL_TAG,
        **queue_properties,
    }


class _Timed(NamedTuple):
    """A waiting message. Sorts by the time at which it is due."""

    due_ms: int
    queue_offset: int
    physical_offset: int


class TimedDelivery:
    """The timer messages of one store. Only one thread may deliver. Any thread may save."""

    def __init__(
        self,
        store: WritableStore,
        path: Path,
        clock_ms: Callable[[], int] = now_ms,
        most: int = _MOST_WAITING,
    ) -> None:
        """Read the delivery progress. Raises StoreAccessError."""
        self._store, self._clock_ms, self._most = store, clock_ms, most
        self._path, self._disk = path / CONFIG_FOLDER / TIMER_CHECK_FILE, Disk()
        self.is_kept_for_broker = (path / TIMER_LOG_FOLDER).exists()
        try:
            data = FileReader.content_of(self._path, _CHECK_BYTES)
        except StoreNotFoundError:
            data = b""
        fields = _CHECK.unpack_from(data.ljust(_CHECK.size, b"\0"))
        self._read_to = self._first = max(fields[2], 0)
        self._delivered_to = fields[0]
        self._heap: list[_Timed] = []
        # The physical offset of each waiting message, by its queue offset.
        self._offsets: OrderedDict[int, int] = OrderedDict()
        self._rolled: set[int] = set()
        self._recalled: dict[tuple[str, str], int] = {}
        self._guard, self._saving = Lock(), Lock()
        self._is_changed = False

    def now_ms(self) -> int:
        """Return the current time (ms) of the clock that decides which messages are due."""
        return self._clock_ms()

    def deliver_due(self) -> int:
        """Deliver some due messages. Return their number. Raises StoreFailedError, StoreAccessError."""
        if self.is_kept_for_broker or not self._store.config.is_five:
            return 0
        self._follow()
        now, count = self._clock_ms(), 0
        # `timer_due` has rounded the due time down, by up to a second. Wait a second longer, so that no message is
        # delivered early.
        while self._heap and self._heap[0].due_ms + _STEP_MS <= now and count < _MOST_AT_ONCE:
            waiting = self._heap[0]
            if waiting.queue_offset not in self._rolled:
                self._deliver(waiting, now)
            heappop(self._heap)
            self._rolled.discard(waiting.queue_offset)
            self._done(waiting.queue_offset, waiting.due_ms)
            count += 1
        if count:
            self._recalled = {
                key: due for key, due in self._recalled.items() if due + _STEP_MS > now
            }
            self._roll()
        return count

    def _follow(self) -> None:
        """Read new messages, until `_most` messages wait for their delivery.

        The remaining messages are read after some of the waiting messages have been delivered.
        """
        while len(self._heap) < self._most:
            pulled = self._next()
            for message in () if pulled is None else pulled.messages:
                self._enter(message)
            if pulled is None or pulled.next_begin_offset <= self._read_to:
                return
            self._read_to = pulled.next_begin_offset

    def _next(self) -> PullResult | None:
        """Return further messages of the queue of timers, or None at its end. Unreadable messages are skipped."""
        try:
            least = self._store.min_queue_offset(TIMER_TOPIC, 0, check=False)
            # Messages before `least` have expired.
            begin = max(self._read_to, least)
            if begin >= self._store.max_queue_offset(TIMER_TOPIC, 0):
                return None
            return self._store.pull(TIMER_TOPIC, 0, begin, _MOST_AT_ONCE, on_corrupt="skip")
        except MessageNotFoundError:  # The queue does not exist yet.
            return None

    def _enter(self, message: MessageExt) -> None:
        due_ms = _number(message, TIMER_OUT_MS)
        key, topic = recalled_key(message.properties), message.properties.get(REAL_TOPIC)
        # A client can send a recall to any topic for which it has permission. So a recall may cancel only messages of
        # the topic to which the recall was sent.
        if key is not None and topic and key[0].startswith(f"{topic}+"):
            self._recalled[key] = due_ms
        with self._guard:
            self._offsets[message.queue_offset] = message.physical_offset
        heappush(self._heap, _Timed(due_ms, message.queue_offset, message.physical_offset))

    def _deliver(self, waiting: _Timed, now: int) -> None:
        try:
            original = self._store.get(waiting.physical_offset)
        except StoreError as error:
            _log.warning("a timer message is lost: %s", error)
            return
        if recalled_key(original.properties) is not None:
            return
        if recall_key(original.properties) in self._recalled:
            return
        queue = held_queue(original.properties)
        if queue is None:
            _log.warning(
                "a timer message without a topic: physical offset %d", original.physical_offset
            )
            return
        times = {
            TIMER_ENQUEUE_MS: str(original.store_timestamp // _STEP_MS * _STEP_MS),
            TIMER_DEQUEUE_MS: str(now),
        }
        properties = encoded({**original.properties, **times}, is_five=True)
        message = replace(
            Message.of(original), topic=queue[0], queue_id=queue[1], properties=properties,
            keys=None, tags=None,
        )  # fmt: skip
        try:
            self._store.put(message)
        except MessageRefusedError as error:  # A refused message must not hold up later messages.
            _log.warning(
                "a timer message is lost: physical offset %d: %s", original.physical_offset, error
            )

    def _done(self, queue_offset: int, due_ms: int = 0) -> None:
        with self._guard:
            self._offsets.pop(queue_offset, None)
            # The first waiting message is the oldest, because `_offsets` is in the order of the queue.
            self._first = next(iter(self._offsets), self._read_to)
            self._delivered_to = max(self._delivered_to, due_ms)
            self._is_changed = True

    def _roll(self) -> None:
        """Put the oldest waiting messages again at the end of their queue, if many later messages were delivered.

        After a crash, the next process begins with the first waiting message, and delivers all messages after it again.
        Moving the oldest messages to the end of the queue keeps the number of repeated deliveries small.
        """
        for _ in range(_MOST_AT_ONCE):
            delivered = self._read_to - self._first - len(self._offsets)
            if not self._offsets or delivered <= max(_MOST_REPEATED, len(self._offsets)):
                return
            queue_offset, physical_offset = next(iter(self._offsets.items()))
            message = self._store.get(physical_offset)
            properties = {
                **message.properties,
                TIMER_ROLL_TIMES: str(_number(message, TIMER_ROLL_TIMES) + 1),
            }
            text = encoded(properties, is_five=True)
            try:
                self._store.put(replace(Message.of(message), properties=text, keys=None, tags=None))
            except MessageRefusedError:
                # The message cannot be moved, so the saved position does not advance. After a crash, messages after it
                # that were already delivered are delivered again.
                return
            self._rolled.add(queue_offset)
            self._done(queue_offset)

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """If the position has changed, yield a function that saves it. Any thread may call the function."""
        if self._is_changed and not self.is_kept_for_broker:
            yield self.save

    def save(self) -> None:
        """Write config/timercheck. Raises StoreAccessError."""
        with self._saving:
            with self._guard:
                first, delivered_to, self._is_changed = self._first, self._delivered_to, False
            data = _CHECK.pack(delivered_to, 0, first, first, 0, self._clock_ms(), 0)
            try:
                self._disk.make_folder(self._path.parent)
                self._disk.replace(self._path, data.ljust(_CHECK_BYTES, b"\0"))
            except BaseException:
                self._is_changed = True
                raise


def _number(message: MessageExt, name: str) -> int:
    """Return the number in a property that the broker sets, or 0 if the property is missing or is not a number."""
    return decimal_number(message.properties.get(name, ""), _MOST_DIGITS) or 0
