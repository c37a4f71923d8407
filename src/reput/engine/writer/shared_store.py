"""The methods of MessageStore for any number of threads. Each call uses a reader of its own."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from os import PathLike, fspath
from threading import Lock
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar, Unpack

from reput.base import StoreConfig, counted, format_time
from reput.core import (
    KnownEnd,
    MessageStore,
    PulledRecords,
    PullResult,
    ReaderOptions,
    UnreadableMessages,
)
from reput.errors import StoreError, UsageError

# Idle readers keep files open, so only a few are kept.
_MOST_IDLE = 8
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")
_AnyPull = TypeVar("_AnyPull", PullResult, PulledRecords)


def _shared(
    method: Callable[Concatenate[MessageStore, _Arguments], _Answer],
) -> Callable[Concatenate[SharedStore, _Arguments], _Answer]:
    """Return a method for SharedStore that calls the given method of MessageStore on one of the store's readers."""

    @wraps(method)
    def ask(
        self: SharedStore, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Answer:
        with self.reader() as reader:
            return method(reader, *arguments, **named)

    return ask


def _shared_pull(
    method: Callable[Concatenate[MessageStore, _Arguments], _AnyPull],
) -> Callable[Concatenate[SharedStore, _Arguments], _AnyPull]:
    """Return a method for SharedStore as `_shared` does. It records the unreadable messages that a pull skips."""

    @wraps(method)
    def pull(
        self: SharedStore, /, *arguments: _Arguments.args, **named: _Arguments.kwargs
    ) -> _AnyPull:
        with self.reader() as reader:
            pulled = method(reader, *arguments, **named)
        self.unreadable.note(pulled.unreadable)
        return pulled

    return pull


class MissingStore(NamedTuple):
    """A configured store that is missing.

    Attributes:
        name: Its name, or the name that it would have.
        path: Its expected path.
        since_ms: Time since which it is missing.
        reason: The reason why it is not served.
    """

    name: str
    path: str
    since_ms: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.name} is missing since {format_time(self.since_ms)}: {self.path}: {self.reason}"
        )


class SharedStore:
    """An open store for any thread. It has a reader for each call in progress, and a few idle readers.

    Attributes:
        path, settings: the arguments with which the store was opened
        config: the settings on which its answers depend
        told_config: the settings if the caller passed them, else None
        is_writable: whether it is a WritableStore
        unreadable: the unreadable messages that pulls have skipped
    """

    is_writable = False

    def __init__(self, path: str | PathLike[str], **settings: Unpack[ReaderOptions]) -> None:
        """Open the store as MessageStore does. Raises the same errors."""
        self.path, self.settings = fspath(path), settings
        self._guard = Lock()
        self._is_closed = False
        self._expiries = 0
        self._known_end = KnownEnd()
        self.unreadable = UnreadableRanges(self.path)
        first = self._open()
        self.config: StoreConfig = first.config
        has_settings = (
            settings.get("config") is not None or settings.get("broker_config") is not None
        )
        self.told_config = first.config if has_settings else None
        self._idle = [first]

    def _open(self) -> MessageStore:
        return MessageStore(self.path, self._known_end, **self.settings)

    def close(self) -> None:
        """Close the files: at once, or after the last call in flight."""
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def bytes_behind(self) -> tuple[int, int] | None:
        """Return the number of log bytes that are not durable, and the number that are not dispatched.

        None if another process writes the log.
        """
        return None

    def check_open(self) -> None:
        """Raise UsageError if the store is closed."""
        if self._is_closed:
            raise UsageError(f"{self.path}: the store is closed")

    @contextmanager
    def reader(self) -> Iterator[MessageStore]:
        """Lend a MessageStore to this thread until the context ends. Raises UsageError if the store is closed."""
        with self._guard:
            self.check_open()
            reader = self._idle.pop() if self._idle else None
            expiries = self._expiries
        if reader is None:
            reader = self._open()
        try:
            yield reader
        finally:
            self._give_back(reader, expiries)

    def _give_back(self, reader: MessageStore, expiries: int) -> None:
        """Keep a reader for later callers, or close it. Do not hold the lock while a reader lists or closes files."""
        while True:
            with self._guard:
                has_room = not self._is_closed and len(self._idle) < _MOST_IDLE
                # If files expired during the call, the reader must close these files before it is kept for later calls.
                # It closes them below, after the lock is released. Then the loop checks again, because more files may
                # have expired meanwhile.
                if has_room and expiries == self._expiries:
                    self._idle.append(reader)
                    return
                expiries = self._expiries
            if not has_room:
                reader.close()
                return
            _drop_expired(reader)

    def drop_expired(self) -> None:
        """Make readers close deleted files, which frees their space. Busy readers do so after their call."""
        with self._guard:
            self._expiries += 1
            expiries = self._expiries
            idle, self._idle = self._idle, []
        for reader in idle:
            _drop_expired(reader)
            self._give_back(reader, expiries)

    # Each call of these methods borrows a reader.
    get = _shared(MessageStore.get)
    get_record = _shared(MessageStore.get_record)
    get_by_queue = _shared(MessageStore.get_by_queue)
    get_by_id = _shared(MessageStore.get_by_id)
    find_by_id = _shared(MessageStore.find_by_id)
    find_by_tags = _shared(MessageStore.find_by_tags)
    query = _shared(MessageStore.query)
    query_offset = _shared(MessageStore.query_offset)
    query_message = _shared(MessageStore.query_message)
    query_records = _shared(MessageStore.query_records)
    quick_query = _shared(MessageStore.quick_query)
    broker_end = _shared(MessageStore.broker_end)
    pull = _shared_pull(MessageStore.pull)
    pull_records = _shared_pull(MessageStore.pull_records)
    quick_records = _shared(MessageStore.quick_records)
    min_queue_offset = _shared(MessageStore.min_queue_offset)
    max_queue_offset = _shared(MessageStore.max_queue_offset)
    offset_by_time = _shared(MessageStore.offset_by_time)
    end_offset_by_time = _shared(MessageStore.end_offset_by_time)
    spans_by_time = _shared(MessageStore.spans_by_time)
    topics = _shared(MessageStore.topics)
    list_queues = _shared(MessageStore.list_queues)
    begin_offset = _shared(MessageStore.begin_offset)
    end_offset = _shared(MessageStore.end_offset)
    checkpoint = _shared(MessageStore.checkpoint)


