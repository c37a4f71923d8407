"""Render the page of `reput trace`: the life of a message as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reput.base import format_duration, one_line
from reput.wings.inspect.pages.charts import logarithmic
from reput.wings.inspect.pages.rendering import render
from reput.wings.inspect.trace_text import reasons_by_life, role_in_words, searched_in_words
from reput.wings.inspect.tracing.life import Event, Life, Role

_NAME_WIDTH = 64
_MARKS_MS = (100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 864_000_000)
_LEAST_DISTANCE = 12.0  # Minimum distance between two marks of the axis, in percent of the axis.
_STYLES = {
    Role.RETRY: "s1", Role.DEAD_LETTER: "poor", Role.SCHEDULED: "s5", Role.TIMER: "s5", Role.HALF: "s4",
    Role.RECALL: "poor", Role.OP: "other", Role.COMMITTED: "s2", Role.DISCARDED_HALF: "poor", Role.PREPARED: "s4",
    Role.ROLLED_BACK: "s3",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """An event on the page: its place on the axis, and its text."""

    event: Event
    x: float
    style: str
    role: str
    gap: str


@dataclass(frozen=True, slots=True)
class Lane:
    """All events of one role in one topic."""

    role: str
    topic: str
    style: str
    moments: tuple[Moment, ...]


def life_page(life: Life, request: str) -> str:
    """Return the page as HTML. `request` is the requested key or id in words."""
    times = [event.stored_ms for event in life.events]
    first_ms, span_ms = min(times, default=0), max(times, default=0) - min(times, default=0)
    moments = [_moment(event, first_ms, span_ms) for event in life.events]
    return render(
        "life.html",
        life=life,
        asked=request,
        moments=moments,
        lanes=_lanes(moments),
        marks=list(_marks(span_ms)),
        span_ms=span_ms,
        reasons=list(reasons_by_life(life)),
        several_lives=len({event.life for event in life.events}) > 1,
        searched=[(coverage, list(searched_in_words(coverage))) for coverage in life.searched],
    )


def _moment(event: Event, first_ms: int, span_ms: int) -> Moment:
    x = logarithmic(event.stored_ms - first_ms, span_ms)
    gap = "" if event.gap_ms is None else format_duration(event.gap_ms)
    return Moment(event, round(x, 2), _STYLES.get(event.role, "s0"), role_in_words(event), gap)


def _lanes(moments: Sequence[Moment]) -> list[Lane]:
    """Return the lanes in the order of their first events."""
    lanes: dict[tuple[Role, str], list[Moment]] = {}
    for moment in moments:
        lanes.setdefault((moment.event.role, moment.event.message.topic), []).append(moment)
    return [
        Lane(role.replace("_", " "), one_line(topic, _NAME_WIDTH), of[0].style, tuple(of))
        for (role, topic), of in lanes.items()
    ]


def _marks(span_ms: int) -> Iterator[tuple[float, str, bool]]:
    """Yield the labels of the axis: position, text, and whether it is the last one."""
    yield 0.0, "first record", False
    last = 0.0
    for mark_ms in _MARKS_MS:
        x = logarithmic(mark_ms, span_ms)
        if x - last >= _LEAST_DISTANCE and x <= 100 - _LEAST_DISTANCE:
            yield round(x, 2), f"+{_round_words(mark_ms)}", False
            last = x
    if span_ms:
        yield 100.0, f"+{format_duration(span_ms)}", True


def _round_words(duration_ms: int) -> str:
    """Format a round duration in one unit, as in `1 s` or `10 min`."""
    return format_duration(duration_ms).removesuffix(" 0 s").removesuffix(" 0 min") \
        .removesuffix(" 0 h").replace(".0 s", " s")  # fmt: skip
