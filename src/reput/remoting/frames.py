"""Frames of the remoting protocol (`RemotingCommand.encode`, `.decode`, `NettyDecoder`, tag rocketmq-all-4.9.3).

    length 4 | header length 4 | header | body

Both lengths are big endian. `length` counts everything after itself. The first byte of the header length is how the
header is written (`Serialization`); the other three are its length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from reput.broker.limits import MOST_FRAME_BYTES
from reput.errors import RemotingError

_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_HEADER_BITS = 24
_MOST_HEADER_BYTES = (1 << _HEADER_BITS) - 1


class Serialization(IntEnum):
    """How a header is written (`SerializeType`)."""

    JSON = 0
    ROCKETMQ = 1


class Frame(NamedTuple):
    """The parts of one frame, as bytes of their own."""

    serialization: Serialization
    header: bytes
    body: bytes


def encode_frame(serialization: Serialization, header: bytes, body: bytes = b"") -> bytes:
    """One frame. Raises RemotingError for a header or a frame that its length fields cannot hold."""
    length = _LENGTH.size + len(header) + len(body)
    if len(header) > _MOST_HEADER_BYTES or length > (1 << 31) - 1:
        raise RemotingError(f"a header of {len(header)} bytes and a body of {len(body)} do not fit")
    mark = serialization << _HEADER_BITS | len(header)
    return b"".join((_LENGTHS.pack(length, mark), header, body))


class FrameReader:
    """Cuts what a peer sends into frames, in whatever pieces it arrives."""

    def __init__(self, most_bytes: int = MOST_FRAME_BYTES) -> None:
        """`most_bytes` is the longest frame to take."""
        self._most_bytes = most_bytes
        self._rest = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that has not arrived whole."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole with these bytes; exhaust it before more are fed.

        Raises RemotingError for lengths that cannot be right; nothing after that can be read.
        """
        if self._rest:
            self._rest += data
            data = bytes(self._rest) if self._has_frame(self._rest) else b""
            if not data:
                return
            self._rest.clear()
        position, end = 0, len(data)
        while end - position >= _LENGTH.size:
            stop = position + _LENGTH.size + self._length(data, position)
            if stop > end:
                break
            yield _frame(data, position, stop)
            position = stop
        self._rest += data[position:]

    def _has_frame(self, data: bytearray) -> bool:
        whole = len(data) >= _LENGTH.size
        return whole and len(data) >= _LENGTH.size + self._length(data, 0)

    def _length(self, data: bytes | bytearray, position: int) -> int:
        length: int = _LENGTH.unpack_from(data, position)[0]
        if not _LENGTH.size <= length <= self._most_bytes - _LENGTH.size:
            raise RemotingError(
                f"a frame of {length} bytes: it has {_LENGTH.size} to {self._most_bytes - _LENGTH.size}"
            )
        return length


def _frame(data: bytes, position: int, stop: int) -> Frame:
    """The frame between, whose length was checked."""
    _, mark = _LENGTHS.unpack_from(data, position)
    begin = position + _LENGTHS.size
    header_stop = begin + (mark & _MOST_HEADER_BYTES)
    if header_stop > stop:
        raise RemotingError(
            f"a header of {header_stop - begin} bytes in a frame that has {stop - begin} for it"
        )
    kind = mark >> _HEADER_BITS
    if kind not in (Serialization.JSON, Serialization.ROCKETMQ):
        raise RemotingError(f"header type {kind}: 0 is JSON, 1 is ROCKETMQ")
    return Frame(Serialization(kind), data[begin:header_stop], data[header_stop:stop])
