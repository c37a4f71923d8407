"""Define the command `reput trace`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    GivenStores,
    archived_stores_argument,
    complete_topics,
    page_option,
    reader_options,
    refuse_a_message,
    report_format,
)
from reput.cli.output import advise_on_topic, check_page, warn, write_page
from reput.core import json_text
from reput.errors import UsageError

# Default limits. A frequent key, or a retry queue of millions of entries, must not cause reads of the whole store.
_MOST_MESSAGES, _MOST_ENTRIES = 100, 20_000


@click.command(
    "trace",
    short_help="Print the life of a message: retries, delays, transactions.",
    epilog="\b\nExamples:"
    "\n  reput trace /data/store --key order-100377"
    "\n  reput trace /brokers/a/store /brokers/b/store --id 7F00000100002A9F0000000000000000"
    "\n  reput trace /data/store --topic orders --key order-100377 --format jsonl"
    "\n  reput trace /data/store --key order-100377 --output trace.html",
)
@archived_stores_argument
@click.option("--key", metavar="K", help="One of a message's KEYS, or its unique key.")
@click.option(
    "--id", "--message", "message_id", metavar="ID", help="Offset message id, or unique key."
)
@click.option(
    "--topic",
    metavar="T",
    shell_complete=complete_topics,
    help="Topic in which to look for the key.  [default: all]",
)
@click.option(
    "--limit",
    "most_messages",
    type=int,
    default=_MOST_MESSAGES,
    metavar="N",
    show_default=True,
    help="Maximum number of messages per look-up, newest first.",
)
@click.option(
    "--queue-messages",
    "most_entries",
    type=int,
    default=_MOST_ENTRIES,
    metavar="N",
    show_default=True,
    help="Maximum number of messages read per store from retry, dead letter, schedule and op queues.",
)
@page_option()
@reader_options
@report_format("jsonl", "Output format; jsonl has one event per line.", row="event")
def command(
    given: GivenStores,
    key: str | None,
    message_id: str | None,
    topic: str | None,
    most_messages: int,
    most_entries: int,
    output: str | None,
    as_json: bool,
    **opening: Any,
) -> int:
    """Print all records of a message, in order of time, and explain its delivery.

    A message's records are found by its unique key. Some records, such as retries, instead state the id
    of the original message. The search covers all topics and stores: retries, dead letters, scheduled
    copies, half and op messages of transactions. Of several KEYS, only the given --key is searched. The
    sentences after the table explain why the message was delivered late, twice or never, as far as
    the stores show it.

    --output writes an HTML page with a timeline. The page is one file and needs no network.

    The last lines report the searched ranges. Exits with 1 if nothing was found, with 3 if a part of a
    log, index or queue could not be read.
    """
    from reput.engine.stores import open_named
    from reput.io import DISK
    from reput.wings.inspect.api import trace
    from reput.wings.inspect.trace_text import life_lines

    refuse_a_message(given, "reput trace {store} --id {text}, or --key {text}")
    if (key is None) == (message_id is None):
        raise UsageError("pass one of --key and --id")
    stores = given.named()
    paths = [store.path for store in stores]
    if output is not None:
        check_page(output, paths)
    with nullcontext() if output is None else DISK.writing_to(output, paths):
        report = trace(
            stores, key=key, message_id=message_id, topic=topic, most_messages=most_messages,
            most_entries=most_entries, **opening,
        )  # fmt: skip
        life = report.life
        if output is not None:
            from reput.wings.inspect.pages.life_page import life_page

            what = f"message {message_id}" if key is None else f"key {key}"
            write_page(output, life_page(life, what))
    if as_json:
        click.echo(json.dumps(report.header()))
        for fields in report.fields():
            click.echo(json_text(fields).encode() if "message" in fields else json.dumps(fields))
    else:
        for line in life_lines(life):
            click.echo(line)
    warn(*report.problems())
    # Check the topic: a wrong one is the most frequent reason for an empty answer.
    if not life.events and len(stores) == 1:
        with open_named(stores[0], **opening) as opened:
            advise_on_topic(opened, topic)
    if life.is_damaged or report.failed:
        return DAMAGED
    return FOUND if life.events else NOT_FOUND
