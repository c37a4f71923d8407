"""The file `checkpoint`: store times up to which files were flushed (`StoreCheckpoint`, tag rocketmq-all-4.9.3).

It has 4,096 bytes: three big-endian longs (five in 5.x, tag rocketmq-all-5.3.3), then zeros.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

CHECKPOINT_BYTES = 4096
_TIMESTAMPS = struct.Struct(">qqq")
_FIELDS = struct.Struct(">qqqqq")


class Checkpoint(NamedTuple):
    """Store times (ms) of the last flushed messages in the CommitLog, in the ConsumeQueues, and in full IndexFiles.

    5.x adds two physical offsets. `master_flushed_offset` is the offset up to which a master's log was flushed when the
    checkpoint was written. `confirmed_offset` is the offset of the last valid record that the broker found when it last
    started.

    In RocketMQ: physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, getLogicsMsgTimestamp,
    setLogicsMsgTimestamp.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0

    @property
    def times(self) -> tuple[int, int, int]:
        """Return the three timestamps."""
        return self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp

    def offsets_outside(self, log_end: int) -> dict[str, int]:
        """Return the physical offsets that do not lie in the log, by the name of the field.

        `log_end` is the end of the last log file, not of its last message: a broker counts the rest of a full file as
        flushed. The offset -1 is valid: a broker writes it if it found no record when it started.
        """
        offsets = {
            "master_flushed_offset": self.master_flushed_offset, "confirmed_offset": self.confirmed_offset,
        }  # fmt: skip
        return {name: offset for name, offset in offsets.items() if not -1 <= offset <= log_end}

    def without_offsets_outside(self, log_end: int) -> Checkpoint:
        """Return the checkpoint with 0, as in a new store, for the physical offsets that do not lie in the log."""
        return self._replace(**dict.fromkeys(self.offsets_outside(log_end), 0))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the checkpoint. Raises ValueError if the bytes do not contain three longs."""
    if len(data) < _TIMESTAMPS.size:
        raise ValueError(f"a checkpoint has {CHECKPOINT_BYTES} bytes, not {len(data)}")
    # A shorter file has only the fields of 4.9.
    layout = _FIELDS if len(data) >= _FIELDS.size else _TIMESTAMPS
    return Checkpoint(*layout.unpack_from(data))


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    return _FIELDS.pack(*checkpoint).ljust(CHECKPOINT_BYTES, b"\0")
