"""`reput stats`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import read_store_argument, reader_options, report_format
from reput.cli.output import warn


@click.command(
    "stats",
    short_help="Measure a store: topics, queues, keys, IndexFiles, growth.",
    epilog="\b\nExamples:"
    "\n  reput stats /data/store"
    "\n  reput stats /data/store --format json > stats.json",
)
@read_store_argument
@reader_options
@report_format("json", "Output format.")
def command(store: str, as_json: bool, **opening: Any) -> int:
    """Print what STORE holds: messages and bytes by topic, over time and by queue, frequent keys and tags,
    retries and dead letters, what the IndexFiles cover and how long their chains are, and when the
    disk will be full.

    The whole log is read once. Nothing is written. Exits with 3 if a part of the log could not be
    read; it is not in the figures then.
    """
    from reput.operations.stats import stats

    report = stats(store, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    warn(*report.figures.damage)
    return FOUND if report.is_complete else DAMAGED
