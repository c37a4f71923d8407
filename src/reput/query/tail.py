"""The end of a log: its last messages, and then new ones as they are written, by whichever process.

The last messages come through the ConsumeQueues, or through the index where a key is asked for; what lies behind the
last message that is dispatched is walked. New ones are walked in the order of the log. Nothing is locked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice

from reput.errors import (
    CorruptMessageError,
    MessageNotFoundError,
    StoreChangedError,
    StoreNotFoundError,
)
from reput.format.commit_log import (
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    MessageExt,
    decode_located,
)
from reput.format.consume_queue import PRE_BLANK, ConsumeQueueEntry
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, TAGS, index_keys
from reput.query.message_store import MessageStore
from reput.store.consume_queue_reader import ConsumeQueueReader
from reput.store.log_walk import LogWalk

_FIRST_ENTRIES, _MOST_ENTRIES = 32, 4096
_PAGE = 256
_DISPATCHED = (0, SYS_FLAG_COMMIT)


@dataclass(frozen=True, slots=True)
class TailFilter:
    """Which messages to take: those of which all that is given is true; all of the log where nothing is.

    tags  any of these; none for all
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    tags: frozenset[str] = frozenset()

    def takes_queue(self, topic: str, queue_id: int) -> bool:
        return self.topic in (None, topic) and self.queue_id in (None, queue_id)

    def takes(self, message: MessageExt) -> bool:
        """Like a queue, a filter has no messages of transactions that are open or were rolled back."""
        if self == _ALL_OF_LOG:
            return True
        if not self.takes_queue(message.topic, message.queue_id):
            return False
        if message.sys_flag & SYS_FLAG_TRANSACTION_MASK not in _DISPATCHED:
            return False
        properties = message.properties
        if self.tags and properties.get(TAGS) not in self.tags:
            return False
        return self.key is None or self.key in index_keys(properties)


_ALL_OF_LOG = TailFilter()


