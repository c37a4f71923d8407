"""Why a message was delivered late, twice or never, as far as a store can tell: a rule for each kind of reason.

A rule looks at the events of one message, in order of time, and yields sentences. What consumers did is not in a
store: that a message was in its queue says that they could get it, and a retry that they sent it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from reput.clock import format_duration
from reput.examine.tracing.delays import LATE_MS, of_delays
from reput.examine.tracing.life import Event, Numbered, Reason, ReasonKind
from reput.examine.tracing.roles import WAITING, Role, was_scheduled
from reput.examine.tracing.transactions import of_transaction
from reput.format.group_topics import is_pop_retry
from reput.verify.checking.words import counted, time_text

Rule = Callable[[Sequence[Numbered], int], Iterator[Reason]]


def reasons_of(events: Sequence[Event], end_ms: int) -> Iterator[Reason]:
    """Message by message, then of several messages together.

    Args:
        events: In order of time, with the numbers of their messages.
        end_ms: Until when the stores can tell: their newest store time.
    """
    numbered = list(enumerate(events))
    for life in sorted({event.life for event in events}):
        own = [(number, event) for number, event in numbered if event.life == life]
        for rule in _RULES:
            yield from rule(own, end_ms)
    yield from _same_body(numbered)


def _stored_late(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """The first record, if it is the sender's: retries and delayed copies keep the time of birth."""
    number, first = own[0]
    late_ms = first.stored_ms - first.message.born_timestamp
    roles = (Role.MESSAGE, *WAITING, Role.HALF)
    is_sent = first.role in roles and not first.message.reconsume_times
    is_sent = is_sent and not was_scheduled(first.message)
    if is_sent and late_ms >= LATE_MS:
        yield Reason(
            ReasonKind.STORED_LATE,
            f"The broker stored it {format_duration(late_ms)} after its sender created it: the sender waited or "
            "tried again, or the clocks differ.",
            (number,),
        )


def _not_queued(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in own:
        if event.is_queued is False:
            message = event.message
            place = (
                f"{message.topic}, queue {message.queue_id}, queue offset {message.queue_offset}"
            )
            yield Reason(
                ReasonKind.NOT_QUEUED,
                f"No consumer gets the message at {message.physical_offset}: the ConsumeQueue does not lead to it "
                f"({place}).",
                (number,),
            )


def _damaged_body(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in own:
        if not event.message.body_crc_ok:
            yield Reason(
                ReasonKind.DAMAGED_BODY,
                f"Consumers may refuse the message at {event.message.physical_offset}: its body does not match its "
                "CRC.",
                (number,),
            )


def _retried(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    retries = sorted(
        ((n, e) for n, e in own if e.role is Role.RETRY),
        key=lambda one: one[1].group or "",
    )
    for group, of_group in groupby(retries, key=lambda one: one[1].group):
        found = list(of_group)
        times = sorted({event.message.reconsume_times for _, event in found})
        last = max(event.stored_ms for _, event in found)
        is_popped = all(
            is_pop_retry(event.message.topic, event.message.properties) for _, event in found
        )
        why = "failed to acknowledge it" if is_popped else "sent it back"
        yield Reason(
            ReasonKind.RETRIED,
            f"Consumer group {group} got it again: it {why} {counted(max(times[-1], len(found)), 'time')}, "
            f"for the last retry at {time_text(last)}.",
            tuple(number for number, _ in found),
        )
        missing = sorted(set(range(1, times[-1])) - set(times))
        if missing:
            listed = ", ".join(map(str, missing))
            yield Reason(
                ReasonKind.RETRY_MISSING,
                f"Retries {listed} of group {group} are not in the store: they expired, or another broker has them.",
                tuple(number for number, _ in found),
            )


def _dead_letter(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in own:
        if event.role is Role.DEAD_LETTER:
            times = event.message.reconsume_times
            after = f" after sending it back {counted(times, 'time')}" if times else ""
            yield Reason(
                ReasonKind.DEAD_LETTER,
                f"Consumer group {event.group} gave it up{after} at {time_text(event.stored_ms)}: "
                f"it is in {event.message.topic}, and is not delivered to the group again.",
                (number,),
            )


def _sent_twice(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Records of one topic and unique key that no broker makes of each other."""
    sent = sorted(
        (
            (number, event)
            for number, event in own
            if event.role in (Role.MESSAGE, Role.COMMITTED)
            and event.message.unique_key
            and not was_scheduled(event.message)
        ),
        key=lambda one: one[1].message.topic,
    )
    for topic, of_topic in groupby(sent, key=lambda one: one[1].message.topic):
        found = list(of_topic)
        unique_keys = {event.message.unique_key for _, event in found}
        if len(found) > 1 and len(unique_keys) == 1:
            apart = format_duration(found[-1][1].stored_ms - found[0][1].stored_ms)
            yield Reason(
                ReasonKind.SENT_TWICE,
                f"{topic} has it {len(found)} times, {apart} apart: its sender sent it again, as clients do when an "
                "answer is late. Consumers get each.",
                tuple(number for number, _ in found),
            )


def _same_body(numbered: Sequence[Numbered]) -> Iterator[Reason]:
    """Different messages of one topic with the same body and keys: who wrote the sender knows whether that is one."""
    alike: dict[tuple[str, bytes, tuple[str, ...]], list[Numbered]] = {}
    for number, event in numbered:
        message = event.message
        if event.role in (Role.MESSAGE, Role.COMMITTED) and message.keys and message.body:
            place = message.topic, message.body, tuple(message.keys)
            alike.setdefault(place, []).append((number, event))
    for (topic, _, _), found in alike.items():
        lives = {event.life for _, event in found}
        if len(lives) > 1:
            yield Reason(
                ReasonKind.SAME_BODY,
                f"{topic} has {len(lives)} different messages with the same keys and body: the application sent it "
                f"{len(lives)} times.",
                tuple(number for number, _ in found),
            )


_RULES: tuple[Rule, ...] = (
    _stored_late,
    of_delays,
    of_transaction,
    _sent_twice,
    _retried,
    _dead_letter,
    _not_queued,
    _damaged_body,
)
