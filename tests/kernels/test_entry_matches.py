"""Expected entries of a batch compared with its actual entries, some of which were changed."""

from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reput.format.dtypes import ENTRY_DTYPE, ITEM_DTYPE, MESSAGE_DTYPE, MULTI_DTYPE
from reput.kernels.entry_matches import (
    ANY_TIME,
    FIRST_TIME,
    ITEM,
    ITEM_STATE_FIELDS,
    KEY,
    KEY_OF_ROW,
    LAST_TIME,
    ROW,
    match_items,
    match_queue_entries,
)
from reput.kernels.jit import new_rows
from reput.kernels.llvm import INTERPRETED
from tests.slow import examples

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
EXAMPLES = examples(20 if INTERPRETED else 60)
PREPARED = 4
FIRST = (100, 7)  # the queue offsets of the first entries of two queues
BEGIN_MS = 5_000


class Batch:
    """Messages of two queues, and the entries and items that a broker would have written for them."""

    def __init__(self, seed: int, count: int) -> None:
        random = Random(seed)
        self.messages = new_rows(count, MESSAGE_DTYPE)
        self.messages[:] = np.zeros(count, MESSAGE_DTYPE)
        entries: list[list[tuple[int, int, int]]] = [[], []]
        multi, self.items, hashes, offset = [], [], [], 1000
        for row, message in enumerate(self.messages):
            size, tags, time = random.randrange(91, 300), random.getrandbits(63) - 2**62, row * 700
            queue, prepared = random.randrange(2), random.random() < 0.2
            message["physical_offset"], message["size"], message["tags_code"] = offset, size, tags
            message["queue"], message["sys_flag"] = queue, PREPARED if prepared else 0
            message["store_timestamp"] = time
            message["queue_offset"] = FIRST[queue] + len(entries[queue])
            if not prepared:
                entries[queue].append((offset, size, tags))
            if random.random() < 0.3:
                other = 1 - queue
                multi.append((FIRST[other] + len(entries[other]), row, other))
                entries[other].append((offset, size, tags))
            own = [random.getrandbits(31) for _ in range(random.randrange(4))]
            message["key_count"] = len(own)
            for hashed in own:
                seconds = min(max((time - BEGIN_MS) // 1000, 0), 2**31 - 1)
                self.items.append((hashed, offset, seconds, 0))
            hashes += own
            offset += size
        self.multi = new_rows(len(multi), MULTI_DTYPE)
        self.multi[:] = np.array(multi, MULTI_DTYPE)
        self.key_hash = np.array(hashes, np.int32)
        self.entries = np.array([*entries[0], *entries[1]], ENTRY_DTYPE)
        self.counts = np.array([len(one) for one in entries])

    def match_queues(self, entries: npt.NDArray[Any]) -> tuple[bool, list[int]]:
        matched = np.zeros(2, np.int64)
        start = np.array([0, self.counts[0]])
        words = entries.view(np.uint32).reshape(-1, 5)
        offsets = self.messages["physical_offset"].copy()
        found = match_queue_entries(
            self.messages, self.multi, offsets, np.array(FIRST), start, self.counts, words, matched
        )
        return bool(found), matched.tolist()

    def match_items(self, items: npt.NDArray[Any], step: int, first_begin: int = BEGIN_MS) -> bool:
        """Compare `step` items at a time, as they are read from a file. Return whether all match."""
        state = np.zeros(ITEM_STATE_FIELDS, np.int64)
        words = items.view(np.uint32).reshape(-1, 5)
        for first in range(0, len(words), step):
            state[ITEM] = 0
            part = words[first : first + step]
            begin = first_begin if first == 0 else BEGIN_MS
            if not match_items(self.messages, self.key_hash, state, part, BEGIN_MS, begin):
                return False
            assert state[ITEM] == len(part)
        return bool(state[KEY] == len(self.key_hash))


@given(st.integers(0, 2**20), st.integers(0, 30))
@settings(max_examples=EXAMPLES)
def test_what_a_broker_wrote_matches(seed: int, count: int) -> None:
    batch = Batch(seed, count)
    assert batch.match_queues(batch.entries) == (True, batch.counts.tolist())
    items = np.array(batch.items, ITEM_DTYPE)
    assert all(batch.match_items(items, step) for step in (1, 3, 100))


@given(st.integers(0, 2**20), st.data())
@settings(max_examples=EXAMPLES)
def test_any_changed_bit_of_an_entry_is_seen(seed: int, data: st.DataObject) -> None:
    batch = Batch(seed, 12)
    changed = batch.entries.copy()
    if not len(changed):
        return
    bit = data.draw(st.integers(0, changed.nbytes * 8 - 1))
    changed.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    assert not batch.match_queues(changed)[0]


@given(st.integers(0, 2**20), st.data())
@settings(max_examples=EXAMPLES)
def test_any_changed_bit_of_an_item_but_its_chain_is_seen(seed: int, data: st.DataObject) -> None:
    batch = Batch(seed, 12)
    items = np.array(batch.items, ITEM_DTYPE)
    if not len(items):
        return
    bit = data.draw(st.integers(0, items.nbytes * 8 - 1))
    items.view(np.uint8)[bit // 8] ^= 1 << bit % 8
    # The proof checks the number of the previous item.
    is_chain = bit // 8 % ITEM_DTYPE.itemsize >= 16
    assert batch.match_items(items, data.draw(st.sampled_from([1, 5, 100]))) == is_chain


def test_messages_that_do_not_lie_where_they_say_or_lie_outside() -> None:
    batch = Batch(3, 20)
    batch.messages["physical_offset"][7] += 1
    assert not batch.match_queues(batch.entries)[0]
    far = Batch(3, 20)
    for number in (-(2**63), -1, 0, 2**31, 2**63 - 1):
        far.messages["queue_offset"][0] = number
        far.messages["sys_flag"][0] = 0
        assert not far.match_queues(far.entries)[0]


def test_the_first_item_of_a_rolled_file_counts_from_the_file_before() -> None:
    batch = Batch(3, 20)
    items = np.array(batch.items, ITEM_DTYPE)
    items["time_diff_s"][0] = 12_345
    assert not batch.match_items(items, 100)
    assert batch.match_items(items, 100, ANY_TIME)
    state = np.zeros(ITEM_STATE_FIELDS, np.int64)
    words = items.view(np.uint32).reshape(-1, 5)
    assert match_items(batch.messages, batch.key_hash, state, words, BEGIN_MS, ANY_TIME)
    rows = np.repeat(np.arange(20), batch.messages["key_count"])
    times = batch.messages["store_timestamp"]
    assert (state[FIRST_TIME], state[LAST_TIME]) == (times[rows[0]], times[rows[-1]])
    assert (state[ROW], state[KEY_OF_ROW]) == (rows[-1], batch.messages["key_count"][rows[-1]])
