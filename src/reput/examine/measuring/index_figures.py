"""What the IndexFiles of a store are like: how full, how long their chains, how often a hash is wrong."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.examine.measuring.figures import IndexFileFigures
from reput.index.entries import IndexEntries
from reput.index.reader import IndexFileReader
from reput.kernels.counting import SAMPLE, count_slots

_HASHES = 1 << 31


def measure_index_file(file: IndexFileReader) -> IndexFileFigures:
    """Read every item, no slot: the slot of an item follows from its hash. Memory: 20 bytes per slot.

    Raises StoreAccessError, StoreChangedError.
    """
    lengths = np.zeros(file.hash_slots, np.int32)
    sample: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    entries = 0
    for _, items in IndexEntries(file).pieces(1, file.next_item):
        hashes = np.empty(len(items), np.int32)
        sample.append(hashes[: count_slots(items, lengths, hashes)].copy())
        entries += len(items)
    different = _different(np.concatenate(sample)) * SAMPLE
    slots = np.bincount(lengths)
    length = np.arange(len(slots))
    steps = float((slots * length * (length + 1)).sum()) / 2
    return IndexFileFigures(
        file.name,
        file.hash_slots,
        file.index_items,
        entries,
        int(slots[1:].sum()),
        _by_length(slots),
        len(slots) - 1,
        steps / entries if entries else 0.0,
        different / _HASHES,
    )


def _different(hashes: npt.NDArray[np.int32]) -> int:
    """How many different ones there are; sorting takes a tenth of the time of np.unique."""
    hashes = np.sort(hashes)
    return int(np.count_nonzero(np.diff(hashes))) + min(len(hashes), 1)


def _by_length(slots: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Slots by chain length, in steps of powers of two; slots[n] have n items."""
    found, low = [], 0
    while low < len(slots):
        high = max(2 * low - 1, low)
        found.append((low, high, int(slots[low : high + 1].sum())))
        low = high + 1
    return found