class LogTail:
    """The end of the log of an open store.

    position  physical offset behind the last message that was given
    damage    what could not be read on the way, a line each; whoever reads it may clear it
    """

    def __init__(self, store: MessageStore, wanted: TailFilter) -> None:
        self._store, self._log, self._wanted = store, store.commit_log, wanted
        self.position = self._log.min_offset
        self.damage: list[str] = []
        self._unsettled: MessageExt | None = None

    def last(self, count: int) -> list[MessageExt]:
        """The last messages of the log as it is, oldest first; `new` goes on behind them.

        Raises StoreAccessError, StoreChangedError, UsageError.
        """
        self._store.check_open()
        self._log.refresh()
        dispatched = self._dispatched_end()
        found = self._behind(dispatched, count)
        missing = count - len(found)
        if missing > 0 and dispatched > self._log.min_offset:
            found = self._before(dispatched, missing) + found
        return found

    def new(self, *, to_the_end: bool = False) -> Iterator[MessageExt]:
        """Messages behind `position`, in order.

        The log's last record may be in the making still: it is given when it is whole and has not changed from one
        call to the next, or at once if `to_the_end`. Raises StoreAccessError, and StoreChangedError where the log now
        ends before `position`.
        """
        self._store.check_open()
        self._log.refresh()
        self._check_position()
        walk = LogWalk(self._log, self.position)
        held: MessageExt | None = None
        for record in walk:
            if held is not None and self._wanted.takes(held):
                yield held
            self.position = record.physical_offset
            held = _placed(decode_located(record.data, record.layout), record.physical_offset)
        self._tell(walk)
        if held is not None and walk.at_end and not (to_the_end or self._is_settled(held)):
            self._unsettled = held
            return
        if held is not None and self._wanted.takes(held):
            yield held
        self.position = walk.position

    def _is_settled(self, last: MessageExt) -> bool:
        return last == self._unsettled and last.body_crc_ok

    def _check_position(self) -> None:
        folder, end = self._log.folder, self._log.files_end
        if self.position > end:
            raise StoreChangedError(f"{folder}: ends at {end}, was read up to {self.position}")
        if self.position < self._log.min_offset:
            gap = f"{self.position} to {self._log.min_offset}"
            self.damage.append(f"{folder}: offsets {gap} have expired before they were read")

    def _tell(self, walk: LogWalk) -> None:
        self.damage += map(str, walk.damage)

    def _taken(self, walk: LogWalk) -> Iterator[MessageExt]:
        for record in walk:
            message = _placed(decode_located(record.data, record.layout), record.physical_offset)
            if self._wanted.takes(message):
                yield message
        self._tell(walk)

    def _behind(self, start: int, count: int) -> list[MessageExt]:
        """The last messages at or behind `start`, by a walk over each file, newest first; finds the end of the log."""
        found: list[MessageExt] = []
        self.position = max(start, self._log.files_end)
        for file in reversed(self._log.files):
            if file.end <= start:
                break
            begin = max(start, file.start)
            walk = LogWalk(self._log, begin, file.end)
            found[:0] = deque(self._taken(walk), maxlen=count - len(found))
            if walk.at_end:
                self.position = walk.position
            if len(found) == count and walk.position > begin:
                break
        return found

    def _before(self, stop: int, count: int) -> list[MessageExt]:
        """The last messages before `stop`, which are all dispatched."""
        if self._wanted == _ALL_OF_LOG:
            entries = islice(filter(self._is_there, self._entries()), count)
            offsets = [entry.physical_offset for entry in entries]
            start = offsets[-1] if len(offsets) == count else self._log.min_offset
            return list(deque(self._taken(LogWalk(self._log, start, stop)), maxlen=count))
        found = self._by_key(stop) if self._wanted.key is not None else self._by_queue(stop)
        return list(islice(found, count))[::-1]

    def _by_key(self, stop: int) -> Iterator[MessageExt]:
        """Newest first."""
        cursor: int | None = stop
        assert self._wanted.key is not None
        while cursor is not None:
            result = self._store.query(
                self._wanted.topic, self._wanted.key, limit=_PAGE, after=cursor
            )
            yield from filter(self._wanted.takes, result.messages)
            self.damage += map(str, result.coverage.unreadable)
            cursor = result.cursor

    def _by_queue(self, stop: int) -> Iterator[MessageExt]:
        """Newest first."""
        for entry in self._entries():
            if entry.physical_offset < stop:
                try:
                    message = self._log.get(entry.physical_offset)
                except (MessageNotFoundError, CorruptMessageError) as error:
                    if self._log.file_at(entry.physical_offset) is not None:  # has not expired
                        self.damage.append(str(error))
                    continue
                if self._wanted.takes(message):
                    yield _placed(message, entry.physical_offset)

    def _dispatched_end(self) -> int:
        """Where the newest message ends that is in a ConsumeQueue and in the log."""
        whole = LogTail(self._store, _ALL_OF_LOG)
        for entry in filter(self._is_there, whole._entries()):
            return entry.physical_offset + entry.size
        return self._log.min_offset

    def _entries(self) -> Iterator[ConsumeQueueEntry]:
        """Entries of the wanted queues and tags, newest first; nothing says that their records are there."""
        hashes = {hash_code(tag) for tag in self._wanted.tags}
        queues = [
            _entries_back(
                self._store.queues.queue(topic, queue_id),
                self._log.min_offset,
                # Where messages wait for their time, it stands in the place of the tags' hash.
                hashes if topic != SCHEDULE_TOPIC else set(),
            )
            for topic, queue_id in self._store.queues.list()
            if self._wanted.takes_queue(topic, queue_id)
        ]
        offset = -1  # a message may be in several queues
        for entry in merge(*queues, key=_age):
            if entry.physical_offset != offset:
                offset = entry.physical_offset
                yield entry

    def _is_there(self, entry: ConsumeQueueEntry) -> bool:
        try:
            record = self._log.locate(entry.physical_offset)
        except (MessageNotFoundError, CorruptMessageError):
            return False
        return record.layout.total_bytes == entry.size


def _age(entry: ConsumeQueueEntry) -> int:
    return -entry.physical_offset


def _entries_back(
    queue: ConsumeQueueReader, min_physical_offset: int, hashes: set[int]
) -> Iterator[ConsumeQueueEntry]:
    """Entries of a queue, newest first, as far as they have not expired."""
    least, stop = queue.min_queue_offset(min_physical_offset), queue.max_queue_offset()
    step = _FIRST_ENTRIES
    while least < stop:
        start = max(stop - step, least)
        try:
            entries = list(queue.entries(start, stop))
        except StoreNotFoundError:
            return
        for entry in reversed(entries):
            if entry != PRE_BLANK and (not hashes or entry.tags_code in hashes):
                yield entry
        stop, step = start, min(2 * step, _MOST_ENTRIES)


def _placed(message: MessageExt, physical_offset: int) -> MessageExt:
    """The message with the offset at which it lies, whatever it says itself."""
    if message.physical_offset == physical_offset:
        return message
    return replace(message, physical_offset=physical_offset)
