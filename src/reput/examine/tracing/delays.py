"""What became of a record in SCHEDULE_TOPIC_XXXX, or in the timer (5.x): delivered late, twice, not yet, or never."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reput.clock import format_duration
from reput.examine.tracing.life import Event, Numbered, Reason, ReasonKind
from reput.examine.tracing.roles import Role
from reput.format.properties import REAL_QUEUE_ID, REAL_TOPIC, TIMER_ROLL_TIMES
from reput.format.timer_log import recall_key, recalled_key
from reput.verify.checking.words import time_text

LATE_MS = 1_000
_TIMER_STEP_MS = 1_000  # of the timer's wheel (timerPrecisionMs): it delivers that much later
_WHY_NEVER = {
    Role.SCHEDULED: "whose delay level is blocked",
    Role.TIMER: "that got a recall of this message with another unique key (TIMER_DEL_UNIQKEY)",
}


def of_delays(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """A rule, see `reasons`."""
    for number, event in own:
        if event.role is Role.SCHEDULED:
            yield from _of_scheduled(own, number, event, end_ms)
        elif event.role is Role.TIMER and not _is_rolled(own, event):
            recall = _recall_of(own, event)
            if recall is None or _delivered(own, event):
                yield from _of_due(own, number, event, end_ms)
            else:
                yield _of_recalled(number, event, recall)
    yield from _of_lone_recalls(own)


def _recall_of(own: Sequence[Numbered], event: Event) -> Numbered | None:
    """The recall that takes a message in the timer back."""
    key = recall_key(event.message.properties)
    for number, other in own:
        if other.role is Role.RECALL and other.store == event.store and key is not None:
            is_later = other.message.physical_offset > event.message.physical_offset
            if is_later and recalled_key(other.message.properties) == key:
                return number, other
    return None


def _of_recalled(number: int, event: Event, recall: Numbered) -> Reason:
    target = event.message.properties.get(REAL_TOPIC)
    after = format_duration(recall[1].stored_ms - event.stored_ms)
    due = "" if event.due_ms is None else f", due at {time_text(event.due_ms)},"
    return Reason(
        ReasonKind.RECALLED,
        f"Never delivered to {target}: the message{due} was recalled {after} after it was stored.",
        (number, recall[0]),
    )


def _of_lone_recalls(own: Sequence[Numbered]) -> Iterator[Reason]:
    """Recalls whose messages are not among the events: they expired, or the recall names another unique key."""
    waiting = {recall_key(event.message.properties) for _, event in own if event.role is Role.TIMER}
    for number, event in own:
        key = recalled_key(event.message.properties)
        if event.role is Role.RECALL and key is not None and key not in waiting:
            yield Reason(
                ReasonKind.RECALLED,
                f"The record at {event.message.physical_offset} is a recall of {key[0]} (TIMER_DEL_UNIQKEY); "
                "recalls are never delivered.",
                (number,),
            )


def _of_scheduled(
    own: Sequence[Numbered], number: int, event: Event, end_ms: int
) -> Iterator[Reason]:
    properties = event.message.properties
    target = properties.get(REAL_TOPIC)
    if target is None or REAL_QUEUE_ID not in properties:
        yield Reason(
            ReasonKind.BLOCKED_LEVEL,
            f"Never delivered: the scheduled record at {event.message.physical_offset} has no {REAL_TOPIC} and "
            f"{REAL_QUEUE_ID}, so a broker cannot deliver it, nor what follows it at delay level "
            f"{event.message.queue_id + 1}.",
            (number,),
        )
        return
    yield from _of_due(own, number, event, end_ms)


def _of_due(own: Sequence[Numbered], number: int, event: Event, end_ms: int) -> Iterator[Reason]:
    target = event.message.properties.get(REAL_TOPIC)
    if event.due_ms is None or target is None:
        return
    copies, due = _delivered(own, event), time_text(event.due_ms)
    if copies:
        yield from _of_delivered(number, event, copies, target)
    elif event.due_ms > end_ms:
        yield Reason(
            ReasonKind.NOT_DUE_YET,
            f"Not delivered to {target} yet: it is due at {due}, and the store ends before.",
            (number,),
        )
    else:
        overdue = format_duration(end_ms - event.due_ms)
        yield Reason(
            ReasonKind.OVERDUE,
            f"Not delivered to {target}: it was due at {due}, {overdue} before the end of the store. A slave does "
            f"not deliver, nor does a broker that was stopped or {_WHY_NEVER[event.role]}.",
            (number,),
        )


def _of_delivered(
    number: int, event: Event, copies: Sequence[Numbered], target: str
) -> Iterator[Reason]:
    assert event.due_ms is not None
    first_number, first = copies[0]
    waited = format_duration(first.stored_ms - event.stored_ms)
    yield Reason(
        ReasonKind.DELAYED,
        f"Delayed {_how(event)}: delivered to {target} {waited} after it was stored.",
        (number, first_number),
    )
    late_ms = first.stored_ms - event.due_ms
    if late_ms >= LATE_MS + (_TIMER_STEP_MS if event.role is Role.TIMER else 0):
        yield Reason(
            ReasonKind.DELIVERED_LATE,
            f"Delivered to {target} {format_duration(late_ms)} after it was due: the broker was stopped, or could "
            f"not keep up with {'its timer' if event.role is Role.TIMER else 'this delay level'}.",
            (number, first_number),
        )
    if len(copies) > 1:
        yield Reason(
            ReasonKind.DELIVERED_TWICE,
            f"Delivered to {target} {len(copies)} times from one scheduled record: the broker began the "
            f"{'timer' if event.role is Role.TIMER else 'delay level'} again, for instance after a crash.",
            (number, *(copy for copy, _ in copies)),
        )


def _how(event: Event) -> str:
    return "by the timer" if event.role is Role.TIMER else f"at level {event.message.queue_id + 1}"


def _is_rolled(own: Sequence[Numbered], event: Event) -> bool:
    """Whether the timer has written a record again, as it does with one that is due later than its wheel turns."""
    return any(
        other.role is Role.TIMER
        and TIMER_ROLL_TIMES in other.message.properties
        and other.store == event.store
        and other.message.physical_offset > event.message.physical_offset
        for _, other in own
    )


def _delivered(own: Sequence[Numbered], scheduled: Event) -> list[Numbered]:
    """The copies of a scheduled record in the topic that it is for."""
    target = scheduled.message.properties.get(REAL_TOPIC)
    return [
        (number, event)
        for number, event in own
        if event.message.topic == target
        and event.store == scheduled.store
        and event.message.reconsume_times == scheduled.message.reconsume_times
        and event.message.physical_offset > scheduled.message.physical_offset
    ]
