"""Data of a 5.x broker about popped messages: checkpoints, acknowledgements, and records in RocksDB.

Mirrors `PopCheckPoint`, `AckMsg`, `BatchAckMsg`, `PopConsumerRecord` and `ConsumerOrderInfoManager.OrderInfo` (tag
rocketmq-all-5.3.3). Checkpoints and acknowledgements are messages of `rmq_sys_REVIVE_LOG_<cluster>`, with tags `ck`,
`ack` and `bAck`. Their bodies are JSON. A record is an item of a RocksDB database.
In its key, a number after a name is the length of the field in bytes:

    key    time at which the message is visible again 8 | group | @ | topic | @ | queue id 4 | @ | queue offset 8
    value  JSON
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reput.format.java_string import decimal_number
from reput.format.untrusted_json import parse_java_json

REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
POP_FAMILY = "popState"
# Limits for numbers in a body, which may be hostile. A checkpoint states its number of messages in a Java byte.
_MOST_MESSAGES, _MOST_IN_ORDER, _MOST_DIGITS = 127, 1 << 16, 9


class PopKey(NamedTuple):
    """The fields that identify a pop, in its checkpoint and in the acknowledgements of its messages."""

    group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_time: int


class PopCheckpoint(NamedTuple):
    """The messages that one pop delivered to a consumer.

    Attributes:
        key: consumer group, queue and time of the pop
        invisible_ms: time during which no other consumer gets the messages
        offsets: queue offsets of the messages
        acked: queue offsets that were already acknowledged when the checkpoint was written
        puts: number of times that the broker wrote the checkpoint again because it could not redeliver a message
    """

    key: PopKey
    invisible_ms: int
    offsets: tuple[int, ...]
    acked: frozenset[int]
    puts: int = 0

    @property
    def revive_time(self) -> int:
        """Return the time, in milliseconds, at which unacknowledged messages are delivered again."""
        return self.key.pop_time + self.invisible_ms


class OrderedPop(NamedTuple):
    """The messages that the last ordered pop delivered; config/consumerOrderInfo.json has one such entry per queue.

    Attributes:
        offsets: queue offsets of the messages
        acked: queue offsets of acknowledged messages
        visible: times (ms), by queue offset, from which unacknowledged messages can be popped again
    """

    group: str
    topic: str
    queue_id: int
    pop_time: int
    offsets: tuple[int, ...]
    acked: frozenset[int]
    visible: dict[int, int]


class PopRecord(NamedTuple):
    """A message that a consumer has popped and not acknowledged, as the broker records it in RocksDB."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    pop_time: int
    invisible_ms: int
    attempts: int


def decode_checkpoint(body: bytes) -> PopCheckpoint:
    """Return the checkpoint. Raises ValueError for a body that is not a checkpoint."""
    fields = _object(body)
    key = _key(fields, "c")
    count = _number(fields, "n")
    # A checkpoint without the list "d" covers consecutive queue offsets.
    steps = fields.get("d") or range(count)
    if not 0 <= count <= _MOST_MESSAGES or len(steps) < count:
        raise ValueError(f"a checkpoint cannot have {count} messages")
    if not all(isinstance(step, int) for step in steps):
        raise ValueError("the field of queue offsets is not a list of numbers")
    bits = _number(fields, "bm")
    offsets = tuple(key.start_offset + steps[number] for number in range(count))
    acked = frozenset(offset for number, offset in enumerate(offsets) if bits >> number & 1)
    text = fields.get("rp") or "0"
    puts = decimal_number(text, _MOST_DIGITS) if isinstance(text, str) else None
    if puts is None:
        raise ValueError("field rp is not a number")
    return PopCheckpoint(key, _number(fields, "it"), offsets, acked, puts)


def decode_ack(body: bytes) -> tuple[PopKey, tuple[int, ...]]:
    """Return the key of a pop, and the queue offsets in an acknowledgement or in a batch of acknowledgements.

    Raises ValueError for any other body.
    """
    fields = _object(body)
    offsets = fields.get("aol", fields.get("ackOffsetList"))
    if offsets is None:
        offsets = [_number(fields, "ao", "ackOffset")]
    if not isinstance(offsets, list) or not all(isinstance(offset, int) for offset in offsets):
        raise ValueError("the field of queue offsets is not a list of numbers")
    return _key(fields, "c", "consumerGroup"), tuple(offsets)


def decode_ordered(key: str, queue_id: str, fields: Any) -> OrderedPop:
    """Return the ordered pop of a queue, decoded from the table of `ConsumerOrderInfoManager`.

    The table has keys of the form `topic@group`. For each key, it contains one value per queue id. `fields` is one of
    these values.

    Raises ValueError for an invalid entry.
    """
    # Neither topics nor groups may contain "@", so the separator is unambiguous.
    topic, separator, group = key.rpartition("@")
    queue = decimal_number(queue_id, _MOST_DIGITS)
    if not (topic and separator and group) or queue is None:
        raise ValueError("the entry does not name a topic, a group and a queue id")
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    steps, times = fields.get("o") or [], fields.get("ot") or {}
    if not isinstance(steps, list) or not isinstance(times, dict) or len(steps) > _MOST_IN_ORDER:
        raise ValueError("the field 'o' or 'ot' is malformed")
    if not all(isinstance(one, int) for one in (*steps, *times.values())):
        raise ValueError("offsets or times are not numbers")
    # The first offset is stored as it is, and the others as differences from the first.
    offsets = tuple(one + (steps[0] if number else 0) for number, one in enumerate(steps))
    bits, pop_time = _number(fields, "cm"), _number(fields, "popTime")
    # Java shifts a long by the count modulo 64.
    acked = frozenset(one for number, one in enumerate(offsets) if bits >> number % 64 & 1)
    usual = pop_time + _number({"i": fields.get("i") or 0}, "i")
    visible = {one: times.get(str(one), usual) for one in offsets}
    return OrderedPop(group, topic, queue, pop_time, offsets, acked, visible)


def decode_record(value: bytes) -> PopRecord:
    """Return the record. Raises ValueError for a value that is not a record."""
    fields = _object(value)
    return PopRecord(
        _text(fields, "groupId"), _text(fields, "topicId"), _number(fields, "queueId"),
        _number(fields, "offset"), _number(fields, "popTime"), _number(fields, "invisibleTime"),
        _number(fields, "attemptTimes"),
    )  # fmt: skip


def _key(fields: dict[str, Any], *group: str) -> PopKey:
    return PopKey(
        _text(fields, *group), _text(fields, "t", "topic"), _number(fields, "q", "queueId"),
        _number(fields, "so", "startOffset"), _number(fields, "pt", "popTime"),
    )  # fmt: skip


def _object(body: bytes) -> dict[str, Any]:
    fields = parse_java_json(body)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def _number(fields: dict[str, Any], *names: str) -> int:
    """Return a number by its short or long name; 0 if it is missing, since fastjson omits zeros."""
    value = next((fields[name] for name in names if name in fields), 0)
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{names[0]} is not a number")
    return int(value)


def _text(fields: dict[str, Any], *names: str) -> str:
    value = next((fields[name] for name in names if name in fields), None)
    if not isinstance(value, str):
        raise ValueError(f"{names[0]} is not a text")
    return value
