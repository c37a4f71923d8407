"""Render the page of `reput report`: figures and findings of a store, with charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reput.base import (
    DAY_MS,
    Finding,
    Severity,
    counted,
    format_duration,
    format_size,
    now_ms,
    one_line,
    table_time,
)
from reput.wings.inspect.measuring.figures import (
    Frequent,
    IndexCoverage,
    IndexFileFigures,
    StoreFigures,
    TopicFigures,
)
from reput.wings.inspect.pages.charts import Bar, Columns, bar, sparkline, stacked
from reput.wings.inspect.pages.rendering import render, seconds

_MOST_FILES = 20
_STYLES = {"proven": "good", "spot-checked": "fair", "scanned": "poor"}
_SERIES = 6  # Number of topics that get their own colour.
_MOST_TOPICS, _MOST_BARS, _MOST_GAPS = 24, 15, 5
_MOST_PARTS = 64  # A bar shows at most this many queues of a topic.
_NAME_WIDTH = 64
_SHORT_MS = 60_000
_SHOWN_IN_SECONDS_MS = 10_000
_SEVERITIES = (Severity.DAMAGE, Severity.WARNING, Severity.INFO)


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One IndexFile on the page: charts of its used items, its used slots, and its number of slots per chain length.

    The other fields have numbers about the chains, and about false positives of searches.
    """

    name: str
    items: Bar
    slots: Bar
    chains: str
    chain_words: str
    longest_chain: int
    mean_steps: float
    false_positive_rate: float


def coverage_bar(coverage: IndexCoverage) -> Bar | None:
    """Return a bar that shows which ranges of the log are covered by IndexFiles; None if the log is empty."""
    if not coverage.log_bytes:
        return None
    parts = [(float(part.end - part.begin), _STYLES[part.basis]) for part in coverage.ranges]
    return bar("", f"{coverage.indexed_bytes / coverage.log_bytes:.1%}", parts, coverage.log_bytes)


def index_rows(files: Sequence[IndexFileFigures]) -> list[IndexRow]:
    """Return a row per IndexFile, the newest first."""
    rows = []
    for file in reversed(files[-_MOST_FILES:]):
        room = max(file.index_items - 1, 1)
        slots = [count for _, _, count in file.chains]
        rows.append(
            IndexRow(
                file.name,
                bar("Items", f"{file.entries / room:.0%}", [(file.entries, "a")], room),
                bar("Slots", f"{file.slot_load:.0%}", [(file.used_slots, "b")], file.hash_slots),
                sparkline(slots, max(slots, default=0)),
                ", ".join(f"{_lengths(low, high)}: {count:,}" for low, high, count in file.chains),
                file.longest_chain,
                file.mean_steps,
                file.false_positive_rate,
            )
        )
    return rows


def chain_bars(files: Sequence[IndexFileFigures]) -> list[Bar]:
    """Return a bar per chain length: the number of slots whose chains have this length, over all IndexFiles."""
    counts = Counter[tuple[int, int]]()
    for file in files:
        for low, high, count in file.chains:
            counts[low, high] += count
    most = max(counts.values(), default=0)
    return [
        bar(_lengths(low, high), f"{count:,}", [(count, "a" if high else "quiet")], most)
        for (low, high), count in sorted(counts.items())
    ]


def _lengths(low: int, high: int) -> str:
    if low == high:
        return counted(low, "entry", "entries")
    return f"{low:,} to {counted(high, 'entry', 'entries')}"


def store_page(
    figures: StoreFigures,
    findings: Sequence[Finding],
    command_of: Callable[[Finding], str],
    *,
    is_quick: bool,
) -> str:
    """Return the page as HTML.

    Args:
        figures: Figures of the store.
        findings: Findings of its check.
        command_of: Returns the command that repairs a finding, or an empty string.
        is_quick: Whether the check was a quick check.
    """
    return render(
        "store.html",
        figures=figures,
        wrong=sum(finding.count for finding in findings if finding.is_wrong),
        is_damaged=any(finding.severity is Severity.DAMAGE for finding in findings),
        is_quick=is_quick,
        finding_bars=_finding_bars(findings),
        findings=_by_kind(findings, command_of),
        span=_span(figures),
        charts=_over_time(figures),
        part_rows=list(_part_rows(figures)),
        gap_bars=_gap_bars(figures),
        topics=_topics(figures),
        other_topics=max(len(figures.topics) - _MOST_TOPICS, 0),
        queue_bars=_queue_bars(figures),
        key_bars=_frequent_bars(figures.keys, with_topic=True),
        tag_bars=_frequent_bars(figures.tags, with_topic=False),
        group_bars=_group_bars(figures),
        coverage=coverage_bar(figures.coverage),
        index_rows=index_rows(figures.index_files),
        index_files=len(figures.index_files),
        chain_bars=chain_bars(figures.index_files),
        false_positives=sum(file.false_positive_rate for file in figures.index_files),
        disk=_disk(figures),
    )


