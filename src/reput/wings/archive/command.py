"""Define the commands `reput archive` and `reput restore`."""

from __future__ import annotations

import json
import sys
from threading import Event
from typing import Any

import click

from reput import cli
from reput.core import CommitLogFile, StoreLog
from reput.engine.stores import Chosen
from reput.errors import StoreError, UsageError, is_transient
from reput.wings.archive.api import archive, restore, verify_archive


@click.command(
    "archive",
    epilog="\b\nExamples:"
    "\n  reput archive /data/store s3://bucket/broker-a"
    "\n  reput query s3://bucket/broker-a --topic orders --key o-17"
    "\n  reput archive /data/store s3://bucket/broker-a --follow --retention 400"
    "\n  reput archive /data/store s3://bucket/broker-a --runner spark"
    "\n  reput archive --verify s3://bucket/broker-a"
    "\n  reput archive --verify s3://bucket/broker-a --message 4182077 --proof message.proof"
    "\n  reput archive --verify message.proof",
)
@click.argument(
    "paths", metavar="[STORE] ARCHIVE", nargs=-1, required=True, callback=cli.refuse_logs_option
)
@cli.flag("--with-last", "Also copy the last log file in its present state.")
@click.option(
    "--retention",
    "retention_days",
    type=click.IntRange(1),
    metavar="DAYS",
    help="Delete the oldest archived log files whose messages are all older than DAYS.",
)
@cli.flag("--follow", "Look for new log files until interrupted; --every sets the interval.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="With --follow: pause between two searches for new log files.",
)
@cli.runner_options_of(
    "serial",
    "Copy one log file after the other, or several at once: in processes of this machine, or on Spark.",
)
@cli.flag("--verify", "Compare every byte of ARCHIVE with its checksums.")
@click.option(
    "--message",
    type=int,
    metavar="OFFSET",
    help="With --verify: only the message at this physical offset.",
)
@cli.path_option(
    "--proof",
    "FILE",
    "With --message: write a proof of the message. archive --verify FILE checks the proof.",
)
@cli.path_option(
    "--sign", "KEY", "With --proof: sign it with this Ed25519 key (PEM).", "signing_key"
)
@cli.all_formats("json")
def archive_command(
    paths: tuple[str, ...],
    with_last: bool,
    retention_days: int | None,
    follow: bool,
    every_s: float,
    runner: Chosen,
    verify: bool,
    message: int | None,
    proof: str | None,
    signing_key: str | None,
    layout: str,
) -> int:
    """Copy new log files of STORE to ARCHIVE, with indexes of their keys and queues; or verify ARCHIVE.

    With --verify, omit STORE. ARCHIVE is a folder, or a URL of S3, GCS or Azure. Every command that
    reads a store can also read an archive. STORE is only read; a broker may run on it.

    A log file is copied after the next file has begun. The last file is not copied, because the broker
    may still append to it; --with-last copies it as it is now, and a later run replaces that copy.
    Run the command whenever files have filled up, and before the broker deletes them. With --follow
    it runs until SIGINT or SIGTERM, and prints a report whenever it has copied something. Several
    archivers may run at once, and a killed run can be repeated.

    A proof (--verify --message --proof) contains the compressed frames that hold the message.
    Readers of the proof can also see the neighbouring messages in these frames.

    Log files are stored as zstd (`zstd -dc` prints them), indexes as Parquet.

    Exits with 3 if a log file is damaged. With --verify, exits with 3 if the archive is damaged.
    """
    if runner.master is not None and runner.runner == "serial":
        runner = runner._replace(runner="spark")
    if runner.runner != "serial" and (verify or follow):
        raise UsageError("--runner cannot be combined with --follow or --verify")
    if verify:
        if len(paths) != 1 or with_last or follow or retention_days is not None:
            raise UsageError(
                "--verify takes one ARCHIVE, and cannot be combined with --with-last, --follow or --retention"
            )
        report = verify_archive(
            paths[0], physical_offset=message, proof=proof, signing_key=signing_key
        )
        is_valid = report.is_valid
        text, data = str(report), report.as_dict()
    else:
        if len(paths) != 2:
            raise UsageError("pass a STORE and an ARCHIVE")
        if message is not None or proof is not None or signing_key is not None:
            raise UsageError("--message, --proof and --sign need --verify")
        if follow:
            return _follow(paths[0], paths[1], with_last, retention_days, every_s, layout)
        copied = archive(
            paths[0], paths[1], with_last=with_last, retention_days=retention_days, runner=runner
        )
        is_valid = copied.is_valid
        text, data = str(copied), copied.as_dict()
    click.echo(json.dumps(data, indent=2) if layout == "json" else text)
    return cli.FOUND if is_valid else cli.DAMAGED


