"""Keep the results of a put of many messages as columns. The result of one message is created on access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from reput.engine.writer.put.message import PutResult

_Offsets = npt.NDArray[np.int64]
PutPart = tuple[_Offsets, _Offsets, int | _Offsets]
"""Physical offsets, queue offsets, and store timestamps (ms). One timestamp may apply to all messages."""
_PIECE = 1 << 12


def part_of(results: Sequence[PutResult]) -> PutPart:
    columns = [
        (result.physical_offset, result.queue_offset, result.store_timestamp) for result in results
    ]
    offsets, numbers, times = np.array(columns, np.int64).T
    return offsets, numbers, times


class PutResults(Sequence[PutResult]):
    """A PutResult for each message, in order. It equals a list of the same results.

    Attributes:
        physical_offset, queue_offset, store_timestamp: int64[n].
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        physical_offset: _Offsets,
        queue_offset: _Offsets,
        store_timestamp: _Offsets,
        id_prefix: str,
    ) -> None:
        """Keep the columns. `id_prefix` is the part of an offset id before the physical offset."""
        self.physical_offset, self.queue_offset = physical_offset, queue_offset
        self.store_timestamp, self._id_prefix = store_timestamp, id_prefix

    @classmethod
    def joined(cls, parts: Sequence[PutPart], id_prefix: str) -> Self:
        none = np.zeros(0, np.int64)
        return cls(
            np.concatenate([none, *(offsets for offsets, _, _ in parts)]),
            np.concatenate([none, *(numbers for _, numbers, _ in parts)]),
            np.concatenate([none, *(np.full(len(offsets), time) for offsets, _, time in parts)]),
            id_prefix,
        )

    def __len__(self) -> int:
        return len(self.physical_offset)

    @overload
    def __getitem__(self, index: int) -> PutResult: ...

    @overload
    def __getitem__(self, index: slice) -> PutResults: ...

    def __getitem__(self, index: int | slice) -> PutResult | PutResults:
        offset = self.physical_offset[index]
        number, time = self.queue_offset[index], self.store_timestamp[index]
        if isinstance(index, slice):
            return PutResults(offset, number, time, self._id_prefix)
        return PutResult(int(offset), int(number), self._id(int(offset)), int(time))

    def __iter__(self) -> Iterator[PutResult]:
        for start in range(0, len(self), _PIECE):
            place = slice(start, start + _PIECE)
            for offset, number, time in zip(
                self.physical_offset[place].tolist(),
                self.queue_offset[place].tolist(),
                self.store_timestamp[place].tolist(),
                strict=True,
            ):
                yield PutResult(offset, number, self._id(offset), time)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PutResults | list):
            return NotImplemented
        return len(self) == len(other) and all(map(PutResult.__eq__, self, other))

    def __repr__(self) -> str:
        ends = f"{self[0]} to {self[-1]}" if len(self) else "none"
        return f"<{type(self).__name__} of {len(self)}: {ends}>"

    def _id(self, physical_offset: int) -> str:
        return f"{self._id_prefix}{physical_offset:016X}"
