"""Define the command `reput diff`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import config_options, report_format, split_logs_option
from reput.cli.output import warn

SAME, DIFFERENT = FOUND, 1


@click.command(
    "diff",
    short_help="Compare two stores, or a store and an export.",
    epilog="\b\nExamples:"
    "\n  reput diff /data/store /backup/store"
    "\n  reput diff /data/store /lake/messages"
    "\n  reput diff /master/store /replica/store --format json",
)
@click.argument("a", metavar="A", type=click.Path(), callback=split_logs_option)
@click.argument("b", metavar="B", type=click.Path(), callback=split_logs_option)
@config_options
@click.option(
    "--name",
    help="The store's name in the export.  [default: its path, or the name of a store with the same log]",
)
@click.option("--catalog", help="The catalog of an Iceberg export.")
@click.option("--table", help="The table of an Iceberg export.")
@report_format("json")
def command(
    a: str,
    b: str,
    name: str | None,
    catalog: str | None,
    table: str | None,
    as_json: bool,
    **opening: Any,
) -> int:
    """Compare the messages, ConsumeQueue entries, index entries and IndexFile headers of stores A and B.

    Two copies of one log are compared by physical offset. Other stores are compared by topic, queue and queue offset;
    then records may differ in their physical offsets. Counts are printed first, then examples. Nothing is written.

    One of the two may be a Parquet, Iceberg or Delta table that `reput export` wrote: then its rows
    are compared with the messages of the store, column by column.

    Exits with 0 if the stores are the same, with 1 if they differ, with 3 if a part of a store could not be read.
    """
    from reput.wings.inspect.api import diff

    opening.pop("index", None)
    report = diff(a, b, name=name, catalog=catalog, table=table, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    for side in report.found.damage:
        warn(*side)
    if report.is_damaged:
        return DAMAGED
    return SAME if report.is_same else DIFFERENT
