"""Explain why a message was delivered late, twice or never, with a rule for each kind of reason.

A rule reads the events of one message, in order of time, and yields sentences. A store does not record what consumers
do. It shows only that they could receive a message (a queue entry), and that they sent it back (a retry).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from reput.base import counted, format_duration, format_time, printable
from reput.format.properties import REAL_QUEUE_ID, REAL_TOPIC, TIMER_ROLL_TIMES
from reput.format.real_queue import is_pop_retry
from reput.format.timer_log import recall_key, recalled_key
from reput.format.trace_record import PUB, SUB_AFTER, SUB_BEFORE, TraceEntry, trace_entries
from reput.format.transactions import check_times
from reput.wings.inspect.tracing.life import (
    WAITING,
    Event,
    Numbered,
    Reason,
    ReasonKind,
    Role,
    decided_by,
    was_scheduled,
)

LATE_MS = 1_000
# Step of the timer's wheel (timerPrecisionMs). The timer may deliver a message late by up to one step.
_TIMER_STEP_MS = 1_000
_WHY_NEVER = {
    Role.SCHEDULED: "whose delay level is blocked",
    Role.TIMER: "that got a recall of this message with another unique key (TIMER_DEL_UNIQKEY)",
}
Rule = Callable[[Sequence[Numbered], int], Iterator[Reason]]


def of_delays(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Explain why a delayed message was delivered late, twice, or not yet."""
    for number, event in events:
        if event.role is Role.SCHEDULED:
            yield from _of_scheduled(events, number, event, end_ms)
        elif event.role is Role.TIMER and not _is_rolled(events, event):
            recall = _recall_of(events, event)
            # A recall that came too late changed nothing.
            if recall is None or _delivered(events, event):
                yield from _of_due(events, number, event, end_ms)
            else:
                yield _of_recalled(number, event, recall)
    yield from _of_lone_recalls(events)


def _recall_of(events: Sequence[Numbered], event: Event) -> Numbered | None:
    """Return the event that recalls a message in the timer; None if it was not recalled."""
    key = recall_key(event.message.properties)
    for number, recall in events:
        if recall.role is Role.RECALL and recall.store == event.store and key is not None:
            is_later = recall.message.physical_offset > event.message.physical_offset
            if is_later and recalled_key(recall.message.properties) == key:
                return number, recall
    return None


def _of_recalled(number: int, event: Event, recall: Numbered) -> Reason:
    target = event.message.properties.get(REAL_TOPIC)
    after = format_duration(recall[1].stored_ms - event.stored_ms)
    due = "" if event.due_ms is None else f", due at {format_time(event.due_ms, to_second=True)},"
    return Reason(
        ReasonKind.RECALLED,
        f"Never delivered to {target}: the message{due} was recalled {after} after it was stored.",
        (number, recall[0]),
    )


def _of_lone_recalls(events: Sequence[Numbered]) -> Iterator[Reason]:
    """Report recalls whose message was not found: it has expired, or the recall names another unique key."""
    waiting = {
        recall_key(event.message.properties) for _, event in events if event.role is Role.TIMER
    }
    for number, event in events:
        key = recalled_key(event.message.properties)
        if event.role is Role.RECALL and key is not None and key not in waiting:
            yield Reason(
                ReasonKind.RECALLED,
                f"The record at {event.message.physical_offset} is a recall of {key[0]} (TIMER_DEL_UNIQKEY); "
                "recalls are never delivered.",
                (number,),
            )


def _of_scheduled(
    events: Sequence[Numbered], number: int, event: Event, end_ms: int
) -> Iterator[Reason]:
    properties = event.message.properties
    target = properties.get(REAL_TOPIC)
    if target is None or REAL_QUEUE_ID not in properties:
        yield Reason(
            ReasonKind.BLOCKED_LEVEL,
            f"Never delivered: the scheduled record at {event.message.physical_offset} has no {REAL_TOPIC} and "
            f"{REAL_QUEUE_ID}, so a broker cannot deliver it, nor later messages at delay level "
            f"{event.message.queue_id + 1}.",
            (number,),
        )
        return
    yield from _of_due(events, number, event, end_ms)


