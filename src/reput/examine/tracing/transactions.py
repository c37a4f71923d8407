"""What became of the half message of a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reput.clock import format_duration
from reput.examine.tracing.life import Numbered, Reason, ReasonKind
from reput.examine.tracing.lives import decided_by
from reput.examine.tracing.roles import Role
from reput.format.properties import REAL_TOPIC
from reput.format.transactions import check_times
from reput.verify.checking.words import counted


def of_transaction(own: Sequence[Numbered], end_ms: int) -> Iterator[Reason]:
    """A rule, see `reasons`."""
    halves = [(number, event) for number, event in own if event.role is Role.HALF]
    if not halves:
        return
    committed = [
        (number, event)
        for number, event in own
        if event.message.transaction == "commit" and event.role in (Role.COMMITTED, Role.SCHEDULED)
    ]
    discarded = [(number, event) for number, event in own if event.role is Role.DISCARDED_HALF]
    ops = [
        (number, event)
        for number, event in own
        if event.role is Role.OP and any(decided_by(event, half) for _, half in halves)
    ]
    checks = max(check_times(half.message.properties) for _, half in halves)
    if checks or len(halves) > 1:
        yield Reason(
            ReasonKind.CHECKED,
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
    text = f"Not delivered to {topic}: the store does not say that the transaction was committed or rolled back."
    return Reason(ReasonKind.UNDECIDED, text, numbers)
