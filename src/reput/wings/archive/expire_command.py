"""Define the command `reput expire`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from reput.base import counted, format_size, format_time, printable
from reput.cli import FOUND, TIME, flag, own, owner_options, store_argument, warn
from reput.engine.writer import ExpiryReport, plan_by_time
from reput.wings.archive.restoring import ArchivedFiles, archived_files, require_unchanged


@click.command(
    "expire",
    epilog="\b\nExamples:"
    "\n  reput expire /data/store --before '3 days ago' --dry-run"
    "\n  reput expire /data/store --before 2026-10-14"
    "\n  reput expire /data/store --before now --archived s3://bucket/broker-a",
)
@store_argument
@click.option(
    "--before",
    type=TIME,
    required=True,
    help="Delete files whose last message was stored before this time.",
)
@click.option(
    "--archived",
    metavar="URL",
    help="Delete only log files of which this archive has a copy; files and copies are compared byte for byte first.",
)
@flag("--dry-run", "Print the files to delete; delete nothing.")
@owner_options
def expire_command(
    store: str,
    before: int,
    archived: str | None,
    dry_run: bool,
    layout: str,
    broker_config: str | None,
    **sizes: int | None,
) -> int:
    """Delete the oldest CommitLog files of STORE. Only whole files are deleted, never the last one.

    A file is deleted if its last message, and the last messages of all older files, were stored before TIME.
    ConsumeQueue files and IndexFiles that only point into deleted files are also deleted.

    With --archived, only files with an identical copy in the archive are deleted.

    Stop the broker first; while one runs on STORE, only --dry-run is possible. A store that was not
    shut down cleanly is recovered first. Programs that are reading STORE are not disturbed.

    {times}
    """
    copied = None if archived is None else _archived_files(store, before, archived)
    until = None if copied is None else copied.until
    if dry_run:
        report = plan_by_time(Path(store), before, until)
    else:
        with own(store, broker_config, **sizes) as writer:
            if archived is not None and copied is not None:
                # The archive was compared with the store before the store was locked. Check that no other process has
                # changed the archive meanwhile: otherwise, files without a copy would be deleted.
                require_unchanged(archived, copied)
            report = writer.expire(before, until=until)
    if layout == "json":
        click.echo(json.dumps({"dry_run": dry_run, **asdict(report)}, indent=2))
    else:
        click.echo(_text(store, before, dry_run, report))
    return FOUND


def _archived_files(store: str, before: int, archive: str) -> ArchivedFiles:
    """Return the files of the plan that are archived. Print the name of the first file that is not archived."""
    planned = plan_by_time(Path(store), before).log_files
    files = archived_files(archive, store, planned)
    missing = [path for path in planned if int(Path(path).name) >= files.until]
    if missing:
        warn(f"{missing[0]}: has no copy in {archive}, so this file and all later ones are kept")
    return files


def _text(store: str, before: int, dry_run: bool, report: ExpiryReport) -> str:
    done = "Would delete" if dry_run else "Deleted"
    return "\n".join(
        [
            f"{done} from {printable(store)} messages stored before {format_time(before)}",
            f"  CommitLog     {_files(report.log_files)}; the log begins at {report.log_begin:,}",
            f"  ConsumeQueue  {_files(report.queue_files)}",
            f"  IndexFile     {_files(report.index_files)}",
            f"  space         {format_size(report.freed_bytes)}",
        ]
    )


def _files(paths: tuple[str, ...]) -> str:
    return counted(len(paths), "file") if paths else "no file"
