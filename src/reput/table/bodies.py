"""Bodies as they were sent: decompressed as a consumer of RocketMQ does it.

Mirrors `MessageDecoder.decode` and `UtilAll.uncompress` (tag rocketmq-all-4.9.3: zlib), and `MessageSysFlag`,
`CompressionType` of 5.x, which tell zlib, LZ4 frames and Zstandard apart by three bits of the system flag.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.format.commit_log import SYS_FLAG_COMPRESSED

MAX_BODY_BYTES = 256 << 20
"""A body that is larger when decompressed is refused: no broker takes one, and a few bytes can claim any size."""

_TYPE_SHIFT, _TYPE_MASK = 8, 7
_ZLIB = (0, 3)  # 4.x sets no type
_CODECS = {1: "lz4", 2: "zstd"}
_PIECE_BYTES = 1 << 20


class BadBody(NamedTuple):
    """A row whose body cannot be decompressed, and why."""

    row: int
    reason: str


def compressed_rows(sys_flag: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return np.flatnonzero(sys_flag & SYS_FLAG_COMPRESSED)


def decompress(body: memoryview, sys_flag: int) -> bytes:
    """The body as it was sent. Raises ValueError that says what is wrong."""
    kind = sys_flag >> _TYPE_SHIFT & _TYPE_MASK
    if kind in _ZLIB:
        return _inflate(body)
    if kind not in _CODECS:
        raise ValueError(f"compression type {kind} is none that RocketMQ has")
    try:
        with pa.input_stream(pa.py_buffer(body), compression=_CODECS[kind]) as stream:
            return _read_within_limit(stream)
    except OSError as error:
        raise ValueError(f"its {_CODECS[kind]} data is damaged: {error}") from None


def _inflate(body: memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise ValueError(f"its zlib data is damaged: {error}") from None
    if inflater.eof:
        return data
    if inflater.unconsumed_tail:
        raise _too_large()
    raise ValueError("its zlib data is cut off")


def _read_within_limit(stream: pa.NativeFile) -> bytes:
    pieces, total = [], 0
    while piece := stream.read(_PIECE_BYTES):
        total += len(piece)
        if total > MAX_BODY_BYTES:
            raise _too_large()
        pieces.append(piece)
    return b"".join(pieces)


def _too_large() -> ValueError:
    return ValueError(f"decompressed it would be larger than {MAX_BODY_BYTES} bytes")
