"""Frames of the remoting protocol (`RemotingCommand.encode`, `.decode`, `NettyDecoder`, tag rocketmq-all-4.9.3).

    length 4 | header length 4 | header | body

Both lengths are big endian. `length` counts everything after itself. The first byte of the header length is how the
header is written (`Serialization`); the other three are its length.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from reput.broker.limits import MOST_FRAME_BYTES
from reput.errors import RemotingError

_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_HEADER_BITS = 24
_MOST_HEADER_BYTES = (1 << _HEADER_BITS) - 1
_KEPT_BYTES = 64 << 10  # of frames that were taken, before the rest is moved to the front


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
    return encode_frame_head(serialization, header, len(body)) + body


def encode_frame_head(serialization: Serialization, header: bytes, body_bytes: int) -> bytes:
    """A frame up to its body. Raises RemotingError as `encode_frame` does."""
    length = _LENGTH.size + len(header) + body_bytes
    if len(header) > _MOST_HEADER_BYTES or length > (1 << 31) - 1:
        raise RemotingError(
            f"a header of {len(header)} bytes and a body of {body_bytes} do not fit"
        )
    mark = serialization << _HEADER_BITS | len(header)
    return _LENGTHS.pack(length, mark) + header


class FrameReader:
    """Cuts what a peer sends into frames, in whatever pieces it arrives."""

    def __init__(
        self, most_bytes: int = MOST_FRAME_BYTES, most_header_bytes: int = _MOST_HEADER_BYTES
    ) -> None:
        """Limits of a frame and of its header."""
        self._most_bytes, self._most_header_bytes = most_bytes, most_header_bytes
        self._data = bytearray()
        self._position = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of frames that were not taken yet, or have not arrived whole."""
        return len(self._data) - self._position

    @property
    def has_frame(self) -> bool:
        """Whether a frame is there, whole. Raises as `next` does."""
        size = self._size()
        return size is not None and self.buffered_bytes >= size

    def rest(self) -> bytes:
        """The bytes of frames that were not taken yet."""
        return bytes(self._data[self._position :])

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data

    def next(self) -> Frame | None:
        """The next frame; None where it is not there, or not whole.

        Raises RemotingError for lengths that cannot be right; nothing after that can be read.
        """
        size = self._size()
        if size is None or self.buffered_bytes < size:
            return None
        frame = self._frame(self._position, self._position + size)
        self._position += size
        if self._position == len(self._data) or self._position > _KEPT_BYTES:
            del self._data[: self._position]
            self._position = 0
        return frame

    def _size(self) -> int | None:
        """Bytes of the next frame, its length field included, as soon as that is there."""
        if self.buffered_bytes < _LENGTH.size:
            return None
        length: int = _LENGTH.unpack_from(self._data, self._position)[0]
        if not _LENGTH.size <= length <= self._most_bytes - _LENGTH.size:
            raise RemotingError(
                f"a frame of {length} bytes: it has {_LENGTH.size} to {self._most_bytes - _LENGTH.size}"
            )
        if self.buffered_bytes >= _LENGTHS.size:
            _, mark = _LENGTHS.unpack_from(self._data, self._position)
            header_bytes, room = mark & _MOST_HEADER_BYTES, length - _LENGTH.size
            if header_bytes > room:
                raise RemotingError(
                    f"a header of {header_bytes} bytes in a frame that has {room} for it"
                )
            if header_bytes > self._most_header_bytes:
                raise RemotingError(
                    f"a header of {header_bytes} bytes: it has at most {self._most_header_bytes}"
                )
        return _LENGTH.size + length

    def _frame(self, position: int, stop: int) -> Frame:
        _, mark = _LENGTHS.unpack_from(self._data, position)
        begin = position + _LENGTHS.size
        header_stop = begin + (mark & _MOST_HEADER_BYTES)
        kind = mark >> _HEADER_BITS
        if kind not in (Serialization.JSON, Serialization.ROCKETMQ):
            raise RemotingError(f"header type {kind}: 0 is JSON, 1 is ROCKETMQ")
        with memoryview(self._data) as view:
            header, body = bytes(view[begin:header_stop]), bytes(view[header_stop:stop])
        return Frame(Serialization(kind), header, body)
