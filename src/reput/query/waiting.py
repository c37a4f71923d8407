"""Messages that a producer sent to a topic, and that are not there yet, or never will be: a broker put them aside.

Delayed messages wait in SCHEDULE_TOPIC_XXXX or in the timer (5.x), those of transactions in the topic of half messages.
Each names the topic that it was sent to.
"""

from __future__ import annotations

from collections.abc import Iterable

from reput.format.commit_log import MessageExt
from reput.format.properties import (
    DISCARDED_HALF_TOPIC,
    HALF_TOPIC,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

_REASONS = {
    SCHEDULE_TOPIC: "it waits for its delay",
    TIMER_TOPIC: "it waits for its time, or was taken back",
    HALF_TOPIC: "its transaction is open, or was not committed",
    DISCARDED_HALF_TOPIC: "the broker gave up asking whether its transaction is committed",
}

WAITING_TOPICS = frozenset(_REASONS)


def notes_on(topic: str, put_aside: Iterable[MessageExt]) -> tuple[str, ...]:
    """Return a line for each place in which there is such a message of a topic."""
    found = {one.topic for one in put_aside if one.properties.get(REAL_TOPIC) == topic}
    return tuple(
        f"A message with this key that was sent to {topic} is in {place}: {reason}. "
        "`reput trace` shows what became of it."
        for place, reason in _REASONS.items()
        if place in found
    )
