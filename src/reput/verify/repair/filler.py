"""Records that stand where bytes of the log cannot be read, so that a broker reads on to what follows them.

Three kinds, all of which `CommitLog.checkMessageAndReturnSize` takes (tag rocketmq-all-4.9.3):

- A placeholder, where a ConsumeQueue knew of a message: an ordinary message of its queue, with its queue offset, no
  keys, no tags, a body of zeros and the property REPUT_SALVAGED. Without it the queue would lack a number, and dispatch
  closes such a gap by moving up all later entries: committed offsets of consumers would then mean other messages.
- A rolled-back transaction elsewhere: dispatched neither to a queue nor to the index
  (`DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`, `IndexService.buildIndex`).
- A blank up to the end of a file: the broker reads on in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reput.format.commit_log import (
    BLANK_BYTES,
    MIN_RECORD_BYTES,
    SYS_FLAG_ROLLBACK,
    MessageExt,
    encode,
    encode_blank,
)
from reput.format.host import Host
from reput.format.java_string import encode_utf8
from reput.log.dispatch_batch import Queue

SALVAGED_TOPIC = "REPUT_SALVAGED"
SALVAGED_PROPERTY = "REPUT_SALVAGED"
_PROPERTIES = f"{SALVAGED_PROPERTY}\x01true\x02".encode()
_NOBODY = Host("0.0.0.0", 0)
_MOST_BYTES = 1 << 20  # a broker that recovers reads each record into memory
_LEAST_BYTES = MIN_RECORD_BYTES + len(SALVAGED_TOPIC) + len(_PROPERTIES)


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A message that cannot be read, as its ConsumeQueue knows it."""

    physical_offset: int
    size: int
    queue: Queue
    queue_offset: int

    @property
    def least_bytes(self) -> int:
        return MIN_RECORD_BYTES + len(encode_utf8(self.queue.topic)) + len(_PROPERTIES)


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Physical offsets [start, stop) of one file that are to be filled.

    store_timestamp  of a message near it, ms
    ends_file        `stop` is the end of the file
    """

    start: int
    stop: int
    store_timestamp: int
    ends_file: bool = False
    known: tuple[KnownMessage, ...] = ()


def can_be_filled(damaged: DamagedRange) -> bool:
    """Whether records fit into the range exactly."""
    length = damaged.stop - damaged.start
    return length >= (BLANK_BYTES if damaged.ends_file else _LEAST_BYTES)


def placeholders_in(damaged: DamagedRange) -> int:
    """How many messages have a placeholder; fewer than are known where too little space is left."""
    return sum(message is not None for _, _, message in _parts(damaged))


def filler(damaged: DamagedRange) -> Iterator[tuple[int, bytes]]:
    """The records that fill a range exactly, each with its physical offset; of one that `can_be_filled`."""
    for start, stop, message in _parts(damaged):
        needs_blank = damaged.ends_file and stop == damaged.stop
        position = start
        if message is not None:
            size = _size_of(message, stop - start, needs_blank)
            yield start, _record(start, size, damaged.store_timestamp, message)
            position += size
        if needs_blank:  # without it a broker that recovers would end the log here
            yield position, encode_blank(stop - position)
            continue
        for size in _sizes(stop - position):
            yield position, _record(position, size, damaged.store_timestamp, None)
            position += size


def _parts(damaged: DamagedRange) -> Iterator[tuple[int, int, KnownMessage | None]]:
    """The range cut where known messages begin; a part too short for its record belongs to the one before or after."""
    parts: list[tuple[int, KnownMessage | None]] = [(damaged.start, None)]
    for message in damaged.known:
        start, before = parts[-1]
        needed = _LEAST_BYTES if before is None else before.least_bytes
        if message.physical_offset - start >= needed:
            parts.append((message.physical_offset, message))
        elif before is None:
            parts[-1] = start, message
    after = BLANK_BYTES if damaged.ends_file else 0
    start, last = parts[-1]
    if last is not None and damaged.stop - start < last.least_bytes + after:
        parts[-1] = start, None
        if len(parts) > 1 and damaged.stop - start < (after or _LEAST_BYTES):
            parts.pop()
    ends = [start for start, _ in parts[1:]] + [damaged.stop]
    yield from ((start, end, message) for (start, message), end in zip(parts, ends, strict=True))


def _size_of(message: KnownMessage, room: int, needs_blank: bool) -> int:
    """Bytes of a placeholder: those of the message, or more where nothing fits into the rest of its part."""
    if needs_blank:
        room -= BLANK_BYTES
    size = max(min(message.size, room, _MOST_BYTES), message.least_bytes)
    return size if needs_blank or room - size >= _LEAST_BYTES else room


def _sizes(length: int) -> Iterator[int]:
    """`length` cut into sizes of records."""
    while length:
        size = min(length, _MOST_BYTES)
        if 0 < length - size < _LEAST_BYTES:
            size -= _LEAST_BYTES
        yield size
        length -= size


def _record(offset: int, size: int, timestamp: int, message: KnownMessage | None) -> bytes:
    """A record of exactly this size: a placeholder for the message, or a rolled-back transaction."""
    topic = SALVAGED_TOPIC if message is None else message.queue.topic
    least = _LEAST_BYTES if message is None else message.least_bytes
    return encode(
        MessageExt(
            topic=topic,
            queue_id=0 if message is None else message.queue.queue_id,
            queue_offset=0 if message is None else message.queue_offset,
            physical_offset=offset,
            size_bytes=size,
            flag=0,
            sys_flag=SYS_FLAG_ROLLBACK if message is None else 0,
            body_crc=0,
            born_timestamp=timestamp,
            born_host=_NOBODY,
            store_timestamp=timestamp,
            store_host=_NOBODY,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=bytes(size - least),
            properties_bytes=_PROPERTIES,
        )
    )
