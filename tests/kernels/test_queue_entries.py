"""ConsumeQueue entries: grouped, accepted or dropped, and laid out as in the oracle's queues."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.format.consume_queue import MAX_QUEUE_OFFSET
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from reput.kernels.queue_entries import append_entries, group_entries, summarize_runs
from tests.oracle.consume_queue import ENTRY, ConsumeQueue
from tests.slow import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

EXAMPLES = examples(10 if INTERPRETED else 30)
ONE_FILE = 1 << 30  # the oracle's queue in one file, so that only entries are compared


class Given(NamedTuple):
    """The fields of an entry."""

    physical_offset: int
    size: int
    tags_code: int
    queue_offset: int


def messages_of(entries: list[Given]) -> npt.NDArray[Any]:
    messages = new_rows(len(entries), MESSAGE_DTYPE)
    for row, entry in enumerate(entries):
        messages[row]["physical_offset"] = entry.physical_offset
        messages[row]["size"] = entry.size
        messages[row]["tags_code"] = entry.tags_code
    return messages


def appended(entries: list[Given], position: int, most: int) -> tuple[bytes, int, int]:
    out = np.zeros((len(entries), 5), np.uint32)
    # The order in memory is reversed; only `rows` maps entries to messages.
    messages = messages_of(entries[::-1])
    rows = np.arange(len(entries), dtype=np.int64)[::-1].copy()
    offsets = np.array([entry.queue_offset for entry in entries], np.int64)
    numbers = np.zeros(len(entries), np.int64)
    none_lost = np.empty((0, 2), np.int64)
    taken, after, most, _, _ = append_entries(
        messages, rows, offsets, position, most, none_lost, 0, out, numbers
    )
    assert numbers[:taken].tolist() == list(range(position, after)), "no gap is explained"
    return out[:taken].tobytes(), int(after), int(most)


given_entries = st.lists(
    st.builds(
        Given,
        st.integers(0, 60),
        st.integers(1, 20),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 12) | st.just(0),
    ),
    max_size=25,
)


@given(given_entries, st.integers(0, 6))
@example([Given(0, 5, 0, 0), Given(5, 5, 0, 0), Given(5, 5, 0, 1), Given(4, 5, 0, 1)], 0)
@example([Given(0, 5, 0, 2), Given(5, 5, 0, 9), Given(10, 5, 0, 3), Given(15, 5, 0, 4)], 2)
@settings(max_examples=EXAMPLES)
def test_entries_are_taken_as_the_oracle_takes_them(entries: list[Given], start: int) -> None:
    oracle = ConsumeQueue(ONE_FILE)
    oracle.files[0] = bytearray(start * ENTRY.size)
    oracle.files[-ONE_FILE] = bytearray()  # an earlier file, so that the queue does not begin here
    for entry in entries:
        oracle.put(*entry)
    data, position, most = appended(entries, start, -1)
    assert data == bytes(oracle.files[0])[start * ENTRY.size :]
    assert position == len(oracle.files[0]) // ENTRY.size
    assert most == oracle.max_physical_offset


@given(given_entries, st.integers(0, 25))
@settings(max_examples=EXAMPLES)
def test_one_call_is_as_good_as_two(entries: list[Given], cut: int) -> None:
    whole = appended(entries, 3, 7)
    first, position, most = appended(entries[:cut], 3, 7)
    second, position, most = appended(entries[cut:], position, most)
    assert (first + second, position, most) == whole


@pytest.mark.parametrize("queue_offset", [MAX_QUEUE_OFFSET + 1, 2**63 - 1, -1, -(2**63)])
def test_a_queue_offset_that_no_file_can_have_is_dropped(queue_offset: int) -> None:
    assert appended([Given(0, 5, 0, queue_offset)], 0, -1) == (b"", 0, -1)
    data, position, _ = appended([Given(0, 5, 0, MAX_QUEUE_OFFSET)], 0, -1)
    assert (len(data), position) == (20, 1)


def test_numbers_of_every_width_are_laid_out() -> None:
    entry = Given(2**62 + 2**33 + 7, 2**31 - 1, -(2**63) + 5, 0)
    assert appended([entry], 0, -1)[0] == ENTRY.pack(*entry[:3])


batches = st.tuples(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0, 4, 8, 12, 1, 5))), max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 3)), max_size=10).map(sorted),
)


@given(batches)
@settings(max_examples=EXAMPLES)
def test_entries_are_grouped_by_queue_in_log_order(
    batch: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    queues_of_rows, further = batch
    further = [(row, queue) for row, queue in further if row < len(queues_of_rows)]
    messages = new_rows(len(queues_of_rows), MESSAGE_DTYPE)
    expected: dict[int, list[tuple[int, int]]] = {}
    for row, (queue, sys_flag) in enumerate(queues_of_rows):
        messages[row]["queue"], messages[row]["sys_flag"] = queue, sys_flag
        messages[row]["queue_offset"] = 100 + row
        if sys_flag & 4 == 0:
            expected.setdefault(queue, []).append((row, 100 + row))
        for number, (further_row, further_queue) in enumerate(further):
            if further_row == row:
                expected.setdefault(further_queue, []).append((row, 1000 + number))
    multi = new_rows(len(further), MULTI_DTYPE)
    for number, (row, queue) in enumerate(further):
        multi[number]["row"], multi[number]["queue"] = row, queue
        multi[number]["queue_offset"] = 1000 + number
    bounds = np.full(5, 99, np.int64)
    rows, offsets = (np.zeros(len(messages) + len(multi), np.int64) for _ in range(2))
    count = group_entries(messages, multi, bounds, rows, offsets)
    assert bounds[0] == 0
    assert count == bounds[4] == sum(map(len, expected.values()))
    for queue in range(4):
        part = slice(bounds[queue], bounds[queue + 1])
        found = list(zip(rows[part].tolist(), offsets[part].tolist(), strict=True))
        assert found == expected.get(queue, [])


@given(
    st.lists(st.integers(0, 30) | st.sampled_from((0, -1, -(2**63))), max_size=15),
    st.integers(0, 40),
)
@example([5, -(2**63)], 0)
@settings(max_examples=EXAMPLES)
def test_a_run_is_taken_whole_up_to_its_slack(offsets: list[int], position: int) -> None:
    bounds = np.array([0, 0, len(offsets)], np.int64)
    first, slack, ahead, highest = (np.full(2, -9, np.int64) for _ in range(4))
    summarize_runs(bounds, np.array(offsets, np.int64), first, slack, ahead, highest)
    assert (first[0], slack[0], highest[0]) == (0, MAX_QUEUE_OFFSET, 0)
    assert (first[1], highest[1]) == (offsets[0] if offsets else 0, max([*offsets, 0]))
    entries = [Given(10 * n, 10, 0, offset) for n, offset in enumerate(offsets)]
    _, after, _ = appended(entries, position, -1)
    assert (after == position + len(offsets)) == (position <= slack[1])
    stated = [offset - n for n, offset in enumerate(offsets) if offset != 0]
    assert ahead[1] == max([*stated, 0])
