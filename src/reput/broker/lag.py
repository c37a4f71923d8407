"""How far groups are behind: their committed offsets against the ends of the queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reput.broker.committed import committed_offsets
from reput.errors import MessageNotFoundError
from reput.store.readable_store import ReadableStore


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue of a group.

    Attributes:
        group, topic, queue_id: whose and which
        committed: queue offset of the group's next message
        min_offset: queue offset of the first message that has not expired; None where there is no such queue
        max_offset: queue offset that the next message gets; None where there is no such queue
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    min_offset: int | None
    max_offset: int | None

    @property
    def lag(self) -> int | None:
        """Messages that the group has not consumed, those that have expired included; None without the queue."""
        return None if self.max_offset is None else max(self.max_offset - self.committed, 0)

    @property
    def expired(self) -> int:
        """Messages that expired before the group consumed them."""
        return 0 if self.min_offset is None else max(self.min_offset - self.committed, 0)


def consumer_lag(store: ReadableStore, path: str | Path) -> Iterator[QueueLag]:
    """Every queue that a group has committed an offset of, by group, topic and queue id.

    Args:
        store: open.
        path: its folder on this machine, whose config/ has the offsets.

    Raises:
        MissingExtraError: they are in RocksDB, and rocksdict is not installed.
        FormatError: the file, or the database, of offsets is damaged.
        StoreAccessError: something cannot be read.
    """
    for group, topic, queue_id, committed in sorted(committed_offsets(Path(path))):
        try:
            least, most = (
                store.min_queue_offset(topic, queue_id, check=False),
                store.max_queue_offset(topic, queue_id),
            )
        except MessageNotFoundError:
            yield QueueLag(group, topic, queue_id, committed, None, None)
        else:
            yield QueueLag(group, topic, queue_id, committed, least, most)
