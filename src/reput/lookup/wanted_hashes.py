"""The hashes of all keys of a look-up, as scans of the log search them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from reput.files.arrow_file import map_array
from reput.kernels.key_match import find_wanted

_HASH_BITS = 31
_BUCKET_HASHES = 2


class HashTable:
    """Hashes to look for, int32, sorted and different, with a table that leads to each at once."""

    def __init__(self, hashes: npt.NDArray[np.int32]) -> None:
        self.hashes = hashes
        bits = max(len(hashes) // _BUCKET_HASHES, 1).bit_length()
        self.shift = _HASH_BITS - min(bits, _HASH_BITS)
        edges = np.arange((1 << (_HASH_BITS - self.shift)) + 1, dtype=np.int64) << self.shift
        self.bounds = np.searchsorted(hashes, edges)

    def find(self, key_hash: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Numbers of those that are wanted, rising."""
        found = np.empty(len(key_hash), np.int64)
        count = find_wanted(key_hash, self.hashes, self.bounds, self.shift, found)
        return found[:count]


@lru_cache(maxsize=1)
def wanted_hashes(path: str) -> HashTable:
    """Those in a file. A worker keeps them from task to task, but no more than one: they are as many as the keys."""
    return HashTable(map_array(path))