def _of_due(events: Sequence[Numbered], number: int, event: Event, end_ms: int) -> Iterator[Reason]:
    target = event.message.properties.get(REAL_TOPIC)
    if event.due_ms is None or target is None:
        return
    copies, due = _delivered(events, event), format_time(event.due_ms, to_second=True)
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
            f"Delivered to {target} {counted(len(copies), 'time')} from one scheduled record: the broker began the "
            f"{'timer' if event.role is Role.TIMER else 'delay level'} again, for instance after a crash.",
            (number, *(copy for copy, _ in copies)),
        )


def _how(event: Event) -> str:
    return "by the timer" if event.role is Role.TIMER else f"at level {event.message.queue_id + 1}"


def _is_rolled(events: Sequence[Numbered], event: Event) -> bool:
    """Return whether the timer appended this record to the log again.

    The timer does so if the message is due after more than one turn of its wheel.
    """
    return any(
        copy.role is Role.TIMER
        and TIMER_ROLL_TIMES in copy.message.properties
        and copy.store == event.store
        and copy.message.physical_offset > event.message.physical_offset
        for _, copy in events
    )


def _delivered(events: Sequence[Numbered], scheduled: Event) -> list[Numbered]:
    """Return the delivered copies of a scheduled record, which are in its real topic."""
    target = scheduled.message.properties.get(REAL_TOPIC)
    return [
        (number, event)
        for number, event in events
        if event.message.topic == target
        and event.store == scheduled.store
        # Each retry of the message has its own record in the schedule topic. A record and its delivered copy state the
        # same number of retries.
        and event.message.reconsume_times == scheduled.message.reconsume_times
        and event.message.physical_offset > scheduled.message.physical_offset
    ]


