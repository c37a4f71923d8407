"""Parse bodies and properties of half messages and op messages.

Mirrors `TransactionalMessageServiceImpl` (tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3), and
`TransMessageRocksDBStore` (5.4) for transactions that a broker keeps in RocksDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reput.format.commit_log import MessageExt
from reput.format.java_string import decimal_number
from reput.format.properties import (
    HALF_OFFSET,
    HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_CHECK_TIMES,
)

_SEPARATOR = b","
# A queue offset is a Java long, with at most 19 digits. Brokers ask a producer about a transaction only a few times, so
# 9 digits are enough for the number of these checks.
_MOST_DIGITS, _MOST_TIMES_DIGITS = 19, 9


def decided_offsets(op_body: bytes) -> Iterator[int]:
    """Yield the queue offsets of the half messages that an op message decides. Texts that are not numbers are skipped.

    The body contains one offset in 4.9, and several offsets separated by commas in 5.x.
    """
    for part in op_body.split(_SEPARATOR):
        offset = decimal_number(part.strip(), _MOST_DIGITS)
        if offset is not None:
            yield offset


def half_place(half: MessageExt) -> tuple[str, int]:
    """Return the topic of a half message, and the number by which an op message names the half message."""
    is_in_rocksdb = half.topic == ROCKSDB_HALF_TOPIC
    return half.topic, half.physical_offset if is_in_rocksdb else half.queue_offset


def decided_places(op: MessageExt) -> set[tuple[str, int]]:
    """Return the `half_place` of each half message that an op message decides, for half messages of the same queue id.

    If the transactions are in RocksDB, an op message states the physical offset of one half message in a property.
    """
    if op.topic != ROCKSDB_OP_TOPIC:
        return {(HALF_TOPIC, number) for number in decided_offsets(op.body)}
    offset = decimal_number(op.properties.get(HALF_OFFSET, ""), _MOST_DIGITS)
    return set() if offset is None else {(ROCKSDB_HALF_TOPIC, offset)}


def check_times(half_properties: Mapping[str, str]) -> int:
    """Return how often a broker has asked the producer for the outcome of a half message's transaction.

    Before each such check, the broker stores a copy of the half message. A property of the copy has the number of
    checks, including this check.
    """
    return decimal_number(half_properties.get(TRANSACTION_CHECK_TIMES, ""), _MOST_TIMES_DIGITS) or 0
