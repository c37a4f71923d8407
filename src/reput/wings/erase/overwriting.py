"""Overwrite records in the bytes of a log file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.core import CommitLogFile, FileScan, ScanMode, open_batch
from reput.engine.rebuild import small_log
from reput.engine.rebuild.warm_up import warm_up as warm_up_rebuild
from reput.errors import StoreChangedError, StoreError
from reput.format.bodies import is_compressed
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, encode_blank, locate
from reput.format.erasure import ERASED_PROPERTY, KEPT_PROPERTIES, ErasedRecord
from reput.io import FileReader, OpenFile
from reput.kernels.erase_records import SCRATCH_BYTES, erase_inner, erase_records, seal_records
from reput.wings.erase.choosing import ChosenMessages

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Consecutive bytes of the new log file, and their position in the file."""

    position: int
    data: bytes | memoryview


class Eraser:
    """Overwrites the records of a log that were chosen for the erasure.

    Attributes:
        erased: The erased records, in the order of the log.
        bare: Number of messages that are too short for a tombstone (the property REPUT_ERASED).
        without_keys: Physical offsets of records that have lost their keys.
    """

    def __init__(self, selection: ChosenMessages, erasure_id: str) -> None:
        self._selection, self._offsets = selection, selection.offsets
        names = [name.encode() for name in KEPT_PROPERTIES]
        kept_at = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._how = (
            _array(b"".join(names)), kept_at, _array(f"{ERASED_PROPERTY}\x01{erasure_id}".encode()),
            np.empty(SCRATCH_BYTES, np.uint8),
        )  # fmt: skip
        self.erased: list[ErasedRecord] = []
        self.bare = 0
        self.without_keys: list[int] = []

    def within(self, start: int, end: int) -> Offsets:
        """Return the physical offsets of the records to erase in [start, end)."""
        first, stop = np.searchsorted(self._offsets, (start, end))
        return self._offsets[first:stop]

    def runs(self, file: CommitLogFile, open_file: OpenFile = FileReader) -> Iterator[Run]:
        """Yield the records of the new file, and the blank record at its end.

        The caller fills the rest of the file with zeros.

        Raises:
            StoreChangedError: A chosen record has moved or changed.
            StoreError: A part of the file is unreadable.
            StoreNotFoundError, StoreAccessError.
        """
        scan = FileScan(file, file.start, file.end, ScanMode.PLACES, open_file=open_file)
        done, position = 0, file.start
        for piece in scan.pieces():
            if not len(piece.batch):
                continue
            start, stop = piece.record(0).start, piece.record(len(piece.batch) - 1).stop
            # Bytes between two records are damage, and may contain a message to erase.
            if scan.damage or start != position:
                break
            data = piece.data[start - piece.base : stop - piece.base].copy()
            done += self._erase(data, start, piece.positions + piece.base)
            yield Run(start - file.start, data.data)
            position = stop
        if scan.damage or scan.end.data_follows:
            lost = (*scan.damage, *scan.verdict().damage)[0]
            raise StoreError(
                f"{lost}; an unreadable range may contain messages to erase; repair the store first"
            )
        # A chosen record has disappeared or moved since it was chosen.
        if done != len(self.within(file.start, file.end)):
            raise StoreChangedError(
                f"{file.path}: changed while it was read; run the command again"
            )
        if scan.end.blank is not None:
            at = scan.end.blank - file.start
            yield Run(at, encode_blank(file.size - at))

    def _erase(self, data: Bytes, base: int, starts: Offsets) -> int:
        """Erase the chosen records in `data`, which begins at physical offset `base`. Return how many were erased."""
        offsets = self.within(base, base + len(data))
        offsets = offsets[np.isin(offsets, starts)]
        whole, keeps_body, partial = [], [], []
        for offset in offsets.tolist():
            at, size = offset - base, self._selection.sizes[offset]
            raw, numbers = data[at : at + size].tobytes(), self._selection.inner.get(offset)
            digest = hashlib.sha256(raw).hexdigest()
            inner = None if numbers is None else tuple(sorted(numbers))
            self.erased.append(ErasedRecord(offset, size, digest, inner))
            body_is_done, is_whole = self._erase_inner(data, at, raw, numbers)
            if is_whole:
                whole.append(at)
                self.without_keys.append(offset)
                keeps_body.append(body_is_done)
            else:
                partial.append(at)
        self.bare += erase_records(
            data, np.array(whole, np.int64), np.array(keeps_body, np.uint8), *self._how
        )
        seal_records(data, np.array(partial, np.int64))
        return len(offsets)

    def _erase_inner(
        self, data: Bytes, at: int, raw: bytes, numbers: set[int] | None
    ) -> tuple[bool, bool]:
        """Erase messages of an inner batch, in the body of the record. The number of messages in the batch stays.

        Returns:
            Whether the whole body was erased, and whether the properties of the record must also be erased.
        """
        layout = locate(raw, 0, len(raw))
        if not layout.sys_flag & SYS_FLAG_INNER_BATCH or is_compressed(layout.sys_flag):
            return False, True
        batch = open_batch(raw, layout)
        inside = list(batch.spans())
        erased = [
            span
            for number, span in enumerate(inside, batch.outer.queue_offset)
            if numbers is None or number in numbers
        ]
        body = at + layout.body_position
        self.bare += erase_inner(
            data, np.array([body + span.body_at for span in erased], np.int64),
            np.array([body + span.end for span in erased], np.int64), *self._how,
        )  # fmt: skip
        return True, len(erased) == len(inside)


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8).copy()


@cache
def warm_up() -> None:
    """Compile the kernels that an erasure calls, or load them from the cache."""
    warm_up_rebuild()
    data, none = _array(small_log()), np.empty(0, np.int64)
    eraser = Eraser(ChosenMessages(sizes={0: len(data) // 3}), "")
    eraser._erase(data, 0, np.zeros(1, np.int64))
    erase_inner(data, none, none, *eraser._how)
