"""A message store to ask: by physical offset, by queue offset, by message id, by key and time."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, UsageError
from reput.format.commit_log import MessageExt
from reput.format.message_id import decode_offset_id
from reput.query.broker_view import BrokerView
from reput.query.compat import QueryMessageResult, QueryOffsetResult, query_message, query_offset
from reput.query.plan import Planner
from reput.query.pull import PullResult, offset_by_time, pull
from reput.query.result import Coverage, OffsetRange, QueryResult
from reput.query.search import Search, find_end
from reput.query.wanted import Wanted, WantedKey, WantedKeyAnywhere, WantedUniqueKey
from reput.store.store_reader import StoreReader

_Answer = TypeVar("_Answer")


class MessageStore(StoreReader):
    """An open store, made by `open_store`; a context manager, not for several threads at once."""

    def __init__(self, path: str | PathLike[str], **settings: Any) -> None:
        super().__init__(path, **settings)
        self._planner = Planner(self.commit_log, self.index, self.checkpoint())
        self._view = BrokerView(self.commit_log)

    def query(
        self,
        topic: str | None,
        key: str,
        begin: int | None = None,
        end: int | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> QueryResult:
        """All messages of a topic that have this key, newest first: exact and complete.

        topic       None for all that have ConsumeQueues
        key         a unique key, or one of the parts of KEYS; a collision of hashes never shows
        begin, end  store timestamps in milliseconds, both inclusive
        limit       at most so many messages; the result's cursor is then where to go on
        after       a cursor: only messages older than that one

        What no IndexFile covers is scanned; the result's coverage says what was, and what could
        not be read. Raises UsageError, StoreAccessError, StoreChangedError.
        """
        wanted: Wanted = (
            WantedKeyAnywhere(self.queues.topics(), key) if topic is None else WantedKey(topic, key)
        )
        return self._search(wanted, begin=begin, end=end, limit=limit, after=after)

    def find_by_id(self, message_id: str, topic: str | None = None) -> QueryResult:
        """The message with this offset id, or all with this unique key, newest first.

        32 hexadecimal digits may be either: what lies at the offset decides. A unique key is
        looked for in `topic`, or in all topics that have ConsumeQueues. Raises as `query` does.
        """
        message = self._get_by_offset_id(message_id)
        if message is not None:
            place = OffsetRange(
                message.physical_offset, message.physical_offset + message.size_bytes
            )
            return QueryResult((message,), None, Coverage(place, (), (place,), (), ()))
        topics = self.queues.topics() if topic is None else [topic]
        if not topics:
            raise UsageError(
                f"{self.queues.folder}: no topics to look in; give the topic (--topic)"
            )
        return self._search(WantedUniqueKey(topics, message_id))

    def get_by_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """The newest message that `find_by_id` finds.

        Raises MessageNotFoundError, and as `query` does.
        """
        result = self.find_by_id(message_id, topic)
        if not result.messages:
            raise MessageNotFoundError(f"{self.path}: no message with the id {message_id!r}")
        return result.messages[0]

    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryOffsetResult:
        """What the broker's IndexService.queryOffset answers, quirks included.

        See `reput.query.compat`. Raises UsageError where the broker throws, StoreAccessError.
        """
        self.check_open()
        return query_offset(self, topic, key, max_num, begin, end)

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult:
        """What the broker's DefaultMessageStore.queryMessage answers, collisions included."""
        return self._following(
            lambda: query_message(self, self._view, topic, key, max_num, begin, end)
        )

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
    ) -> PullResult:
        """Messages of a queue from that queue offset on, in order; `tags` is None for all, or "a || b".

        A message is taken if its tag is one of these, not merely the tag's hash. The result's status says whether
        there was any, and its `next_begin_offset` where to go on. Raises MessageNotFoundError where there is no such
        queue, CorruptMessageError, StoreAccessError, UsageError.
        """
        return self._following(
            lambda: pull(self, topic, queue_id, queue_offset, max_messages, tags)
        )

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of a queue's first message that is there. Raises as `pull` does."""
        return self._following(
            lambda: self.queues.queue(topic, queue_id).min_queue_offset(self.commit_log.min_offset)
        )

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset that a queue's next message gets. Raises as `pull` does."""
        self.check_open()
        return self.queues.queue(topic, queue_id).max_queue_offset()

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Queue offset of a queue's first message stored at or after that time (ms); its end where there is none.

        Store timestamps are taken to ascend, as in the broker's getOffsetInQueueByTime. Raises as `pull` does.
        """
        return self._following(lambda: offset_by_time(self, topic, queue_id, timestamp))

    def end_offset(self) -> int:
        """Physical offset at which the log ends now: where the next message would begin.

        Raises StoreAccessError, StoreChangedError.
        """
        return self._following(lambda: find_end(self.commit_log, self._planner.segments()))

    def _search(self, wanted: Wanted, **bounds: int | None) -> QueryResult:
        def search() -> QueryResult:
            segments = self._planner.segments()
            return Search(self.commit_log, wanted, **bounds).run(
                segments, self.index.problems + self._planner.problems
            )

        return self._following(search)

    def _following(self, read: Callable[[], _Answer]) -> _Answer:
        """What `read` returns of the store as it is now; read again where files of the log expired under it."""
        self.check_open()
        while True:
            self.commit_log.refresh()
            begin = self.commit_log.min_offset
            try:
                return read()
            except StoreError:
                self.commit_log.refresh()
                if self.commit_log.min_offset == begin:
                    raise

    def _get_by_offset_id(self, message_id: str) -> MessageExt | None:
        try:
            store_host, physical_offset = decode_offset_id(message_id)
            message = self.get(physical_offset)
        except (ValueError, MessageNotFoundError, CorruptMessageError):
            return None
        own = message.store_host == store_host and message.physical_offset == physical_offset
        return message if own else None
