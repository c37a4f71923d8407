"""`reput state popped`."""

from __future__ import annotations

import json
from dataclasses import asdict
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
    "popped",
    short_help="List messages that consumers popped and did not acknowledge (5.x).",
    epilog="\b\nExamples:\n  reput state popped /data/store\n  reput state popped /data/store --all --format jsonl",
)
@read_store_argument
@click.option(
    "--all",
    "take_all",
    is_flag=True,
    help="Also acknowledged messages, and revived ones that were popped again.",
)
@with_config_options
@index_option
@report_format("jsonl", "Output format; jsonl has one pop per line.")
def command(store: str, take_all: bool, as_json: bool, **opening: Any) -> int:
    """List the messages of STORE that consumers popped and did not acknowledge, by pop.

    They come from checkpoints and acknowledgements in the revive topics and in the timer, from
    config/consumerOrderInfo.json (pops in order, the last one of each queue), or from kvStore/ (RocksDB;
    experimental). A message whose time has come is `revived`: the broker puts a copy of it into the retry
    topic of its group. Revived messages are listed until the group pops the copy.

    Exits with 1 if nothing is listed, and with 3 if a note of the broker could not be read.
    """
    from reput.broker.popped import PoppedMessages

    with open_from(store, **opening) as opened:
        notes = PoppedMessages(opened)
        found = [one for one in notes if take_all or one.is_open]
    if as_json:
        for one in found:
            click.echo(json.dumps(asdict(one), ensure_ascii=False))
    elif found:
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0))
        for name in ("due (UTC)", "group", "topic"):
            table.add_column(name, no_wrap=True)
        for name in ("queue", "popped", "unacknowledged", "revived"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("in order", no_wrap=True)
        for one in found:
            table.add_row(
                format_time(one.revive_time), one_line(one.group, 40), one_line(one.topic, 40), str(one.queue_id),
                f"{len(one.offsets):,}", one_line(" ".join(map(str, one.unacked)), 40),
                one_line(" ".join(str(revived.queue_offset) for revived in one.revived), 40),
                "yes" if one.in_order else "",
            )  # fmt: skip
        emit(table, console())
    else:
        click.echo("No popped message." if take_all else "No unacknowledged message.")
    for lost in notes.damage:
        click.echo(f"reput: {printable(str(lost))}", err=True)
    if notes.damage:
        return DAMAGED
    return FOUND if found else NOT_FOUND
