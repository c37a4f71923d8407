"""Look up many hashes in one IndexFile.

A few hashes are looked up one by one, by following their chains. If this would take longer than reading the whole file,
the file is read and all chains are followed in memory. Files are not memory-mapped: if another process truncated a
mapped file, the next access would kill this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import BrokenChainError, BulkHits, IndexEntries, IndexFileReader, OffsetRange
from reput.errors import FormatError, StoreChangedError, StoreNotFoundError
from reput.format.dtypes import RawEntries
from reput.format.index_file import file_bytes
from reput.io import LOCAL, Storage
from reput.kernels.index_chains import look_up_keys

# Even for few keys, reserve room for this many hits: one key can have many entries.
_LEAST_ROOM = 1 << 16
# Looking up one hash takes as long as reading this many bytes of the file sequentially.
_SCATTERED_BYTES = 32 << 10
# If there is more than one hit per this many bytes of the file, reading the whole file is faster.
_BYTES_PER_HIT = 1 << 10
# Searching for one key takes as long as scanning this many bytes of the log (measured with a million keys).
_BYTES_PER_KEY = 200


class _Chains(NamedTuple):
    """Slots and items of a file in memory; `newest` is the number of the last item that the header counts."""

    slots: npt.NDArray[np.uint32]
    items: RawEntries
    newest: int


@dataclass(frozen=True, slots=True)
class IndexFileSearch:
    """A BulkSearch of one IndexFile, for messages that begin in a range."""

    path: str
    hash_slots: int
    index_items: int
    within: OffsetRange
    storage: Storage = LOCAL

    def weight(self, keys: int) -> int:
        """See `BulkSearch.weight`. For many keys, it is the cost of reading the whole file and following the chains."""
        whole = file_bytes(self.hash_slots, self.index_items)
        return min(keys * _SCATTERED_BYTES, whole) + keys * _BYTES_PER_KEY

    def find(self, hashes: npt.NDArray[np.int32]) -> Iterator[BulkHits]:
        """Yield the hits of one group of hashes, as `find_each` does."""
        return (hits for _, hits in self.find_each([hashes]))

    def find_each(self, groups: Iterable[npt.NDArray[np.int32]]) -> Iterator[tuple[int, BulkHits]]:
        """See `BulkSearch.find_each`.

        Each group is an array of hashes. Chains are followed in the file until a group has many hashes, or its hashes
        have very many entries. Then the used part of the file is read into memory (420 MB if the file is full), and all
        further chains are followed in memory.
        """
        chains: _Chains | None = None
        for number, hashes in enumerate(groups):
            done = 0
            if chains is None:
                with closing(self._open()) as file:
                    # Looking up a hash reads from scattered places. For many hashes, reading the whole file is faster.
                    if len(hashes) * _SCATTERED_BYTES < file.used_bytes():
                        done, hits = self._read_chains(file, hashes)
                        yield number, hits
                    if done < len(hashes):
                        chains = _read_all(file)
            if chains is not None:
                yield from ((number, hits) for hits in self._walk_all(chains, hashes, done))

    def _walk_all(
        self, chains: _Chains, hashes: npt.NDArray[np.int32], done: int
    ) -> Iterator[BulkHits]:
        room = len(hashes) + _LEAST_ROOM
        while done < len(hashes):
            before = done
            done, hits = self._walk(chains, hashes, done, room)
            if done == before:
                # The array of hits is too small for the entries of a single key.
                room *= 2
            else:
                yield hits

    def _open(self) -> IndexFileReader:
        try:
            return IndexFileReader(self.path, self.hash_slots, self.index_items, self.storage)
        except StoreNotFoundError:
            raise StoreChangedError(
                f"{self.path}: was deleted while it was searched; run the command again"
            ) from None
        except FormatError as error:
            raise StoreChangedError(
                f"{self.path}: changed while it was searched ({error.reason}); run the command "
                f"again"
            ) from error

    def _read_chains(
        self, file: IndexFileReader, hashes: npt.NDArray[np.int32]
    ) -> tuple[int, BulkHits]:
        """Search the hashes one by one; return how many were searched, and their hits.

        The search ends early if the hashes have very many entries.
        """
        which: list[int] = []
        offsets: list[int] = []
        broken: list[int] = []
        most, done = file.used_bytes() // _BYTES_PER_HIT, 0
        for number, key_hash in enumerate(hashes.tolist()):
            begin = len(offsets)
            try:
                for offset in self._offsets(file, key_hash):
                    offsets.append(offset)
                    if len(offsets) > most:
                        break
            except BrokenChainError:
                broken.append(number)
            if len(offsets) > most:
                # The hits of this hash are incomplete. The hash is searched for again in the whole file.
                del offsets[begin:]
                break
            which += [number] * (len(offsets) - begin)
            done = number + 1
        return done, BulkHits(
            np.array(which, np.int64), np.array(offsets, np.int64), np.array(broken, np.int64)
        )

    def _offsets(self, file: IndexFileReader, key_hash: int) -> Iterator[int]:
        """Yield physical offsets in the range, newest first, without adjacent duplicates."""
        before = -1
        for offset in file.offsets(key_hash):
            # Offsets descend along a chain, so all further items lie before the range.
            if offset < self.within.start:
                return
            if offset < self.within.stop and offset != before:
                yield offset
            before = offset

    def _walk(
        self, chains: _Chains, hashes: npt.NDArray[np.int32], start: int, room: int
    ) -> tuple[int, BulkHits]:
        """Search the hashes from index `start` on.

        Return the index of the first hash that was not searched, and the hits of the searched hashes.
        """
        which, offsets = np.empty(room, np.int32), np.empty(room, np.int64)
        broken = np.zeros(len(hashes), np.uint8)
        done, count = look_up_keys(
            chains.slots, chains.items, chains.newest, *self.within, hashes, start,
            which, offsets, broken,
        )  # fmt: skip
        # If the hits of the last hash did not all fit into the arrays, drop them: the hash is searched for again.
        whole = which[:count] < done
        keys = which[:count][whole].astype(np.int64)
        return int(done), BulkHits(keys, offsets[:count][whole], np.flatnonzero(broken[:done]))


def _read_all(file: IndexFileReader) -> _Chains:
    """Read the slots, and all items that the header counts or a slot leads to."""
    # Another process may be adding items. The count is read first, and the items last. So every item that the count
    # includes, or that a slot leads to, is complete.
    entries, newest = IndexEntries(file), file.next_item - 1
    slots = entries.slots()
    # Slots may lead to items that were added after the count was read.
    highest = int(slots.byteswap().view(np.int32).max())
    last = min(max(newest, highest), file.index_items - 1)
    return _Chains(slots, entries.items(0, last + 1), newest)
