"""Look up many hashes in one IndexFile.

A few hashes are looked up one by one, by reading their chains. If there are so many that reading the whole file costs
no more, it is read, and all chains are walked side by side. Files are not memory-mapped: if another process cut off a
mapped file, the next access would kill this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import FormatError, StoreChangedError, StoreNotFoundError
from reput.files.storage import LOCAL, Storage
from reput.format.index_file import file_bytes
from reput.index.entries import IndexEntries, Items
from reput.index.key_index import BulkHits
from reput.index.reader import BrokenChainError, IndexFileReader
from reput.kernels.index_chains import look_up_keys
from reput.log.offset_range import OffsetRange

_LEAST_ROOM = 1 << 16
_SCATTERED_BYTES = 32 << 10  # Bytes read sequentially in the time that one hash takes.
_BYTES_PER_HIT = 1 << 10
_BYTES_PER_KEY = 200  # Bytes of a log scanned in the time that one of a million keys takes.


class _Chains(NamedTuple):
    """`newest` is the number of the newest item."""

    slots: npt.NDArray[np.uint32]
    items: Items
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
        """See `BulkSearch.weight`: many keys take as long as reading the file, and walking the chains."""
        whole = file_bytes(self.hash_slots, self.index_items)
        return min(keys * _SCATTERED_BYTES, whole) + keys * _BYTES_PER_KEY

    def find(self, hashes: npt.NDArray[np.int32]) -> Iterator[BulkHits]:
        """Search as `find_each` does, for one group."""
        return (hits for _, hits in self.find_each([hashes]))

    def find_each(self, groups: Iterable[npt.NDArray[np.int32]]) -> Iterator[tuple[int, BulkHits]]:
        """See `BulkSearch.find_each`.

        For groups of many keys the used part of the file, 420 MB of a full one, is read into memory, once for all
        groups.
        """
        chains: _Chains | None = None
        for number, hashes in enumerate(groups):
            done = 0
            if chains is None:
                with closing(self._open()) as file:
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
            if done == before:  # One key has more entries than fit.
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
        """Return the number of hashes done and their hits: fewer than all if they have very many entries."""
        which: list[int] = []
        found: list[int] = []
        broken: list[int] = []
        most, done = file.used_bytes() // _BYTES_PER_HIT, 0
        for number, key_hash in enumerate(hashes.tolist()):
            begin = len(found)
            try:
                for offset in self._offsets(file, key_hash):
                    found.append(offset)
                    if len(found) > most:
                        break
            except BrokenChainError:
                broken.append(number)
            if len(found) > most:
                del found[begin:]
                break
            which += [number] * (len(found) - begin)
            done = number + 1
        return done, BulkHits(
            np.array(which, np.int64), np.array(found, np.int64), np.array(broken, np.int64)
        )

    def _offsets(self, file: IndexFileReader, key_hash: int) -> Iterator[int]:
        """Yield physical offsets in the range, newest first, without adjacent duplicates."""
        before = -1
        for offset in file.offsets(key_hash):
            if offset < self.within.start:
                return
            if offset < self.within.stop and offset != before:
                yield offset
            before = offset

    def _walk(
        self, chains: _Chains, hashes: npt.NDArray[np.int32], start: int, room: int
    ) -> tuple[int, BulkHits]:
        """Return the number of hashes done, from `start` on, and their hits."""
        which, offsets = np.empty(room, np.int32), np.empty(room, np.int64)
        broken = np.zeros(len(hashes), np.uint8)
        done, count = look_up_keys(
            chains.slots, chains.items, chains.newest, *self.within, hashes, start,
            which, offsets, broken,
        )  # fmt: skip
        whole = which[:count] < done
        found = which[:count][whole].astype(np.int64)
        return int(done), BulkHits(found, offsets[:count][whole], np.flatnonzero(broken[:done]))


def _read_all(file: IndexFileReader) -> _Chains:
    """Read the file: first the count, last the items, so that every counted or linked item is there."""
    entries, newest = IndexEntries(file), file.next_item - 1
    slots = entries.slots()
    highest = int(slots.byteswap().view(np.int32).max())
    last = min(max(newest, highest), file.index_items - 1)
    return _Chains(slots, entries.items(0, last + 1), newest)