def _drop_expired(reader: MessageStore) -> None:
    # Ignore errors here: the next call of the reader reports them.
    with suppress(StoreError):
        reader.commit_log.refresh()
        reader.queues.close()
        reader.index.current()


AnyStore = MessageStore | SharedStore
"""An open store of either class: a MessageStore is for a single thread, and threads may share a SharedStore."""

_log = logging.getLogger("reput.serve")
# Number of remembered ranges, and of clients that were informed of a range. The oldest are forgotten first.
_MOST_RANGES, _MOST_NOTICES = 1 << 10, 1 << 14
# At most `_BURST` lines are logged at once, and then one per second.
_BURST = 20.0


class UnreadableRanges:
    """The unreadable messages that requests have met in one store. Any thread may use it."""

    def __init__(self, path: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock_s = path, clock_s
        self._guard = Lock()
        self._ranges: OrderedDict[tuple[str, int, int], UnreadableMessages] = OrderedDict()
        self._notices: OrderedDict[Hashable, None] = OrderedDict()
        self._count = self._unlogged = 0
        self._lines, self._logged_s = _BURST, clock_s()

    @property
    def count(self) -> int:
        """Return the number of ranges met since the store was opened."""
        return self._count

    def ranges(self) -> list[UnreadableMessages]:
        """Return the ranges, oldest first."""
        with self._guard:
            return list(self._ranges.values())

    def note(self, messages: Iterable[UnreadableMessages]) -> None:
        """Record ranges that a request has met, and log the new ones.

        Ranges of a queue with the same end are parts of one range, because pulls may begin anywhere in a range.
        """
        for part in messages:
            with self._guard:
                place = part.topic, part.queue_id, part.end
                before = self._ranges.get(place)
                if before is None or part.begin < before.begin:
                    self._ranges[place] = part
                if before is not None:
                    continue
                self._count += 1
                if len(self._ranges) > _MOST_RANGES:
                    self._ranges.popitem(last=False)
                line = self._line(part)
            if line is not None:
                _log.warning("%s", line)

    def tell(self, client: Hashable, messages: UnreadableMessages) -> bool:
        """Return whether a client still has to be informed of a range. Only the first call returns True."""
        with self._guard:
            name = client, messages.topic, messages.queue_id, messages.end
            if name in self._notices:
                self._notices.move_to_end(name)
                return False
            self._notices[name] = None
            if len(self._notices) > _MOST_NOTICES:
                self._notices.popitem(last=False)
            return True

    def _line(self, messages: UnreadableMessages) -> str | None:
        """Return the line to log for a range; None if too many lines were logged just now."""
        now = self._clock_s()
        self._lines = min(self._lines + now - self._logged_s, _BURST)
        self._logged_s = now
        if self._lines < 1:
            self._unlogged += 1
            return None
        self._lines -= 1
        further = f" (and {counted(self._unlogged, 'further range')})" if self._unlogged else ""
        self._unlogged = 0
        return f"{self._path}: {messages}{further}"
