"""ConsumeQueue entries: grouped, accepted or dropped, and laid out as in the oracle's queues."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.engine.rebuild.batch_file import BatchFileWriter, new_runs, read_entries
from reput.format.consume_queue import MAX_QUEUE_OFFSET
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.io.writer import FileWriter
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from reput.kernels.queue_entries import append_entries, extend_runs, group_entries
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
    messages, multi = _batch(*batch)
    expected: dict[int, list[tuple[int, int]]] = {}
    for row, message in enumerate(messages):
        if message["sys_flag"] & 4 == 0:
            expected.setdefault(message["queue"], []).append((row, message["queue_offset"]))
        for further in multi[multi["row"] == row]:
            expected.setdefault(further["queue"], []).append((row, further["queue_offset"]))
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
    messages = new_rows(len(offsets), MESSAGE_DTYPE)
    messages[:] = np.zeros(1, MESSAGE_DTYPE)
    messages["queue"], messages["queue_offset"] = 1, offsets
    runs, no_multi = new_runs(2), new_rows(0, MULTI_DTYPE)
    half = len(offsets) // 2
    # A run grows with each batch.
    extend_runs(messages[:half], no_multi, runs)
    extend_runs(messages[half:], no_multi, runs)
    assert runs[0].tolist() == (0, 0, 0, 0, 0)
    assert runs["entries"][1] == len(offsets)
    if not offsets:
        return
    slack, ahead = runs["slack"][1], runs["ahead"][1]
    assert (runs["first"][1], runs["highest"][1]) == (offsets[0], max([*offsets, 0]))
    entries = [Given(10 * n, 10, 0, offset) for n, offset in enumerate(offsets)]
    _, after, _ = appended(entries, position, -1)
    assert (after == position + len(offsets)) == (position <= slack)
    stated = [offset - n for n, offset in enumerate(offsets) if offset != 0]
    assert ahead == max([*stated, 0])


@given(batches)
@settings(max_examples=EXAMPLES)
def test_runs_count_the_entries_of_further_queues_in_log_order(
    batch: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    messages, multi = _batch(*batch)
    runs = new_runs(4)
    extend_runs(messages, multi, runs)
    bounds, offsets = np.empty(5, np.int64), np.empty(len(messages) + len(multi), np.int64)
    group_entries(messages, multi, bounds, np.empty_like(offsets), offsets)
    for queue, run in enumerate(runs.tolist()):
        part = offsets[bounds[queue] : bounds[queue + 1]].tolist()
        if part:
            distances = [offset - index for index, offset in enumerate(part)]
            assert run == (len(part), part[0], min(distances), max([*distances, 0]), max(part))
        else:
            assert run == (0, 0, 0, 0, 0)


@given(batches)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_entries_are_read_from_a_staged_file_as_they_are_appended(
    tmp_path: Path, batch: tuple[list[tuple[int, int]], list[tuple[int, int]]]
) -> None:
    messages, multi = _batch(*batch)
    queues = [Queue("T", number) for number in range(4)]
    staged = DispatchBatch(messages, np.empty(0, np.int32), multi, queues)
    with FileWriter(tmp_path / "staged", size=0) as file:
        writer = BatchFileWriter(file)
        writer.append(staged)
        writer.finish(None, new_runs(0))
    (found,) = read_entries(str(tmp_path / "staged"))
    assert found.queues == queues
    for queue in range(4):
        part = slice(*found.bounds[queue : queue + 2].tolist())
        expected = [entries for entries in staged.by_queue() if entries.number == queue]
        rows = [row for entries in expected for row in entries.rows.tolist()]
        entry = messages[["physical_offset", "size", "tags_code"]][rows].tolist()
        assert found.entries[part].tobytes() == b"".join(ENTRY.pack(*fields) for fields in entry)
        for entries in expected:
            last = messages[rows[-1]]
            assert found.first[queue] == entries.queue_offset[0]
            assert found.end[queue] == last["physical_offset"] + last["size"]


def _batch(
    queues_of_rows: list[tuple[int, int]], further: list[tuple[int, int]]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return messages, each in a queue with these flags, and their entries in further queues. No offset is 0."""
    further = [(row, queue) for row, queue in further if row < len(queues_of_rows)]
    messages = new_rows(len(queues_of_rows), MESSAGE_DTYPE)
    multi = new_rows(len(further), MULTI_DTYPE)
    messages[:] = np.zeros(1, MESSAGE_DTYPE)
    for row, (queue, sys_flag) in enumerate(queues_of_rows):
        messages[row]["queue"], messages[row]["sys_flag"] = queue, sys_flag
        messages[row]["queue_offset"], messages[row]["physical_offset"] = 100 + row, 1000 * row
        messages[row]["size"], messages[row]["tags_code"] = 91 + row, -(2**40) * row
    for number, (row, queue) in enumerate(further):
        multi[number]["row"], multi[number]["queue"] = row, queue
        multi[number]["queue_offset"] = 500 + number
    return messages, multi
