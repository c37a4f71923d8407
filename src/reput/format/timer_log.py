"""The timer log and its wheel (`TimerLog`, `TimerWheel`, tag rocketmq-all-5.3.3).

The timer log has a unit for each timed message. The wheel, the file `timerwheel`, has a slot for each interval of 14
days; the slot of an interval leads to the newest unit of a message that is due in it.

The files lie in `timerlog/`. Each is named by the byte offset of its first unit. A unit is big endian:

    size 4 (52) | position of the slot's previous unit 8 (-1: none) | magic 4 | write time 8 | delay 4 |
    physical offset 8 | size of the record 4 | hash of the real topic 4 | reserved 8

The message is due at write time plus delay, in milliseconds. The magic is a bit mask: 1 is always set; 2 marks a
message that waits longer than one turn of the wheel, and is then written again; 4 marks the recall of another message.
A file ends with a blank: number of bytes left 4 | zeros 8 | the blank's magic 4.

A slot is big endian:

    time 8 | position of the oldest unit 8 | position of the newest unit 8 | number of messages 4 | 0 4

The time is the number of the interval since 1970. An interval has 1000 ms, or another value of timerPrecisionMs. Slot n
is that of the intervals whose number modulo the number of slots is n. A slot without messages is zeros, or has an
interval of the past.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from reput.format.commit_log import BLANK_MAGIC
from reput.format.java_string import decimal_number
from reput.format.layout import Layout
from reput.format.properties import REAL_TOPIC, TIMER_OUT_MS, TIMER_RECALLED, UNIQ_KEY

TIMER_UNIT = Layout(
    size="i", previous="q", magic="i", write_time="q", delay="i", physical_offset="q", record_size="i", topic_hash="i",
    reserved="q",
)  # fmt: skip
TIMER_UNIT_BYTES = TIMER_UNIT.size
_BLANK = struct.Struct(">iqi")
MIN_BLANK_BYTES = _BLANK.size
"""The least size of the blank at the end of a file."""
TIMER_SLOT = Layout(time="q", first="q", last="q", messages="i", magic="i")
WHEEL_SLOTS = 2 * 7 * 86_400
WHEEL_BYTES = WHEEL_SLOTS * TIMER_SLOT.size
"""The size of the wheel. A broker does not start with a wheel of another size, unless it is empty."""
TIMER_INTERVALS_MS = (1000, 500, 200, 100)
"""The lengths of an interval in milliseconds (timerPrecisionMs); the first is the default."""
MAGIC_BITS, ROLLED_BIT, RECALL_BIT = 0xF, 2, 4
"""The bits that a broker accepts in the magic of a unit (`TimerMessageStore.isMagicOK`), and two of them."""
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
        return bool(self.magic & ROLLED_BIT)

    @property
    def deletes(self) -> bool:
        return bool(self.magic & RECALL_BIT)


def decode_timer_unit(data: bytes, position: int = 0) -> TimerUnit | None:
    """Return the unit at a position; None at the end of the file, or if the bytes are not a unit."""
    if len(data) - position < TIMER_UNIT_BYTES:
        return None
    size, *fields, _ = TIMER_UNIT.struct.unpack_from(data, position)
    unit = TimerUnit(*fields)
    # The bit of value 1 is always set. Of the other bits, only those of values 2 and 4 may be set.
    is_unit = size == TIMER_UNIT_BYTES and 1 <= unit.magic <= 7 and unit.magic & 1
    return unit if is_unit and unit.physical_offset >= 0 and unit.size > 0 else None


def encode_timer_unit(unit: TimerUnit) -> bytes:
    return TIMER_UNIT.struct.pack(TIMER_UNIT_BYTES, *unit, 0)


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
    if len(data) - position < MIN_BLANK_BYTES:
        # The rest of the file has no room for a blank.
        return left < MIN_BLANK_BYTES
    return _BLANK.unpack_from(data, position) == (left, 0, BLANK_MAGIC)


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
