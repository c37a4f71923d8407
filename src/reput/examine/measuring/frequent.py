"""What is frequent among hashes, in bounded memory: a counter for each value of their lower bits.

A counter's hashes share it, so it says how often its most frequent one comes at most. A frequent hash all but owns its
counter: the last message that counted there is an example to read it from.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MOST_EXACT = 1 << 16


class FrequentHashes:
    """Counts of hashes, which `reput.kernels.counting` fills in. Memory: 16 bytes per counter, 2**bits of them.

    counters  int64[2**bits, 2]: how many hashes have these lower bits, physical offset of the last of their messages
    """

    def __init__(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self.counters: npt.NDArray[np.int64] = np.zeros((1 << bits, 2), np.int64)

    def counter_of(self, hashed: int) -> int:
        """The counter of one hash."""
        return hashed & self._mask

    def top(self, most: int) -> list[tuple[int, int, int]]:
        """The largest counters of two or more: number, count, physical offset of a message that counted there."""
        counts = self.counters[:, 0].copy()
        rows = np.flatnonzero(counts >= _reached_by(most, counts))
        rows = rows[np.argsort(-counts[rows], kind="stable")][:most]
        return [(row, int(counts[row]), int(self.counters[row, 1])) for row in rows.tolist()]

    @property
    def error(self) -> int:
        """How many other hashes a counter holds on average, rounded up."""
        return -(-int(self.counters[:, 0].sum()) // len(self.counters))


def _reached_by(most: int, counts: npt.NDArray[np.int64]) -> int:
    """A count, 2 at least, that so many counters reach, or all: so that a few are sorted, not millions."""
    with_count = np.bincount(np.minimum(counts, _MOST_EXACT))
    with_more = with_count[::-1].cumsum()[::-1]
    return max(int(np.count_nonzero(with_more >= most)) - 1, 2)
