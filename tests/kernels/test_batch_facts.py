"""Store times and ends of queues, summarized by kernels as a plain loop summarizes them."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.format.dtypes import MESSAGE_DTYPE
from reput.kernels.batch_facts import PIECE_DTYPE, find_queue_ends, summarize_times
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from tests.slow import examples

EXAMPLES = examples(10 if INTERPRETED else 30)
_LATEST = 2**63 - 1


class _Message(NamedTuple):
    physical_offset: int
    store_timestamp: int
    queue: int = 0
    queue_offset: int = 0
    sys_flag: int = 0


def _rows(messages: list[_Message]) -> np.ndarray:
    rows = new_rows(len(messages), MESSAGE_DTYPE)
    rows[:] = np.zeros(1, MESSAGE_DTYPE)
    for name in _Message._fields:
        rows[name] = [getattr(message, name) for message in messages]
    return rows


_offsets = st.integers(0, 40) | st.sampled_from((-(2**62), -1, 2**63 - 1, 2**63 - 8))


@given(st.lists(st.tuples(_offsets, st.integers(-5, 5)), max_size=30), st.integers(1, 5))
@example([(2**63 - 1, 0), (-(2**62), 1), (2**63 - 1, 0)], 1)
@settings(max_examples=EXAMPLES)
def test_store_times_are_summarized_by_piece(messages: list[tuple[int, int]], room: int) -> None:
    rows = _rows([_Message(*message) for message in messages])
    for offsets in (np.empty(0, np.int64), rows["physical_offset"].copy()):
        pieces, found, row = new_rows(room, PIECE_DTYPE), [], 0
        while row < len(rows):
            count = summarize_times(rows, offsets, row, 7, pieces)
            found += pieces[:count].tolist()
            row = found[-1][1]
        expected, first = [], 0
        for _, part in groupby(messages, lambda message: message[0] // 7):
            times = [stored for _, stored in part]
            back = sum(later < earlier for earlier, later in pairwise(times))
            expected.append((first, first + len(times), min(times), max(times), back))
            first += len(times)
        assert found == expected


@given(
    st.lists(
        st.builds(
            _Message, st.just(0), st.just(0), st.integers(0, 2), st.integers(-3, 9),
            st.sampled_from((0, 1, 4, 8, 12, 13)),
        ),
        max_size=30,
    )
)  # fmt: skip
@settings(max_examples=EXAMPLES)
def test_queues_have_the_offsets_of_their_dispatched_messages(messages: list[_Message]) -> None:
    first, last = np.full(3, _LATEST), np.full(3, -1)
    rolled_back = find_queue_ends(_rows(messages), first, last)
    assert rolled_back == sum(message.sys_flag & 12 == 12 for message in messages)
    for queue in range(3):
        offsets = [m.queue_offset for m in messages if m.queue == queue and not m.sys_flag & 4]
        assert (first[queue], last[queue]) == (min([*offsets, _LATEST]), max([*offsets, -1]))
