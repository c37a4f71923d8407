"""Units of the timer log (`TimerLog`, tag rocketmq-all-5.3.3): one for each waiting timed message.

The files lie in `timerlog/`. Each is named by the byte offset of its first unit. A unit is big endian:

    size 4 (52) | position of the slot's previous unit 8 (-1: none) | magic 4 | write time 8 | delay 4 |
    physical offset 8 | size of the record 4 | hash of the real topic 4 | reserved 8

The message is due at write time plus delay, in milliseconds. The magic is a bit mask: 1 is always set; 2 marks a
message that waits longer than one turn of the wheel, and is then written again; 4 marks the recall of another message.
A file ends with a blank: number of bytes left 4 | zeros 8 | the blank's magic 4.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from reput.format.commit_log import BLANK_MAGIC
from reput.format.java_integer import decimal_number
from reput.format.properties import REAL_TOPIC, TIMER_OUT_MS, TIMER_RECALLED, UNIQ_KEY

_UNIT = struct.Struct(">iqiqiqiiq")
TIMER_UNIT_BYTES = _UNIT.size
_ROLLED, _DELETE = 2, 4
_CHECKPOINT, _LONG = struct.Struct(">qq"), struct.Struct(">q")
_MOST_DIGITS = 18


class TimerUnit(NamedTuple):
    """One unit of the timer log. Times are in milliseconds."""

    previous: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def due(self) -> int:
        return self.write_time + self.delay

    @property
    def is_rolled(self) -> bool:
        return bool(self.magic & _ROLLED)

    @property
    def deletes(self) -> bool:
        return bool(self.magic & _DELETE)


def decode_timer_unit(data: bytes, position: int = 0) -> TimerUnit | None:
    """Return the unit at a position; None at the end of the file, or if the bytes are not a unit."""
    if len(data) - position < TIMER_UNIT_BYTES:
        return None
    size, *fields, _ = _UNIT.unpack_from(data, position)
    unit = TimerUnit(*fields)
    # The bit of value 1 is always set. Of the other bits, only those of values 2 and 4 may be set.
    is_unit = size == TIMER_UNIT_BYTES and 1 <= unit.magic <= 7 and unit.magic & 1
    return unit if is_unit and unit.physical_offset >= 0 and unit.size > 0 else None


def encode_timer_unit(unit: TimerUnit) -> bytes:
    return _UNIT.pack(TIMER_UNIT_BYTES, *unit, 0)


def recall_key(properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the values of TIMER_DEL_UNIQKEY and TIMER_OUT_MS that a recall of this waiting message must have.

    The broker looks for recalls among the messages that are due in the same second (`TimerMessageStore.dequeue`,
    `.buildDeleteKey`). Return None for a message without topic or unique key, which cannot be recalled.
    """
    topic, unique_key = properties.get(REAL_TOPIC), properties.get(UNIQ_KEY)
    if topic is None or unique_key is None:
        return None
    return f"{topic}+{unique_key}", properties.get(TIMER_OUT_MS, "")


def recalled_key(properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the `recall_key` of the message that a recall message with these properties cancels.

    Return None if the properties do not belong to a recall message.
    """
    named = properties.get(TIMER_RECALLED)
    return None if named is None else (named, properties.get(TIMER_OUT_MS, ""))


def is_timer_blank(data: bytes, position: int, left: int) -> bool:
    """Return whether the blank of a file lies at this position, with `left` bytes left in the file."""
    if len(data) - position < 16:
        # The rest of the file has no room for a blank.
        return left < 16
    return struct.unpack_from(">iqi", data, position) == (left, 0, BLANK_MAGIC)


def decode_timer_check(data: bytes) -> tuple[int, int]:
    """Return the content of `config/timercheck`: the delivery time reached (ms), and the end of the timer log.

    Both are 0 if the file is too short to state them.
    """
    if len(data) < _CHECKPOINT.size:
        return 0, 0
    delivered_to, flushed = _CHECKPOINT.unpack_from(data)
    return delivered_to, flushed


def decode_timer_queue_offset(data: bytes) -> int:
    """Return from `config/timercheck` the queue offset of the first timer message that is not in the timer log.

    Return 0 if the file is too short to state it.
    """
    if len(data) < _CHECKPOINT.size + _LONG.size:
        return 0
    return max(int(_LONG.unpack_from(data, _CHECKPOINT.size)[0]), 0)


def timer_due_ms(properties: Mapping[str, str]) -> int:
    """Return the time (ms) at which a timer message is due; 0 if its properties do not state it."""
    return decimal_number(properties.get(TIMER_OUT_MS, ""), _MOST_DIGITS) or 0
