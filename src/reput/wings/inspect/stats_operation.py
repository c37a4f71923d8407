"""Define `reput.stats`, which measures the contents of a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Unpack

from reput.base import (
    Report,
    aligned,
    checked,
    counted,
    format_days,
    format_duration,
    format_size,
    format_time,
    one_line,
    printable,
)
from reput.core import ReaderOptions
from reput.engine.stores import open_store, takes_stores
from reput.wings.inspect.measuring.figures import Frequent, StoreFigures, TopicFigures
from reput.wings.inspect.stats import measure_store

STATS_SCHEMA = "reput-stats/1"
"""Version of the JSON form; its number grows with every incompatible change (docs/stats.md)."""


_MOST_ROWS = 20
_BARS = " ▁▂▃▄▅▆▇█"
_NAME_WIDTH = 48
Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class StatsReport(Report):
    """Figures of a store: messages and bytes by topic, time and queue, frequent keys, IndexFiles, growth."""

    figures: StoreFigures

    @property
    def is_complete(self) -> bool:
        """Whether the whole log was readable."""
        return not self.figures.damage

    @property
    def headline(self) -> str:
        figures = self.figures
        size, topics = format_size(figures.size_bytes), len(figures.topics)
        least = "" if self.is_complete else "at least "
        return (
            f"{least}{counted(figures.messages, 'message')} in {counted(topics, 'topic')}, {size}"
        )

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
    with open_store(store, **reading) as reader:
        return StatsReport(measure_store(reader))


def figure_lines(figures: StoreFigures) -> Iterator[str]:
    """Yield a heading, tables of at most 20 rows each, then sentences on index coverage and growth.

    The rows with the largest figures come first, but IndexFiles are listed from the newest.
    """
    size = format_size(figures.size_bytes)
    batches = ""
    if figures.inner_batches:
        batches = f" ({figures.inner_batches:,} of them inner batches of several)"
    name, entries = (
        printable(figures.store),
        counted(figures.index_entries, "index entry", "index entries"),
    )
    yield f"{name}: {counted(figures.messages, 'message')}{batches}, {size}, {entries}"
    if figures.damage:
        lost = format_size(sum(finding.length for finding in figures.damage))
        yield f"The figures are incomplete: {lost} of the log could not be read, and are not counted."
    line = figures.timeline
    if figures.messages:
        yield (
            f"stored from {format_time(line.begin_ms)} to {format_time(figures.newest_ms)}, "
            f"{format_duration(line.part_ms)} per column below"
        )
    yield from _topic_lines(figures)
    for title, header, rows in (
        ("Queues", ("queue", "messages", "bytes"), list(_queues(figures))),
        ("Longest times without a message", ("from", "to", "for"), list(_gaps(figures))),
        ("Frequent keys", ("topic", "key", "messages, at most"), list(_frequent(figures.keys))),
        (
            "Frequent tags",
            ("topic of one", "tag", "messages, at most"),
            list(_frequent(figures.tags)),
        ),
        ("Consumer groups", ("group", "retries", "dead letters"), list(_groups(figures))),
        ("IndexFiles", _INDEX_HEADER, list(_index_files(figures))),
    ):
        yield from _table_lines(title, header, rows)
    yield ""
    yield _coverage(figures)
    yield from _sizing(figures)


def _topic_lines(figures: StoreFigures) -> Iterator[str]:
    rows = [
        (
            one_line(topic.topic, _NAME_WIDTH),
            f"{topic.all_messages:,}",
            format_size(topic.all_bytes),
            _bars(topic),
        )
        for topic in figures.topics
    ]
    return _table_lines("Topics", ("topic", "messages", "bytes", "messages over time"), rows)


def _bars(topic: TopicFigures) -> str:
    """Return a character per part of the timeline: a bar for the part's number of messages, a space for 0."""
    most = max(topic.messages)
    steps = len(_BARS) - 1
    # Round the heights of the bars up, so that only parts of the timeline without messages are blank.
    return "".join(_BARS[-(-count * steps // most)] for count in topic.messages).rstrip()


def _table_lines(title: str, header: Row, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield title
    yield from (f"  {line}" for line in aligned([header, *rows[:_MOST_ROWS]]))
    if len(rows) > _MOST_ROWS:
        yield f"  and {len(rows) - _MOST_ROWS:,} more"


def _queues(figures: StoreFigures) -> Iterator[Row]:
    for queue in figures.queues:
        name = f"{one_line(queue.topic, _NAME_WIDTH)}/{queue.queue_id}"
        yield name, f"{queue.messages:,}", format_size(queue.size_bytes)


def _gaps(figures: StoreFigures) -> Iterator[Row]:
    for gap in figures.gaps:
        length = format_duration(gap.end_ms - gap.begin_ms)
        yield format_time(gap.begin_ms), format_time(gap.end_ms), length


def _frequent(values: Sequence[Frequent]) -> Iterator[Row]:
    for value in values:
        topic, text = one_line(value.topic, _NAME_WIDTH), one_line(value.text, _NAME_WIDTH)
        yield topic, text, f"{value.count:,}"


def _groups(figures: StoreFigures) -> Iterator[Row]:
    for group in figures.groups:
        name = one_line(group.group, _NAME_WIDTH)
        yield name, f"{group.retries:,}", f"{group.dead_letters:,}"


_INDEX_HEADER = ("file", "entries", "full", "slots used", "longest chain", "entries read", "wrong hash")  # fmt: skip


def _index_files(figures: StoreFigures) -> Iterator[Row]:
    for file in reversed(figures.index_files):
        yield (
            file.name,
            f"{file.entries:,}",
            f"{file.entries / max(file.index_items - 1, 1):.0%}",
            f"{file.slot_load:.0%}",
            f"{file.longest_chain:,}",
            f"{file.mean_steps:.1f}",
            f"{file.false_positive_rate:.4%}",
        )


def _coverage(figures: StoreFigures) -> str:
    coverage = figures.coverage
    share = coverage.indexed_bytes / coverage.log_bytes if coverage.log_bytes else 0.0
    return (
        f"{counted(coverage.files, 'IndexFile', verb='covers')} {share:.1%} of the log, "
        f"{coverage.spot_checked_files:,} of them "
        f"only spot-checked; a query reads the rest message by message."
    )


def _sizing(figures: StoreFigures) -> Iterator[str]:
    sizing = figures.sizing
    if sizing.keys_per_day is None or sizing.log_bytes_per_day is None:
        yield "The log spans less than a minute: too little for rates."
        return
    yield (
        f"Per day: {format_size(sizing.log_bytes_per_day)} of log, {sizing.keys_per_day:,.0f} index entries; "
        f"with its indexes the store takes {sizing.store_bytes_per_log_byte:.2f} bytes per byte of log."
    )
    if sizing.hours_per_index_file is not None and sizing.index_items and sizing.hash_slots:
        yield (
            f"An IndexFile lasts {sizing.hours_per_index_file:,.1f} hours; for one a day: maxIndexNum "
            f"{sizing.index_items}, maxHashSlotNum {sizing.hash_slots}."
        )
    if sizing.free_bytes is not None and sizing.days_until_full is not None:
        yield (
            f"{format_size(sizing.free_bytes)} are free: at the growth of the log's last day, the disk is full in "
            f"{format_days(sizing.days_until_full)} days if nothing expires."
        )
