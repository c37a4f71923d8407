"""The messages of a log as columns, some at a time: where they lie, which queue, what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reput.findings import Finding
from reput.format.commit_log import (
    PHYSICAL_OFFSET_POSITION,
    SYS_FLAG_TRANSACTION_MASK,
)
from reput.kernels.checksum import body_crcs
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.queued_record import DISPATCHED_TRANSACTIONS
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers, ScannedPiece
from reput.log.scan_mode import SALVAGE
from reput.verify.checking.unread import unread

Column = npt.NDArray[np.int64]
NOT_QUEUED = -1
CHUNK_BYTES = 64 << 20
_BEHIND_OFFSET = PHYSICAL_OFFSET_POSITION + 8


class QueueNumbers:
    """Numbers that queues have in both stores."""

    def __init__(self) -> None:
        self._numbers: dict[Queue, int] = {}
        self.queues: list[Queue] = []

    def of(self, queues: Iterable[Queue]) -> Column:
        """The number of each, int64[n]."""
        return np.array([self._number(queue) for queue in queues], np.int64)

    def _number(self, queue: Queue) -> int:
        if queue not in self._numbers:
            self._numbers[queue] = len(self.queues)
            self.queues.append(queue)
        return self._numbers[queue]


@dataclass(frozen=True, slots=True)
class LogRows:
    """Messages in log order.

    Attributes:
        offset: int64[n], where each lies.
        queue: int64[n], number of its queue.
        queue_offset: int64[n]; NOT_QUEUED for one of a transaction that is open or was rolled back.
        size: int64[n], bytes of the record.
        digest: int64[n], of all its bytes but PHYSICALOFFSET: CRC-32 without the top bit of what is before it,
            and of what is after it.
    """

    offset: Column
    queue: Column
    queue_offset: Column
    size: Column
    digest: Column

    @classmethod
    def of(cls, piece: ScannedPiece, numbers: QueueNumbers) -> LogRows:
        messages = piece.batch.messages
        size = messages["size"].astype(np.int64)
        queue_offset = messages["queue_offset"].astype(np.int64)
        transaction = messages["sys_flag"] & SYS_FLAG_TRANSACTION_MASK
        queue_offset[~np.isin(transaction, DISPATCHED_TRANSACTIONS)] = NOT_QUEUED
        return cls(
            piece.base + piece.positions,
            numbers.of(piece.batch.queues)[messages["queue"]],
            queue_offset,
            size,
            _digests(piece.data, piece.positions, size),
        )

    @classmethod
    def joined(cls, parts: Iterable[LogRows]) -> LogRows:
        found = list(parts)
        if not found:
            return cls(*(np.empty(0, np.int64) for _ in range(5)))
        return cls(*(np.concatenate([getattr(part, name) for part in found]) for name in _NAMES))

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> LogRows:
        return LogRows(*(getattr(self, name)[rows] for name in _NAMES))

    def __len__(self) -> int:
        return len(self.offset)


_NAMES = tuple(LogRows.__slots__)


class RowReader:
    """Reads the messages of one log.

    Attributes:
        damage: What could not be read, in the order met.
    """

    def __init__(self, log: CommitLogReader, log_end: int, numbers: QueueNumbers) -> None:
        self._log, self._log_end, self._numbers = log, log_end, numbers
        self._buffers = ScanBuffers()
        self.damage: list[Finding] = list(log.holes())

    def read(self, file: CommitLogFile, start: int, stop: int) -> tuple[LogRows, int]:
        """Messages that begin in [start, stop) of a file, and where the next one begins; one begins at `start`.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        source = self._log.source
        scan = FileScan(file, start, stop, SALVAGE, buffers=self._buffers, open_file=source.open)
        rows = LogRows.joined([LogRows.of(piece, self._numbers) for piece in scan.pieces()])
        self.damage += unread(scan, file, self._log_end)
        return rows, file.end if scan.end.finished else scan.end.position

    def chunks(self, file: CommitLogFile) -> Iterator[LogRows]:
        """All messages of a file, some at a time."""
        position = file.start
        while position < file.end:
            rows, position = self.read(file, position, min(position + CHUNK_BYTES, file.end))
            yield rows


def _digests(data: npt.NDArray[np.uint8], positions: Column, size: Column) -> Column:
    low, high = np.empty(len(size), np.int32), np.empty(len(size), np.int32)
    body_crcs(data, positions, np.full(len(size), PHYSICAL_OFFSET_POSITION), low)
    body_crcs(data, positions + _BEHIND_OFFSET, size - _BEHIND_OFFSET, high)
    return low.astype(np.int64) << 31 | high
