"""`reput state timer`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    index_option,
    open_from,
    read_store_argument,
    report_format,
    with_config_options,
)
from reput.cli.output import console, emit
from reput.clock import format_time
from reput.text import one_line, printable


@click.command(
    "timer",
    short_help="List the messages that wait in a broker's timer (5.x).",
    epilog="\b\nExamples:\n  reput state timer /data/store\n  reput state timer /data/store --all --format jsonl",
)
@read_store_argument
@click.option(
    "--all", "take_all", is_flag=True, help="Also delivered and recalled messages, and recalls."
)
@with_config_options
@index_option
@report_format("jsonl", "Output format; jsonl has one message per line.")
def command(store: str, take_all: bool, as_json: bool, **opening: Any) -> int:
    """List the messages that wait in the timer of STORE, and until when, from its timerlog/.

    A message that is due later than the timer wheel turns is `rolled`: the broker schedules it again
    then. With --all, a message that a recall takes back is `recalled` (it is never delivered), and the
    recall is `recall` until then, `done` afterwards. The queue offset and the physical offset are those
    of the record in the topic rmq_sys_wheel_timer.

    Exits with 1 if no message waits, and with 3 if a part of the timer log could not be read.
    """
    from reput.query.timer import WAITING, TimerLog

    with open_from(store, **opening) as opened:
        timers = TimerLog(opened)
        found = [one for one in timers if take_all or one.state in WAITING]
    found.sort(key=lambda one: one.unit.due)
    rows = [
        {
            "due": one.unit.due,
            "state": one.state,
            "topic": one.real_topic,
            "keys": None if one.message is None else one.message.keys,
            "unique_key": None if one.message is None else one.message.unique_key,
            "queue_offset": None if one.message is None else one.message.queue_offset,
            "physical_offset": one.unit.physical_offset,
        }
        for one in found
    ]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif rows:
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0))
        for name in ("due (UTC)", "state", "topic", "keys"):
            table.add_column(name, no_wrap=True)
        table.add_column("physical offset", justify="right", no_wrap=True)
        for row in rows:
            keys = " ".join(row["keys"] or ())  # type: ignore[arg-type]
            table.add_row(
                format_time(int(str(row["due"]))), str(row["state"]), one_line(str(row["topic"] or "-"), 40),
                one_line(keys, 40), f"{row['physical_offset']:,}",
            )  # fmt: skip
        emit(table, console())
    else:
        click.echo("No message in the timer." if take_all else "No message waits.")
    for lost in timers.damage:
        click.echo(f"reput: {printable(str(lost))}", err=True)
    if timers.damage:
        return DAMAGED
    return FOUND if rows else NOT_FOUND
