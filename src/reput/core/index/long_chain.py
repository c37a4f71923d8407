"""Read the chain of a frequent key in large pieces, as arrays, instead of item by item."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.core.index.entries import IndexEntries
from reput.core.index.key_index import Candidate, CandidateArrays, next_candidates
from reput.core.index.reader import OFFSET_MAX, IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.errors import StoreError
from reput.kernels.index_chains import CHAIN_END, follow_chain

# Number of items per read. They take 320 KB.
_PART_ITEMS = 1 << 14
# If a read contains fewer items of the chain than this, reading item by item is faster.
_FEWEST_STEPS = 1 << 5
_PIECE = 1 << 15


def chain_pieces(
    file: IndexFileReader, key_hash: int, within: OffsetRange
) -> Iterator[CandidateArrays]:
    """Yield the offsets of `IndexFileReader.offsets` that lie within the range, as arrays without duplicates.

    If the chain is broken, yields the offsets before the break, then raises BrokenChainError. Also raises
    StoreAccessError, StoreChangedError.
    """
    return in_pieces(_parts(file, key_hash, within), key_hash)


def in_pieces(parts: Iterator[npt.NDArray[np.int64]], key_hash: int) -> Iterator[CandidateArrays]:
    """Join arrays of offsets into larger arrays.

    If `parts` raises a StoreError, the offsets before the error are yielded, and then the error is raised.
    """
    error: StoreError | None = None
    is_more = True
    while is_more:
        waiting, count = [], 0
        try:
            while count < _PIECE:
                waiting.append(next(parts))
                count += len(waiting[-1])
        except StopIteration:
            is_more = False
        except StoreError as raised:
            is_more, error = False, raised
        if waiting:
            offsets = np.concatenate(waiting)
            yield CandidateArrays(offsets, np.full(len(offsets), key_hash, np.int32))
    if error is not None:
        raise error


def in_arrays(candidates: Iterator[Candidate]) -> Iterator[CandidateArrays]:
    """Collect candidates into arrays.

    If `candidates` raises a StoreError, the candidates before the error are yielded, and then the error is raised.
    """
    is_more = True
    while is_more:
        batch, error = next_candidates(candidates, _PIECE, StoreError)
        is_more = len(batch) == _PIECE
        if batch:
            offsets, hashes = zip(*batch, strict=True)
            yield CandidateArrays(np.array(offsets, np.int64), np.array(hashes, np.int32))
        if error is not None:
            raise error


def _parts(
    file: IndexFileReader, key_hash: int, within: OffsetRange
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the offsets of a chain, one array per read."""
    begin = file.chain_begin(key_hash)
    if begin is None:
        return
    item, count = begin
    if item < 0:
        # A negative number is damage, although the kernel would treat it as the end of the chain.
        yield from _one_by_one(file.chain(key_hash, item, count), OFFSET_MAX, within)
        return
    entries, most, newest = IndexEntries(file), file.index_items, OFFSET_MAX
    hits = np.empty(_PART_ITEMS, np.int64)
    while item != CHAIN_END:
        steps = 0
        if 0 < item < most:
            # A chain leads to lower item numbers, so read the items up to `item`. Read one more item to check the
            # order: the offset of `item` must not exceed the offset of the next item.
            first = max(item + 1 - _PART_ITEMS, 0)
            items = entries.items(first, min(item + 2, most))
            item, newest, steps, found = follow_chain(
                items,
                first,
                item,
                count,
                newest,
                *within,
                key_hash,
                np.uint32(file.hash_slots),
                hits,
            )
            if found:
                yield hits[:found].copy()
        if item != CHAIN_END and steps < _FEWEST_STEPS:
            # The items are far apart, or the chain is broken. `IndexFileReader.chain` reports the damage.
            yield from _one_by_one(file.chain(key_hash, item, count, newest), newest, within)
            return


def _one_by_one(
    offsets: Iterator[int], newest: int, within: OffsetRange
) -> Iterator[npt.NDArray[np.int64]]:
    for offset in offsets:
        if offset < within.start:
            return
        if offset < within.stop and offset != newest:
            yield np.array([offset])
        newest = offset
