"""Define the command `reput restore`."""

from __future__ import annotations

import json

import click

from reput.cli.main import FOUND
from reput.cli.options import END_TIME, TIME, TIME_HELP, all_formats


@click.command(
    "restore",
    short_help="Restore a store from an archive.",
    epilog="\b\nExamples:"
    "\n  reput restore s3://bucket/broker-a /data/restored"
    "\n  reput restore /archives/broker-a /data/restored --begin 2026-10-14 --end 2026-10-15"
    "\n  reput restore /archives/broker-a /data/test --topic orders --key customer-4711",
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option(
    "--begin", "begin", type=TIME, help="Only log files with messages stored since this time."
)
@click.option(
    "--end", "end", type=END_TIME, help="Only log files with messages stored until this time."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="Copy only messages of this topic; repeatable.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="K",
    help="Copy only messages with this key or unique key; repeatable.",
)
@all_formats("json")
def command(
    archive: str,
    destination: str,
    begin: int | None,
    end: int | None,
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    layout: str,
) -> int:
    """Write the archived log files into the new folder DEST, byte for byte, and rebuild ConsumeQueues and IndexFiles.

    The broker's configuration (config/) comes from the first snapshot taken after the last restored file was archived.
    Committed offsets beyond the end of a restored queue are set to its end.

    With --topic or --key, DEST is a new store with copies of the selected messages. The copies get new offsets;
    the properties REPUT_ORIGIN_STORE, REPUT_ORIGIN_OFFSET and REPUT_ORIGIN_QUEUE_OFFSET state their origin. --begin and
    --end then select messages by store time. Nothing else of the archive is copied.

    {times}
    """
    from reput.wings.archive.api import restore

    report = restore(archive, destination, begin=begin, end=end, topics=topics, keys=keys)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    return FOUND


command.help = (command.help or "").format(times=TIME_HELP)
