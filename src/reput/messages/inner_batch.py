"""Inner batches (5.x): one record of a batch queue that holds several messages, and these messages.

Mirrors `MessageDecoder.decodeMessages` and the 5.3.3 client's unwrapping of a pulled batch. The record's body is the
messages one after the other, each big endian:

    size 4 | magic 4 | body CRC 4 | flag 4 | body length 4 | body | properties length 2 | properties
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from reput.errors import CorruptMessageError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, MessageExt, body_crc
from reput.messages.bodies import sent_body

_HEAD = struct.Struct(">iiiii")
_PROPERTIES = struct.Struct(">h")
_NEED_UNWRAP = 64
_OUTER_FLAGS = SYS_FLAG_INNER_BATCH | _NEED_UNWRAP | 1 | 0x700  # compression is the whole body's


def is_inner_batch(message: MessageExt) -> bool:
    return bool(message.sys_flag & SYS_FLAG_INNER_BATCH)


def unwrap(message: MessageExt) -> tuple[MessageExt, ...]:
    """The messages of an inner batch, in order; the message itself where it is none.

    Each has its own body, flag and properties; its queue offset is one more than that of the message before it; all
    else is the record's, `physical_offset` and `size_bytes` included.

    Raises CorruptMessageError for a body that is not a sequence of messages.
    """
    if not is_inner_batch(message):
        return (message,)
    body = sent_body(message)
    if body.error is not None:
        raise _corrupt(message, body.error)
    return tuple(_messages(message, body.data))


def _messages(outer: MessageExt, data: bytes) -> Iterator[MessageExt]:
    position, number = 0, 0
    sys_flag = outer.sys_flag & ~_OUTER_FLAGS
    while position < len(data):
        if len(data) - position < _HEAD.size + _PROPERTIES.size:
            raise _corrupt(outer, f"{len(data) - position} bytes are too few for an inner message")
        size, _, _, flag, body_bytes = _HEAD.unpack_from(data, position)
        properties_at = position + _HEAD.size + body_bytes + _PROPERTIES.size
        if body_bytes < 0 or properties_at > len(data):
            raise _corrupt(outer, f"inner message {number} reaches past the end of the batch")
        (properties_bytes,) = _PROPERTIES.unpack_from(data, properties_at - _PROPERTIES.size)
        end = properties_at + properties_bytes
        if properties_bytes < 0 or end > len(data) or size != end - position:
            raise _corrupt(outer, f"the lengths of inner message {number} do not add up")
        body = data[position + _HEAD.size : properties_at - _PROPERTIES.size]
        yield replace(
            outer, queue_offset=outer.queue_offset + number, flag=flag, sys_flag=sys_flag, body=body,
            body_crc=body_crc(body), properties_bytes=data[properties_at:end],
        )  # fmt: skip
        position, number = end, number + 1


def _corrupt(message: MessageExt, reason: str) -> CorruptMessageError:
    where = f"{message.topic}/{message.queue_id}, queue offset {message.queue_offset}"
    return CorruptMessageError(where, 0, f"an inner batch: {reason}", message.physical_offset)
