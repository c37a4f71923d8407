"""Counts of kernels compared with counting one by one."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from reput.format.dtypes import ITEM_DTYPE, MESSAGE_DTYPE
from reput.kernels.counting import SAMPLE, count_messages, count_slots
from reput.kernels.jit import new_rows

PARTS, KEYS, TAGS = 5, 16, 8
BEGIN_MS, PART_MS = 1000, 100


def zero_rows(count: int) -> Any:
    rows = new_rows(count, MESSAGE_DTYPE)
    rows[:] = np.zeros(count, MESSAGE_DTYPE)
    return rows


def test_messages_are_counted_by_queue_and_time_keys_and_tags_by_hash() -> None:
    random = Random(5)
    cells = np.zeros((3, PARTS, 2), np.int64)
    keys, tags = np.zeros((KEYS, 2), np.int64), np.zeros((TAGS, 2), np.int64)
    expected: Counter[object] = Counter()
    last: dict[object, int] = {}
    for batch in range(3):
        messages = zero_rows(40)
        hashes: list[int] = []
        for row, message in enumerate(messages):
            time = random.choice([-(2**63), 2**63 - 1, random.randrange(900, 1600)])
            queue, size = random.randrange(3), random.randrange(91, 500)
            own = [random.randrange(-(2**31), 2**31) for _ in range(random.randrange(4))]
            tag, offset = random.choice([0, -7, random.randrange(2**31)]), batch * 40 + row
            hashes += own
            for name, value in (
                ("store_timestamp", time), ("queue", queue), ("size", size), ("tags_code", tag),
                ("physical_offset", offset), ("key_count", len(own)),
            ):  # fmt: skip
                message[name] = value
            part = min(max((time - BEGIN_MS) // PART_MS, 0), PARTS - 1)
            expected[queue, part, 0] += 1
            expected[queue, part, 1] += size
            counted = [("key", one % KEYS) for one in own]
            if tag and queue != 1:
                counted.append(("tag", tag % TAGS))
            expected.update(counted)
            last.update(dict.fromkeys(counted, offset))
        is_counted = np.array([True, False, True])
        key_hash = np.array(hashes, np.int32)
        times = [min(max(time, -(2**61)), 2**61) for time in messages["store_timestamp"].tolist()]
        found = count_messages(
            messages, key_hash, is_counted, 0, BEGIN_MS, PART_MS, cells, keys, tags
        )
        longest = max(after - before for before, after in pairwise([0, *times]))
        assert tuple(found) == (times[-1], max(longest, 0))
    for place in np.ndindex(*cells.shape):
        assert cells[place] == expected[place]
    for name, counters in (("key", keys), ("tag", tags)):
        for number, (count, offset) in enumerate(counters.tolist()):
            assert (count, offset) == (expected[name, number], last.get((name, number), 0))


def test_a_batch_without_keys_is_counted() -> None:
    cells, keys = np.zeros((1, PARTS, 2), np.int64), np.zeros((KEYS, 2), np.int64)
    messages, none = zero_rows(1), np.empty(0, np.int32)
    tags = np.zeros((TAGS, 2), np.int64)
    count_messages(messages, none, np.ones(1, bool), 0, 0, 1, cells, keys, tags)
    assert cells[0, 0, 0] == 1
    assert not keys.any()


def test_items_are_counted_by_slot_and_sampled() -> None:
    random = Random(3)
    hashes = [random.randrange(-(2**31), 2**31) for _ in range(500)]
    items = np.zeros(len(hashes), ITEM_DTYPE)
    items["key_hash"] = hashes
    lengths, sample = np.zeros(7, np.int32), np.zeros(len(hashes), np.int32)
    sampled = count_slots(items.view(np.uint32).reshape(-1, 5), lengths, sample)
    assert lengths.tolist() == [sum(one % 7 == slot for one in hashes) for slot in range(7)]
    chosen = [one for one in hashes if one >= 0 and one % SAMPLE == 0]
    assert sample[:sampled].tolist() == chosen
    assert chosen
