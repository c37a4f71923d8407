"""The seam between the readers of queues and how a store keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from reput.errors import FormatError
from reput.format.consume_queue import ConsumeQueueEntry
from reput.queues.kinds import QueueKind


class LostEntriesError(FormatError):
    """Entries of a queue are empty or missing although later ones exist.

    resume_offset  queue offset of the first that is there again
    """

    def __init__(self, path: str, offset: int, reason: str, resume_offset: int) -> None:
        super().__init__(path, offset, reason)
        self.resume_offset = resume_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.reason, self.resume_offset)


@runtime_checkable
class QueueReader(Protocol):
    """One queue of a topic: entries by queue offset, from `min_queue_offset` to before `max_queue_offset`.

    folder  where it lies, for messages to people
    kind    how its entries are kept
    """

    folder: str
    kind: QueueKind

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry with that number.

        Raises:
            MessageNotFoundError: it is outside the queue, or has expired.
            LostEntriesError: it is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        ...

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """Entries from `queue_offset` to before `stop`, as far as the queue has them.

        Raises:
            StoreNotFoundError, MessageNotFoundError: one has expired.
            LostEntriesError: one is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        ...

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """The same, each with its queue offset: the first where it takes several. Numbers without an entry that
        no broker gives one (5.x) are passed over. Raises as `entries` does.
        """
        ...

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        """Queue offset after those of an entry that `numbered` gave."""
        ...

    def span(self, queue_offset: int) -> tuple[int, int]:
        """The queue offsets [first, stop) of the entry that holds this one: itself alone but in a batch queue,
        where numbers that are lost together are together, too."""
        ...

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """The entries from `queue_offset` to before `stop` as ConsumeQueue files hold them, some thousand at a time.

        Raises StoreNotFoundError for a file that has expired, StoreAccessError.
        """
        ...

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Queue offset of the first message at or after that physical offset; the maximum where there is none."""
        ...

    def max_queue_offset(self) -> int:
        """Queue offset that the next message gets."""
        ...


@runtime_checkable
class QueueIndex(Protocol):
    """All queues of a store: files of ConsumeQueues, batch queues or RocksDB (5.x).

    folder  where they lie, for messages to people
    """

    folder: str

    def topics(self) -> list[str]:
        """Topics that have a queue, sorted. Raises StoreAccessError."""
        ...

    def list(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted. Raises StoreAccessError."""
        ...

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """One queue. Raises MessageNotFoundError where there is none, StoreAccessError."""
        ...

    def close(self) -> None:
        """Close the files. What is asked for afterwards is opened again."""
        ...
