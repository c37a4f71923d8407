"""Group identical findings per file: the first one and a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind

MOST_OF_A_KIND = 20
"""At most this many findings of each kind are yielded one by one. Further findings of a kind are combined into one."""
NOT_OF_A_CHECK = frozenset(
    {
        Kind.UNDECODABLE_MESSAGE, Kind.BODY_TOO_LARGE, Kind.EXPIRED_UNREAD, Kind.PARTIAL_QUEUE_ENTRY,
        Kind.DISK_FULL, Kind.LOG_GROWTH, Kind.GROUP_LAG, Kind.OFFSET_OUTSIDE_QUEUE,
        Kind.TIMER_ROLLED_AGAIN, Kind.COMMITTED_TWICE, Kind.POP_LOST, Kind.PROOF_OLD,
        Kind.NO_NEW_MESSAGE,
    }
)  # fmt: skip
"""Kinds of findings that a check never reports. They come from reading, exporting, inspecting or surveying a store."""


def time_text(timestamp_ms: int) -> str:
    """Format a store timestamp to the second, or as a number if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def between(first_ms: int, last_ms: int) -> str:
    first, last = time_text(first_ms), time_text(last_ms)
    return f"at {first}" if first == last else f"between {first} and {last}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 key` or `1,707 keys`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
        self,
        kind: Kind,
        file: str,
        count: int,
        first: Callable[[], Finding],
        times: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Add `count` findings of a kind.

        `first` returns the finding; it is called only for the first finding of this kind in the file. `times` are the
        store timestamps (ms) of the affected messages.
        """
        if not count:
            return
        alike = self._alike.get((kind, file))
        if alike is None:
            alike = self._alike[kind, file] = _Alike(first())
        alike.count += count
        if times is not None and len(times):
            low, high = int(times.min()), int(times.max())
            alike.first = low if alike.first is None else min(alike.first, low)
            alike.last = high if alike.last is None else max(alike.last, high)

    def findings(self) -> Iterator[Finding]:
        """Yield each finding with its count, and with the consequence of the damage if the finding's kind has one."""
        for (kind, _), alike in self._alike.items():
            cost = alike.finding.cost
            if kind in _COSTS and alike.first is not None and alike.last is not None:
                noun, template = _COSTS[kind]
                cost = template.format(counted(alike.count, noun), between(alike.first, alike.last))
            yield replace(alike.finding, count=alike.count, cost=cost)


def sampled(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first few findings of each kind immediately. At the end, yield the other findings of a kind as one."""
    seen: Counter[Kind] = Counter()
    more: dict[Kind, Finding] = {}
    for finding in findings:
        if not finding.cost:
            finding = replace(finding, cost=_USUAL_COSTS.get(finding.kind, ""))
        seen[finding.kind] += 1
        if seen[finding.kind] <= MOST_OF_A_KIND:
            yield finding
        elif (first := more.get(finding.kind)) is None:
            more[finding.kind] = finding
        else:
            more[finding.kind] = replace(first, count=first.count + finding.count)
    for kind, first in more.items():
        rest = seen[kind] - MOST_OF_A_KIND
        if rest > 1:
            detail = f"{first.detail}; {counted(rest - 1, 'further finding')} of this kind"
            first = replace(first, detail=detail, cost="")
        yield first


_NO_KEY = "{} of messages stored {} cannot be found by key"
_COSTS = {
    Kind.MISSING_INDEX_ENTRY: ("key", _NO_KEY),
    Kind.INDEX_FILE_LOST: ("key", _NO_KEY),
    Kind.MISSING_QUEUE_ENTRY: ("message", "{} stored {} cannot be consumed"),
    Kind.TOPIC_RECREATED: ("message", "{} stored {} cannot be consumed"),
    Kind.LMQ_OFFSETS_RESTARTED: ("message", "{} stored {} cannot be consumed"),
    Kind.UNDISPATCHED_TAIL: ("message", "{} stored {} cannot be consumed until dispatched"),
    Kind.WRONG_QUEUE_ENTRY: ("message", "{} stored {} cannot be consumed, or pass a wrong filter"),
    Kind.MISPLACED_QUEUE_ENTRY: ("message", "{} stored {} with another queue offset than stated"),
    Kind.DUPLICATE_INDEX_ENTRY: ("key", "{} of messages stored {} are returned twice by queries"),
    Kind.INDEX_TIME: ("key", "{} of messages stored {} are found for the wrong time window"),
    Kind.BODY_CRC: ("message", "{} stored {} without the body that was sent"),
    Kind.RECORD_CRC: ("message", "{} stored {} whose keys, properties or place may be wrong"),
    Kind.MISPLACED_RECORD: ("message", "{} stored {} are at places that no index points to"),
}
"""For each kind of finding: a noun for the things that are counted, and a text with the consequence of the damage.

The text's placeholders are the number with its noun, and the time or times at which the messages were stored.
"""

_USUAL_COSTS = {
    Kind.INDEX_SLOT: "keys of that slot cannot be found",
    Kind.INDEX_ITEM: "keys of that chain cannot be found",
    Kind.INDEX_HEADER: "queries by key skip the file, or miss keys",
    Kind.UNREACHABLE_INDEX_ITEM: "keys of these items, and of items they lead to, cannot be found",
    Kind.BROKEN_INDEX_CHAIN: "older keys of that slot cannot be found",
    Kind.INDEX_FILE_SIZE: "keys whose items are missing cannot be found",
    Kind.STALE_INDEX_ENTRY: "a query returns a message without the key, which the client drops",
    Kind.QUEUE_GAP: "consumers do not get past it",
    Kind.QUEUE_DISORDER: "consumers get messages twice, in the wrong order, or not at all",
    Kind.FOREIGN_QUEUE_ENTRY: "consumers get a message of another queue, or an error",
    Kind.QUEUE_FILE_SIZE: "a broker refuses the store",
    Kind.MISSING_QUEUE_FILE: "its messages cannot be consumed",
    Kind.LOG_FILE_SIZE: "a broker refuses the store",
    Kind.MISSING_LOG_FILE: "all messages of the missing file",
    Kind.CHECKPOINT: "after a crash a broker begins its recovery at the wrong place",
}
"""For kinds of findings that are not in `_COSTS`: the consequence of the damage, as a fixed text.

The page of each kind in docs/findings repeats this text.
"""
