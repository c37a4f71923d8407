"""`reput export`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.sizes import size_option
from reput.cli.times import TIME_HELP, time_option
from reput.errors import UsageError

if TYPE_CHECKING:
    from reput.export.report import ExportReport
    from reput.export.request import ExportRequest
    from reput.store.rebuild.runner import Runner

_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput export /data/store /lake/messages --partition-by topic,day"
    "\n  reput export '/data/broker-*/store' /lake/messages --format iceberg --incremental"
    "\n  reput export /data/store /lake/orders --format delta --topic orders --json-body infer"
    "\n  reput export /data/store - --format jsonl | reput put /other/store"
)
# Below it, Spark would take longer to start than the export takes.
_SMALL_BYTES = 256 << 20


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    names = None if value is None else tuple(name.strip() for name in value.split(","))
    if names and "" in names:
        raise click.BadParameter("a name is empty: write A,B", ctx, param)
    return names


@click.command("export", short_help="Write messages into a lake table.", epilog=_EXAMPLES)
@click.argument(
    "stores", metavar="STORE...", nargs=-1, required=True, type=click.Path(readable=False)
)
@click.argument("destination", metavar="DEST", type=click.Path(readable=False, allow_dash=True))
@click.option(
    "--format",
    "layout",
    type=click.Choice(["parquet", "iceberg", "delta", "jsonl"]),
    default="parquet",
    show_default=True,
    help="What DEST is: the folder of a table, or a file of JSON lines (- for stdout).",
)
@click.option("--incremental", is_flag=True, help="Add what is new since the last export to DEST.")
@click.option(
    "--topic", "topics", multiple=True, metavar="T", help="Messages of this topic; repeatable."
)
@click.option("--begin", callback=time_option, metavar="TIME", help="Stored at this time or later.")
@click.option("--end", callback=time_option, metavar="TIME", help="Stored at this time or earlier.")
@click.option("--columns", callback=_names, metavar="A,B,...", help="Only these columns.")
@click.option(
    "--partition-by", callback=_names, metavar="P,...", help="topic, and day or hour (UTC)."
)
@click.option(
    "--json-body",
    metavar="infer|FILE",
    help="Bodies as typed fields of the column json; FILE holds their schema.",
)
@click.option("--raw-bodies", is_flag=True, help="Leave compressed bodies compressed.")
@click.option(
    "--on-corrupt",
    type=click.Choice(["skip", "row", "fail"]),
    default="skip",
    show_default=True,
    help="Tell damage and go on, write a row that tells it, or stop.",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Stop where messages expired before they were exported.",
)
@click.option(
    "--name", "names", multiple=True, metavar="N", help="Know a STORE by this, not by its path."
)
@click.option("--catalog", metavar="C", help="Iceberg: an SQL database, or a catalog of pyiceberg.")
@click.option("--table", metavar="NS.NAME", help="Iceberg: the table.  [default: reput.messages]")
@click.option(
    "--split-size", callback=size_option, metavar="SIZE", help="Bytes of CommitLog a task."
)
@click.option("--master", help="The Spark master.  [default: local[*], none for small stores]")
@click.option("--json", "as_json", is_flag=True, help="Print the closing summary as JSON.")
def command(
    stores: tuple[str, ...],
    destination: str,
    layout: Any,
    incremental: bool,
    fail_on_data_loss: bool,
    names: tuple[str, ...],
    catalog: str | None,
    table: str | None,
    split_size: int | None,
    master: str | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Write the messages of STOREs into a table at DEST, one row a message.

    A STORE is a directory with commitlog/, or such a folder or file itself; of a running broker, a
    stopped one, or a copy; patterns and URLs will do (s3://bucket/broker-*/store).

    Data and how far each store is exported are committed in one step. With --incremental a run goes
    on from there; killed at any moment and run again, it exports each message once. A run commits
    only if what it reads back from its files are the messages, bytes and body CRCs that it read.

    {times}

    Exits with 3 when the log is damaged: what could be read is exported, what could not is told.
    """
    request = _request(asked)
    with ExitStack() as stack:
        if layout == "jsonl":
            if catalog or table or split_size or master:
                raise UsageError("--catalog, --table, --split-size, --master are for tables")
            report = _lines(stores, names, destination, request, incremental, fail_on_data_loss)
        else:
            from reput.cli.export_view import export_progress
            from reput.export.driver import export_sources
            from reput.export.planning import open_stores
            from reput.export.tables.opening import open_table

            report = export_sources(
                open_stores(stores, names),
                open_table(destination, layout, catalog=catalog, table=table),
                request,
                lambda size: _runner(size, master, stack),
                incremental=incremental,
                fail_on_data_loss=fail_on_data_loss,
                split_bytes=split_size,
                progress=stack.enter_context(export_progress()),
            )
    return _show(report, as_json, to_stderr=destination == "-")


def _request(asked: dict[str, Any]) -> ExportRequest:
    from reput.export.request import ExportRequest

    return ExportRequest(
        columns=asked["columns"],
        topics=asked["topics"],
        begin_ms=asked["begin"],
        end_ms=asked["end"],
        partition_by=asked["partition_by"] or (),
        on_corrupt=asked["on_corrupt"],
        decompressed=not asked["raw_bodies"],
        json_body=asked["json_body"],
    )


def _lines(
    stores: tuple[str, ...],
    names: tuple[str, ...],
    destination: str,
    request: ExportRequest,
    incremental: bool,
    fail_on_data_loss: bool,
) -> ExportReport:
    from reput.cli.message_json import message_line
    from reput.export.json_lines import export_lines
    from reput.export.planning import open_stores

    output: Any = destination
    if destination == "-":
        if sys.stdout is None:
            raise UsageError("- is stdout, which is closed; name a file")
        output = sys.stdout.buffer
    return export_lines(
        open_stores(stores, names), output, request, message_line,
        incremental=incremental, fail_on_data_loss=fail_on_data_loss,
    )  # fmt: skip


def _runner(size_bytes: int, master: str | None, stack: ExitStack) -> Runner:
    """Spark where it is asked for or worth its start; it stops with the stack."""
    from reput.store.rebuild.runner import SerialRunner

    if master is None and size_bytes < _SMALL_BYTES:
        return SerialRunner()
    from reput.spark.export import runner_of
    from reput.spark.session import command_session

    return runner_of(stack.enter_context(command_session(master or "local[*]")))


def _show(report: ExportReport, as_json: bool, to_stderr: bool) -> int:
    from reput.cli.export_view import damage_lines, summary_text

    for line in damage_lines(report):
        click.echo(f"reput: {line}", err=True)
    text = json.dumps(report.as_json(), indent=2) if as_json else summary_text(report)
    click.echo(text, err=to_stderr)
    return DAMAGED if report.damage or report.missing else FOUND


command.help = (command.help or "").format(times=TIME_HELP)
