"""What MessageStore offers, for any number of threads: each call has its own reader while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from threading import Lock
from typing import Unpack

from reput.arguments import Time
from reput.config import StoreConfig
from reput.errors import StoreError, UsageError
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import MessageExt
from reput.query.broker_view import KnownEnd
from reput.query.message_store import MessageStore
from reput.store.answers import (
    PulledRecords,
    PullResult,
    QueryMessageResult,
    QueryOffsetResult,
    QueryResult,
)
from reput.store.store_reader import ReaderOptions

_MOST_IDLE = 8


class SharedStore:
    """An open store to be asked from any thread. There are as many readers as are asked at once, and some that wait.

    Attributes:
        config: the settings that its answers depend on
        told_config: the same, None where nobody told them
        is_writable: whether it is a WritableStore
    """

    is_writable = False

    def __init__(self, path: str | PathLike[str], **settings: Unpack[ReaderOptions]) -> None:
        """As MessageStore is made; raises what that raises."""
        self.path, self._settings = fspath(path), settings
        self._guard = Lock()
        self._is_closed = False
        self._expiries = 0
        self._known_end = KnownEnd()
        first = self._open()
        self.config: StoreConfig = first.config
        is_told = settings.get("config") is not None or settings.get("broker_config") is not None
        self.told_config = first.config if is_told else None
        self._idle = [first]

    def _open(self) -> MessageStore:
        return MessageStore(self.path, self._known_end, **self._settings)

    def close(self) -> None:
        """Close the files: at once, or when the last call under way has ended."""
        with self._guard:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def check_open(self) -> None:
        """Raises UsageError once the store is closed."""
        if self._is_closed:
            raise UsageError(f"{self.path}: the store is closed")

    @contextmanager
    def reader(self) -> Iterator[MessageStore]:
        """A MessageStore for this thread alone, until the context ends. Raises UsageError once the store is closed."""
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
        """Keep a reader for the next who asks, or close it. Whatever reads a disk is done without the lock."""
        while True:
            with self._guard:
                is_kept = not self._is_closed and len(self._idle) < _MOST_IDLE
                if is_kept and expiries == self._expiries:
                    self._idle.append(reader)
                    return
                expiries = self._expiries
            if not is_kept:
                reader.close()
                return
            _drop_expired(reader)

    def drop_expired(self) -> None:
        """Have readers close the files that were deleted, those at work when they are done: it frees their space."""
        with self._guard:
            self._expiries += 1
            expiries = self._expiries
            idle, self._idle = self._idle, []
        for reader in idle:
            _drop_expired(reader)
            self._give_back(reader, expiries)

    def get(self, physical_offset: int) -> MessageExt:
        """See MessageStore.get."""
        with self.reader() as reader:
            return reader.get(physical_offset)

    def get_record(self, physical_offset: int) -> bytes:
        """See MessageStore.get_record."""
        with self.reader() as reader:
            return reader.get_record(physical_offset)

    def get_by_queue(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """See MessageStore.get_by_queue."""
        with self.reader() as reader:
            return reader.get_by_queue(topic, queue_id, queue_offset)

    def get_by_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """See MessageStore.get_by_id."""
        with self.reader() as reader:
            return reader.get_by_id(message_id, topic)

    def find_by_id(self, message_id: str, topic: str | None = None) -> QueryResult:
        """See MessageStore.find_by_id."""
        with self.reader() as reader:
            return reader.find_by_id(message_id, topic)

    def query(
        self,
        topic: str | None,
        key: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> QueryResult:
        """See MessageStore.query."""
        with self.reader() as reader:
            return reader.query(topic, key, begin, end, limit, after)

    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryOffsetResult:
        """See MessageStore.query_offset."""
        with self.reader() as reader:
            return reader.query_offset(topic, key, max_num, begin, end)

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult:
        """See MessageStore.query_message."""
        with self.reader() as reader:
            return reader.query_message(topic, key, max_num, begin, end)

    def query_records(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> tuple[QueryMessageResult, list[bytes]]:
        """See MessageStore.query_records."""
        with self.reader() as reader:
            return reader.query_records(topic, key, max_num, begin, end)

    def broker_end(self) -> int:
        """See MessageStore.broker_end."""
        with self.reader() as reader:
            return reader.broker_end()

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
    ) -> PullResult:
        """See MessageStore.pull."""
        with self.reader() as reader:
            return reader.pull(topic, queue_id, queue_offset, max_messages, tags)

    def pull_records(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
        max_bytes: int | None = None,
    ) -> PulledRecords:
        """See MessageStore.pull_records."""
        with self.reader() as reader:
            return reader.pull_records(topic, queue_id, queue_offset, max_messages, tags, max_bytes)

    def quick_records(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int, max_bytes: int
    ) -> PulledRecords | None:
        """See MessageStore.quick_records."""
        with self.reader() as reader:
            return reader.quick_records(topic, queue_id, queue_offset, max_messages, max_bytes)

    def min_queue_offset(self, topic: str, queue_id: int, *, check: bool = True) -> int:
        """See MessageStore.min_queue_offset."""
        with self.reader() as reader:
            return reader.min_queue_offset(topic, queue_id, check=check)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """See MessageStore.max_queue_offset."""
        with self.reader() as reader:
            return reader.max_queue_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: Time) -> int:
        """See MessageStore.offset_by_time."""
        with self.reader() as reader:
            return reader.offset_by_time(topic, queue_id, timestamp)

    def end_offset_by_time(self, topic: str, queue_id: int, timestamp: Time) -> int:
        """See MessageStore.end_offset_by_time."""
        with self.reader() as reader:
            return reader.end_offset_by_time(topic, queue_id, timestamp)

    def topics(self) -> list[str]:
        """Topics that have ConsumeQueues, sorted. Raises StoreAccessError."""
        with self.reader() as reader:
            return reader.topics()

    def list_queues(self) -> list[tuple[str, int]]:
        """See MessageStore.list_queues."""
        with self.reader() as reader:
            return reader.list_queues()

    def begin_offset(self) -> int:
        """See MessageStore.begin_offset."""
        with self.reader() as reader:
            return reader.begin_offset()

    def end_offset(self) -> int:
        """See MessageStore.end_offset."""
        with self.reader() as reader:
            return reader.end_offset()

    def checkpoint(self) -> Checkpoint:
        """See MessageStore.checkpoint."""
        with self.reader() as reader:
            return reader.checkpoint()


def _drop_expired(reader: MessageStore) -> None:
    with suppress(StoreError):  # whoever asks next is told
        reader.commit_log.refresh()
        reader.queues.close()
        reader.index.current()
