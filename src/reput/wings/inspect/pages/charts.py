"""Compute the coordinates of charts. Templates draw them as SVG of 100 by 100 units, stretched to the page's width.

Labels are outside of the SVG, because stretching would distort text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Tell = Callable[[int], str]
_LEAST_WIDTH = 0.4  # Minimum width of a value above zero, so that it stays visible.
_GAP = 0.12  # Gap between two columns, as a share of a column.


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A part of a bar. `style` is a CSS class."""

    x: float
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar with its label, value and note."""

    label: str
    value: str
    segments: tuple[BarSegment, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One series of stacked columns: an SVG path."""

    name: str
    style: str
    path: str
    total: str


@dataclass(frozen=True, slots=True)
class Columns:
    """A chart of stacked columns.

    Attributes:
        layers: The series, the lowest first.
        ticks: The labels of the vertical axis, from the top.
        gaps: The places without data, which have a shaded background: each as (x, width) in percent.
    """

    layers: tuple[Layer, ...]
    ticks: tuple[str, ...]
    gaps: tuple[tuple[float, float], ...] = ()


def stacked(
    series: Sequence[tuple[str, str, Sequence[int]]],
    tell: Tell,
    base: int,
    gaps: Iterable[tuple[float, float]] = (),
) -> Columns:
    """Return a chart of stacked columns.

    Args:
        series: Name, style and values of each series, the lowest series first.
        tell: Formats a value.
        base: Base in which the axis labels are round numbers: 10 or 1024.
        gaps: The places without data, which get a shaded background: each as (x, width) in percent.
    """
    parts = len(series[0][2]) if series else 0
    sums = [sum(values[part] for _, _, values in series) for part in range(parts)]
    top = round_up(max(sums, default=0), base)
    below = [0] * parts
    layers = []
    for name, style, values in series:
        path = _columns_path(values, below, top)
        below = [low + value for low, value in zip(below, values, strict=True)]
        layers.append(Layer(name, style, path, tell(sum(values))))
    return Columns(tuple(layers), (tell(top), tell(top // 2), tell(0)), tuple(gaps))


def sparkline(values: Sequence[int], top: int) -> str:
    """Return the SVG path of a row of small columns. A column with the value `top` has the full height."""
    return _columns_path(values, [0] * len(values), top)


def _columns_path(values: Sequence[int], below: Sequence[int], top: int) -> str:
    if not values or not top:
        return ""
    step = 100 / len(values)
    width = step * (1 - _GAP)
    pieces = []
    for part, (value, low) in enumerate(zip(values, below, strict=True)):
        if value:
            height = max(100 * value / top, 0.5)
            x, y = part * step + step * _GAP / 2, 100 - 100 * low / top
            pieces.append(f"M{x:.2f} {y:.2f}v{-height:.2f}h{width:.2f}v{height:.2f}z")
    return "".join(pieces)


def bar(
    label: str, value: str, parts: Sequence[tuple[float, str]], whole: float, note: str = ""
) -> Bar:
    """Return a bar of consecutive parts, each with its style. Parts that add up to `whole` fill the full width."""
    widths = [max(100 * size / whole, _LEAST_WIDTH) if whole and size else 0.0 for size, _ in parts]
    # Many small parts have the minimum width, so the sum may exceed 100.
    too_long = sum(widths) / 100
    widths = [width / max(too_long, 1.0) for width in widths]
    starts = accumulate(widths, initial=0.0)
    segments = tuple(
        BarSegment(round(x, 3), round(width, 3), style)
        for x, width, (_, style) in zip(starts, widths, parts, strict=False)
        if width > 0
    )
    return Bar(label, value, segments, note)


def round_up(value: int, base: int = 10) -> int:
    """Round up to an even number that is a small multiple of a power of `base`, so that its half is an integer."""
    if value < 2:
        return 2
    power: int = base ** int(math.log(value, base) + 1e-9)
    for step in (1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 800, 1024):
        if step * power >= value and step * power % 2 == 0:
            return step * power
    return value


def logarithmic(duration_ms: int, longest_ms: int) -> float:
    """Return the position of a duration on a logarithmic axis, from 0 to 100."""
    if longest_ms <= 0:
        return 0.0
    return 100 * math.log1p(max(duration_ms, 0) / 100) / math.log1p(longest_ms / 100)
