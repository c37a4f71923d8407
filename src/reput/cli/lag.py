"""`reput lag`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import FOUND, NOT_FOUND
from reput.cli.options import index_option, open_from, read_store_argument, with_config_options
from reput.cli.output import console, emit
from reput.errors import UsageError
from reput.messages.text import one_line


@click.command(
    "lag",
    short_help="Show how far consumer groups are behind.",
    epilog="\b\nExamples:\n  reput lag /data/store\n  reput lag /data/store --group billing --json",
)
@read_store_argument
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", help="Only this topic.")
@with_config_options
@index_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per queue.")
def command(store: str, group: str | None, topic: str | None, as_json: bool, **opening: Any) -> int:
    """Compare the offsets that consumer groups committed with the queues of STORE.

    The offsets are those of config/consumerOffset.json, which a running broker writes every few
    seconds, or lmqConsumerOffset.json; of a 5.x broker that keeps them in RocksDB, those of its
    database in config/ (experimental). The lag of a queue is its end minus the committed offset.
    Messages that expired before the group consumed them are counted in `expired`.

    Exits with 1 if no group has committed an offset.
    """
    from reput.broker.lag import consumer_lag

    with open_from(store, **opening) as opened:
        if not opened.storage.is_local:
            raise UsageError(f"{store}: consumer offsets are read only on this machine")
        found = [
            one
            for one in consumer_lag(opened, opened.path)
            if group in (None, one.group) and topic in (None, one.topic)
        ]
    if as_json:
        for one in found:
            row = {name: getattr(one, name) for name in (*one.__slots__, "lag", "expired")}
            click.echo(json.dumps(row, ensure_ascii=False))
        return FOUND if found else NOT_FOUND
    if found:
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0))
        for name in ("group", "topic"):
            table.add_column(name, no_wrap=True)
        for name in ("queue", "committed", "end", "lag", "expired"):
            table.add_column(name, justify="right", no_wrap=True)
        for one in found:
            numbers = (one.queue_id, one.committed, one.max_offset, one.lag, one.expired)
            cells = ("-" if number is None else f"{number:,}" for number in numbers)
            table.add_row(one_line(one.group, 40), one_line(one.topic, 40), *cells)
        emit(table, console())
    elif group is None and topic is None:
        click.echo("No committed offset: config/ of the store has none.")
    else:
        click.echo("No committed offset of that group and topic.")
    return FOUND if found else NOT_FOUND
