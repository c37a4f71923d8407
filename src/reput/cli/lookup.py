"""Define the command `reput lookup`."""

from __future__ import annotations

from typing import Any

import click

from reput.base import printable
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    GivenStores,
    archived_stores_argument,
    config_from,
    csv_safe_option,
    flag,
    format_option,
    path_option,
    reader_options,
    runner_options,
)
from reput.cli.progress import PhaseBars
from reput.engine.lookup import PLAIN, FileLookup, LineFormat, LineStyle, LookupAnswer, answer_lines
from reput.engine.messages import bytes_of
from reput.engine.stores import Chosen
from reput.errors import UsageError


@click.command(
    "lookup",
    epilog="\b\nExamples:"
    "\n  reput lookup /data/store --keys orders.csv --output found"
    "\n  reput lookup s3://archive/store --keys s3://data/orders.csv --output s3://data/found"
    "\n  reput lookup --stores fleet.toml --keys orders.csv --output found"
    "\n  reput lookup brokers/*/store --keys keys.parquet --columns store,tags,body --output -",
)
@archived_stores_argument
@click.option(
    "--keys",
    required=True,
    metavar="FILE",
    help="The keys: .csv with a header line, or .parquet; a path or a URL.",
)
@click.option(
    "--output",
    required=True,
    metavar="DIR|-",
    help="A new directory of files, or its URL; - is stdout.",
)
@format_option(
    ("parquet", "jsonl", "csv"),
    "Format of the output.  [default: parquet for a directory, jsonl for stdout]",
)
@csv_safe_option
@flag(
    "--iso-times",
    "JSON and CSV: write times as 2026-11-20T08:00:00.000Z, not as milliseconds since 1970.",
)
@click.option("--columns", metavar="A,B,...", help="Columns of a message to return.")
@click.option(
    "--coverage",
    type=click.Choice(["rows", "summary"]),
    default="summary",
    show_default=True,
    help="Where the coverage is written. summary: is_complete in each row, the rest once in "
    "DIR.coverage.json. rows: all of it in each row.",
)
@reader_options
@runner_options
@path_option(
    "--staging",
    "DIR|URL",
    "Folder or URL for temporary files if Spark runs on several machines: visible to all executors, and writable "
    "by no other user.",
)
@click.option(
    "--staging-access",
    type=click.Choice(["private", "group"]),
    default="private",
    show_default=True,
    help="Who may read staged files: this user, or its group if executors run as other users.",
)
def command(
    targets: GivenStores,
    keys: str,
    output: str,
    layout: Any,
    csv_safe: bool,
    iso_times: bool,
    columns: str | None,
    broker_config: str | None,
    index: str | None,
    runner: Chosen,
    **options: Any,
) -> int:
    """Find all messages of many keys, up to tens of millions, in one or several STOREs.

    FILE has the columns topic and key (a unique key in upper or lower case, or one of a message's KEYS), and
    optionally begin and end: store times, both inclusive, in milliseconds or as 2026-11-20T08:00:00Z. Other columns are
    copied to the output. Each row yields one row per message that has the key, or one row of nulls. IndexFiles have
    only hashes of keys, so every message that they lead to is read, and counts only if its topic and key match. Parts
    of the log that no IndexFile covers are scanned once for all keys. The column is_complete reports for each row
    whether the whole log could be read. DIR.coverage.json, or stderr if the answer goes to stdout, reports the searched
    ranges.

    Columns of a message by default: store, physical_offset, store_timestamp, queue_id, queue_offset,
    size, message_id, unique_key, tags. Others are body, body_error (why a body could not be
    decompressed), keys, properties, born_timestamp, born_host and the remaining fields of a message.
    docs/message-json.md defines the lines of JSON and CSV.

    Exits with 1 if nothing was found for any key, with 3 if something could not be read.
    """
    to_stdout = output == "-"
    layout = layout or ("jsonl" if to_stdout else "parquet")
    if iso_times and layout == "parquet":
        raise UsageError("--iso-times works with jsonl and csv only; Parquet has timestamps")
    if to_stdout and layout == "parquet":
        raise UsageError("--format parquet needs a directory: pass --output DIR, not -")
    config = None
    if broker_config:
        config = config_from(broker_config, None)
    style = LineStyle(csv_safe, iso_times)
    if columns:
        options["columns"] = [name.strip() for name in columns.split(",")]
    job = FileLookup(tuple(targets.named()), keys, None if to_stdout else output, layout, style)
    with job.run(runner, PhaseBars, config=config, index=index, **options) as lookup:
        if to_stdout:
            print_rows(lookup.answer, layout, style)
        for line in lookup.in_words():
            click.echo(printable(line), err=to_stdout)
        if not lookup.answer.coverage.is_complete:
            return DAMAGED
        return FOUND if lookup.answer.counts().messages else NOT_FOUND


def print_rows(answer: LookupAnswer, layout: LineFormat, style: LineStyle | None = None) -> None:
    """Write all rows to stdout as JSON Lines or CSV in UTF-8. Only a part of the answer is in memory at a time."""
    for lines in answer_lines(answer, range(len(answer.parts)), layout, style or PLAIN, "\n"):
        click.echo(bytes(bytes_of(lines)), nl=False)
