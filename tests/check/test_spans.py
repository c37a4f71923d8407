"""`Spans.add_ordered`, which uses the order of the log, collects the same spans of entries as `Spans.add`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reput.engine.compare.found import LogEdges, Spans


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=5, unique=True),
    st.integers(0, 20),
    st.lists(st.integers(0, 90), max_size=30),
    st.integers(1, 4),
)
def test_entries_in_order_have_the_spans_of_entries_in_any(
    starts: list[int], rest: int, offsets: list[int], pieces: int
) -> None:
    starts.sort()
    edges = LogEdges(tuple(starts), starts[-1] + rest)
    ordered, plain = Spans(edges), Spans(edges)
    offsets.sort()
    step = -(-len(offsets) // pieces) or 1
    for first in range(0, len(offsets), step):
        part = offsets[first : first + step]
        ordered.add_ordered(len(part), first, part.__getitem__)
        plain.add(np.array(part, np.int64), first)
    assert ordered.by_file == plain.by_file
    assert sum(span.total for span in plain.by_file.values()) == len(offsets)