def _follow(
    store: str, place: str, with_last: bool, retention_days: int | None, every_s: float, layout: str
) -> int:  # fmt: skip
    """Archive repeatedly until a signal arrives. The signal also interrupts a copy in progress."""
    stop, is_valid, is_first = Event(), True, True
    archived_file: CommitLogFile | None = None

    def check_stop(phase: str, done: int, total: int) -> None:
        if stop.is_set():
            raise _StoppedError

    with cli.signals_stop(stop):
        while not stop.is_set():
            try:
                # A file is ready to copy once a newer file has data. Do not read the archive before that happens.
                last = StoreLog(store).list().last_with_data()
                if last == archived_file and not with_last and not is_first:
                    stop.wait(every_s)
                    continue
                copied = archive(
                    store, place, with_last=with_last, retention_days=retention_days, progress=check_stop
                )  # fmt: skip
            except _StoppedError:
                break
            # If the first run fails, raise the error: the path may be wrong, and the user can correct it. If a later
            # run fails because of the network, try again.
            except StoreError as error:
                if is_first or not is_transient(error):
                    raise
                cli.warn(f"{error}; trying again in {every_s:g} s")
            else:
                is_valid &= copied.is_valid
                if copied.files or is_first:
                    data = json.dumps(copied.as_dict())
                    click.echo(data if layout == "json" else str(copied))
                    sys.stdout.flush()
                is_first, archived_file = False, last
            stop.wait(every_s)
    return cli.FOUND if is_valid else cli.DAMAGED


class _StoppedError(Exception):
    """Raised by the progress callback after a signal, to interrupt a copy."""


@click.command(
    "restore",
    epilog="\b\nExamples:"
    "\n  reput restore s3://bucket/broker-a /data/restored"
    "\n  reput restore /archives/broker-a /data/restored --begin 2026-10-14 --end 2026-10-15"
    "\n  reput restore /archives/broker-a /data/test --topic orders --key customer-4711",
)
@click.argument("archive", metavar="ARCHIVE")
@click.argument("destination", metavar="DEST", type=click.Path())
@click.option(
    "--begin", "begin", type=cli.TIME, help="Only log files with messages stored since this time."
)
@click.option(
    "--end", "end", type=cli.END_TIME, help="Only log files with messages stored until this time."
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
@cli.all_formats("json")
def restore_command(archive: str, destination: str, layout: str, **options: Any) -> int:
    """Write the archived log files into the new folder DEST, byte for byte, and rebuild ConsumeQueues and IndexFiles.

    The broker's configuration (config/) comes from the first snapshot taken after the last restored file was archived.
    Committed offsets beyond the end of a restored queue are set to its end.

    With --topic or --key, DEST is a new store with copies of the selected messages. The copies get new offsets;
    the properties REPUT_ORIGIN_STORE, REPUT_ORIGIN_OFFSET and REPUT_ORIGIN_QUEUE_OFFSET state their origin. --begin and
    --end then select messages by store time. Nothing else of the archive is copied.

    {times}
    """
    report = restore(archive, destination, **options)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    return cli.FOUND
