"""Which records of a trace are of one message.

Records with one unique key are. One that names its origin is of that message. A retry or dead letter that does
neither belongs to the newest earlier message with the same KEYS, if there is one: the producer of a client that sends
messages back by itself may make new unique keys. An op message is of the half message that it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reput.examine.tracing.life import Event
from reput.examine.tracing.roles import Role
from reput.format.properties import KEYS, ORIGIN_MESSAGE_ID
from reput.format.transactions import decided_offsets


def number_lives(events: Sequence[Event]) -> list[Event]:
    """The events, which are in order of time, with the number of their message: 1 for the first."""
    names = _Names(events)
    numbers: dict[str, int] = {}
    return [
        replace(event, life=numbers.setdefault(names.of(event), len(numbers) + 1))
        for event in events
    ]


def decided_by(op: Event, half: Event) -> bool:
    """Whether an op message is that of a half message."""
    same_queue = op.store == half.store and op.message.queue_id == half.message.queue_id
    return same_queue and half.message.queue_offset in decided_offsets(op.message.body)


class _Names:
    """The name of each event's message: a unique key where it has one, else an offset id.

    Messages of one list (5.x) share the last unique key; the first is a message's own.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._halves = [event for event in events if event.role is Role.HALF]
        self._by_id: dict[str, Event] = {}
        self._by_keys: dict[str, list[Event]] = {}
        self._unique_keys: set[str] = set()
        for event in events:
            self._by_id.setdefault(event.message.message_id, event)
            if event.role in (Role.RETRY, Role.DEAD_LETTER, Role.OP):
                continue
            if event.message.unique_key:
                self._unique_keys.add(event.message.unique_key)
            if keys := event.message.properties.get(KEYS):
                self._by_keys.setdefault(keys, []).append(event)

    def of(self, event: Event, may_follow: bool = True) -> str:
        message, properties = event.message, event.message.properties
        own = next(iter(message.unique_keys), message.message_id)
        if event.role is Role.OP:
            half = next((one for one in self._halves if decided_by(event, one)), None)
            return self.of(half) if half is not None else own
        origin = properties.get(ORIGIN_MESSAGE_ID)
        if origin:
            first = self._by_id.get(origin)
            if first is None or not may_follow or first is event:
                return origin
            return self.of(first, may_follow=False)
        if event.role in (Role.RETRY, Role.DEAD_LETTER) and own not in self._unique_keys:
            earlier = [
                one
                for one in self._by_keys.get(properties.get(KEYS, ""), [])
                if one.stored_ms <= event.stored_ms
            ]
            if earlier:
                return self.of(earlier[-1])
        return own
