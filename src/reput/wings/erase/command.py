"""Define the command `reput erase`."""

from __future__ import annotations

import json
from typing import Any

import click

from reput import cli
from reput.errors import UsageError
from reput.io import storage_of
from reput.wings.erase.api import erase
from reput.wings.erase.verifying import verify_erasure


@click.command(
    "erase",
    epilog="\b\nExamples:"
    "\n  reput erase /data/store --key customer-4711 --plan"
    "\n  reput erase /data/store --key customer-4711 --output /data/erased --reason 'request 17'"
    "\n  reput erase /data/store --topic orders --query \"customer = '4711'\" --output /data/erased"
    "\n  reput erase /data/store --topic test-data --output /data/erased --sign key.pem"
    "\n  reput erase s3://bucket/broker-a --key customer-4711 --reason 'request 17'"
    "\n  reput erase --verify /data/erased.erasure.json /data/erased",
)
@click.argument(
    "store", metavar="STORE|ARCHIVE", type=click.Path(readable=False), callback=cli.refuse_logs_option,
    required=False,
)  # fmt: skip
@cli.path_option(
    "--output", "DEST", "The new folder of the copy; required for a STORE, unless --plan."
)
@click.option(
    "--topic", "topics", multiple=True, metavar="T", shell_complete=cli.complete_topics,
    help="Messages of this topic; repeatable.",
)  # fmt: skip
@click.option(
    "--key", "keys", multiple=True, metavar="K",
    help="Messages with this key or unique key; repeatable.",
)  # fmt: skip
@click.option(
    "--query",
    metavar="SQL",
    help="Messages whose properties match this SQL92 expression of RocketMQ.",
)
@cli.time_window_options
@cli.flag("--plan", "Print the messages to erase; write nothing.", "plan_only")
@click.option("--reason", default="", metavar="TEXT", help="Reason, for the record of the erasure.")
@click.option(
    "--by",
    default="",
    metavar="NAME",
    help="Person who erases, for the record.  [default: this user]",
)
@cli.flag(
    "--no-hashes",
    "Omit the SHA-256 of erased content from the record. With a hash, anyone who guesses a message can prove "
    "that it existed.",
)
@cli.path_option("--sign", "KEY", "Sign the record with this Ed25519 key (PEM).", "signing_key")
@cli.path_option("--audit", "FILE", "File of the record.  [default: DEST.erasure.json]")
@click.option(
    "--verify", "record", type=click.Path(), metavar="RECORD",
    help="Verify the signature of a record, and that its messages are erased in STORE or ARCHIVE, if given.",
)  # fmt: skip
@click.option(
    "--leave-out", multiple=True, metavar="NAME",
    help="Do not copy this file or folder of the store; repeatable.",
)  # fmt: skip
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Count the rows of these messages in an exported table; repeatable.",
)
@cli.config_options
@cli.queue_entries_option
@cli.all_formats("json")
def erase_command(
    store: str | None,
    record: str | None,
    output: str | None,
    no_hashes: bool,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    queue_entries: int | None,
    layout: str,
    **options: Any,
) -> int:
    """Overwrite bodies and properties of selected messages: in a copy of STORE at DEST, or in an ARCHIVE.

    Messages that match --topic, --key, --query, --begin and --end, as far as given, are erased, with
    all copies of them in retry, dead-letter, delay, timer, half-transaction and trace topics. Each
    record keeps its length, physical offset and queue offset. The property REPUT_ERASED replaces all
    properties that brokers do not need. ConsumeQueues and IndexFiles are rebuilt. STORE is only read;
    no broker may run on it. In an ARCHIVE the objects concerned are replaced, and the old ones deleted;
    --output, --audit and --leave-out do not apply to archives.

    The record of the erasure lists the erased messages (offsets and SHA-256), the time, the person and the reason.
    It is written to --audit, or to erasures/ in the ARCHIVE.

    {times}

    --verify writes nothing. It takes no other options, except --format.

    Exits with 1 if no message was found, with 5 if other messages contain an erased key or body, or if a table contains
    rows of the erased messages. With --verify, exits with 3 if the signature does not match or a message has content,
    and with 5 if the record is not signed.
    """
    if record is not None:
        if any((output, no_hashes, broker_config, hash_slots, index_items, queue_entries)) or any(
            options.values()
        ):
            raise UsageError("--verify takes a RECORD and a STORE or ARCHIVE, and no other options")
        return _verify(record, store, layout)
    if store is None:
        raise click.UsageError("Missing argument 'STORE|ARCHIVE'.")
    cli.check_window(options["begin"], options["end"])
    config = None
    if not storage_of(store)[0].is_archive:
        sizes = {
            "hash_slots": hash_slots,
            "index_items": index_items,
            "queue_entries": queue_entries,
        }
        config = cli.given_config(store, broker_config, sizes, writes=not options["plan_only"])
    with cli.PhaseBars() as progress:
        report = erase(
            store, output, hashes=not no_hashes, config=config, progress=progress, **options
        )
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    if not report.records:
        return cli.NOT_FOUND
    return cli.FOUND if report.is_complete else cli.WARNED


def _verify(record: str, store: str | None, layout: str) -> int:
    report = verify_erasure(record, store)
    click.echo(json.dumps(report.as_dict(), indent=2) if layout == "json" else str(report))
    if not report.is_valid:
        return cli.DAMAGED
    # Anyone may have written a record without a signature.
    return cli.FOUND if report.signed_by else cli.WARNED
