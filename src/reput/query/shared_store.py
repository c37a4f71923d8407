"""What MessageStore offers, for any number of threads: each call has a reader of its own while it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from threading import Lock
from typing import Any

from reput.errors import StoreError, UsageError
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import MessageExt
from reput.query.compat import QueryMessageResult, QueryOffsetResult
from reput.query.message_store import MessageStore
from reput.query.pull import PullResult
from reput.query.result import QueryResult

_MOST_IDLE = 8


class SharedStore:
    """An open store to be asked from any thread. There are as many readers as are asked at once, and some that wait."""

    def __init__(self, path: str | PathLike[str], **settings: Any) -> None:
        """As MessageStore is made; raises what that raises."""
        self.path = fspath(path)
        self._settings = settings
        self._guard = Lock()
        self._is_closed = False
        self._expiries = 0
        self._idle = [MessageStore(self.path, **settings)]

    def close(self) -> None:
        """Give back the maps of the files: at once, or when the last call that goes on has ended."""
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
            reader = MessageStore(self.path, **self._settings)
        try:
            yield reader
        finally:
            with self._guard:
                is_kept = not self._is_closed and len(self._idle) < _MOST_IDLE
                if is_kept:
                    if expiries != self._expiries:
                        _drop_expired(reader)
                    self._idle.append(reader)
            if not is_kept:
                reader.close()

    def drop_expired(self) -> None:
        """Have readers close the files that were deleted, those at work when they are done: it frees their space."""
        with self._guard:
            self._expiries += 1
            for reader in self._idle:
                _drop_expired(reader)

    def get(self, physical_offset: int) -> MessageExt:
        """See MessageStore.get."""
        with self.reader() as reader:
            return reader.get(physical_offset)

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
        begin: int | None = None,
        end: int | None = None,
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

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """See MessageStore.min_queue_offset."""
        with self.reader() as reader:
            return reader.min_queue_offset(topic, queue_id)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """See MessageStore.max_queue_offset."""
        with self.reader() as reader:
            return reader.max_queue_offset(topic, queue_id)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """See MessageStore.offset_by_time."""
        with self.reader() as reader:
            return reader.offset_by_time(topic, queue_id, timestamp)

    def topics(self) -> list[str]:
        """Topics that have ConsumeQueues, sorted. Raises StoreAccessError."""
        with self.reader() as reader:
            return reader.queues.topics()

    def checkpoint(self) -> Checkpoint:
        """See MessageStore.checkpoint."""
        with self.reader() as reader:
            return reader.checkpoint()


def _drop_expired(reader: MessageStore) -> None:
    with suppress(StoreError):  # whoever asks next is told
        reader.commit_log.refresh()
        reader.index.refresh()
