"""How much a batch of messages holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

BATCH_BYTES = 4 << 20
"""Of the log, and of decompressed bodies, that make one batch; a single message may be larger."""


def cut_by_bytes(sizes: npt.NDArray[np.int64], most_bytes: int) -> Iterator[slice]:
    """Runs of rows of at most `most_bytes` together; a row that is larger has a run of its own."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        begun = ends[start] - sizes[start]
        stop = max(int(np.searchsorted(ends, begun + most_bytes, "right")), start + 1)
        yield slice(start, stop)
        start = stop
