"""A file as zstd frames of 64 KiB, with a seek table: zstd's seekable format, version 0.1.0.

`zstd -dc` restores the file, and any reader of the seekable format can read a range of it. Two skippable frames follow
the data and form the `tail` of the object. The first is reput's own list of the SHA-256 of each frame's content. The
second is the seek table, which must come last.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FRAME_BYTES = 64 << 10
DIGEST_BYTES = 32
_DIGESTS_MAGIC, _TABLE_MAGIC = 0x184D2A5D, 0x184D2A5E
_SEEKABLE_MAGIC = 0x8F92EAB1
_HEAD = struct.Struct("<II")
"""The head of a skippable frame: its magic and the length of its content."""
_FOOTER = struct.Struct("<IBI")
"""The footer of the seek table: number of frames, flags (0: no checksums), magic."""
_ENTRY_BYTES = 8
_MOST_STORED_BYTES = FRAME_BYTES + (FRAME_BYTES >> 7)
"""Maximum size of a compressed frame: 64 KiB of content plus 512 bytes.

zstd makes incompressible content larger by at most 1/256 plus 32 bytes: 288 bytes for 64 KiB.
"""


@dataclass(frozen=True)
class Frames:
    """The frames of one object.

    Attributes:
        starts: int64[n + 1], the position of each frame in the object, then the position of the tail
        data_bytes: size of the object's content after decompression
        digests: SHA-256 of each frame's content, concatenated
    """

    starts: npt.NDArray[np.int64]
    data_bytes: int
    digests: bytes

    def __len__(self) -> int:
        return len(self.starts) - 1

    def digest(self, frame: int) -> bytes:
        return self.digests[frame * DIGEST_BYTES : (frame + 1) * DIGEST_BYTES]

    def content_bytes(self, frame: int) -> int:
        """Return the length of a frame's content. Only the last frame may be shorter than FRAME_BYTES."""
        return min(self.data_bytes - frame * FRAME_BYTES, FRAME_BYTES)


def tail_bytes(frames: int) -> int:
    """Return the length of the tail (digests and seek table) of an object with `frames` frames."""
    # The seek table must also list the skippable frame with the digests, as a frame without content.
    return 2 * _HEAD.size + frames * DIGEST_BYTES + (frames + 1) * _ENTRY_BYTES + _FOOTER.size


def encode_tail(sizes: Sequence[int], data_bytes: int, digests: bytes) -> bytes:
    """Return the tail (digests and seek table) of an object whose compressed frames have these sizes."""
    table = np.empty((len(sizes) + 1, 2), "<u4")
    table[:-1, 0] = sizes
    table[:-1, 1] = FRAME_BYTES
    if len(sizes):
        table[-2, 1] = data_bytes - (len(sizes) - 1) * FRAME_BYTES
    table[-1] = _HEAD.size + len(digests), 0
    entries = table.tobytes() + _FOOTER.pack(len(table), 0, _SEEKABLE_MAGIC)
    return (
        _HEAD.pack(_DIGESTS_MAGIC, len(digests)) + digests
        + _HEAD.pack(_TABLE_MAGIC, len(entries)) + entries
    )  # fmt: skip


def decode_tail(tail: bytes, data_bytes: int, tail_start: int) -> Frames:
    """Return the frames of an object from its tail (digests and seek table), which begins at `tail_start`.

    Raises:
        ValueError: the bytes are not the tail for a file of `data_bytes` bytes.
    """
    count = -(-data_bytes // FRAME_BYTES)
    if len(tail) != tail_bytes(count):
        raise ValueError(f"its tail has {len(tail)} bytes, not {tail_bytes(count)}")
    digests = tail[_HEAD.size : _HEAD.size + count * DIGEST_BYTES]
    at = 2 * _HEAD.size + len(digests)
    table = np.frombuffer(tail, "<u4", 2 * count, at).reshape(count, 2)
    sizes = table[:, 0].astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    # Readers load a whole frame into memory. A hostile table could state a frame of gigabytes.
    if int(sizes.max(initial=0)) > _MOST_STORED_BYTES:
        raise ValueError(
            f"its seek table has a frame of {sizes.max():,} bytes; "
            f"at most {_MOST_STORED_BYTES:,} are allowed"
        )
    # Encode the parsed values again and compare, which detects all other errors, such as a wrong magic or content size.
    if encode_tail(table[:, 0].tolist(), data_bytes, digests) != tail or starts[-1] != tail_start:
        raise ValueError("its seek table contradicts the object's size")
    return Frames(starts, data_bytes, digests)
