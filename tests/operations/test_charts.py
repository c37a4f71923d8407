"""Charts as numbers: columns are stacked and as high as their values, bars are as long as theirs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from reput.wings.inspect.pages.charts import bar, logarithmic, round_up, stacked

_COLUMN = re.compile(r"M([\d.]+) ([\d.]+)v-([\d.]+)h([\d.]+)v([\d.]+)z")
VALUES = some.lists(some.integers(0, 10**12), min_size=3, max_size=3)


@given(some.lists(VALUES, min_size=1, max_size=4), some.sampled_from([10, 1024]))
def test_columns_stand_on_each_other(series: list[list[int]], base: int) -> None:
    chart = stacked([(str(n), f"s{n}", values) for n, values in enumerate(series)], str, base)
    top = int(chart.ticks[0])
    assert (chart.ticks[1], chart.ticks[2]) == (str(top // 2), "0")
    assert max(map(sum, zip(*series, strict=True))) <= top
    below = [0] * 3
    for layer, values in zip(chart.layers, series, strict=True):
        columns = {
            round(float(x) * 3 / 100 - 0.06): (y, h) for x, y, h, *_ in _COLUMN.findall(layer.path)
        }
        assert set(columns) == {part for part, value in enumerate(values) if value}
        for part, (y, height) in columns.items():
            assert float(y) == pytest.approx(100 - 100 * below[part] / top, abs=0.01)
            assert float(height) == pytest.approx(max(100 * values[part] / top, 0.5), abs=0.01)
        below = [low + value for low, value in zip(below, values, strict=True)]


@given(some.integers(0, 10**15), some.sampled_from([10, 1024]))
def test_the_axis_ends_at_a_round_even_number(value: int, base: int) -> None:
    top = round_up(value, base)
    assert value <= top <= max(2.6 * value, 2)
    assert top % 2 == 0


@given(some.lists(some.integers(0, 1000), max_size=300))
def test_parts_of_a_bar_follow_each_other_and_never_leave_it(sizes: list[int]) -> None:
    found = bar("", "", [(size, "a") for size in sizes], sum(sizes)).segments
    assert len(found) == sum(size > 0 for size in sizes)
    end = 0.0
    for segment in found:
        assert segment.x == pytest.approx(end, abs=0.01)
        end = segment.x + segment.width
    assert end <= 100.2
    if found:
        assert end == pytest.approx(100, abs=0.2)


@given(some.integers(1, 10**12), some.data())
def test_the_axis_of_a_life_keeps_the_order_of_time(longest_ms: int, data: some.DataObject) -> None:
    times = sorted(data.draw(some.lists(some.integers(0, longest_ms), max_size=9)))
    places = [logarithmic(time_ms, longest_ms) for time_ms in times]
    assert places == sorted(places)
    assert logarithmic(longest_ms, longest_ms) == pytest.approx(100)
    assert logarithmic(0, longest_ms) == logarithmic(-5, longest_ms) == 0.0
