"""Which entry belongs to which message: compared with definitions that are obviously right."""

from itertools import pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from reput.engine.compare.placement import ascending, between, entry_of_each, neighbours

numbers = st.lists(st.integers(0, 12), max_size=8)


def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


@given(numbers, st.sets(st.integers(0, 12)), st.integers(-1, 3))
def test_the_neighbours_of_a_message_are_the_entries_around_it(
    offsets: list[int], solid: set[int], before: int
) -> None:
    known = sorted(solid)
    found = [100 + 2 * at for at in known]  # the number of the entry at each offset
    low, high = neighbours(column(offsets), column(known), column(found), before, 999)
    for offset, least, most in zip(offsets, low, high, strict=True):
        assert least == max((100 + 2 * at for at in solid if at < offset), default=before)
        assert most == next((100 + 2 * at for at in known if at >= offset), 999) or offset in solid
    assert between(low + 1, low, high).tolist() == [
        a + 1 < b for a, b in zip(low, high, strict=True)
    ]
    assert not between(low, low, high).any()
    assert not between(high, low, high).any()


@given(numbers)
def test_as_many_rows_as_possible_ascend(values: list[int]) -> None:
    rows = ascending(column(values)).tolist()
    chosen = [values[row] for row in rows]
    assert rows == sorted(set(rows))
    assert all(a < b for a, b in pairwise(chosen))
    longest = [0] * len(values)
    for at, value in enumerate(values):
        longest[at] = 1 + max((longest[n] for n in range(at) if values[n] < value), default=0)
    assert len(rows) == max(longest, default=0)


@given(numbers, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=8))
@example([5], [(5, 1), (5, 5), (5, 2)])
@example([5, 4], [(4, 3), (5, 1), (5, 2)])
def test_the_entry_at_the_stated_queue_offset_wins(
    offsets: list[int], entries: list[tuple[int, int]]
) -> None:
    entries.sort(key=lambda entry: entry[0])
    stated = [offset % 6 for offset in offsets]
    rows = entry_of_each(
        column(offsets),
        column(stated),
        column([at for at, _ in entries]),
        column([n for _, n in entries]),
    )
    for offset, number, row in zip(offsets, stated, rows.tolist(), strict=True):
        own = [n for n, entry in enumerate(entries) if entry[0] == offset]
        agreeing = [n for n in own if entries[n][1] == number]
        assert row == next(iter(agreeing or own), -1)
