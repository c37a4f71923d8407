"""`reput lookup`."""

from __future__ import annotations

from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import index_option, with_config_options
from reput.cli.text import printable
from reput.errors import UsageError


@click.command(
    "lookup",
    short_help="Find the messages of many keys at once, on Spark.",
    epilog="\b\nExamples:"
    "\n  reput lookup /data/store --keys orders.csv --output found"
    "\n  reput lookup brokers/*/store --keys keys.parquet --columns store,tags,body --output -",
)
@click.argument("stores", metavar="STORE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--keys", required=True, metavar="FILE", help="The keys: .csv with names, or .parquet."
)
@click.option(
    "--output", required=True, metavar="DIR|-", help="A new directory of files; - is stdout."
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(["parquet", "jsonl", "csv"]),
    help="Of the output: parquet for a directory, jsonl for stdout, unless told otherwise.",
)
@click.option("--columns", metavar="A,B,...", help="What to tell of a message.")
@with_config_options
@index_option
@click.option("--master", default="local[*]", show_default=True, help="The Spark master to run on.")
@click.option(
    "--staging", type=click.Path(), metavar="DIR", help="A folder that all executors see."
)
def command(
    stores: tuple[str, ...],
    keys: str,
    output: str,
    layout: Any,
    columns: str | None,
    broker_config: str | None,
    index: str | None,
    master: str,
    staging: str | None,
    **sizes: int | None,
) -> int:
    """Find all messages of many keys in one or several STOREs: tens of millions at once.

    The keys are rows with the columns topic and key (a unique key, or one of a message's KEYS), and
    perhaps begin and end: store times, both inclusive, in milliseconds or as 2026-11-20T08:00:00Z.
    Other columns are passed on. Each row is answered: with every message that has the key, or with
    none; a message with another key never shows. IndexFiles are searched, and of the CommitLog only
    what they lead to is read; what no IndexFile covers is scanned once for all keys. The column
    coverage says of each row what was searched for it and whether all of it could be read.

    The columns of a message, unless --columns names others: store, physical_offset, store_timestamp,
    queue_id, queue_offset, size, message_id, unique_key, tags. There are also body, keys,
    properties, born_timestamp, born_host and the rest of a message's fields.

    Exits with 1 when nothing was found for any key, with 3 when something could not be read.
    """
    to_stdout = output == "-"
    layout = layout or ("jsonl" if to_stdout else "parquet")
    if to_stdout and layout == "parquet":
        raise UsageError("--format parquet: is written to a directory (--output)")
    config = None
    if broker_config:
        from reput.cli.options import config_from

        config = config_from(broker_config, None)
    from reput.spark.lookup_files import check_csv, check_paths, read_keys, write_answer

    check_paths(keys, None if to_stdout else output)
    from reput.cli.lookup_view import print_rows, remarks
    from reput.cli.rebuild_view import RebuildProgress
    from reput.spark.bulk_lookup import DEFAULT_COLUMNS, run_lookup
    from reput.spark.session import command_session

    wanted = [name.strip() for name in columns.split(",")] if columns else DEFAULT_COLUMNS
    with command_session(master) as spark:
        with RebuildProgress() as progress:
            found = run_lookup(
                spark, stores, read_keys(spark, keys), columns=wanted, index=index, config=config,
                staging=staging, progress=progress, **sizes,
            )  # fmt: skip
        if layout == "csv":
            check_csv(found)
        if to_stdout:
            print_rows(found.answer, layout)
        else:
            write_answer(found, output, layout)
        for line in remarks(found.answer, found.stores):
            click.echo(printable(line), err=to_stdout)
    if not found.answer.coverage.is_complete:
        return DAMAGED
    return FOUND if found.answer.counts().messages else NOT_FOUND
