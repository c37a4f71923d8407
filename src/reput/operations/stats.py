"""`reput.stats`: measure what a store holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import Any, Unpack

from reput.arguments import checked
from reput.examine.measuring.figures import StoreFigures
from reput.examine.stats import measure_store
from reput.notebook import Report
from reput.operations.stats_text import figure_lines
from reput.operations.stores import takes_stores
from reput.query.open_store import open_store
from reput.store.store_reader import ReaderOptions

STATS_SCHEMA = "reput-stats/1"
"""Raised with every change that a program has to know of; see docs/stats.md."""


@dataclass(frozen=True, slots=True, repr=False)
class StatsReport(Report):
    """Figures of a store: messages and bytes by topic, time and queue, frequent keys, IndexFiles, growth."""

    figures: StoreFigures

    @property
    def is_complete(self) -> bool:
        """Whether all of the log could be read."""
        return not self.figures.damage

    def lines(self) -> Iterator[str]:
        return figure_lines(self.figures)

    def as_dict(self) -> dict[str, Any]:
        return {"schema": STATS_SCHEMA, **self.figures.as_json()}


@takes_stores
@checked
def stats(store: str | PathLike[str], **reading: Unpack[ReaderOptions]) -> StatsReport:
    """Measure a store. The whole log is read once; nothing is written.

    Args:
        store: A store, or its URL.
        reading: Settings as for `open_store`.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError, UsageError.
    """
    with open_store(store, **reading) as opened:
        return StatsReport(measure_store(opened))
