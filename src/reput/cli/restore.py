"""`reput restore`."""

from __future__ import annotations

import json

import click

from reput.cli.main import FOUND
from reput.cli.options import TIME, TIME_HELP, text_or_json


@click.command(
    "restore",
    short_help="Restore a store from an archive.",
    epilog="\b\nExamples:"
    "\n  reput restore s3://bucket/broker-a /data/restored"
    "\n  reput restore /archives/broker-a /data/restored --begin 2026-10-14 --end 2026-10-15",
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option(
    "--begin", "begin", type=TIME, help="Only log files with messages stored since this time."
)
@click.option(
    "--end", "end", type=TIME, help="Only log files with messages stored until this time."
)
@text_or_json("Output format.")
def command(archive: str, destination: str, begin: int | None, end: int | None, layout: str) -> int:
    """Write the archived log files into the new folder DEST, byte for byte, and rebuild the indexes.

    The broker's configuration comes from the first snapshot that was taken after the last restored file.

    {times}
    """
    from reput.operations.archive import restore

    report = restore(archive, destination, begin=begin, end=end)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    return FOUND


command.help = (command.help or "").format(times=TIME_HELP)
