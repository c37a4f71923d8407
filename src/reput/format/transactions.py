"""Parse bodies and properties of half messages and op messages.

Mirrors `TransactionalMessageServiceImpl` (tags rocketmq-all-4.9.3 and rocketmq-all-5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reput.format.properties import TRANSACTION_CHECK_TIMES

_SEPARATOR = b","
# Longer numbers are ignored, because a hostile message could contain thousands of digits. A queue offset is a Java
# long, with at most 19 digits. Brokers ask a producer about a transaction only a few times, so 9 digits are enough for
# the number of these checks.
_MOST_DIGITS, _MOST_TIMES_DIGITS = 19, 9


def decided_offsets(op_body: bytes) -> Iterator[int]:
    """Yield the queue offsets of the half messages that an op message decides. Texts that are not numbers are skipped.

    The body contains one offset in 4.9, and several offsets separated by commas in 5.x.
    """
    for part in op_body.split(_SEPARATOR):
        text = part.strip()
        if text.isdigit() and len(text) <= _MOST_DIGITS:
            yield int(text)


def check_times(half_properties: Mapping[str, str]) -> int:
    """Return how often a broker has asked the producer for the outcome of a half message's transaction.

    Before each such check, the broker stores a copy of the half message. A property of the copy has the number of
    checks, including this check.
    """
    text = half_properties.get(TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_TIMES_DIGITS else 0
