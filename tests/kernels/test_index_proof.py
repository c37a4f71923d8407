"""The links of an IndexFile are valid exactly if a plain walk from every slot reaches every item."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reput.kernels.index_proof import (
    check_items,
    check_slots,
    count_falls,
    find_lost_items,
    find_wide_gaps,
)
from reput.kernels.llvm import INTERPRETED
from tests.kernels.chains import Chains, Entry, RawEntries
from tests.slow import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

EXAMPLES = examples(10 if INTERPRETED else 30)
SEED = np.uint64(0x123456789ABCDEF)
WRONG_WORDS = (0, 1, 2, 5, 2**31 - 1, 2**31, 2**32 - 1)


def filled(random: Random, hash_slots: int, count: int) -> Chains:
    chains = Chains(hash_slots, count + 10)
    offset, entries = 0, []
    for _ in range(count):
        offset += random.choice((0, 0, 100, 250, 5000))
        entries.append(Entry(random.choice((random.randrange(2**31), 7)), offset, 1))
    chains.put(entries)
    return chains


def native(words: RawEntries) -> list[int]:
    return [int(word) for word in words.byteswap().view(np.int32).ravel()]


def lost_by_walking(chains: Chains, last: int) -> set[int]:
    """Return items that walks from slots miss, or whose offset is not between the offsets of their neighbours."""
    slots = native(chains.slots)
    items = [native(row) for row in chains.items]
    offsets = [(row[1] << 32) | (row[2] & 0xFFFFFFFF) for row in items]
    reached = set()
    for slot, item in enumerate(slots):
        older_than = len(items)
        while 0 < item < older_than and items[item][0] % len(slots) == slot:
            reached.add(item)
            older_than, item = item, items[item][4]
    lost = set(range(1, last + 1)) - reached
    lost |= {item for item in range(1, last + 1) if items[item][0] < 0 or offsets[item] < 0}
    for item in range(1, last):
        if offsets[item] > offsets[item + 1]:
            lost |= {item, item + 1}
    return lost


def ends_all_chains(chains: Chains, last: int) -> bool:
    """Return whether each chain of items 1 to `last` ends with 0 after its last item."""
    slots, items = native(chains.slots), [native(row) for row in chains.items]
    for slot, item in enumerate(slots):
        older_than = last + 1
        while 0 < item < older_than and items[item][0] % len(slots) == slot:
            older_than, item = item, items[item][4]
        if item != 0:
            return False
    return True


def pieces(chains: Chains, end: int, items: int, overlap: int = 0) -> list[tuple[int, RawEntries]]:
    """Yield items 1 to end - 1 in chunks of `items` items, each with the position of its first item."""
    return [
        (first, chains.items[first : min(first + items + overlap, end)])
        for first in range(1, end, items)
    ]


def check_links(chains: Chains, last: int, newest: int, piece: int = 7) -> tuple[bool, int, int]:
    """Return whether chains reach all items, the number of items that are out of order, and the number of messages."""
    total, _, _ = check_slots(chains.slots, SEED)
    before, wrong, forwards, messages = -1, 0, 0, 0
    for first, items in pieces(chains, newest + 1, piece):
        total, astray, disordered, count, before = check_items(
            items, first, last, len(chains.slots), SEED, np.uint64(total), before
        )
        forwards, wrong, messages = forwards + astray, wrong + disordered, messages + count
    return forwards == 0 and int(total) == 0, wrong, messages


def check(chains: Chains, last: int, uncounted: int = 0) -> tuple[bool, set[int]]:
    leads_to = chains.slots.byteswap().view(np.int32)
    newest = last + uncounted
    linked, disordered, _ = check_links(chains, last, newest)
    lost, count, after = np.empty(1000, np.int64), 0, 2**63 - 1
    for first, items in reversed(pieces(chains, newest + 1, 7)):
        count, after = find_lost_items(items, first, last, leads_to, after, lost, count)
    return linked and not disordered, set(lost[:count].tolist())


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(1, 60), st.integers(0, 3))
@example(seed=1385, hash_slots=2, count=1, damages=2)  # a slot leads to an item after the last one
def test_whatever_is_damaged_the_lost_items_are_those_that_a_walk_misses(
    seed: int, hash_slots: int, count: int, damages: int
) -> None:
    random = Random(seed)
    chains = filled(random, hash_slots, count)
    for _ in range(damages):
        word = random.choice((*WRONG_WORDS, random.randrange(2**32), random.randrange(count + 1)))
        if random.random() < 0.3:
            chains.slots[random.randrange(hash_slots)] = np.uint32(word).byteswap()
        else:
            item = chains.items[random.randrange(1, count + 1)]
            item[random.choice((0, 1, 2, 4, 4))] = np.uint32(word).byteswap()
    is_whole, lost = check(chains, count)
    expected = lost_by_walking(chains, count)
    assert lost == expected
    assert is_whole == (not expected and ends_all_chains(chains, count))


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_items_that_are_not_counted_yet_may_lead_to_those_that_are(
    seed: int, uncounted: int
) -> None:
    chains = filled(Random(seed), 7, 60)
    assert check(chains, 60 - uncounted, uncounted) == (True, set())


def test_messages_are_counted_once() -> None:
    chains = Chains(5, 20)
    chains.put([Entry(number, offset, 1) for number, offset in enumerate((0, 0, 9, 9, 9, 30))])
    assert [check_links(chains, 6, 6, piece) for piece in (1, 2, 6)] == 3 * [(True, 0, 3)]


def test_slots_are_counted() -> None:
    chains = Chains(5, 20)
    chains.put([Entry(number, 100, 1) for number in (0, 5, 3)])
    assert check_slots(chains.slots, SEED)[1:] == (2, 3)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 400))
def test_the_widest_gaps_are_found_for_which_there_is_room(
    seed: int, room: int, least: int
) -> None:
    chains = filled(Random(seed), 3, 60)
    offsets = [native(row)[2] for row in chains.items]
    gaps = np.empty(room, np.int64)
    count, used, widths = 0, least or 1, np.empty(room, np.int64)
    for first, items in pieces(chains, 61, 7, overlap=1):
        count, used = find_wide_gaps(items, first, used, gaps, widths, count)
    assert gaps[:count].tolist() == [i for i in range(1, 60) if offsets[i + 1] - offsets[i] > used]
    assert used == (least or 1) or count <= room < sum(
        offsets[i + 1] - offsets[i] > used // 2 for i in range(1, 60)
    )


@given(
    st.lists(st.integers(-2, 6) | st.sampled_from([2**31 - 1, -(2**31)]), max_size=30),
    st.integers(1, 9),
)
def test_falls_are_counted_from_the_second_item_on(seconds: list[int], piece: int) -> None:
    items = np.zeros((len(seconds), 5), ">i4")
    items[:, 3] = seconds
    words = items.view(np.uint32)
    last = max(len(seconds) - 2, 0)
    count, before = 0, 0
    for start in range(0, len(seconds), piece):
        falls, before = count_falls(words[start : start + piece], 1 + start, last, before)
        count += falls
    counted = [0, *seconds[1:last]]
    assert count == sum(two < one for one, two in pairwise(counted))
