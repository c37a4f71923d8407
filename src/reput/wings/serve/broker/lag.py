"""Compare the committed offsets of consumer groups with queues: lag in messages, and in time.

The lag in time is the age of the oldest message that a group has not consumed and that has not expired. An unknown lag
is None, never 0, and states its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reput.base import now_ms
from reput.engine.writer import AnyStore
from reput.errors import FormatError, MessageNotFoundError
from reput.wings.serve.broker.offsets import committed_offsets

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group in which a 5.x broker reads its revive topics."""
AFTER_END, BEFORE_BEGIN = "after the end", "before the begin"
"""Where a committed offset lies that is outside of its queue."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The lag of a group in one queue.

    Attributes:
        group, topic, queue_id: The group and the queue.
        committed: The committed queue offset.
        min_offset: Queue offset of the first message that has not expired; None if the queue does not exist.
        max_offset: Queue offset that the next message gets; None if the queue does not exist.
        problem: The reason why the lag is unknown although the queue exists or was lost; otherwise None.
        oldest_ms: Store time (ms) of the oldest message that the group has not consumed; None if there is none, or if
            its time is unknown.
        age_problem: The reason why the lag in time is unknown although the lag in messages is known; otherwise None.
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    min_offset: int | None
    max_offset: int | None
    problem: str | None = None
    oldest_ms: int | None = None
    age_problem: str | None = None

    @property
    def lag(self) -> int | None:
        """Number of messages that the group has not consumed, including expired ones.

        None if the queue does not exist, or has a `problem`.
        """
        if self.max_offset is None or self.problem is not None:
            return None
        return max(self.max_offset - self.next_offset, 0)

    @property
    def next_offset(self) -> int:
        """Queue offset of the first message that the group has not consumed, if it has not expired."""
        # Unlike other groups, this one commits the offset of its last message (`PopReviveService`).
        return max(self.committed + (self.group == REVIVE_GROUP), 0)

    @property
    def lag_seconds(self) -> float | None:
        """Age of the oldest message that the group has not consumed, in seconds; 0 if the group has consumed all.

        None if it is unknown, or if the queue does not exist.
        """
        if self.oldest_ms is not None:
            return max(now_ms() - self.oldest_ms, 0) / 1000
        return 0.0 if self.lag == 0 and self.age_problem is None else None

    @property
    def expired(self) -> int:
        """Number of messages that expired before the group consumed them."""
        return 0 if self.min_offset is None else max(self.min_offset - self.next_offset, 0)

    @property
    def outside(self) -> str | None:
        """Return `AFTER_END` or `BEFORE_BEGIN` if the committed offset is outside of the queue, else None."""
        if self.max_offset is not None and self.committed > self.max_offset:
            return AFTER_END
        return BEFORE_BEGIN if self.committed < (self.min_offset or 0) else None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group over all of its queues.

    Attributes:
        group: The name of the group.
        lag_messages: Messages that the group has not consumed; None if unknown.
        lag_seconds: Age of the oldest of these messages, in seconds; 0 if there is none, None if unknown.
        problem: The first reason why a figure is unknown; otherwise None.
        offsets_after_end: Number of queues that end before the committed offset.
    """

    group: str
    lag_messages: int | None
    lag_seconds: float | None
    problem: str | None = None
    offsets_after_end: int = 0


def group_lags(queues: Iterable[QueueLag]) -> list[GroupLag]:
    """Return the lag of each group: the largest first, unknown lags last."""
    by_group: dict[str, list[QueueLag]] = {}
    for queue in queues:
        by_group.setdefault(queue.group, []).append(queue)
    lags = [lag_of_group(name, group_queues) for name, group_queues in by_group.items()]
    return sorted(lags, key=lambda lag: (lag.lag_messages is None, -(lag.lag_messages or 0)))


def lag_of_group(name: str, queues: Iterable[QueueLag]) -> GroupLag:
    """Return the sum of the lags of a group's queues. A queue that does not exist has no message."""
    messages, seconds, after_end = 0, 0.0, 0
    problem, age_problem = None, None
    for queue in queues:
        messages += queue.lag or 0
        seconds = max(seconds, queue.lag_seconds or 0.0)
        after_end += queue.outside == AFTER_END
        problem = problem or queue.problem
        age_problem = age_problem or queue.age_problem
    is_unknown, has_no_age = problem is not None, (problem or age_problem) is not None
    return GroupLag(
        name, None if is_unknown else messages, None if has_no_age else seconds,
        problem or age_problem, after_end,
    )  # fmt: skip


def consumer_lag(
    store: AnyStore, path: str | Path, check_end: Callable[[str, int], None] = lambda *queue: None
) -> Iterator[QueueLag]:
    """Yield the lag in every queue with a committed offset, by group, topic and queue id.

    Args:
        store: An open store.
        path: The store's folder on this machine, whose config/ has the offsets.
        check_end: Raises FormatError if a queue lacks entries for its newest messages (`MessageStore.check_end`). By
            default, this is not checked, because it reads the log.

    Raises:
        MissingExtraError: The offsets are in RocksDB, and rocksdict is not installed.
        FormatError: The file or database of offsets is damaged.
        StoreAccessError: A file cannot be read.
    """
    for group, topic, queue_id, committed in sorted(committed_offsets(Path(path))):
        try:
            # For a lost queue, this raises FormatError.
            most = store.max_queue_offset(topic, queue_id)
            least = store.min_queue_offset(topic, queue_id, check=False)
            problem = _after_end(topic, queue_id, committed, most)
            check_end(topic, queue_id)
        except MessageNotFoundError:
            yield QueueLag(group, topic, queue_id, committed, None, None)
        except FormatError as error:
            yield QueueLag(group, topic, queue_id, committed, None, None, str(error))
        else:
            lag = QueueLag(group, topic, queue_id, committed, least, most, problem)
            if lag.lag:
                first = max(lag.next_offset, least)
                oldest, age_problem = _oldest(store, topic, queue_id, first)
                lag = replace(lag, oldest_ms=oldest, age_problem=age_problem)
            yield lag


def _oldest(
    store: AnyStore, topic: str, queue_id: int, queue_offset: int
) -> tuple[int | None, str | None]:
    """Return the store time of a message, or the reason why it is unknown."""
    try:
        return store.get_by_queue(topic, queue_id, queue_offset).store_timestamp, None
    except (MessageNotFoundError, FormatError) as error:
        return None, f"{topic}/{queue_id}: the age of the oldest message is unknown: {error}"


def _after_end(topic: str, queue_id: int, committed: int, end: int) -> str | None:
    """Return the problem of an offset that was committed after the end of its queue, or None."""
    if committed <= end:
        return None
    return (
        f"{topic}/{queue_id}: the committed offset {committed} is {committed - end} after the queue's end {end}: "
        "newest messages or entries are lost, or the topic was created again; a broker sends the group back"
    )
