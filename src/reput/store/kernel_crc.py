"""Checking the CRCs of a long range with the kernels, as a broker does at its start.

Imports numba, so it is imported only where that pays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.format.commit_log import (
    BODY_CRC_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
    body_length_position,
)
from reput.kernels.checksum import body_crcs
from reput.store.commit_log_files import CommitLogFile
from reput.store.scan import FileScan

_PIECE_ROWS = 1 << 12


def end_within(file: CommitLogFile, data: memoryview, start: int) -> int:
    """Physical offset of the first record from `start` on that cannot be read or has a wrong CRC.

    The file's end where there is none. Raises StoreNotFoundError, StoreAccessError,
    StoreChangedError.
    """
    scan = FileScan(file, start, file.end, StoreConfig())
    position = start
    for batch in scan.batches():
        # Records follow each other until the first damage, wherever they say that they lie.
        ends = position + np.cumsum(batch.messages["size"], dtype=np.int64)
        begins = ends - batch.messages["size"]
        stop = scan.damage[0].physical_offset if scan.damage else file.end
        bad = _first_bad_crc(file, data, begins[begins < stop], batch.messages["sys_flag"])
        if bad is not None:
            return bad
        if scan.damage:
            return stop
        position = int(ends[-1])
    return scan.damage[0].physical_offset if scan.damage else scan.end.position


def _first_bad_crc(
    file: CommitLogFile,
    data: memoryview,
    begins: npt.NDArray[np.int64],
    sys_flag: npt.NDArray[np.int32],
) -> int | None:
    """Physical offset of the first of these records whose body does not match its CRC."""
    for first in range(0, len(begins), _PIECE_ROWS):
        rows = begins[first : first + _PIECE_ROWS] - file.start
        flags = sys_flag[first : first + len(rows)]
        # A piece at a time: the kernel wants memory of its own, and a file may have a gigabyte.
        stop = begins[first + len(rows)] - file.start if first + len(rows) < len(begins) else None
        piece = np.array(np.frombuffer(data[rows[0] : stop], np.uint8))
        bad = _bad_rows(piece, rows - rows[0], flags)
        if len(bad):
            return int(begins[first + bad[0]])
    return None


def _bad_rows(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], sys_flag: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    length_at = positions + body_length_position(0)
    for v6_flag in (SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6):
        wider = body_length_position(v6_flag) - body_length_position(0)
        length_at += np.where(sys_flag & v6_flag, wider, 0)
    length = np.maximum(_int32_at(data, length_at), 0)
    crc = np.empty(len(positions), np.int32)
    body_crcs(data, length_at + 4, length, crc)
    return np.flatnonzero((length > 0) & (crc != _int32_at(data, positions + BODY_CRC_POSITION)))


def _int32_at(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Big-endian integers at these positions."""
    found = data[positions[:, None] + np.arange(4)].view(">i4")[:, 0]
    return np.asarray(found, np.int64)
