"""A trace as text and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from reput.clock import format_duration, format_time
from reput.messages.json_text import json_text
from reput.messages.text import one_line, printable
from reput.store.coverage_text import coverage_in_words
from reput.verify.tracing.json_form import life_fields

if TYPE_CHECKING:
    from reput.verify.tracing.life import Event, Life, StoreCoverage

_TOPIC_WIDTH = 36


def print_text(life: Life) -> None:
    """A line per record, the sentences, what was searched."""
    if life.events:
        for line in _table(life):
            click.echo(line)
        click.echo()
    for number, reasons in reasons_by_life(life):
        if number:
            click.echo(f"Message {number}:")
        for text in reasons:
            click.echo(f"  - {printable(text)}")
    if life.reasons:
        click.echo()
    count = len(life.events)
    click.echo(f"{count:,} record{'' if count == 1 else 's'}." if count else "No message.")
    for searched in life.searched:
        if len(life.searched) > 1:
            click.echo(f"{printable(searched.store)}:")
        for line in searched_in_words(searched):
            click.echo(printable(line))
        for problem in (*searched.coverage.unreadable, *searched.problems):
            click.echo(f"reput: {printable(str(problem))}", err=True)


def print_json(life: Life) -> None:
    """A line per event, per reason, then the end; see docs/trace.md."""
    for fields in life_fields(life):
        click.echo(json_text(fields).encode() if "message" in fields else json.dumps(fields))


def _table(life: Life) -> Iterator[str]:
    several_lives = len({event.life for event in life.events}) > 1
    rows = [("stored (UTC)", "after", *(["message"] if several_lives else []), "record", "topic",
             "queue", "offset")]  # fmt: skip
    for event in life.events:
        message = event.message
        rows.append(
            (
                format_time(event.stored_ms).replace("T", " ").removesuffix("Z"),
                "" if event.gap_ms is None else format_duration(event.gap_ms),
                *([str(event.life)] if several_lives else []),
                role_in_words(event),
                one_line(message.topic, _TOPIC_WIDTH),
                f"{message.queue_id}/{message.queue_offset}",
                str(message.physical_offset),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        if number and len(life.searched) > 1:
            line += f"  {printable(life.events[number - 1].store)}"
        yield line.rstrip()


def role_in_words(event: Event) -> str:
    """`retry 3`, `scheduled, level 5`, `dead letter`."""
    words = event.role.replace("_", " ")
    if event.role == "retry" and event.message.reconsume_times:
        words += f" {event.message.reconsume_times}"
    if event.role == "scheduled" and event.due_ms is not None:
        words += f", level {event.message.queue_id + 1}"
    return words


def reasons_by_life(life: Life) -> Iterator[tuple[int, list[str]]]:
    """Sentences by number of the message; 0 where there is one message only, or a sentence is about several."""
    several = len({event.life for event in life.events}) > 1
    of: dict[int, list[str]] = {}
    for reason in life.reasons:
        lives = {life.events[number].life for number in reason.events}
        own = lives.pop() if several and len(lives) == 1 else 0
        of.setdefault(own, []).append(reason.text)
    yield from sorted(of.items(), key=lambda one: (one[0] == 0, one[0]))


def searched_in_words(searched: StoreCoverage) -> Iterator[str]:
    """What was searched of a store, and what was not."""
    yield from coverage_in_words(searched.coverage)
    if searched.is_shortened:
        yield "There are more messages than --limit; only the newest were followed."
    if searched.unread:
        yield (
            f"{searched.unread:,} messages of retry, dead letter, schedule and op queues were not read; "
            "raise --queue-messages to read them."
        )
    if searched.problems:
        yield "Some queue entries could not be read: a record may be missing."
