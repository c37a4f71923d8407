"""Define the command `reput compact-table`."""

from __future__ import annotations

import json
from contextlib import ExitStack

import click

from reput.base import counted, printable
from reput.cli.main import FOUND
from reput.cli.options import SIZE, catalog_properties, report_format, runner_options
from reput.engine.stores import Chosen, opened_runner

_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput compact-table /lake/messages"
    "\n  reput compact-table /lake/orders --target-file-size 512MiB"
)


@click.command(
    "compact-table", short_help="Combine small files of an exported table.", epilog=_EXAMPLES
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
def command(
    destination: str,
    target_file_size: int | None,
    catalog: str | None,
    catalog_properties: dict[str, str],
    table: str | None,
    chosen: Chosen,
    as_json: bool,
) -> int:
    """Combine the small files of the table at DEST, which `reput export` wrote.

    Rows do not change, and exports continue where they ended. The command is refused
    while an export or another compaction writes the table; exports are refused while it runs.
    Readers of an Iceberg or Delta table see either the old or the new files. The folder of a
    Parquet table is replaced in one step: a query that runs meanwhile may fail and must be
    repeated.
    """
    from reput.cli.progress import export_bar
    from reput.wings.lakes.compaction import compact_table, layout_of
    from reput.wings.lakes.merging import TARGET_BYTES
    from reput.wings.lakes.tables.opening import open_table
    from reput.wings.lakes.task import warm_up

    with ExitStack() as stack:
        layout = layout_of(destination)
        report = compact_table(
            open_table(
                destination,
                layout,
                catalog=catalog,
                table=table,
                catalog_properties=catalog_properties or None,
            ),
            lambda size: stack.enter_context(opened_runner(chosen, size, warm_up)),
            target_file_bytes=target_file_size or TARGET_BYTES,
            progress=stack.enter_context(export_bar()),
        )
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