def _span(figures: StoreFigures) -> tuple[str, str, str]:
    """Return the labels of the timeline's begin, middle and end."""
    line = figures.timeline
    ends = (0, line.parts * line.part_ms // 2, line.parts * line.part_ms)
    # Times on a shorter timeline are shown more precisely: to the minute (16 characters), second (19) or millisecond.
    length = 16 if ends[-1] > DAY_MS else 19 if ends[-1] > _SHORT_MS else 23
    first, middle, last = (table_time(line.begin_ms + end, length) for end in ends)
    return first, middle, last


def _over_time(figures: StoreFigures) -> list[tuple[str, str, Columns]]:
    if not figures.topics:
        return []
    named, rest = figures.topics[:_SERIES], figures.topics[_SERIES:]
    line = figures.timeline
    length_ms = line.parts * line.part_ms
    gaps = []
    for gap in figures.gaps:
        # Shade only gaps of at least one column. A shorter gap leaves no column of the chart empty.
        if gap.end_ms - gap.begin_ms >= line.part_ms:
            begin = min(max(100 * (gap.begin_ms - line.begin_ms) / length_ms, 0.0), 100.0)
            end = min(max(100 * (gap.end_ms - line.begin_ms) / length_ms, 0.0), 100.0)
            gaps.append((round(begin, 2), round(end - begin, 2)))

    def chart(values_of: Callable[[TopicFigures], list[int]], tell: Any, base: int) -> Columns:
        series = [
            (one_line(topic.topic, _NAME_WIDTH), f"s{number}", values_of(topic))
            for number, topic in enumerate(named)
        ]
        if rest:
            sums = [sum(values) for values in zip(*map(values_of, rest), strict=True)]
            series.append((f"{len(rest):,} other topics", "other", sums))
        return stacked(series, tell, base, gaps)

    part = format_duration(line.part_ms)
    messages = chart(lambda topic: topic.messages, lambda count: f"{count:,}", 10)
    sizes = chart(lambda topic: topic.size_bytes, format_size, 1024)
    return [(f"Messages per {part}", "messages", messages), (f"Bytes per {part}", "bytes", sizes)]


def _part_rows(figures: StoreFigures) -> Iterator[tuple[str, int, int]]:
    line = figures.timeline
    for part in range(line.parts):
        messages = sum(topic.messages[part] for topic in figures.topics)
        size = sum(topic.size_bytes[part] for topic in figures.topics)
        yield seconds(line.begin_ms + part * line.part_ms), messages, size


def _gap_bars(figures: StoreFigures) -> list[Bar]:
    gaps = figures.gaps[:_MOST_GAPS]
    longest = max((gap.end_ms - gap.begin_ms for gap in gaps), default=0)
    bars = []
    for gap in gaps:
        length = gap.end_ms - gap.begin_ms
        format_end = seconds if length >= _SHOWN_IN_SECONDS_MS else table_time
        begin, end = format_end(gap.begin_ms), format_end(gap.end_ms)
        label = f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"
        bars.append(bar(label, format_duration(length), [(length, "quiet")], longest))
    return bars


def _topics(figures: StoreFigures) -> list[dict[str, Any]]:
    topics = figures.topics[:_MOST_TOPICS]
    return [
        {
            "name": one_line(topic.topic, _NAME_WIDTH),
            "style": f"s{number}" if number < _SERIES else "other",
            "messages": topic.all_messages,
            "bytes": topic.all_bytes,
            "message_path": sparkline(topic.messages, max(topic.messages)),
            "byte_path": sparkline(topic.size_bytes, max(topic.size_bytes)),
            "most": max(topic.messages),
        }
        for number, topic in enumerate(topics)
    ]


def _queue_bars(figures: StoreFigures) -> list[Bar]:
    """Return a bar per topic, the largest topic first. Each bar has a part per queue."""
    sizes: dict[str, list[int]] = {}
    for queue in figures.queues:
        sizes.setdefault(queue.topic, []).append(queue.size_bytes)
    largest = max((topic.all_bytes for topic in figures.topics), default=0)
    bars = []
    for topic in figures.topics[:_MOST_BARS]:
        of_queues = sizes.get(topic.topic, [])
        part_sizes = [*of_queues[:_MOST_PARTS], sum(of_queues[_MOST_PARTS:])]
        parts = [(float(size), "ab"[place % 2]) for place, size in enumerate(part_sizes)]
        share = topic.all_bytes / figures.size_bytes if figures.size_bytes else 0.0
        queues = counted(len(of_queues), "queue")
        most = f", {format_size(max(of_queues))} in the largest" if len(of_queues) > 1 else ""
        bars.append(
            bar(one_line(topic.topic, _NAME_WIDTH), f"{format_size(topic.all_bytes)}, {share:.0%}",
                parts, largest, queues + most)
        )  # fmt: skip
    return bars


def _frequent_bars(values: Sequence[Frequent], *, with_topic: bool) -> list[Bar]:
    most = max((value.count for value in values), default=0)
    return [
        bar(
            one_line(value.text, _NAME_WIDTH), f"{value.count:,}",
            # The count is an upper bound. In the bar, the part by which it may be too high has a different style.
            [(value.count - value.error, "a"), (value.error, "unsure")], most,
            one_line(value.topic, _NAME_WIDTH) if with_topic else "",
        )
        for value in values[:_MOST_BARS]
    ]  # fmt: skip


def _group_bars(figures: StoreFigures) -> list[Bar]:
    most = max((group.retries + group.dead_letters for group in figures.groups), default=0)
    return [
        bar(
            one_line(group.group, _NAME_WIDTH),
            f"{counted(group.retries, 'retry', 'retries')}, {counted(group.dead_letters, 'dead letter')}",
            [(group.retries, "retry"), (group.dead_letters, "dead")], most,
        )
        for group in figures.groups[:_MOST_BARS]
    ]  # fmt: skip


def _finding_bars(findings: Sequence[Finding]) -> list[Bar]:
    counts = Counter[tuple[Severity, str]]()
    for finding in findings:
        counts[finding.severity, str(finding.kind)] += finding.count
    most = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (_SEVERITIES.index(item[0][0]), -item[1]))
    return [
        bar(kind, f"{count:,}", [(count, str(severity))], most, str(severity))
        for (severity, kind), count in ordered
    ]


