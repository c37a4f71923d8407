"""Define `reput.lag`, which compares committed offsets of consumer groups with the ends of queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, Unpack

from reput.base import Report, checked, one_line
from reput.core import ReaderOptions
from reput.engine.stores import takes_stores
from reput.engine.stores.open_store import open_store
from reput.errors import UsageError
from reput.wings.serve import QueueLag, consumer_lag

_NAMES = ("group", "topic", "queue", "committed", "end", "lag", "expired")
_NAME_WIDTH = 40


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
        unknown = len(self.problems)
        more = "" if self.is_complete else f", unknown in {unknown:,} queue{'s' * (unknown != 1)}"
        return f"{len(self.queues):,} queues, {total:,} messages behind{more}"

    @property
    def is_complete(self) -> bool:
        """Return whether the lag is known in all existing queues."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """Return the reasons why lags are unknown, one per queue."""
        return [f"{one.group}: {one.problem}" for one in self.queues if one.problem is not None]

    def __len__(self) -> int:
        return len(self.queues)

    def lines(self) -> Iterator[str]:
        if not self.queues:
            none = "No committed offset for that group and topic."
            yield (
                none if self.is_filtered else "No committed offset: config/ of the store has none."
            )
            return
        yield from _table([_NAMES, *map(_cells, self.queues)], 2)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield an object per queue."""
        for queue in self.queues:
            yield {name: getattr(queue, name) for name in (*queue.__slots__, "lag", "expired")}

    def as_dict(self) -> dict[str, Any]:
        return {"queues": list(self.rows())}


def lag_lines(queues: Sequence[tuple[str, QueueLag]]) -> Iterator[str]:
    """Yield a table of queues with their stores, then the lag of each group over all stores."""
    if not queues:
        yield "No committed offset."
        return
    rows = [(one_line(store, _NAME_WIDTH), *_cells(queue)) for store, queue in queues]
    yield from _table([("store", *_NAMES), *rows], 3)
    totals, unknown = Counter[str](), set[str]()
    for _, queue in queues:
        totals[queue.group] += queue.lag or 0
        if queue.problem is not None:
            unknown.add(queue.group)
    yield ""
    groups = [
        (one_line(name, _NAME_WIDTH), "unknown" if name in unknown else f"{lag:,}")
        for name, lag in totals.most_common()
    ]
    yield from _table([("group", "lag"), *groups], 1)


def _table(rows: Sequence[tuple[str, ...]], texts: int) -> Iterator[str]:
    """Yield the lines of a table. The first `texts` columns are left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "   ".join(cells).rstrip()


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
    with open_store(store, **reading) as opened:
        if not opened.storage.is_local:
            raise UsageError(
                f"{fspath(store)}: consumer offsets can be read only from a local store"
            )
        found = tuple(
            queue
            for queue in consumer_lag(opened, opened.path, opened.check_end)
            if group in (None, queue.group) and topic in (None, queue.topic)
        )
    return LagReport(found, is_filtered=group is not None or topic is not None)


def _cells(queue: QueueLag) -> tuple[str, ...]:
    numbers = (queue.queue_id, queue.committed, queue.max_offset, queue.lag, queue.expired)
    shown = ("-" if number is None else f"{number:,}" for number in numbers)
    return one_line(queue.group, _NAME_WIDTH), one_line(queue.topic, _NAME_WIDTH), *shown
