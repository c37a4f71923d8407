"""`checkpoint`: how far the flushed files reach, in message time (`StoreCheckpoint`, tag rocketmq-all-4.9.3).

4,096 bytes: three big-endian longs, then zeros.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CHECKPOINT_BYTES = 4096
_TIMESTAMPS = struct.Struct(">qqq")


class Checkpoint(NamedTuple):
    """Store timestamps in milliseconds of the last flushed message of CommitLog, ConsumeQueue, full IndexFile."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Raises ValueError when the three longs are not there."""
    if len(data) < _TIMESTAMPS.size:
        raise ValueError(f"a checkpoint has {CHECKPOINT_BYTES} bytes, not {len(data)}")
    return Checkpoint(*_TIMESTAMPS.unpack_from(data))


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return _TIMESTAMPS.pack(*checkpoint).ljust(CHECKPOINT_BYTES, b"\0")
