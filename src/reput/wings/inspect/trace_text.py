"""Format a trace as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reput.base import aligned, counted, format_duration, one_line, printable, table_time
from reput.engine.messages import coverage_in_words

if TYPE_CHECKING:
    from reput.wings.inspect.tracing.life import Event, Life, StoreCoverage

_TOPIC_WIDTH = 36


def life_lines(life: Life) -> Iterator[str]:
    """Yield a line per record, then the reasons for late, repeated or missing deliveries, then the searched ranges."""
    if life.events:
        yield from _table(life)
        yield ""
    for number, reasons in reasons_by_life(life):
        if number:
            yield f"Message {number}:"
        for text in reasons:
            yield f"  - {printable(text)}"
    if life.reasons:
        yield ""
    count = len(life.events)
    yield f"{counted(count, 'record')}." if count else "No message."
    if len(life.searched) == 1:
        yield from map(printable, searched_in_words(life.searched[0]))
        return
    with_records = {event.store for event in life.events}
    log_sizes = []
    for searched in life.searched:
        if searched.store in with_records or not searched.is_complete:
            sentences = " ".join(searched_in_words(searched))
            yield printable(f"{searched.store}: {sentences}")
        else:
            log_sizes.append(searched.coverage.log.size_bytes)
    if log_sizes:
        yield f"{counted(len(log_sizes), 'store')} without a record; {sum(log_sizes):,} bytes of log."


def problems_of(life: Life) -> Iterator[str]:
    """Yield the unreadable parts of all stores."""
    for searched in life.searched:
        for problem in (*searched.coverage.unreadable, *searched.problems):
            yield printable(str(problem))


def _table(life: Life) -> Iterator[str]:
    several_lives = len({event.life for event in life.events}) > 1
    rows = [("stored (UTC)", "after", *(["message"] if several_lives else []), "record", "topic",
             "queue", "offset", *(["store"] if len(life.searched) > 1 else []))]  # fmt: skip
    for event in life.events:
        message = event.message
        rows.append(
            (
                table_time(event.stored_ms),
                "" if event.gap_ms is None else format_duration(event.gap_ms),
                *([str(event.life)] if several_lives else []),
                role_in_words(event),
                one_line(message.topic, _TOPIC_WIDTH),
                f"{message.queue_id}/{message.queue_offset}",
                str(message.physical_offset),
                *([printable(event.store)] if len(life.searched) > 1 else []),
            )
        )
    yield from aligned(rows)


def role_in_words(event: Event) -> str:
    """Return the role of a record in words, as in `retry 3`, `scheduled, level 5` or `dead letter`."""
    words = event.role.replace("_", " ")
    if event.role == "retry" and event.message.reconsume_times:
        words += f" {event.message.reconsume_times}"
    if event.role == "scheduled" and event.due_ms is not None:
        words += f", level {event.message.queue_id + 1}"
    return words


def reasons_by_life(life: Life) -> Iterator[tuple[int, list[str]]]:
    """For each message of a trace, yield its number, and the reasons for its late, repeated or missing delivery.

    Messages are numbered from 1 on. The number is 0 if the trace has only one message, and for reasons that concern
    several messages.
    """
    several = len({event.life for event in life.events}) > 1
    of: dict[int, list[str]] = {}
    for reason in life.reasons:
        lives = {life.events[number].life for number in reason.events}
        life_number = lives.pop() if several and len(lives) == 1 else 0
        of.setdefault(life_number, []).append(reason.text)
    yield from sorted(of.items(), key=lambda item: (item[0] == 0, item[0]))


def searched_in_words(searched: StoreCoverage) -> Iterator[str]:
    """Describe which parts of a store were searched, and which were not."""
    yield from coverage_in_words(searched.coverage)
    if searched.is_shortened:
        yield "There are more messages than --limit; only the newest were followed."
    if searched.unread:
        yield (
            f"Not read: {counted(searched.unread, 'message')} of retry, dead letter, schedule and op queues; "
            "raise --queue-messages to read them."
        )
    if searched.problems:
        yield "Some queue entries could not be read, so records may be missing."
