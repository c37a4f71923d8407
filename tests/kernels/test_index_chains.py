"""Bulk puts equal `putKey` one by one, byte for byte; look-ups find what a plain walk finds."""

from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.kernels.index_chains import LANES, look_up_keys
from reput.kernels.llvm import INTERPRETED
from tests.kernels.chains import Chains, Entry, open_chains, walk_chain, words
from tests.oracle.index_file import HEADER, ITEM, SLOT, IndexFile, key_hash
from tests.slow import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

EXAMPLES = examples(10 if INTERPRETED else 30)
TIMES = (-(2**63), -1001, -1, 0, 1, 999, 1000, 1001, 10**12, 2**31 * 1000, 2**63 - 1)
times = st.sampled_from(TIMES) | st.integers(-(2**63), 2**63 - 1)
offsets = st.sampled_from((0, 1, 2**31, 2**32 + 5, 2**63 - 1)) | st.integers(-(2**63), 2**63 - 1)
keys = st.sampled_from(("a", "b", "AaAa", "BBBB", "polygenelubricants", "中", "😀", ""))


class Put(NamedTuple):
    """The arguments of one put: a key as a string, and its message's offset and time."""

    key: str
    physical_offset: int
    store_timestamp: int

    @property
    def entry(self) -> Entry:
        return Entry(key_hash("t", self.key), self.physical_offset, self.store_timestamp)


puts = st.lists(st.builds(Put, keys, offsets, times), max_size=30)


def oracle_file(
    putting: list[Put], slots: int, items: int, begin: tuple[int, int], garbage: bytes = b""
) -> IndexFile:
    file = IndexFile(
        slots, items, 0, begin_timestamp=begin[0], end_timestamp=begin[0],
        begin_physical_offset=begin[1], end_physical_offset=begin[1],
    )  # fmt: skip
    file.slots[: len(garbage)] = garbage
    for put in putting[: items - 1]:
        file.put("t", *put)
    return file


@given(puts, st.integers(1, 9), st.integers(2, 20), st.integers(1, 8), times, offsets)
@example([Put("a", 5, 10_000), Put("a", 6, 75_999)], 3, 9, 1, 10_000, 4)
@example([Put("a", 5, -1), Put("b", 6, 5)], 3, 9, 1, 0, 0)
@example([Put("a", 0, -(2**63)), Put("b", 0, 2**63 - 1)], 3, 9, 8, 2**63 - 1, 0)
@settings(max_examples=EXAMPLES)
def test_keys_are_put_as_the_oracle_puts_them(
    putting: list[Put], slots: int, items: int, window: int, begin_ms: int, begin_at: int
) -> None:
    begin = (begin_ms, begin_at)
    chains = Chains(slots, items, begin)
    assert chains.put([put.entry for put in putting], window) == min(len(putting), items - 1)
    assert chains.to_bytes() == oracle_file(putting, slots, items, begin).to_bytes()


@given(puts, st.binary(min_size=12, max_size=12))
@example([Put("a", 5, 10_000)] * 3, SLOT.pack(1) + SLOT.pack(2) + SLOT.pack(-1))
# valid, since this is the number that the item will get
@example([Put("a", 5, 10_000)], SLOT.pack(1) * 3)
@example([Put("a", 5, 10_000)], SLOT.pack(2) * 3)
@example([Put("a", 5, 10_000)], SLOT.pack(-(2**31)) * 3)
@settings(max_examples=EXAMPLES)
def test_garbage_in_a_slot_counts_as_empty(putting: list[Put], garbage: bytes) -> None:
    chains = Chains(3, 40)
    chains.slots[:] = words(garbage)
    chains.put([put.entry for put in putting])
    assert chains.to_bytes() == oracle_file(putting, 3, 40, (0, 0), garbage).to_bytes()


