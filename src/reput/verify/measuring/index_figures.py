"""What the IndexFiles of a store are like: how full, how long their chains, how often a hash is wrong."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from reput.index.entries import IndexEntries
from reput.index.key_index import Basis
from reput.index.plan import Segment
from reput.index.reader import IndexFileReader
from reput.query.message_store import MessageStore
from reput.verify.measuring.figures import CoveredRange, IndexCoverage, IndexFileFigures

_HASHES = 1 << 31
_SAMPLE = 16  # one in so many hashes is looked at for how many are different


def measure_index_file(file: IndexFileReader) -> IndexFileFigures:
    """Read every item, no slot: the slot of an item follows from its hash. Memory: 8 bytes per slot.

    Raises StoreAccessError, StoreChangedError.
    """
    lengths = np.zeros(file.hash_slots, np.int64)
    sample: list[npt.NDArray[np.int32]] = [np.empty(0, np.int32)]
    entries = 0
    for rows in IndexEntries(file).rows():
        hashes = rows["key_hash"].astype(np.int32)
        slot = hashes.astype(np.int64) % file.hash_slots
        if 4 * len(rows) > file.hash_slots:
            lengths += np.bincount(slot, minlength=file.hash_slots)
        else:
            np.add.at(lengths, slot, 1)
        entries += len(rows)
        sample.append(hashes[(hashes >= 0) & (hashes % _SAMPLE == 0)])
    different = len(np.unique(np.concatenate(sample))) * _SAMPLE
    steps = float((lengths * (lengths + 1)).sum()) / 2
    return IndexFileFigures(
        file.name,
        file.hash_slots,
        file.index_items,
        entries,
        int(np.count_nonzero(lengths)),
        _by_length(lengths),
        int(lengths.max(initial=0)),
        steps / entries if entries else 0.0,
        different / _HASHES,
    )


def _by_length(lengths: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Slots by chain length, in steps of powers of two."""
    slots = np.bincount(lengths)
    found, low = [], 0
    while low < len(slots):
        high = max(2 * low - 1, low)
        found.append((low, high, int(slots[low : high + 1].sum())))
        low = high + 1
    return found


def index_coverage(store: MessageStore) -> IndexCoverage:
    """How much of the log queries find through the IndexFiles. Raises StoreAccessError."""
    segments = store.key_planner().segments()
    indexed = [(segment, segment.part) for segment in segments if segment.part is not None]
    bases = {part.name: part.basis for _, part in indexed}
    end = store.end_offset()
    return IndexCoverage(
        end - store.begin_offset(),
        sum(segment.stop - segment.start for segment, _ in indexed),
        sum(basis is Basis.SPOT_CHECKED for basis in bases.values()),
        len(bases),
        covered_log(segments, end),
    )


def covered_log(segments: Iterable[Segment], log_end: int) -> list[CoveredRange]:
    """Ascending, to the end of the log; a look-up takes the newest first, and what follows in the last file."""
    found: list[CoveredRange] = []
    for segment in sorted(segments, key=lambda one: one.start):
        basis = "scanned" if segment.part is None else str(segment.part.basis)
        begin, stop = segment.start, min(segment.stop, log_end)
        if begin >= stop:
            continue
        if found and (found[-1].basis, found[-1].end) == (basis, begin):
            begin = found.pop().begin
        found.append(CoveredRange(begin, stop, basis))
    return found
