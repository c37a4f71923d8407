"""CRC-32 of many bodies: the checksum of `reput.format.commit_log.body_crc`, eight bytes a step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from reput.kernels.integers import byte_at

_STRIDE = 8


def _make_tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((_STRIDE, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for step in range(1, _STRIDE):
        tables[step] = tables[0, tables[step - 1] & 0xFF] ^ tables[step - 1] >> np.uint32(8)
    return tables


_TABLES = _make_tables()


@njit(cache=True, nogil=True)
def body_crcs(data, position, length, crc):
    """CRC of each data[position[i]:position[i]+length[i]] into crc[i] (int32), 0 for an empty body.

    A body that is not wholly inside `data` gets -1, which no stored CRC is.
    """
    for body in range(len(position)):
        start, count = position[body], length[body]
        crc[body] = -1
        # No sum before it is known to be small: compiled code takes it that none overflows.
        if 0 <= start <= len(data) and 0 <= count <= len(data) - start:
            crc[body] = _crc32(data, start, start + count) & 0x7FFFFFFF


@njit(inline="always")
def _crc32(data, start, stop):
    value = np.int64(0xFFFFFFFF)
    while start + 8 <= stop:
        value ^= (
            byte_at(data, start)
            | byte_at(data, start + 1) << 8
            | byte_at(data, start + 2) << 16
            | byte_at(data, start + 3) << 24
        )
        value = np.int64(
            _TABLES[7, value & 0xFF]
            ^ _TABLES[6, (value >> 8) & 0xFF]
            ^ _TABLES[5, (value >> 16) & 0xFF]
            ^ _TABLES[4, (value >> 24) & 0xFF]
            ^ _TABLES[3, byte_at(data, start + 4)]
            ^ _TABLES[2, byte_at(data, start + 5)]
            ^ _TABLES[1, byte_at(data, start + 6)]
            ^ _TABLES[0, byte_at(data, start + 7)]
        )
        start += 8
    while start < stop:
        value = np.int64(_TABLES[0, (value ^ byte_at(data, start)) & 0xFF]) ^ (value >> 8)
        start += 1
    return value ^ 0xFFFFFFFF
