"""What every open store answers. A server of a store needs nothing else."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reput.arguments import Time
from reput.format.checkpoint import Checkpoint
from reput.format.commit_log import MessageExt
from reput.store.answers import (
    PulledRecords,
    PullResult,
    QueryMessageResult,
    QueryOffsetResult,
    QueryResult,
)


@runtime_checkable
class ReadableStore(Protocol):
    """An open store. Every answer describes the store at the time of the call, whichever process writes it.

    All methods raise UsageError once the store is closed, StoreAccessError for a file that cannot be read, and
    StoreChangedError for one that became shorter while it was read.
    """

    def get(self, physical_offset: int) -> MessageExt:
        """The message that begins at this physical offset. Raises MessageNotFoundError, CorruptMessageError."""
        ...

    def get_record(self, physical_offset: int) -> bytes:
        """The bytes of that message's record as they are stored. Raises as `get` does."""
        ...

    def get_by_queue(self, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
        """The message with this number in a queue. Raises MessageNotFoundError, CorruptMessageError, FormatError."""
        ...

    def get_by_id(self, message_id: str, topic: str | None = None) -> MessageExt:
        """The newest message that `find_by_id` finds. Raises MessageNotFoundError."""
        ...

    def find_by_id(self, message_id: str, topic: str | None = None) -> QueryResult:
        """The message with this offset id, or all with this unique key, newest first."""
        ...

    def query(
        self,
        topic: str | None,
        key: str,
        begin: Time | None = None,
        end: Time | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> QueryResult:
        """All messages that have this key, newest first: exact, and with what the answer covers."""
        ...

    def query_offset(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryOffsetResult:
        """What a 4.9.3 broker's IndexService.queryOffset answers."""
        ...

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int
    ) -> QueryMessageResult:
        """What a 4.9.3 broker's DefaultMessageStore.queryMessage answers."""
        ...

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
    ) -> PullResult:
        """Messages of a queue from that queue offset on, in order.

        Raises MessageNotFoundError where there is no such queue, CorruptMessageError, FormatError.
        """
        ...

    def pull_records(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int = 32,
        tags: str | None = None,
        max_bytes: int | None = None,
    ) -> PulledRecords:
        """The same as records, as they are stored: at most `max_bytes` of them, but one at least."""
        ...

    def min_queue_offset(self, topic: str, queue_id: int, *, check: bool = True) -> int:
        """Queue offset of a queue's first message that has not expired.

        Raises MessageNotFoundError, and with `check` FormatError if only the entries of earlier ones are lost.
        """
        ...

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset that a queue's next message gets. Raises MessageNotFoundError."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp: Time) -> int:
        """Queue offset of a queue's first message stored at or after that time (ms); its end where there is none."""
        ...

    def end_offset_by_time(self, topic: str, queue_id: int, timestamp: Time) -> int:
        """Queue offset after a queue's last message stored at or before that time (ms); its first if there is none."""
        ...

    def topics(self) -> list[str]:
        """Topics that have queues, sorted."""
        ...

    def list_queues(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted."""
        ...

    def begin_offset(self) -> int:
        """Physical offset of the first byte that has not expired."""
        ...

    def end_offset(self) -> int:
        """Physical offset at which the log ends: where the next message would begin, at the earliest."""
        ...

    def checkpoint(self) -> Checkpoint:
        """What the store's owner last wrote to its checkpoint; zeros where there is none."""
        ...

    def close(self) -> None:
        """Close the files. A closed store answers nothing."""
        ...
