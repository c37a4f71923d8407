"""`reput state transactions`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import FOUND, NOT_FOUND
from reput.cli.options import (
    index_option,
    open_from,
    read_store_argument,
    report_format,
    with_config_options,
)
from reput.cli.output import console, emit
from reput.clock import format_time
from reput.text import one_line


@click.command(
    "transactions",
    short_help="List half messages that were never committed nor rolled back.",
    epilog="\b\nExamples:"
    "\n  reput state transactions /data/store"
    "\n  reput state transactions /data/store --format jsonl",
)
@read_store_argument
@with_config_options
@index_option
@report_format("jsonl", "Output format; jsonl has one message per line.")
def command(store: str, as_json: bool, **opening: Any) -> int:
    """List the half messages of STORE that are neither committed nor rolled back, one per transaction.

    Those are half messages that no op message names, that are not before the offset which the broker
    has committed for CID_RMQ_SYS_TRANS (config/), and whose unique key no later copy has: a broker that
    asks the producer writes the half message again. The offsets are those of the newest copy. Without
    a committed offset, messages that were decided are listed again once their op messages expire.

    Exits with 1 if there is none.
    """
    from reput.broker.open_transactions import open_transactions

    with open_from(store, **opening) as opened:
        found = list(open_transactions(opened))
    if as_json:
        for one in found:
            row = {
                "stored": one.message.store_timestamp,
                "topic": one.real_topic,
                "producer_group": one.message.properties.get("PGROUP"),
                "unique_key": one.message.unique_key,
                "keys": one.message.keys,
                "queue_offset": one.message.queue_offset,
                "physical_offset": one.message.physical_offset,
            }
            click.echo(json.dumps(row, ensure_ascii=False))
        return FOUND if found else NOT_FOUND
    if found:
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0))
        for name in ("stored (UTC)", "topic", "unique key"):
            table.add_column(name, no_wrap=True)
        for name in ("queue offset", "physical offset"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in found:
            message = one.message
            table.add_row(
                format_time(message.store_timestamp), one_line(one.real_topic or "-", 40),
                one_line(message.unique_key or "-", 56), f"{message.queue_offset:,}",
                f"{message.physical_offset:,}",
            )  # fmt: skip
        emit(table, console())
    else:
        click.echo("No open transaction.")
    return FOUND if found else NOT_FOUND
