"""Charts of IndexFiles: what they cover, how full they are, how long their chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reput.examine.measuring.figures import IndexCoverage, IndexFileFigures
from reput.operations.pages.charts import Bar, bar, sparkline

_MOST_FILES = 20
_STYLES = {"proven": "good", "spot-checked": "fair", "scanned": "poor"}


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One IndexFile: bars for its items and slots in use, and its slots by chain length."""

    name: str
    items: Bar
    slots: Bar
    chains: str
    chain_words: str
    longest_chain: int
    mean_steps: float
    false_positive_rate: float


def coverage_bar(coverage: IndexCoverage) -> Bar | None:
    """The log from its begin to its end; None where it is empty."""
    if not coverage.log_bytes:
        return None
    parts = [(float(one.end - one.begin), _STYLES[one.basis]) for one in coverage.ranges]
    return bar("", f"{coverage.indexed_bytes / coverage.log_bytes:.1%}", parts, coverage.log_bytes)


def index_rows(files: Sequence[IndexFileFigures]) -> list[IndexRow]:
    """The newest first."""
    rows = []
    for one in reversed(files[-_MOST_FILES:]):
        room = max(one.index_items - 1, 1)
        slots = [count for _, _, count in one.chains]
        rows.append(
            IndexRow(
                one.name,
                bar("Items", f"{one.entries / room:.0%}", [(one.entries, "a")], room),
                bar("Slots", f"{one.slot_load:.0%}", [(one.used_slots, "b")], one.hash_slots),
                sparkline(slots, max(slots, default=0)),
                ", ".join(f"{_lengths(low, high)}: {count:,}" for low, high, count in one.chains),
                one.longest_chain,
                one.mean_steps,
                one.false_positive_rate,
            )
        )
    return rows


def chain_bars(files: Sequence[IndexFileFigures]) -> list[Bar]:
    """Slots of all files by the length of their chains."""
    counts = Counter[tuple[int, int]]()
    for one in files:
        for low, high, count in one.chains:
            counts[low, high] += count
    most = max(counts.values(), default=0)
    return [
        bar(_lengths(low, high), f"{count:,}", [(count, "a" if high else "quiet")], most)
        for (low, high), count in sorted(counts.items())
    ]


def _lengths(low: int, high: int) -> str:
    if low == high:
        return f"{low:,} {'entry' if low == 1 else 'entries'}"
    return f"{low:,} to {high:,} entries"
