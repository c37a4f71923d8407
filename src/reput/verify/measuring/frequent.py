"""What is frequent among hashes, in bounded memory: a counter for each value of their lower bits.

A counter's hashes share it, so it says how often its most frequent one comes at most. A frequent hash all but owns its
counter: the last message that counted there is an example to read it from.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


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
        """The largest counters: number, count, physical offset of the last message that counted there."""
        used = np.flatnonzero(self.counters[:, 0])  # a small store leaves nearly all at 0
        counts = self.counters[used, 0]
        most = min(most, len(used))
        if not most:
            return []
        least = np.partition(counts, -most)[-most]  # argpartition is slow where many are the same
        above, same = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        rows = np.concatenate([above[np.argsort(-counts[above], kind="stable")], same])[:most]
        return [
            (int(used[row]), int(counts[row]), int(self.counters[used[row], 1])) for row in rows
        ]

    @property
    def error(self) -> int:
        """How many other hashes a counter holds on average, rounded up."""
        return -(-int(self.counters[:, 0].sum()) // len(self.counters))
