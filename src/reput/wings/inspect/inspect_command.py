"""Define the command `reput inspect`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from reput import cli
from reput.errors import UsageError
from reput.wings.inspect import api
from reput.wings.inspect.inspection import Inspection, index_file_at, queue_at
from reput.wings.inspect.listing import (
    IndexFileAt,
    print_chain,
    print_entries,
    print_items,
    print_slots,
)

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    "inspect",
    epilog="\b\nExamples:"
    "\n  reput inspect /data/store"
    "\n  reput inspect /data/store orders/1 --entries 0-19"
    "\n  reput inspect /data/store/consumequeue/orders/1/00000000000000000000 --at 220"
    "\n  reput inspect /data/store/index/20261120232222031 --chain orders#order-100377",
)
@click.argument(
    "path", metavar="PATH", type=click.Path(readable=False), callback=cli.split_logs_option
)
@click.argument("queue", metavar="[TOPIC/QUEUE]", required=False)
@cli.config_options
@cli.flag("--slots", "Print the used slots of an IndexFile.")
@cli.flag("--items", "Print the items of an IndexFile.")
@click.option("--chain", metavar="TOPIC#KEY", help="Print the chain of a key, newest first.")
@click.option(
    "--entries", metavar="FROM-TO", help="Print the entries of a queue: queue offsets, inclusive."
)
@click.option(
    "--at",
    "logical_offset",
    metavar="LOGICAL_OFFSET",
    type=click.IntRange(min=0),
    help="Print the entry at this byte of a queue (entry number times its size, 20 or 46).",
)
@cli.report_format("json", "Output format; json prints one object per row of a list.")
def inspect_command(
    path: str,
    queue: str | None,
    broker_config: str | None,
    hash_slots: int | None,
    index_items: int | None,
    slots: bool,
    items: bool,
    chain: str | None,
    entries: str | None,
    logical_offset: int | None,
    as_json: bool,
) -> int:
    """Describe PATH: a store, or any single file of one. With TOPIC/QUEUE, describe a queue of a store.

    For a store, print its ranges, sizes, topics, queues and IndexFiles, from names and headers. For
    a file, read all of it. For an IndexFile, also print the load of its slots, the lengths of its
    chains and every broken link. If the size of an IndexFile does not determine its numbers of slots and items, pass
    --hash-slots and --index-items.

    --slots, --items and --chain print an IndexFile row by row instead, with the position of each
    row in the file. In a chain, a * marks the items with the key's hash. Each of them is a
    candidate: its message may still have another key.

    --entries and --at print entries of a queue: of a ConsumeQueue file, a batch queue file, or TOPIC/QUEUE of a
    store, RocksDB included. A row has the queue offset, the logical offset (byte in the queue), the three fields of the
    entry, and what the tags code means: the tag if the message is readable, the due time of a delayed message, or
    the extension unit. Pre-blank entries and gaps are one row each.

    Exits with 3 when something is damaged, and with 1 when a chain has no item with the key's hash, or a queue has no
    entry in the range.
    """
    config = cli.config_from(broker_config, hash_slots=hash_slots, index_items=index_items)
    if broker_config:
        hash_slots, index_items = config.hash_slots, config.index_items
    lists_queue = entries is not None or logical_offset is not None
    if (
        slots + items + (chain is not None) + (entries is not None) + (logical_offset is not None)
        > 1
    ):
        raise UsageError("pass only one of --slots, --items, --chain, --entries and --at")
    if lists_queue:
        with queue_at(path, queue, config) as (listing, _):
            return print_entries(listing, entries, logical_offset, as_json)
    if slots or items or chain is not None:
        if queue is not None:
            raise UsageError("--slots, --items and --chain are for an IndexFile, not for a queue")
        return _list(index_file_at(path, hash_slots, index_items), slots, items, chain, as_json)
    report = api.inspect(
        path, config=config, hash_slots=hash_slots, index_items=index_items, queue=queue
    )
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report.found, cli.console())
    cli.warn(*report.findings)
    return cli.FOUND if report.is_valid else cli.DAMAGED


def _show(inspection: Inspection, to: Console) -> None:
    """Print title, labels and values, then the tables, in the width and colours of the terminal."""
    from rich.text import Text

    from reput.wings.inspect.inspect_text import labelled, tables, title, values

    to.print(Text(title(inspection), style="bold"), soft_wrap=True)
    for label, value in values(inspection):
        to.print(Text(labelled(label, value)), soft_wrap=True)
    for table in tables(inspection):
        to.print()
        cli.emit(table, to)


def _list(file: IndexFileAt, slots: bool, items: bool, chain: str | None, as_json: bool) -> int:
    if chain is not None:
        return print_chain(file, chain, as_json)
    return print_slots(file, as_json) if slots else print_items(file, as_json)
