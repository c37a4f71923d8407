"""Define `reput.lag`, which compares committed offsets of consumer groups with the ends of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.base import Report, aligned, checked, counted, format_duration, one_line
from reput.core import ReaderOptions
from reput.engine.stores import open_store, takes_stores
from reput.errors import UsageError
from reput.wings.serve import GroupLag, QueueLag, consumer_lag, group_lags

_NAMES = ("group", "topic", "queue", "committed", "end", "lag", "oldest", "expired", "outside")
_DERIVED = "lag", "lag_seconds", "expired", "outside"
_NAME_WIDTH, _GAP = 40, "   "


@dataclass(frozen=True, slots=True, repr=False)
class LagReport(Report):
    """The lag of each consumer group in each queue, sorted by group, topic and queue id.

    Attributes:
        queues: One entry per committed offset.
        is_filtered: Whether only one group or topic was requested.
    """

    queues: tuple[QueueLag, ...]
    is_filtered: bool = False

    @property
    def headline(self) -> str:
        total = sum(queue.lag or 0 for queue in self.queues)
        unknown = sum(queue.problem is not None for queue in self.queues)
        more = f", unknown in {counted(unknown, 'queue')}" if unknown else ""
        return f"{counted(len(self.queues), 'queue')}, {counted(total, 'message')} behind{more}"

    @property
    def is_complete(self) -> bool:
        """Return whether the lag is known in all existing queues."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Return the reasons why lags are unknown, one per queue."""
        reasons = ((queue.group, queue.problem or queue.age_problem) for queue in self.queues)
        return [f"{group}: {reason}" for group, reason in reasons if reason is not None]

    @property
    def groups(self) -> list[GroupLag]:
        """Return the lag of each group: the largest first, unknown lags last."""
        return group_lags(self.queues)

    def __len__(self) -> int:
        return len(self.queues)

    def lines(self) -> Iterator[str]:
        if not self.queues:
            none = "No committed offset for that group and topic."
            yield (
                none if self.is_filtered else "No committed offset: config/ of the store has none."
            )
            return
        yield from aligned([_NAMES, *map(_cells, self.queues)], _GAP, texts=2)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield an object per queue."""
        for queue in self.queues:
            yield {name: getattr(queue, name) for name in (*queue.__slots__, *_DERIVED)}

    def as_dict(self) -> dict[str, Any]:
        return {"queues": list(self.rows())}


def lag_lines(queues: Sequence[tuple[str, QueueLag]]) -> Iterator[str]:
    """Yield a table of queues with their stores, then the lag of each group over all stores."""
    if not queues:
        yield "No committed offset."
        return
    rows = [(one_line(store, _NAME_WIDTH), *_cells(queue)) for store, queue in queues]
    yield from aligned([("store", *_NAMES), *rows], _GAP, texts=3)
    yield ""
    groups = [
        (one_line(group.group, _NAME_WIDTH), *lag_cells(group.lag_messages, group.lag_seconds))
        for group in group_lags(queue for _, queue in queues)
    ]
    yield from aligned([("group", "lag", "oldest"), *groups], _GAP, texts=1)


def lag_cells(messages: int | None, seconds: float | None) -> tuple[str, str]:
    """Return a lag in messages and in time as text: `unknown` if unknown, no time if no message waits."""
    return (
        "unknown" if messages is None else f"{messages:,}",
        "unknown" if seconds is None else format_duration(int(seconds * 1000)) if messages else "",
    )


@takes_stores
@checked
def lag(
    store: str | PathLike[str],
    *,
    group: str | None = None,
    topic: str | None = None,
    **reading: Unpack[ReaderOptions],
) -> LagReport:
    """Compare the offsets that consumer groups committed with the queues of a store.

    Args:
        store: A store on this machine.
        group: Only this consumer group.
        topic: Only this topic.
        reading: Settings as for `open_store`.

    Raises:
        UsageError: the store is a URL.
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    with open_store(store, **reading) as reader:
        if not reader.storage.is_local:
            raise UsageError(
                f"{fspath(store)}: consumer offsets can be read only from a local store"
            )
        queues = tuple(
            queue
            for queue in consumer_lag(reader, reader.path, reader.check_end)
            if group in (None, queue.group) and topic in (None, queue.topic)
        )
    return LagReport(queues, is_filtered=group is not None or topic is not None)


def _cells(queue: QueueLag) -> tuple[str, ...]:
    exists = queue.max_offset is not None or queue.problem is not None
    lag, oldest = lag_cells(queue.lag, queue.lag_seconds) if exists else ("no queue", "")
    end = "-" if queue.max_offset is None else f"{queue.max_offset:,}"
    numbers = (f"{queue.queue_id}", f"{queue.committed:,}", end, lag, oldest, f"{queue.expired:,}")
    names = one_line(queue.group, _NAME_WIDTH), one_line(queue.topic, _NAME_WIDTH)
    return *names, *numbers, queue.outside or ""