def of_transaction(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Yield the outcome of a transaction, and how often the broker asked the producer for a decision."""
    halves = [(number, event) for number, event in events if event.role is Role.HALF]
    if not halves:
        return
    committed = [
        (number, event)
        for number, event in events
        if event.message.transaction == "commit" and event.role in (Role.COMMITTED, Role.SCHEDULED)
    ]
    discarded = [(number, event) for number, event in events if event.role is Role.DISCARDED_HALF]
    ops = [
        (number, event)
        for number, event in events
        if event.role is Role.OP and any(decided_by(event, half) for _, half in halves)
    ]
    checks = max(check_times(half.message.properties) for _, half in halves)
    if checks or len(halves) > 1:
        yield Reason(
            ReasonKind.CHECKED,
            # For each check, the broker stores the half message again. The earliest copies may have expired.
            f"The broker asked the producer {counted(max(checks, len(halves) - 1), 'time')} what became of the "
            "transaction.",
            tuple(number for number, _ in halves),
        )
    yield _outcome(halves, ops, committed, discarded)


def _outcome(
    halves: Sequence[Numbered],
    ops: Sequence[Numbered],
    committed: Sequence[Numbered],
    discarded: Sequence[Numbered],
) -> Reason:
    numbers = tuple(sorted(number for number, _ in (*halves, *ops, *committed, *discarded)))
    topic = halves[0][1].message.properties.get(REAL_TOPIC, "its topic")
    if committed:
        after = format_duration(committed[0][1].stored_ms - halves[0][1].stored_ms)
        text = f"Committed {after} after the half message was stored; until then {topic} did not have it."
        return Reason(ReasonKind.COMMITTED, text, numbers)
    if discarded:
        text = (
            f"Never delivered to {topic}: the broker gave the transaction up after its last check."
        )
        return Reason(ReasonKind.DISCARDED, text, numbers)
    if ops:
        text = f"Never delivered to {topic}: the transaction was rolled back."
        return Reason(ReasonKind.ROLLED_BACK, text, numbers)
    text = f"Not delivered to {topic}: the store does not show that the transaction was committed or rolled back."
    return Reason(ReasonKind.UNDECIDED, text, numbers)


def reasons_of(events: Sequence[Event], end_ms: int) -> Iterator[Reason]:
    """Yield the reasons why messages were delivered late, twice or never.

    The reasons of each message come first, then the reasons that concern several messages.

    Args:
        events: The events in order of time. In each event, `life` must be the number of the message that it belongs to.
        end_ms: The newest store time in the stores. The stores show every delivery before this time.
    """
    numbered = list(enumerate(events))
    for life in sorted({event.life for event in events}):
        of_life = [(number, event) for number, event in numbered if event.life == life]
        for rule in _RULES:
            yield from rule(of_life, end_ms)
    yield from _same_body(numbered)


def _stored_late(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Report a message that was stored long after its creation.

    Copies are ignored, because they keep the time of creation.
    """
    number, first = events[0]
    late_ms = first.stored_ms - first.message.born_timestamp
    # A record with one of these roles is stored when the sender sends the message. Records with other roles are copies,
    # which the broker stores later.
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


def _not_queued(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in events:
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


def _damaged_body(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in events:
        if not event.message.body_crc_ok:
            yield Reason(
                ReasonKind.DAMAGED_BODY,
                f"Consumers may refuse the message at {event.message.physical_offset}: its body does not match its "
                "CRC.",
                (number,),
            )


def _retried(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    ended = [(number, event) for number, event in events if event.role is Role.DEAD_LETTER]
    retries = [(number, event) for number, event in events if event.role is Role.RETRY]
    for group in sorted({event.group or "" for _, event in (*retries, *ended)}):
        of_group = [retry for retry in retries if (retry[1].group or "") == group]
        dead = [dead_letter for dead_letter in ended if (dead_letter[1].group or "") == group]
        # Each retry has its number in the message, so a gap in the numbers shows that retries were not found. The
        # number of a dead letter is the number of the last retry + 1.
        times = sorted({event.message.reconsume_times for _, event in of_group})
        most = max(event.message.reconsume_times for _, event in (*of_group, *dead))
        if of_group:
            last = max(event.stored_ms for _, event in of_group)
            is_popped = all(
                is_pop_retry(event.message.topic, event.message.properties) for _, event in of_group
            )
            why = "failed to acknowledge it" if is_popped else "sent it back"
            yield Reason(
                ReasonKind.RETRIED,
                f"Consumer group {group} got it again: it {why} {counted(max(most, len(of_group)), 'time')}. "
                f"The last retry in the store is of {format_time(last, to_second=True)}.",
                tuple(number for number, _ in of_group),
            )
        missing = list(_gaps(times, most))
        if missing:
            is_single = len(missing) == 1 and missing[0][0] == missing[0][1]
            ranges = ", ".join(
                f"{first}" if first == last else f"{first} to {last}" for first, last in missing
            )
            yield Reason(
                ReasonKind.RETRY_MISSING,
                f"{'Retry' if is_single else 'Retries'} {ranges} of group {group} {'is' if is_single else 'are'} not "
                f"in the store: expired, in the store of another broker, or made by the consumer without the broker.",
                tuple(number for number, _ in (*of_group, *dead)),
            )


def _gaps(numbers: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of the ranges between 1 and `end` - 1 that contain none of the sorted numbers.

    A damaged record may state any number of retries, so the missing numbers are never listed one by one.
    """
    first = 1
    for number in (*numbers, end):
        if first < number:
            yield first, number - 1
        first = max(first, number + 1)


def _dead_letter(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    for number, event in events:
        if event.role is Role.DEAD_LETTER:
            times = event.message.reconsume_times
            after = f" after sending it back {counted(times, 'time')}" if times else ""
            yield Reason(
                ReasonKind.DEAD_LETTER,
                f"Consumer group {event.group} gave it up{after} at {format_time(event.stored_ms, to_second=True)}: "
                f"it is in {event.message.topic}, and is not delivered to the group again.",
                (number,),
            )


def _sent_twice(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Report a message that its sender sent twice: several records of one topic with the same unique key."""
    sent = sorted(
        (
            (number, event)
            for number, event in events
            if event.role in (Role.MESSAGE, Role.COMMITTED)
            and event.message.unique_key
            and not was_scheduled(event.message)
        ),
        key=lambda numbered: numbered[1].message.topic,
    )
    for topic, of_topic in groupby(sent, key=lambda numbered: numbered[1].message.topic):
        copies = list(of_topic)
        unique_keys = {event.message.unique_key for _, event in copies}
        if len(copies) > 1 and len(unique_keys) == 1:
            apart = format_duration(copies[-1][1].stored_ms - copies[0][1].stored_ms)
            yield Reason(
                ReasonKind.SENT_TWICE,
                f"{topic} has it {counted(len(copies), 'time')}, {apart} apart: its sender sent it again, as clients "
                "do when an answer is late. Consumers receive every copy.",
                tuple(number for number, _ in copies),
            )


def _same_body(numbered: Sequence[Numbered]) -> Iterator[Reason]:
    """Report messages of one topic with the same body and keys but different unique keys."""
    alike: dict[tuple[str, bytes, tuple[str, ...]], list[Numbered]] = {}
    for number, event in numbered:
        message = event.message
        if event.role in (Role.MESSAGE, Role.COMMITTED) and message.keys and message.body:
            place = message.topic, message.body, tuple(message.keys)
            alike.setdefault(place, []).append((number, event))
    for (topic, _, _), copies in alike.items():
        lives = {event.life for _, event in copies}
        if len(lives) > 1:
            yield Reason(
                ReasonKind.SAME_BODY,
                f"{topic} has {len(lives)} different messages with the same keys and body: the application sent it "
                f"{counted(len(lives), 'time')}.",
                tuple(number for number, _ in copies),
            )


def _traced(events: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """Report what clients with enableMsgTrace have recorded: who sent the message, and who consumed it."""
    names = {
        key
        for _, event in events
        for key in event.message.unique_keys
        if event.role is not Role.TRACE
    }
    begun: dict[tuple[str, str], TraceEntry] = {}
    for number, event in events:
        if event.role is not Role.TRACE:
            continue
        for entry in trace_entries(event.message.body):
            if names and entry.message_id not in names:
                continue
            if entry.kind == SUB_BEFORE:
                begun[entry.request_id, entry.message_id] = entry
            yield Reason(
                ReasonKind.TRACED,
                _in_words(entry, begun.get((entry.request_id, entry.message_id))),
                (number,),
            )


def _in_words(entry: TraceEntry, begin: TraceEntry | None) -> str:
    """Return a sentence about one step. `begin` is the begin of the same consumption, if it is known."""
    group = printable(entry.group or (begin.group if begin else "")) or "of unknown name"
    at = "" if entry.time_ms is None else f" at {format_time(entry.time_ms, to_second=True)}"
    took = "" if entry.cost_ms is None else f" in {entry.cost_ms:,} ms"
    result = {True: "successfully", False: "without success", None: "with unknown result"}[
        entry.is_successful
    ]
    if entry.kind == PUB:
        return f"Trace: producer group {group} sent it{at}{took}, {result}."
    if entry.kind == SUB_BEFORE:
        return f"Trace: consumer group {group} began to consume it{at}."
    if entry.kind == SUB_AFTER:
        return (
            f"Trace: consumer group {group} consumed it{took}, {result}{at and f'; it ended{at}'}."
        )
    return f"Trace: producer group {group} decided its transaction{at}: {printable(entry.state)}."


_RULES: tuple[Rule, ...] = (
    _stored_late,
    of_delays,
    of_transaction,
    _sent_twice,
    _retried,
    _dead_letter,
    _not_queued,
    _damaged_body,
    _traced,
)
