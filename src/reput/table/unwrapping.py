"""Inner batches (5.x) as the messages that they hold: records of their own, in memory, for what reads records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import CorruptMessageError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, locate
from reput.kernels.rows import new_rows
from reput.log.scan import Piece
from reput.messages.inner_batch import inner_records


class BadBatch(NamedTuple):
    """An inner batch that is given as the record that it is, and why."""

    physical_offset: int
    reason: str


class UnwrappedPiece(NamedTuple):
    """A piece in which no inner batch is left that can be unwrapped, and the physical offset of each row's record."""

    piece: Piece
    offsets: npt.NDArray[np.int64]
    bad: tuple[BadBatch, ...]


def unwrapped(
    piece: Piece, offsets: npt.NDArray[np.int64], most_bytes: int
) -> Iterator[UnwrappedPiece]:
    """The same messages, in pieces of about so many bytes; a piece without inner batches is given as it is.

    `offsets` are the physical offsets of its records.
    """
    is_batch = piece.batch.messages["sys_flag"] & SYS_FLAG_INNER_BATCH != 0
    if not is_batch.any():
        yield UnwrappedPiece(piece, offsets, ())
        return
    made = _Made()
    for row in range(len(piece.batch)):
        start, size = int(piece.positions[row]), int(piece.batch.messages["size"][row])
        raw = piece.data[start : start + size].tobytes()
        if is_batch[row]:
            made.unwrap(row, raw, int(offsets[row]))
        else:
            made.add(row, raw)
        if len(made.data) >= most_bytes:
            yield made.taken(piece, offsets)
            made = _Made()
    if made.rows or made.bad:
        yield made.taken(piece, offsets)


@dataclass
class _Made:
    """Records made so far, one after the other, and of which row of the piece each is."""

    data: bytearray = field(default_factory=bytearray)
    rows: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    bad: list[BadBatch] = field(default_factory=list)

    def add(self, row: int, raw: bytes) -> None:
        self.rows.append(row)
        self.positions.append(len(self.data))
        self.data += raw

    def unwrap(self, row: int, raw: bytes, physical_offset: int) -> None:
        try:
            inner = inner_records(raw, locate(raw, 0, len(raw)))
        except CorruptMessageError as error:
            self.bad.append(BadBatch(physical_offset, error.reason))
            self.add(row, raw)
            return
        for record in inner:
            self.add(row, record.data)

    def taken(self, piece: Piece, offsets: npt.NDArray[np.int64]) -> UnwrappedPiece:
        batch, rows = piece.batch, np.array(self.rows, np.int64)
        messages = new_rows(len(rows), batch.messages.dtype)
        messages[:] = batch.messages[rows]
        positions = np.array(self.positions, np.int64)
        messages["size"] = np.diff(np.append(positions, len(self.data)))
        messages["key_count"] = 0
        fresh = replace(
            batch, messages=messages, key_hash=batch.key_hash[:0], multi=batch.multi[:0]
        )
        data = np.frombuffer(self.data, np.uint8)
        return UnwrappedPiece(Piece(data, 0, positions, fresh), offsets[rows], tuple(self.bad))
