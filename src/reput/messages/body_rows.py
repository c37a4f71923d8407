"""Compressed bodies among rows of records, decompressed row by row as far as memory should hold them."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.format.commit_log import SYS_FLAG_COMPRESSED
from reput.messages.bodies import BodyError, BodyTooLargeError, decompress

Offsets = npt.NDArray[np.int64]


class BadBody(NamedTuple):
    """A row whose body could not be decompressed and comes as it is stored, and why; whether only its size is wrong."""

    row: int
    reason: str
    is_too_large: bool


class SentBodies(NamedTuple):
    """What came of the compressed bodies of some rows; rows are counted from the first of them.

    stop    number of the row after the last
    bodies  by row: decompressed, or as it is stored where that cannot be done
    """

    stop: int
    bodies: dict[int, bytes]
    bad: list[BadBody]


class StoredBodies:
    """Bodies in a buffer: where they begin, their lengths, their messages' flags, a row each."""

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        starts: Offsets,
        counts: Offsets,
        sys_flags: npt.NDArray[np.int32],
    ) -> None:
        self._data, self._starts, self._counts, self._sys_flags = data, starts, counts, sys_flags

    @cached_property
    def compressed(self) -> list[int]:
        """Rows whose bodies are compressed."""
        rows: list[int] = np.flatnonzero(self._sys_flags & SYS_FLAG_COMPRESSED).tolist()
        return rows

    def decompress(self, start: int, most_bytes: float) -> SentBodies:
        """The bodies from row `start` on, one at least, until they have reached `most_bytes`."""
        bodies: dict[int, bytes] = {}
        bad: list[BadBody] = []
        total = 0
        for row in self.compressed[np.searchsorted(self.compressed, start) :]:
            if total >= most_bytes:
                return SentBodies(row, bodies, bad)
            place = self._starts[row]
            stored = self._data[place : place + self._counts[row]].data
            try:
                body = decompress(stored, int(self._sys_flags[row]))
            except BodyError as error:
                body = bytes(stored)
                reason = f"the body is as it is stored: {error}"
                bad.append(BadBody(row - start, reason, isinstance(error, BodyTooLargeError)))
            bodies[row - start] = body
            total += len(body)
        return SentBodies(len(self._sys_flags), bodies, bad)
