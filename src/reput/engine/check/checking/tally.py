"""Group identical findings per file: the first one and a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind, counted, format_time

MOST_OF_A_KIND = 20
"""At most this many findings of each kind are yielded one by one. Further findings of a kind are combined into one."""


def between(first_ms: int, last_ms: int) -> str:
    first, last = format_time(first_ms, to_second=True), format_time(last_ms, to_second=True)
    return f"at {first}" if first == last else f"between {first} and {last}"


@dataclass(slots=True)
class _Alike:
    """Identical findings and their number.

    first, last  earliest and latest store timestamp (ms) of the affected messages; None if unknown
    """

    finding: Finding
    count: int = 0
    first: int | None = None
    last: int | None = None


class Tally:
    """Collects findings by kind and file, so that memory does not grow with the damage."""

    def __init__(self) -> None:
        self._alike: dict[tuple[Kind, str], _Alike] = {}

    def add(
        self, finding: Finding, count: int = 1, times: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Add the first of `count` identical findings. Only the first one of a kind in a file is kept.

        `times` are the store timestamps (ms) of the affected messages.
        """
        alike = self._alike.setdefault((finding.kind, finding.file), _Alike(finding))
        alike.count += count
        if times is not None and len(times):
            low, high = int(times.min()), int(times.max())
            alike.first = low if alike.first is None else min(alike.first, low)
            alike.last = high if alike.last is None else max(alike.last, high)

    def findings(self) -> Iterator[Finding]:
        """Yield each finding with its count, and with the consequence of the damage if the finding's kind has one."""
        for (kind, _), alike in self._alike.items():
            cost = alike.finding.cost
            if kind.noun and alike.first is not None and alike.last is not None:
                number, times = counted(alike.count, kind.noun), between(alike.first, alike.last)
                cost = kind.cost.format(number, times)
            yield replace(alike.finding, count=alike.count, cost=cost)


def sampled(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first few findings of each kind immediately. At the end, yield the other findings of a kind as one."""
    counts: Counter[Kind] = Counter()
    more: dict[Kind, Finding] = {}
    for finding in findings:
        if not finding.cost and not finding.kind.noun:
            finding = replace(finding, cost=finding.kind.cost)
        counts[finding.kind] += 1
        if counts[finding.kind] <= MOST_OF_A_KIND:
            yield finding
        elif (first := more.get(finding.kind)) is None:
            more[finding.kind] = finding
        else:
            more[finding.kind] = replace(first, count=first.count + finding.count)
    for kind, first in more.items():
        rest = counts[kind] - MOST_OF_A_KIND
        if rest > 1:
            detail = f"{first.detail}; {counted(rest - 1, 'further finding')} of this kind"
            first = replace(first, detail=detail, cost="")
        yield first
