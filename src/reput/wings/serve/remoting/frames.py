"""Frames of the remoting protocol (`RemotingCommand.encode`, `.decode`, `NettyDecoder`, tag rocketmq-all-4.9.3).

    length 4 | header length 4 | header | body

Both lengths are big endian. `length` counts all bytes after itself. The first byte of the header length is the header's
form (`Serialization`). The other three bytes are its length.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from reput.errors import RemotingError
from reput.wings.serve.broker.limits import MOST_FRAME_BYTES

_LENGTH = struct.Struct(">i")
_LENGTHS = struct.Struct(">iI")
_LENGTH_BYTES, _LENGTHS_BYTES = _LENGTH.size, _LENGTHS.size
_length_at, _lengths_at = _LENGTH.unpack_from, _LENGTHS.unpack_from
_HEADER_BITS = 24
_MOST_HEADER_BYTES = (1 << _HEADER_BITS) - 1
# Returned frames stay at the front of the buffer until they occupy this many bytes. Removing each one at once would
# move the remaining bytes each time.
_KEPT_BYTES = 64 << 10
_JOINED_BYTES = 8 << 10
"""Incomplete frames up to this size are joined with the next bytes. Larger ones are collected in a buffer."""


class Serialization(IntEnum):
    """The form of a header (`SerializeType`)."""

    JSON = 0
    ROCKETMQ = 1


_KINDS = tuple(Serialization)


class Frame(NamedTuple):
    """The parts of one frame, as copied bytes."""

    serialization: Serialization
    header: bytes
    body: bytes


def encode_frame(
    serialization: Serialization, header: bytes, body: bytes | memoryview = b""
) -> bytes:
    """Return one frame. Raises RemotingError if header or frame are too long for their length fields."""
    return b"".join((encode_frame_head(serialization, header, len(body)), body))


def encode_frame_head(serialization: Serialization, header: bytes, body_bytes: int) -> bytes:
    """Return a frame up to its body. Raises RemotingError as `encode_frame` does."""
    length = _LENGTH_BYTES + len(header) + body_bytes
    if len(header) > _MOST_HEADER_BYTES or length > (1 << 31) - 1:
        raise RemotingError(
            f"a header of {len(header)} bytes and a body of {body_bytes} bytes are too long for a frame"
        )
    mark = serialization << _HEADER_BITS | len(header)
    return _LENGTHS.pack(length, mark) + header


class FrameReader:
    """Divides the bytes of a peer into frames. The bytes arrive in arbitrary pieces."""

    def __init__(
        self, most_bytes: int = MOST_FRAME_BYTES, most_header_bytes: int = _MOST_HEADER_BYTES
    ) -> None:
        """Prepare to read. The arguments are the maximum sizes of a frame and of its header."""
        self._most_bytes, self._most_header_bytes = most_bytes, most_header_bytes
        self._data: bytes | bytearray = b""
        self._position = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of received bytes that `next` has not returned yet."""
        return len(self._data) - self._position

    @property
    def has_frame(self) -> bool:
        """Whether a complete frame has arrived. Raises as `next` does."""
        if self._position == len(self._data):
            return False
        size = self._size()
        return size is not None and self.buffered_bytes >= size

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        rest_bytes = len(self._data) - self._position
        if not rest_bytes:
            # The usual case: no bytes are left, so the new bytes are taken without a copy.
            self._data, self._position = data, 0
        elif rest_bytes < _JOINED_BYTES:
            self._data, self._position = bytes(self._data[self._position :]) + data, 0
        else:
            if type(self._data) is bytes:
                self._data, self._position = bytearray(self._data[self._position :]), 0
            self._data += data

    def next(self) -> Frame | None:
        """Return the next frame, or None if it is incomplete.

        Raises RemotingError for invalid lengths. After that, no frame can be read.
        """
        size = self._size()
        if size is None or len(self._data) - self._position < size:
            return None
        frame = self._frame(self._position, self._position + size)
        self._position += size
        if self._position == len(self._data):
            self._data, self._position = b"", 0
        elif self._position > _KEPT_BYTES and type(self._data) is bytearray:
            del self._data[: self._position]
            self._position = 0
        return frame

    def _size(self) -> int | None:
        """Return the size of the next frame, including its length field, or None before this field has arrived."""
        rest_bytes = len(self._data) - self._position
        if rest_bytes < _LENGTH_BYTES:
            return None
        length: int = _length_at(self._data, self._position)[0]
        if not _LENGTH_BYTES <= length <= self._most_bytes - _LENGTH_BYTES:
            raise RemotingError(
                f"a frame of {length} bytes, "
                f"but {_LENGTH_BYTES} to {self._most_bytes - _LENGTH_BYTES} are allowed"
            )
        # Refuse a wrong header length now, before its bytes are collected.
        if rest_bytes >= _LENGTHS_BYTES:
            header_bytes = _lengths_at(self._data, self._position)[1] & _MOST_HEADER_BYTES
            room = length - _LENGTH_BYTES
            if header_bytes > room:
                raise RemotingError(
                    f"a header of {header_bytes} bytes, but its frame has only {room} bytes"
                )
            if header_bytes > self._most_header_bytes:
                raise RemotingError(
                    f"a header of {header_bytes} bytes, but at most {self._most_header_bytes} are allowed"
                )
        return _LENGTH_BYTES + length

    def _frame(self, position: int, stop: int) -> Frame:
        data = self._data
        mark = _lengths_at(data, position)[1]
        begin = position + _LENGTHS_BYTES
        header_stop = begin + (mark & _MOST_HEADER_BYTES)
        kind = mark >> _HEADER_BITS
        if kind >= len(_KINDS):
            raise RemotingError(f"header type {kind}: 0 is JSON, 1 is ROCKETMQ")
        if type(data) is bytes:
            return Frame(_KINDS[kind], data[begin:header_stop], data[header_stop:stop])
        # Slices of a bytearray are copies, so without a view the bytes would be copied twice. Release the view: while
        # it exists, the buffer cannot shrink.
        with memoryview(data) as view:
            header, body = bytes(view[begin:header_stop]), bytes(view[header_stop:stop])
        return Frame(_KINDS[kind], header, body)
