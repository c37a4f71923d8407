"""The interfaces through which queues of any storage are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from reput.base import Finding, Kind
from reput.core.queues.kinds import QueueKind
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry

# Seconds to wait before entries are read again, because the newest one may have been half written.
_PATIENCE_S = 0.02


class LostEntriesError(FormatError):
    """Raised if entries of a queue are empty or missing although later entries exist.

    resume_offset  queue offset of the first entry after the lost ones
    """

    resume_offset: int

    def __init__(self, path: str, offset: int, reason: str, resume_offset: int) -> None:
        super().__init__(path, offset, reason)
        self.resume_offset = resume_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.offset, self.reason, self.resume_offset)


def finding_of(error: FormatError) -> Finding:
    """Return the finding for an unreadable message or entry of a queue."""
    if isinstance(error, CorruptMessageError):
        return Finding(
            Kind.UNREADABLE_RECORD, error.path, error.reason, error.offset, error.physical_offset
        )
    is_gap = isinstance(error, LostEntriesError)
    return Finding.of_error(Kind.QUEUE_GAP if is_gap else Kind.MISSING_QUEUE_ENTRY, error)


@runtime_checkable
class QueueReader(Protocol):
    """One queue of a topic: entries by queue offset, from `min_queue_offset` to before `max_queue_offset`.

    folder  place of the queue, for error messages
    kind    kind of the queue
    """

    folder: str
    kind: QueueKind

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry of a queue offset.

        Raises:
            MessageNotFoundError: the queue offset is outside the queue, or its entry has expired.
            LostEntriesError: the entry is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        ...

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """Yield the existing entries from `queue_offset` to before `stop`.

        Raises:
            StoreNotFoundError, MessageNotFoundError: an entry has expired.
            LostEntriesError: an entry is empty or missing although later entries exist.
            StoreAccessError: a file cannot be read.
        """
        ...

    def numbered(self, queue_offset: int, stop: int) -> Iterator[tuple[int, ConsumeQueueEntry]]:
        """Yield the same entries as `entries`, each with its queue offset. For a batch, this is its first queue offset.

        Queue offsets without an entry, which some 5.x queues have, are skipped. Raises as `entries` does.
        """
        ...

    def after(self, queue_offset: int, entry: ConsumeQueueEntry) -> int:
        """Return the queue offset that follows an entry. The arguments are a pair that `numbered` yielded."""
        ...

    def span(self, queue_offset: int) -> tuple[int, int]:
        """Return the queue offsets [first, stop) of the entry that contains a queue offset.

        Only entries of batch queues contain several queue offsets. In these queues, consecutive lost offsets form one
        span.
        """
        ...

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes of entries from `queue_offset` to before `stop`, as in ConsumeQueue files, in large pieces.

        Raises StoreAccessError, and StoreNotFoundError for a file that has expired.
        """
        ...

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Return the queue offset of the first message at or after a physical offset, or else `max_queue_offset()`."""
        ...

    def max_queue_offset(self) -> int:
        """Return the queue offset that the next message gets."""
        ...


@runtime_checkable
class QueueIndex(Protocol):
    """All queues of a store: ConsumeQueue files, batch queues or RocksDB (5.x).

    folder  place of the queues, for error messages
    """

    folder: str

    def topics(self) -> list[str]:
        """Return the topics that have a queue, sorted. Raises StoreAccessError."""
        ...

    def list(self, topic: str | None = None) -> list[tuple[str, int]]:
        """Return (topic, queue id) of every queue, or of the queues of a topic, sorted. Raises StoreAccessError."""
        ...

    def queue(self, topic: str, queue_id: int) -> QueueReader:
        """Return one queue. Raises StoreAccessError, and MessageNotFoundError for an unknown queue."""
        ...

    def close(self) -> None:
        """Close the files. Later calls open them again."""
        ...


def check_order(queue: QueueReader, queue_offset: int) -> None:
    """Raise FormatError if the entries around a queue offset are not in the order of their messages.

    Searches for a physical offset depend on this order. If one wrong entry misleads a search, it is next to the result.
    """
    if _out_of_order(queue, queue_offset) is not None:
        time.sleep(_PATIENCE_S)
        if (number := _out_of_order(queue, queue_offset)) is not None:
            reason = (
                f"the entry of queue offset {number} leads to an earlier message than the entry before it; "
                "rebuild the ConsumeQueues"
            )
            raise FormatError(queue.folder, number * ENTRY_BYTES, reason)


def _out_of_order(queue: QueueReader, queue_offset: int) -> int | None:
    """Return the queue offset of an entry that leads to an earlier message than the entry before it, else None.

    Two entries on either side of `queue_offset` are read.
    """
    begin = end = queue_offset
    for _ in range(2):
        begin, end = queue.span(max(begin - 1, 0))[0], queue.span(end)[1]
    before = 0
    for start in (begin, queue_offset):
        try:
            for number, entry in queue.numbered(start, end):
                if entry == PRE_BLANK:
                    continue
                if entry.physical_offset < before:
                    return number
                before = entry.physical_offset
            break
        # The files begin at a later queue offset, or entries are lost. Readers of these entries report that.
        except (MessageNotFoundError, LostEntriesError):
            continue
    return None