def _by_kind(
    findings: Sequence[Finding], command_of: Callable[[Finding], str]
) -> list[tuple[str, list[tuple[Finding, str]]]]:
    """Return the findings by kind, the most severe first, each with the command that repairs it."""
    kinds: dict[str, list[tuple[Finding, str]]] = {}
    for finding in sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)):
        kinds.setdefault(str(finding.kind), []).append((finding, command_of(finding)))
    return list(kinds.items())


def _disk(figures: StoreFigures) -> dict[str, Any] | None:
    """Return the sizes of the disk, and the time until it is full; None if the sizes are unknown."""
    sizing = figures.sizing
    if sizing.used_bytes is None or sizing.free_bytes is None:
        return None
    whole = sizing.used_bytes + sizing.free_bytes
    store_bytes = min(figures.size_bytes * sizing.store_bytes_per_log_byte, sizing.used_bytes)
    parts = [
        (store_bytes, "a"),
        (sizing.used_bytes - store_bytes, "other"),
        (sizing.free_bytes, "free"),
    ]
    return {
        "whole": whole,
        "store": store_bytes,
        "others": sizing.used_bytes - store_bytes,
        "bar": bar("", "", parts, whole),
        "used_share": 100 * sizing.used_bytes / whole if whole else 0.0,
        "full_ms": None
        if sizing.days_until_full is None
        else now_ms() + int(sizing.days_until_full * DAY_MS),
    }
