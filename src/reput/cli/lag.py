"""`reput state lag`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import FOUND, NOT_FOUND
from reput.cli.options import (
    complete_topics,
    index_option,
    read_store_argument,
    report_format,
    with_config_options,
)


@click.command(
    "lag",
    short_help="Show how far consumer groups are behind.",
    epilog="\b\nExamples:\n  reput state lag /data/store\n  reput state lag /data/store --group billing --format jsonl",
)
@read_store_argument
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option("--topic", metavar="NAME", shell_complete=complete_topics, help="Only this topic.")
@with_config_options
@index_option
@report_format("jsonl", "Output format; jsonl has one queue per line.")
def command(store: str, group: str | None, topic: str | None, as_json: bool, **opening: Any) -> int:
    """Compare the offsets that consumer groups committed with the queues of STORE.

    The offsets are those of config/consumerOffset.json, which a running broker writes every few
    seconds, or lmqConsumerOffset.json; of a 5.x broker that keeps them in RocksDB, those of its
    database in config/ (experimental). The lag of a queue is its end minus the committed offset.
    Messages that expired before the group consumed them are counted in `expired`.

    Exits with 1 if no group has committed an offset.
    """
    from reput.operations.lag import lag

    report = lag(store, group=group, topic=topic, **opening)
    if as_json:
        for row in report.rows():
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        click.echo(str(report))
    return FOUND if report.queues else NOT_FOUND
