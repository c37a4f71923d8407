"""Define the command `reput find`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from reput.cli import options
from reput.cli.query import ask_store, ask_stores
from reput.engine.stores import FindRequest
from reput.errors import UsageError


@click.command(
    "find",
    epilog="\b\nExamples:"
    "\n  reput find /data/store order-100377"
    "\n  reput find /data/store c29d7df7ac9fcf1b47e573a82b41892c"
    "\n  reput find /data/store 53821"
    "\n  reput find /brokers/*/store orders/1/11",
)
@options.archived_stores_argument
@click.argument("text")
@options.topic_option("Only messages of this topic.  [default: all]")
@options.time_window_options
@click.option("--limit", type=int, metavar="N", help="Maximum number of messages.")
@options.message_options
@options.reader_options
def command(
    targets: options.GivenStores,
    text: str,
    topic: str | None,
    begin: int | None,
    end: int | None,
    limit: int | None,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Find messages of STORE by TEXT, newest first. The search field of the console understands the same texts.

    TEXT may be a key, a unique key or an offset message id in upper or lower case, a physical offset (53821), a
    position in a queue (orders/1/11), the heading of a message in the console, or several keys. A text with several
    meanings finds the messages of all of them: 53821 may be an offset and a key.

    All topics are searched, or --topic. The last lines report the searched and the unreadable ranges, as `reput query`
    does. `reput show` prints one message in full.

    {times}

    Exits with 1 if nothing was found, with 3 if a part of a log or index, or a store, could not be read.
    """
    options.check_window(begin, end)
    if not text.strip():
        raise UsageError("TEXT is empty: pass a key, an id, an offset or TOPIC/QUEUE/OFFSET")
    options.refuse_a_message(
        replace(targets, paths=(*targets.paths, text)) if len(targets.paths) > 1 else targets
    )
    question = FindRequest.of_text(text, topic, begin, end, limit)
    if (store := targets.single) is None:
        return ask_stores(targets, question, layout, csv_safe, opening)
    return ask_store(store, question, layout, csv_safe, opening)
