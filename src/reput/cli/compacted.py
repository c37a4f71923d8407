"""`reput state compacted`."""

from __future__ import annotations

from typing import Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    csv_safe_option,
    index_option,
    messages_format_option,
    open_from,
    read_store_argument,
    with_config_options,
)
from reput.cli.tail import printer
from reput.errors import StoreNotFoundError
from reput.text import printable

_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput state compacted /data/store"
    "\n  reput state compacted /data/store --topic prices --latest --format jsonl"
)


@click.command(
    "compacted", short_help="Print the messages that compacted topics keep (5.x).", epilog=_EXAMPLES
)
@read_store_argument
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--queue-id", type=int, metavar="N", help="Only this queue of each topic.")
@click.option("--latest", is_flag=True, help="Only the newest message of each key.")
@messages_format_option
@csv_safe_option
@with_config_options
@index_option
def command(
    store: str,
    topic: str | None,
    queue_id: int | None,
    latest: bool,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Print the messages in the compaction logs of STORE, queue by queue, oldest first.

    A 5.x broker keeps these logs for topics whose cleanup.policy is COMPACTION. Messages that were not
    compacted yet are in there, too: --latest leaves out those whose key has a newer message, and keys
    whose newest message has no body. The physical offset of a message is its position in the log of its
    queue.

    Exits with 1 if there is no message, and with 3 if a part of a log could not be read.
    """
    from reput.query.compacted import CompactedLog, compacted_queues

    show, count, damage = printer(layout, csv_safe), 0, False
    with open_from(store, **opening) as opened:
        queues = compacted_queues(opened.path, opened.storage)
        if not queues:
            raise StoreNotFoundError(f"{opened.path}: has no compaction logs")
        for queue in queues:
            if topic not in (None, queue.topic) or queue_id not in (None, queue.queue_id):
                continue
            log = CompactedLog(queue, opened.storage)
            records = log.latest() if latest else [record.alone() for record in log]
            count += show(records)
            damage = damage or bool(log.damage)
            for lost in log.damage:
                click.echo(f"reput: {printable(str(lost))}", err=True)
    if damage:
        return DAMAGED
    return FOUND if count else NOT_FOUND
