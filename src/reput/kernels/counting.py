"""Count messages by queue and time, keys and tags by hash, and items of IndexFiles by slot, for `reput stats`."""

from __future__ import annotations

import numpy as np

from reput.kernels.entry_words import ITEM_HASH, signed_word, slot_of
from reput.kernels.integers import prefetch
from reput.kernels.jit import njit

# Hashes that are divisible by this number are sampled, to estimate the number of distinct hashes.
SAMPLE = 16
# Number of keys between the prefetch of a counter and its use.
_AHEAD = 32
# Times are limited to this many milliseconds before or after 1970, so that differences of two times do not overflow.
_MOST_TIME = 1 << 61


@njit(cache=True, nogil=True)
def count_messages(
    messages, key_hash, is_counted, before_ms, begin_ms, part_ms, cells, keys, tags
):  # fmt: skip
    """Count the messages, keys and tags of a batch, by adding them to `cells`, `keys` and `tags`.

    Returns the store time of the last message, and the longest time between two consecutive messages, both in ms. Store
    times below -2**61 or above 2**61 are replaced by these limits.

    messages, key_hash  columns of a DispatchBatch
    is_counted          bool[queues]: whether the tags codes of a queue's messages are hashes of tags; only such tags
                        codes are counted
    before_ms           time of the previous message
    begin_ms            time at which the timeline begins, between -2**61 and 2**61
    part_ms             length of the parts into which the timeline is divided
    cells               int64[queues, parts, 2]: messages and bytes; increased here
    keys, tags          int64[2**bits, 2], one row for each value of the lower bits of a hash: number of messages,
                        increased here, and physical offset of the last one, set here
    """
    parts, key_mask, tag_mask = cells.shape[1], len(keys) - 1, len(tags) - 1
    key, last = 0, len(key_hash) - 1
    # The part of the timeline in which the previous message was stored, and the part's begin and end. At first, this
    # range is empty, so the first message does not belong to it.
    part, low, high = 0, 1, 0
    longest = np.int64(0)
    for row in range(len(messages)):
        message = messages[row]
        # The timestamp of a damaged record can have any value.
        time = min(max(message.store_timestamp, -_MOST_TIME), _MOST_TIME)
        longest = max(longest, time - before_ms)
        before_ms = time
        if not low <= time < high:
            part = (time - begin_ms) // part_ms
            low = begin_ms + part * part_ms
            high, part = low + part_ms, min(max(part, 0), parts - 1)
        offset = message.physical_offset
        cells[message.queue, part, 0] += 1
        # In plain Python, `message.size` would be an attribute of NumPy's scalar, not the field.
        cells[message.queue, part, 1] += message["size"]
        for _ in range(message.key_count):
            prefetch(keys, np.int64(key_hash[min(key + _AHEAD, last)] & key_mask))
            counter = key_hash[key] & key_mask
            keys[counter, 0] += 1
            keys[counter, 1] = offset
            key += 1
        if message.tags_code != 0 and is_counted[message.queue]:
            counter = message.tags_code & tag_mask
            tags[counter, 0] += 1
            tags[counter, 1] = offset
    return before_ms, longest


@njit(cache=True, nogil=True)
def count_slots(items, lengths, sample):
    """Count items of an IndexFile by slot, and sample their hashes; return the number of samples.

    items    RawEntries, big endian as in the file
    lengths  int32[hash_slots], increased here
    sample   int32[n], set to the hashes that are divisible by SAMPLE and not negative
    """
    sampled = 0
    for row in range(len(items)):
        key_hash = np.int32(signed_word(items[np.uint64(row), ITEM_HASH]))
        lengths[slot_of(key_hash, len(lengths))] += 1
        if key_hash >= 0 and key_hash % SAMPLE == 0:
            sample[sampled] = key_hash
            sampled += 1
    return sampled