def test_many_keys_at_once_are_as_many_one_by_one() -> None:
    random = Random(7)
    total = 300 if INTERPRETED else 5000  # more than the kernel processes in one block
    putting = [
        Put(str(random.randrange(total // 4)), number, 1_700_000_000_000 + 13 * number)
        for number in range(total)
    ]
    expected = oracle_file(putting, 97, total + 50, (1, 1)).to_bytes()
    entries = [put.entry for put in putting]
    for window in (total, 1024, 1023, 7):
        chains = Chains(97, total + 50, (1, 1))
        chains.put(entries, window)
        assert chains.to_bytes() == expected


def test_a_file_is_full_one_before_its_items() -> None:
    entries = [Entry(number, number, 1000) for number in range(9)]
    chains = Chains(3, 5)
    assert chains.put(entries) == 4
    assert chains.put(entries) == 0
    assert chains.header.tolist() == [1000, 1000, 0, 3, 3, 5]


def test_nothing_to_put_changes_nothing() -> None:
    chains = Chains(3, 5, (7, 8))
    assert chains.put([]) == 0
    assert chains.header.tolist() == [7, 7, 8, 8, 0, 1]


def look_up(
    data: bytes, hash_slots: int, hashes: list[int], room: int, begin: int = 0, end: int = 1 << 62
) -> tuple[dict[int, list[int]], set[int]]:
    """Return the found offsets by key, and the keys with broken chains. A call of the kernel returns `room` hits."""
    slots, items, count = open_chains(data, hash_slots)
    key_hashes = np.array(hashes, np.int32)
    found: dict[int, list[int]] = {number: [] for number in range(len(hashes))}
    broken = np.zeros(len(hashes), np.uint8)
    start = 0
    while start < len(hashes):
        hits_key, hits_offset = np.zeros(room, np.int32), np.zeros(room, np.int64)
        done, hits = look_up_keys(
            slots, items, count, begin, end, key_hashes, start, hits_key, hits_offset, broken
        )
        assert start <= done <= len(hashes)
        assert 0 <= hits <= room
        if done == start:
            assert hits == room, "it stopped with room left"
            room *= 2  # not enough room for one key
            continue
        for key, offset in zip(hits_key[:hits].tolist(), hits_offset[:hits].tolist(), strict=True):
            if key < done:  # the next call starts at `done`, and finds the hits of later keys again
                found[key].append(offset)
        start = done
    return found, set(np.flatnonzero(broken).tolist())


def plain_look_up(
    data: bytes, hash_slots: int, hashes: list[int], begin: int = 0, end: int = 1 << 62
) -> tuple[dict[int, list[int]], set[int]]:
    chains = [walk_chain(data, hash_slots, value, begin, end) for value in hashes]
    found = {number: offsets for number, (offsets, _) in enumerate(chains)}
    return found, {number for number, (_, cut) in enumerate(chains) if cut}


def filled(seed: int, slots: int, items: int, keys: int) -> tuple[bytes, list[int]]:
    """Return a full file of hashes 0 to `keys` in random order, and hashes to look up, some of which are missing."""
    random = Random(seed)
    chains = Chains(slots, items)
    chains.put([Entry(random.randrange(keys), at - at % 3, 1000 + at) for at in range(items)])
    return chains.to_bytes(), [random.randrange(keys + 20) for _ in range(2 * LANES + 5)]


@pytest.mark.parametrize("room", [1, 2, 31, 32, 33, 1000])
@pytest.mark.parametrize(("slots", "items", "keys"), [(1, 40, 5), (7, 60, 9), (50, 200, 100)])
def test_look_up_finds_what_a_plain_walk_finds(
    slots: int, items: int, keys: int, room: int
) -> None:
    data, hashes = filled(slots, slots, items, keys)
    expected = plain_look_up(data, slots, hashes)
    assert look_up(data, slots, hashes, room) == expected
    assert expected[1] == set()
    assert any(len(offsets) > 1 for offsets in expected[0].values())


@pytest.mark.parametrize(("begin", "end"), [(0, 0), (30, 90), (31, 32), (90, 1 << 62)])
def test_look_up_in_a_range_of_the_log(begin: int, end: int) -> None:
    data, hashes = filled(4, 7, 150, 20)
    expected = plain_look_up(data, 7, hashes, begin, end)
    assert look_up(data, 7, hashes, 1000, begin, end) == expected
    assert all(begin <= offset < end for offsets in expected[0].values() for offset in offsets)


@pytest.mark.parametrize("count", range(2 * LANES + 2))
def test_any_number_of_keys_can_be_asked_for(count: int) -> None:
    data, hashes = filled(3, 11, 90, 30)
    hashes = hashes[:count]
    assert look_up(data, 11, hashes, 1000) == plain_look_up(data, 11, hashes)


def test_an_empty_file_has_nothing() -> None:
    data = Chains(5, 10).to_bytes()
    assert look_up(data, 5, [0, 1, 2, 3], 4) == ({0: [], 1: [], 2: [], 3: []}, set())


def replaced(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct_int(value) + data[at + 4 :]


def struct_int(value: int) -> bytes:
    return SLOT.pack(value)


HOSTILE = (-(2**31), -1, 0, 1, 2, 20, 39, 40, 41, 2**31 - 1)


@pytest.mark.parametrize("value", HOSTILE)
def test_an_item_may_point_anywhere(value: int) -> None:
    data, hashes = filled(1, 3, 40, 6)
    items_at = HEADER.size + 3 * SLOT.size
    for item in range(1, 40):
        hostile = replaced(data, items_at + item * ITEM.size + 16, value)
        assert look_up(hostile, 3, hashes, 1000) == plain_look_up(hostile, 3, hashes), item


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("count", HOSTILE)
def test_a_slot_and_the_count_may_be_anything(value: int, count: int) -> None:
    data, hashes = filled(1, 3, 40, 6)
    for slot in range(3):
        hostile = replaced(data, HEADER.size + slot * SLOT.size, value)
        hostile = replaced(hostile, HEADER.size - 4, count)
        assert look_up(hostile, 3, hashes, 1000) == plain_look_up(hostile, 3, hashes), slot


@pytest.mark.parametrize("length", [52, 53, 72, 91, 92, 200, 851, 852])
def test_a_file_may_be_cut(length: int) -> None:
    data, hashes = filled(1, 3, 40, 6)
    assert look_up(data[:length], 3, hashes, 1000) == plain_look_up(data[:length], 3, hashes)


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_mutated_files_are_walked_within_their_bounds(data: st.DataObject) -> None:
    content, hashes = filled(data.draw(st.integers(0, 5)), 5, 40, 12)
    mutated = bytearray(content)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(HEADER.size - 4, len(content) - 4))
        mutated[at : at + 4] = data.draw(
            st.sampled_from([struct_int(value) for value in HOSTILE]) | st.binary(max_size=4)
        ).ljust(4, b"\0")
    cut = bytes(mutated)[: data.draw(st.integers(60, len(mutated)))]
    room = data.draw(st.sampled_from((1, 40, 1000)))
    assert look_up(cut, 5, hashes, room) == plain_look_up(cut, 5, hashes)
