"""Deliver delayed messages (`ScheduleMessageService`, tag rocketmq-all-4.9.3).

A delayed message waits in its level's queue of SCHEDULE_TOPIC_XXXX. The tags codes in this queue are the times at which
the messages are due. A due message is put again, into its real queue. The file config/delayOffset.json has the progress
of each level. Messages that were delivered after the last write of this file are delivered again after a crash, as in a
broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from reput.base import now_ms
from reput.core import LostEntriesError, UnreadableMessages, finding_of
from reput.engine.writer import Message
from reput.errors import FormatError, MessageNotFoundError, MessageRefusedError, StoreError
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry
from reput.format.file_names import DELAY_OFFSET_FILE
from reput.format.properties import HALF_TOPICS, SCHEDULE_TOPIC
from reput.format.real_queue import held_queue
from reput.format.untrusted_json import number_map_file
from reput.wings.serve.broker.config_file import ConfigFile
from reput.wings.serve.broker.offsets import numbers
from reput.wings.serve.broker.sending import copied

if TYPE_CHECKING:
    from reput.engine.writer import WritableStore

_TABLE = "offsetTable"
_MOST_AT_ONCE = 256
_log = logging.getLogger("reput.broker")


def delay_offsets(store: Path) -> dict[int, int]:
    """Return the delivery progress of each level from a store's file. Raises StoreAccessError, FormatError."""
    return _offsets(ConfigFile(store, DELAY_OFFSET_FILE, is_writable=False))


def _offsets(file: ConfigFile) -> dict[int, int]:
    def parse(path: Path, content: dict[str, Any]) -> dict[int, int]:
        try:
            return numbers(content.get(_TABLE) or {})
        except (ValueError, TypeError, AttributeError):
            raise FormatError(path, 0, f"{_TABLE} is not a map of numbers") from None

    return file.load_either(parse)


class DelayedDelivery:
    """The delay levels of one store. Only one thread may deliver. Any thread may save."""

    def __init__(
        self, store: WritableStore, path: Path, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        """Read the delivery progress. Raises StoreAccessError, FormatError."""
        self._store, self._clock_ms = store, clock_ms
        self._delays_ms = store.config.delay_table_ms()
        self._file, self._guard = ConfigFile(path, DELAY_OFFSET_FILE, is_writable=True), Lock()
        self._offsets = _offsets(self._file)

    def deliver_due(self) -> int:
        """Deliver some due messages of each level. Return their number. Raises StoreFailedError, StoreAccessError."""
        return sum(self._deliver(level) for level in range(1, len(self._delays_ms) + 1))

    def offsets(self) -> dict[int, int]:
        """Return the delivery progress of each level, as queue offsets."""
        with self._guard:
            return dict(sorted(self._offsets.items()))

    def unsaved(self) -> Iterator[Callable[[], None]]:
        """If the delivery progress has changed, yield a function that saves it. Any thread may call the function."""
        with self._guard:
            if self._file.is_changed:
                offsets = dict(sorted(self._offsets.items()))
                yield self._file.saving(lambda: number_map_file(_TABLE, offsets))

    def _deliver(self, level: int) -> int:
        queue_id, count = level - 1, 0
        for queue_offset, entry in self._entries(level, queue_id):
            if entry != PRE_BLANK:
                now = self._clock_ms()
                # If the delivery time is later than now plus the level's delay, for example because the clock was set
                # back, deliver the message now, as a broker does.
                is_due_ever = entry.tags_code <= now + self._delays_ms[level - 1]
                if is_due_ever and entry.tags_code > now:
                    break
                self._put(entry)
                count += 1
            # Record each delivery before the next one starts. If the delivery of a later message fails, the messages
            # before it are not delivered again.
            with self._guard:
                self._offsets[level] = queue_offset + 1
                self._file.is_changed = True
        return count

    def _entries(self, level: int, queue_id: int) -> list[tuple[int, ConsumeQueueEntry]]:
        try:
            with self._store.reader() as reader:
                queue = reader.queues.queue(SCHEDULE_TOPIC, queue_id)
                end = queue.max_queue_offset()
                begin = self._offsets.get(level, 0)
                if begin == end:
                    return []
                least = queue.min_queue_offset(reader.begin_offset())
                # The next message to deliver may have expired. If the log was truncated, the queue may end before the
                # saved offset.
                begin = min(max(begin, least), end)
                entries: list[tuple[int, ConsumeQueueEntry]] = []
                try:
                    for entry in queue.entries(begin, min(end, begin + _MOST_AT_ONCE)):
                        entries.append((begin + len(entries), entry))
                # Lost entries must not hold up later messages.
                except LostEntriesError as error:
                    if not entries:
                        self._skip(level, begin, error)
                return entries
        except MessageNotFoundError:  # No message has used this level yet.
            return []

    def _skip(self, level: int, begin: int, error: LostEntriesError) -> None:
        """Continue after lost entries at the next call, and report them."""
        end = error.resume_offset
        lost = UnreadableMessages(SCHEDULE_TOPIC, level - 1, begin, end, finding_of(error))
        self._store.unreadable.note([lost])
        with self._guard:
            self._offsets[level] = end
            self._file.is_changed = True

    def _put(self, entry: ConsumeQueueEntry) -> None:
        try:
            original = self._store.get(entry.physical_offset)
        except StoreError as error:
            _log.warning("a delayed message is lost: %s", error)
            return
        message = due_message(original, self._store.config.is_five)
        if message is None:
            _log.warning(
                "a delayed message without a topic: physical offset %d", entry.physical_offset
            )
            return
        try:
            self._store.put(message)
        except MessageRefusedError as error:  # A refused message must not hold up later messages.
            _log.warning(
                "a delayed message is lost: physical offset %d: %s", entry.physical_offset, error
            )


def due_message(original: MessageExt, is_five: bool) -> Message | None:
    """Return the message to put when a delayed message is due, or None if its destination is unknown."""
    queue = held_queue(original.properties)
    # Like a broker (`ScheduleMessageService`), discard delayed half messages: a half message cannot be delayed.
    if queue is None or queue[0] in HALF_TOPICS:
        return None
    return replace(copied(original, is_five), topic=queue[0], queue_id=queue[1])
