"""`reput state tiered`."""

from __future__ import annotations

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import csv_safe_option, messages_format_option, store_argument
from reput.cli.output import console, emit
from reput.cli.tail import printer
from reput.errors import UsageError
from reput.query.tiered import TieredQueue, TieredStore
from reput.text import one_line, printable

_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput state tiered /data/tiered"
    "\n  reput state tiered s3://bucket/tiered --topic orders --key o-17"
    "\n  reput state tiered /data/store --topic orders --queue-id 3 --offset 100 --lines 20 --format jsonl"
)


@click.command("tiered", short_help="Read the messages of tiered storage (5.x).", epilog=_EXAMPLES)
@store_argument
@click.option("--topic", metavar="NAME", help="Messages of this topic.")
@click.option("--key", metavar="KEY", help="Messages that have this key; needs --topic.")
@click.option("--scan", is_flag=True, help="Compare every message of the topic with --key.")
@click.option("--queue-id", type=int, metavar="N", help="Messages of this queue of --topic.")
@click.option("--offset", type=int, metavar="N", help="First queue offset.  [default: the first]")
@click.option("--lines", "-n", type=int, metavar="N", help="At most so many messages.")
@messages_format_option
@csv_safe_option
def command(
    store: str,
    topic: str | None,
    key: str | None,
    scan: bool,
    queue_id: int | None,
    offset: int | None,
    lines: int | None,
    layout: str,
    csv_safe: bool,
) -> int:
    """Read what a 5.x broker uploaded to tiered storage: STORE is its tieredStoreFilePath, or its store.

    Without --topic, list the queues, their offsets and sizes. --key looks in the index that was
    uploaded, and in tiered_index_file/ of a broker's store; --scan compares every message of the topic
    instead, so that none is missing. With --queue-id, print messages of that queue, oldest first. The
    physical offset of a message is its position in the uploaded log of its queue.

    Exits with 1 if there is no message, and with 3 if something could not be read.
    """
    if topic is None and any(given is not None for given in (key, queue_id, offset, lines)):
        raise UsageError("--key, --queue-id, --offset and --lines need --topic")
    if topic is not None and (key is None) == (queue_id is None):
        raise UsageError("--topic needs --key or --queue-id")
    tiered = TieredStore(store)
    if topic is None:
        return _list(tiered.queues())
    show = printer(layout, csv_safe)
    if key is not None:
        records = tiered.query(topic, key, scan)[:lines]
    else:
        queue = tiered.queue(topic, queue_id or 0)
        first = queue.min_offset if offset is None else offset
        count = queue.max_offset - first if lines is None else lines
        records = tiered.pull(topic, queue.queue_id, first, count)
    show(records)
    if key is not None and not scan:
        click.echo(f"reput: {_INDEX_ONLY}", err=True)
    for lost in tiered.damage:
        click.echo(f"reput: {printable(str(lost))}", err=True)
    if tiered.damage:
        return DAMAGED
    return FOUND if records else NOT_FOUND


_INDEX_ONLY = (
    "only the index was searched, which lacks what was not uploaded and may lack damaged entries; --scan compares "
    "every message of the topic"
)


def _list(queues: list[TieredQueue]) -> int:
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column("topic", no_wrap=True)
    for name in ("queue", "first", "end", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in queues:
        size = one.log.stop - one.log.start
        numbers = (one.queue_id, one.min_offset, one.max_offset, size)
        table.add_row(one_line(one.topic, 40), *(f"{number:,}" for number in numbers))
    emit(table, console())
    return FOUND if queues else NOT_FOUND
