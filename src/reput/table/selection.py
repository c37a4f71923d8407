"""What is asked of messages by name: the same for Spark's options, exports and Arrow."""

from __future__ import annotations

from collections.abc import Collection

from reput.table.filters import Condition, dispatched_under

_INT64 = 1 << 63


def selected(
    *,
    topics: Collection[str] | None = None,
    keys: Collection[str] | None = None,
    unique_keys: Collection[str] | None = None,
    queue_ids: Collection[int] | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
) -> tuple[Condition, ...]:
    """Conditions of messages that meet all that is given, and of damage: what was lost may have met it.

    Args:
        topics: One of these.
        keys: Dispatch indexes them under one of these, of their KEYS.
        unique_keys: One of these is among their unique keys.
        queue_ids: One of these.
        begin_ms: Stored at this time or later, in milliseconds since 1970.
        end_ms: Stored at this time or earlier.

    Raises:
        UsageError: a value cannot be one of its column.
    """
    found: list[Condition] = []
    for operator, stamp_ms in ((">=", begin_ms), ("<=", end_ms)):
        if stamp_ms is not None:
            found.append(Condition("store_timestamp", operator, _micros(stamp_ms), True))
    if topics is not None:
        found.append(Condition("topic", "in", tuple(topics), True))
    for column, wanted in (("keys", keys), ("unique_keys", unique_keys)):
        if wanted is not None:
            found += dispatched_under(column, wanted)
    if queue_ids is not None:
        found.append(Condition("queue_id", "in", tuple(queue_ids), True))
    return tuple(found)


def _micros(milliseconds: int) -> int:
    return max(-_INT64, min(milliseconds * 1000, _INT64 - 1))
