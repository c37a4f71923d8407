"""The checks of items and entries in recovery, compared with their writers and with plain Python."""

import struct
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.kernels.entry_checks import check_items, entries_follow, written_entries
from reput.kernels.index_chains import put_keys
from reput.kernels.jit import new_rows

SLOTS, ITEMS = 37, 3000
MESSAGE = np.dtype([("physical_offset", np.int64), ("store_timestamp", np.int64)])
ENTRY = struct.Struct(">qiq")


def filled(seed: int, count: int = 2500) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return slots and items of an IndexFile after puts."""
    random = np.random.default_rng(seed)
    messages = new_rows(count, MESSAGE)
    messages["physical_offset"] = np.cumsum(random.integers(0, 1 << 40, count))
    messages["store_timestamp"] = 1_700_000_000_000 + np.arange(count)
    hashes = random.integers(0, 1 << 31, count).astype(np.int32)
    rows = np.arange(count, dtype=np.int32)
    slots, items = np.zeros(SLOTS, np.uint32), np.zeros((ITEMS, 5), np.uint32)
    header = np.array([0, 0, 0, 0, 0, 1], np.int64)
    put_keys(header, slots, items, 0, ITEMS, hashes, rows, messages, 0, count)
    return slots, items


@pytest.mark.parametrize("stop", [1, 2, 1025, 2501])
def test_what_was_put_holds_and_gives_its_slots(stop: int) -> None:
    slots, items = filled(1)
    newest = np.zeros(SLOTS, np.uint32)
    assert check_items(items, stop, newest) == stop
    expected = np.zeros(SLOTS, np.uint32)
    for number in range(1, stop):
        expected[int(items[number, 0].byteswap()) % SLOTS] = number
    assert np.array_equal(newest, expected)
    if stop == 2501:
        assert np.array_equal(newest.byteswap(), slots)


@pytest.mark.parametrize("word", [0, 1, 4])
@pytest.mark.parametrize("number", [1, 2, 1024, 2400])
def test_an_item_that_cannot_have_been_put_ends_the_run(number: int, word: int) -> None:
    _, items = filled(number)
    items[number, word] ^= np.uint32(0x80)  # the highest bit of a number as stored
    newest = np.zeros(SLOTS, np.uint32)
    assert check_items(items, 2501, newest) == number


def test_an_offset_before_the_one_before_ends_the_run() -> None:
    _, items = filled(5)
    items[700, 1:3] = 0
    assert check_items(items, 2501, np.zeros(SLOTS, np.uint32)) == 700


def entries(rows: list[tuple[int, int, int]]) -> npt.NDArray[np.uint32]:
    data = b"".join(ENTRY.pack(*row) for row in rows)
    return np.frombuffer(data, np.uint32).reshape(-1, 5)


def written(rows: list[tuple[int, int, int]], before: int) -> int:
    for place, (offset, size, _) in enumerate(rows):
        if offset < 0 or size <= 0:
            return place
        if (offset, size) != (0, 2**31 - 1):
            if offset <= before:
                return place
            before = offset
    return len(rows)


@pytest.mark.parametrize("seed", range(50))
def test_written_entries_are_those_of_plain_python(seed: int) -> None:
    random = Random(seed)
    rows = [(0, 2**31 - 1, 0)] * random.randrange(4)
    offset = random.choice([0, 7, 1 << 40])
    for _ in range(random.randrange(60)):
        rows.append((offset, random.randrange(1, 1 << 31), random.getrandbits(63)))
        offset += random.randrange(1, 1 << 33)
    for _ in range(random.randrange(3)):
        odd = (random.choice([-1, 0, 5, -(2**63)]), random.choice([0, -1, 9, -(2**31)]), 0)
        rows.insert(random.randrange(len(rows) + 1), odd)
    for before in (-1, 0, 1 << 36):
        assert written_entries(entries(rows), before) == written(rows, before)


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 40) | st.sampled_from([2**63 - 1, -(2**63)]),
            st.integers(-2, 9) | st.just(2**31 - 1),
        ),
        max_size=12,
    ),
    st.integers(0, 20),
)
def test_entries_that_follow_each_other(entries: list[tuple[int, int]], before: int) -> None:
    packed = b"".join(ENTRY.pack(offset, size, -1) for offset, size in entries)
    words = np.frombuffer(packed, np.uint32).reshape(-1, 5)
    count, end = 0, before
    for offset, size in entries:
        is_blank = (offset, size) == (0, 2**31 - 1)
        if offset < end or size <= 0 or is_blank or offset + size >= 2**63:
            break
        count, end = count + 1, offset + size
    assert entries_follow(words, before) == (count, end)
