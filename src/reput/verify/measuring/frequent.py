"""What is frequent among hashes, in bounded memory: a counter for each value of their lower bits.

A counter's hashes share it, so it says how often its most frequent one comes at most. A frequent hash all but owns its
counter: the last message that counted there is an example to read it from.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.int64]


class FrequentHashes:
    """Counts of hashes. Memory: 12 bytes per counter, 2**bits of them."""

    def __init__(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self._counts = np.zeros(1 << bits, np.int64)
        self._example = np.zeros(1 << bits, np.int64)
        self.total = 0

    def add(self, hashes: npt.NDArray[np.integer], offsets: Hashes) -> None:
        """Count hashes; `offsets` are the physical offsets of their messages."""
        counter = hashes & self._mask
        if len(counter) * 4 > len(self._counts):
            self._counts += np.bincount(counter, minlength=len(self._counts))
        else:
            np.add.at(self._counts, counter, 1)
        self._example[counter] = offsets
        self.total += len(hashes)

    def counter_of(self, hashed: int) -> int:
        """The counter of one hash."""
        return hashed & self._mask

    def top(self, most: int) -> list[tuple[int, int, int]]:
        """The largest counters: number, count, physical offset of the last message that counted there."""
        most = min(most, int(np.count_nonzero(self._counts)))
        if not most:
            return []
        rows = np.argpartition(self._counts, -most)[-most:]
        rows = rows[np.argsort(-self._counts[rows], kind="stable")]
        return [(int(row), int(self._counts[row]), int(self._example[row])) for row in rows]

    @property
    def error(self) -> int:
        """How many other hashes a counter holds on average, rounded up."""
        return -(-self.total // len(self._counts))
