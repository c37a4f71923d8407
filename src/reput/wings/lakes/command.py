"""Define the commands `reput export` and `reput compact-table`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import click

from reput.base import counted, printable
from reput.cli import (
    DAMAGED,
    FOUND,
    SIZE,
    all_formats,
    archive_option,
    catalog_properties,
    check_archived,
    check_window,
    export_bar,
    fleet_option,
    listed_in,
    print_report,
    refuse_logs_option,
    report_format,
    runner_options,
    time_window_options,
    warn,
)
from reput.engine.rebuild import damage_lines
from reput.engine.stores import Chosen, with_archive
from reput.errors import UsageError
from reput.format.message_fields import FIELDS
from reput.wings.lakes import ExportRequest, export
from reput.wings.lakes.api import compact_table

_ORIGINS = [field.name for field in FIELDS if field.group == "origin"]
_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput export /data/store /lake/messages --partition-by topic,day"
    "\n  reput export '/data/broker-*/store' /lake/messages --to iceberg --incremental"
    "\n  reput export /data/store /lake/orders --to delta --topic orders --json-body infer"
    "\n  reput export /data/store s3://lake/messages --incremental"
    "\n  reput export --stores fleet.toml /lake/messages --incremental"
    "\n  reput export '/data/*/store' /lake/messages --name-from '/data/{broker}/store' \\"
    "\n    --partition-by broker,day"
    "\n  reput export /data/store - --to jsonl | reput put /other/store"
)


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names = None if value is None else tuple(name.strip() for name in value.split(","))
    if names and "" in names:
        raise click.BadParameter("a name is empty; write A,B", ctx, param)
    return names


@click.command("export", epilog=_EXAMPLES)
@click.argument(
    "stores", metavar="[STORE]...", nargs=-1, type=click.Path(readable=False), callback=refuse_logs_option,
)  # fmt: skip
@click.argument("destination", metavar="DEST", type=click.Path(readable=False, allow_dash=True))
@fleet_option
@click.option(
    "--to",
    metavar="parquet|iceberg|delta|jsonl",
    help="Kind of DEST: a table, in a folder or at a URL of a bucket, or a file of JSON lines (- for "
    "stdout).  [default: parquet]",
)
@all_formats("json", "Output format of the summary.", native=("jsonl", "csv"))
@click.option(
    "--incremental",
    is_flag=True,
    help="Add only messages that are new since the last export to DEST.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="Messages of this topic, or of topics that match a pattern such as 'orders-*'; repeatable.",
)
@time_window_options
@click.option(
    "--columns",
    callback=_names,
    metavar="A,B,...",
    help="Only these columns; * stands for the default ones. Further columns are "
    f"{', '.join(_ORIGINS[:-1])} and {_ORIGINS[-1]}.",
)
@click.option(
    "--partition-by",
    callback=_names,
    metavar="P,...",
    help="cluster, broker, topic or real_topic, and day or hour (UTC).",
)
@click.option(
    "--json-body",
    metavar="infer|FILE",
    help="Parse JSON bodies into typed fields of the column json; FILE is their schema.",
)
@click.option(
    "--body",
    metavar="ENCODING:SCHEMA",
    help="Decode bodies into typed fields of a column named after the encoding: avro:FILE (.avsc), "
    "avro:registry:URL (Confluent-compatible), proto:FILE#Message (.proto, or the output of "
    "protoc --include_imports -o), json:infer, json:FILE.",
)
@click.option(
    "--charset",
    default="utf-8",
    show_default=True,
    help="Charset of JSON bodies: gb18030, gbk, ...",
)
@click.option(
    "--body-mode",
    "--json-mode",
    "json_mode",
    metavar="strict|permissive",
    default="strict",
    show_default=True,
    help="If a body does not match its schema: reject the message, or keep it with null in the fields concerned "
    "and the reason in the column json_error, avro_error or proto_error.",
)
@click.option(
    "--json-timestamps",
    is_flag=True,
    help="With --json-body infer: make timestamps of ISO 8601 times with a zone.",
)
@click.option(
    "--max-rejects",
    metavar="N|P%",
    help="Commit nothing and exit with 3 if more rows than this are rejected.",
)
@click.option(
    "--raw-bodies",
    "decompressed",
    is_flag=True,
    callback=lambda ctx, param, value: not value,
    help="Do not decompress bodies.",
)
@click.option(
    "--on-corrupt",
    type=click.Choice(["skip", "row", "fail"]),
    default="skip",
    show_default=True,
    help="On damage: report it and continue, emit a row for it, or stop.",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Stop if messages expired before they were exported.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="N",
    help="Name of a STORE in the table's checkpoints, instead of its path.",
)
@click.option(
    "--name-from",
    metavar="PATH",
    help="Take names from the paths of STOREs, for --name and the columns broker and cluster: "
    "'/data/{cluster}/{broker}/store'.",
)
@click.option(
    "--catalog",
    metavar="C",
    help="Iceberg: the URI of a catalog (REST, Hive, SQL), or its name in pyiceberg's configuration.",
)
@catalog_properties
@click.option("--table", metavar="NS.NAME", help="Iceberg: the table.  [default: reput.messages]")
@click.option(
    "--upsert-by",
    metavar="key",
    help="Keep only the newest message of each key, as a compacted topic does; a message without a "
    "body deletes its key. Iceberg and Delta.",
)
@click.option(
    "--profile",
    metavar="safe|fast",
    default="safe",
    show_default=True,
    help="fast: do not sort rows by key, and do not read files back.",
)
@click.option("--split-size", "split_bytes", type=SIZE, help="CommitLog bytes per task.")
@click.option(
    "--target-file-size",
    "target_file_bytes",
    type=SIZE,
    help="Combine small files of a partition up to this size.  [default: 256MiB]",
)
@archive_option
@click.option(
    "--commit-every",
    metavar="SIZE|TIME",
    help="Commit after this much CommitLog or time, such as 10GB or 10min.  [default: one commit]",
)
@click.option(
    "--compact-after",
    type=int,
    metavar="N",
    help="After the export, combine small files if a partition has at least N of them.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Write nothing; print which bytes would be read, which index finds them, and how long it would take.",
)
@runner_options
def export_command(
    stores: tuple[str, ...],
    fleet: str | None,
    archive: str | None,
    destination: str,
    to: str | None,
    layout: str,
    begin: int | None,
    end: int | None,
    **options: Any,
) -> int:
    """Write the messages of STOREs into a table at DEST, one row per message.

    A STORE is a store directory (it contains commitlog/), a commitlog folder, or a single file of
    a commitlog folder. The broker of STORE may be running or stopped, and STORE may be a copy. STORE
    may also be a pattern or a URL (s3://bucket/broker-*/store). If a fleet file names the stores, the
    table contains these names. Of a master and its replicas, only the master is exported.

    The data and the offset reached in each store are committed together. With --incremental, a run
    continues at these offsets: even if runs are killed and repeated, each message is exported exactly
    once. Before it commits, a run reads its files back, and compares messages, bytes and body CRCs
    with the log.

    {times}

    Exits with 3 if the log is damaged: readable messages are exported, the damage is reported. Also
    exits with 3, and exports nothing, if more rows than --max-rejects are rejected.
    """
    if not stores and fleet is None:
        raise UsageError(
            "name a STORE, or a fleet file with --stores, before DEST: reput export STORE DEST"
        )
    check_window(begin, end)
    check_archived(stores, archive, fleet)
    if archive is not None:
        stores = (with_archive(stores[0], archive),)
    to = to or "parquet"
    output: Any = destination
    if destination == "-":
        if to == "jsonl" and sys.stdout is None:
            raise UsageError("'-' means stdout, but stdout is closed; name a file")
        output = sys.stdout.buffer if to == "jsonl" else destination
    # Options that have the name of a field of the request belong to it, and all others are arguments of `export`.
    fields = {field.name for field in dataclasses.fields(ExportRequest)} & options.keys()
    values = {name: options.pop(name) for name in fields}
    request = ExportRequest(
        begin_ms=begin,
        end_ms=end,
        **{name: value for name, value in values.items() if value is not None},
    )
    with export_bar() as progress:
        report = export(
            [*listed_in(fleet), *stores], output, to=to, request=request, progress=progress, **options,
        )  # fmt: skip
    warn(*damage_lines([*report.missing, *report.damage]))
    # If DEST is -, the messages go to stdout.
    print_report(report, layout, err=destination == "-")
    return DAMAGED if report.damage or report.missing else FOUND


@click.command(
    "compact-table",
    epilog="\b\nExamples:"
    "\n  reput compact-table /lake/messages"
    "\n  reput compact-table /lake/orders --target-file-size 512MiB",
)
@click.argument("destination", metavar="DEST", type=click.Path(readable=False))
@click.option(
    "--target-file-size",
    type=SIZE,
    help="Combine files of a partition up to this size.  [default: 256MiB]",
)
@click.option("--catalog", metavar="C", help="Iceberg: the catalog that was given to reput export.")
@catalog_properties
@click.option(
    "--table", metavar="NS.NAME", help="Iceberg: the table that was given to reput export."
)
@runner_options
@report_format("json")
def compact_table_command(
    destination: str,
    target_file_size: int | None,
    catalog: str | None,
    catalog_properties: dict[str, str],
    table: str | None,
    runner: Chosen,
    as_json: bool,
) -> int:
    """Combine the small files of the table at DEST, which `reput export` wrote.

    Rows do not change, and exports continue where they ended. The command is refused
    while an export or another compaction writes the table; exports are refused while it runs.
    Readers of an Iceberg or Delta table see either the old or the new files. The folder of a
    Parquet table is replaced in one step: a query that runs meanwhile may fail and must be
    repeated.
    """
    with export_bar() as progress:
        report = compact_table(
            destination, target_file_bytes=target_file_size, catalog=catalog, table=table,
            catalog_properties=catalog_properties, runner=runner, progress=progress,
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
        return FOUND
    did = (
        f"combined {counted(report.files, 'file')} into {report.new_files:,}"
        if report.committed
        else "no small files to combine"
    )
    click.echo(f"{printable(report.destination)}: {did}, in {report.total_s:,.1f} s")
    for note in report.notes:
        click.echo(f"  note          {printable(note)}")
    return FOUND
