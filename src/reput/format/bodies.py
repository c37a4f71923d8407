"""Decompress bodies as RocketMQ's consumers do, up to a limit.

Mirrors `MessageDecoder.decode` and `UtilAll.uncompress` (tag rocketmq-all-4.9.3), which know only zlib. In 5.x
(`MessageSysFlag`, `CompressionType`), three bits of the system flag distinguish zlib, LZ4 frames and Zstandard.

All readers and `put` use this decompressor. A body takes at most twice MAX_BODY_BYTES of memory while it is
decompressed. Libraries other than zlib are imported only when a body needs them, which saves time in small queries.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import NamedTuple

from reput.format.commit_log import SYS_FLAG_COMPRESSED, MessageExt

MAX_BODY_BYTES = 64 << 20
"""Largest decompressed body. Larger bodies stay as stored.

The limit protects against decompression bombs. No client exceeds it: clients refuse bodies above maxMessageSize (4 MiB
by default) before they compress them.
"""

_TYPE_SHIFT, _TYPE_MASK = 8, 7
_ZLIB = (0, 3)  # For zlib, 4.x leaves the type at 0, and 5.x sets it to 3 (CompressionType).
_CODECS = {1: "lz4", 2: "zstd"}
_PIECE_BYTES = 1 << 20


class BodyError(ValueError):
    """Raised for a body that cannot be decompressed. The text of the error states the reason."""


class BodyTooLargeError(BodyError):
    """Raised for a valid body that is too large."""


class SentBody(NamedTuple):
    """A body as it was sent. If `error` is set, it could not be decompressed, and `data` is the stored body."""

    data: bytes
    error: str | None = None
    was_compressed: bool = False


def is_compressed(sys_flag: int) -> bool:
    """Return whether the system flag marks the body as compressed."""
    return bool(sys_flag & SYS_FLAG_COMPRESSED)


def sent_body(message: MessageExt, most_bytes: int | None = None) -> SentBody:
    """Return the body as it was sent. If it is damaged or larger than `most_bytes`, return it as stored."""
    if not is_compressed(message.sys_flag):
        return SentBody(message.body)
    try:
        return SentBody(decompress(message.body, message.sys_flag, most_bytes), None, True)
    except BodyError as error:
        return SentBody(message.body, f"the body is shown as stored: {error}")


def sent_pieces(message: MessageExt) -> Generator[bytes, None, None]:
    """Yield the pieces of the body that `sent_body` would return.

    A first pass decompresses everything to detect damage. The second pass decompresses each piece when it is read, so
    memory never holds the whole body.
    """
    if is_compressed(message.sys_flag):
        with suppress(BodyError):
            if sum(map(len, _pieces(message.body, message.sys_flag))) <= MAX_BODY_BYTES:
                return (piece for piece in _pieces(message.body, message.sys_flag))
    return pieces_of(message.body)


def pieces_of(data: bytes) -> Generator[bytes, None, None]:
    """Yield bytes in pieces of 1 MiB."""
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


def decompress(body: bytes | memoryview, sys_flag: int, most_bytes: int | None = None) -> bytes:
    """Decompress a stored body.

    Args:
        body: The stored bytes.
        sys_flag: The system flag of the message. Three of its bits are the compression type.
        most_bytes: Limit of the decompressed size; None for MAX_BODY_BYTES.

    Raises:
        BodyTooLargeError: The decompressed body exceeds the limit.
        BodyError: The bytes are damaged, or the compression type is unknown.
    """
    kept, total = [], 0
    most = MAX_BODY_BYTES if most_bytes is None else most_bytes
    for piece in _pieces(body, sys_flag):
        total += len(piece)
        if total > most:
            raise BodyTooLargeError(f"its decompressed size exceeds {most} bytes")
        kept.append(piece)
    return kept[0] if len(kept) == 1 else b"".join(kept)


def body_beginning(message: MessageExt, most_bytes: int) -> tuple[bytes, bool]:
    """Return the beginning of a body, decompressed if possible, and whether this is the whole body."""
    if not is_compressed(message.sys_flag):
        return message.body[:most_bytes], len(message.body) <= most_bytes
    found = b""
    try:
        for piece in _pieces(message.body, message.sys_flag):
            found += piece
            if len(found) > most_bytes:
                return found[:most_bytes], False
    except BodyError:
        return message.body[:most_bytes], len(message.body) <= most_bytes
    return found, True


def _pieces(body: bytes | memoryview, sys_flag: int) -> Iterator[bytes]:
    """Yield the decompressed body in pieces of at most _PIECE_BYTES."""
    kind = sys_flag >> _TYPE_SHIFT & _TYPE_MASK
    if kind in _ZLIB:
        return _inflated(memoryview(body))
    if kind in _CODECS:
        return _decoded(body, _CODECS[kind])
    raise BodyError(f"RocketMQ has no compression type {kind}")


def _inflated(body: memoryview) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    try:
        for start in range(0, len(body), _PIECE_BYTES):
            rest: bytes | memoryview = body[start : start + _PIECE_BYTES]
            while rest and not inflater.eof:
                # Limit the output: a kilobyte of input can decompress to a megabyte.
                yield inflater.decompress(rest, _PIECE_BYTES)
                rest = inflater.unconsumed_tail
        # zlib may still hold output after all input was consumed.
        while not inflater.eof and (last := inflater.decompress(b"", _PIECE_BYTES)):
            yield last
    except zlib.error as error:
        raise BodyError(f"its zlib data is damaged: {error}") from None
    if not inflater.eof:
        raise BodyError("its zlib data is truncated")


def _decoded(body: bytes | memoryview, codec: str) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.input_stream(pa.py_buffer(body), compression=codec) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except OSError as error:
        raise BodyError(f"its {codec} data is damaged: {error}") from None
