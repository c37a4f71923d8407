"""Define the commands `reput inspect`, `diff`, `stats`, `trace` and `report`.

Each command imports its operation when it runs, because the others would delay `reput trace`.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from reput.base import json_text
from reput.cli import (
    DAMAGED,
    FOUND,
    NOT_FOUND,
    GivenStores,
    advise_on_topic,
    answer_stores,
    archived_stores_argument,
    check_page,
    code_of,
    complete_topics,
    config_from,
    config_options,
    console,
    emit,
    given_config,
    page_option,
    queue_entries_option,
    reader_options,
    refuse_a_message,
    refuse_settings,
    report_format,
    resume_option,
    runner_options,
    split_logs_option,
    stores_argument,
    warn,
    write_page,
)
from reput.engine.stores import open_named, over_stores
from reput.errors import UsageError
from reput.io import DISK
from reput.wings.inspect import api

if TYPE_CHECKING:
    from rich.console import Console

    from reput.engine.stores import Chosen, StoreAnswer
    from reput.wings.inspect.api import StoreReport
    from reput.wings.inspect.inspection import Inspection
    from reput.wings.inspect.listing import IndexFileAt

SAME, DIFFERENT = FOUND, 1
# Default limits of `trace`. A frequent key, or a retry queue of millions of entries, must not cause reads of the whole
# store.
_MOST_MESSAGES, _MOST_ENTRIES = 100, 20_000


@click.command(
    "inspect",
    epilog="\b\nExamples:"
    "\n  reput inspect /data/store"
    "\n  reput inspect /data/store orders/1 --entries 0-19"
    "\n  reput inspect /data/store/consumequeue/orders/1/00000000000000000000 --at 220"
    "\n  reput inspect /data/store/index/20261120232222031 --chain orders#order-100377",
)
@click.argument("path", metavar="PATH", type=click.Path(readable=False), callback=split_logs_option)
@click.argument("queue", metavar="[TOPIC/QUEUE]", required=False)
@config_options
@click.option("--slots", is_flag=True, help="Print the used slots of an IndexFile.")
@click.option("--items", is_flag=True, help="Print the items of an IndexFile.")
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
@report_format("json", "Output format; json prints one object per row of a list.")
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
    from reput.wings.inspect.inspection import index_file_at, queue_at

    config = config_from(broker_config, hash_slots=hash_slots, index_items=index_items)
    if broker_config:
        hash_slots, index_items = config.hash_slots, config.index_items
    lists_queue = entries is not None or logical_offset is not None
    if (
        slots + items + (chain is not None) + (entries is not None) + (logical_offset is not None)
        > 1
    ):
        raise UsageError("pass only one of --slots, --items, --chain, --entries and --at")
    if lists_queue:
        from reput.wings.inspect.listing import print_entries

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
        _show(report.found, console())
    warn(*report.findings)
    return FOUND if report.is_valid else DAMAGED


def _show(inspection: Inspection, to: Console) -> None:
    """Print title, labels and values, then the tables, in the width and colours of the terminal."""
    from rich.text import Text

    from reput.wings.inspect.inspect_text import labelled, tables, title, values

    to.print(Text(title(inspection), style="bold"), soft_wrap=True)
    for label, value in values(inspection):
        to.print(Text(labelled(label, value)), soft_wrap=True)
    for table in tables(inspection):
        to.print()
        emit(table, to)


def _list(file: IndexFileAt, slots: bool, items: bool, chain: str | None, as_json: bool) -> int:
    from reput.wings.inspect.listing import print_chain, print_items, print_slots

    if chain is not None:
        return print_chain(file, chain, as_json)
    return print_slots(file, as_json) if slots else print_items(file, as_json)


@click.command(
    "diff",
    epilog="\b\nExamples:"
    "\n  reput diff /data/store /backup/store"
    "\n  reput diff /data/store /lake/messages"
    "\n  reput diff /master/store /replica/store --format json",
)
@click.argument("a", metavar="A", type=click.Path(), callback=split_logs_option)
@click.argument("b", metavar="B", type=click.Path(), callback=split_logs_option)
@config_options
@click.option(
    "--name",
    help="The store's name in the export.  [default: its path, or the name of a store with the same log]",
)
@click.option("--catalog", help="The catalog of an Iceberg export.")
@click.option("--table", help="The table of an Iceberg export.")
@report_format("json")
def diff_command(
    a: str,
    b: str,
    name: str | None,
    catalog: str | None,
    table: str | None,
    as_json: bool,
    **opening: Any,
) -> int:
    """Compare the messages, ConsumeQueue entries, index entries and IndexFile headers of stores A and B.

    Two copies of one log are compared by physical offset. Other stores are compared by topic, queue and queue offset;
    then records may differ in their physical offsets. Counts are printed first, then examples. Nothing is written.

    One of the two may be a Parquet, Iceberg or Delta table that `reput export` wrote: then its rows
    are compared with the messages of the store, column by column.

    Exits with 0 if the stores are the same, with 1 if they differ, with 3 if a part of a store could not be read.
    """
    opening.pop("index", None)
    report = api.diff(a, b, name=name, catalog=catalog, table=table, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    for side in report.found.damage:
        warn(*side)
    if report.is_damaged:
        return DAMAGED
    return SAME if report.is_same else DIFFERENT


@click.command(
    "stats",
    epilog="\b\nExamples:"
    "\n  reput stats /data/store"
    "\n  reput stats /data/store --format json > stats.json"
    "\n  reput stats /brokers/*/store",
)
@archived_stores_argument
@reader_options
@resume_option
@runner_options
@report_format("json")
def stats_command(
    targets: GivenStores, as_json: bool, resume: str | None, runner: Chosen, **opening: Any
) -> int:
    """Print statistics of the messages and indexes of STORE.

    The statistics are: messages and bytes by topic, over time and by queue; frequent keys and tags;
    retries and dead letters; coverage and chain lengths of the IndexFiles; and when the disk will
    be full.

    Several STOREs, or those of a fleet file, are measured in parallel. The command then prints one
    line per store and the sums; --format json has all figures of each store.

    The whole log is read once. Nothing is written. Exits with 3 if a part of the log could not be
    read; the figures exclude that part.
    """
    store = targets.single
    if store is None or resume is not None:
        layout = "json" if as_json else "text"
        return answer_stores(api.stats, targets, layout, resume=resume, runner=runner, **opening)
    report = api.stats(store, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    warn(*report.figures.damage)
    return FOUND if report.is_complete else DAMAGED


@click.command(
    "trace",
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
def trace_command(
    targets: GivenStores,
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
    from reput.wings.inspect.trace_text import life_lines

    refuse_a_message(targets, "reput trace {store} --id {text}, or --key {text}")
    if (key is None) == (message_id is None):
        raise UsageError("pass one of --key and --id")
    stores = targets.named()
    paths = [store.path for store in stores]
    if output is not None:
        check_page(output, paths)
    with nullcontext() if output is None else DISK.writing_to(output, paths):
        report = api.trace(
            stores, key=key, message_id=message_id, topic=topic, most_messages=most_messages,
            most_entries=most_entries, **opening,
        )  # fmt: skip
        life = report.life
        if output is not None:
            from reput.wings.inspect.pages.life_page import life_page

            question = f"message {message_id}" if key is None else f"key {key}"
            write_page(output, life_page(life, question))
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
        with open_named(stores[0], **opening) as reader:
            advise_on_topic(reader, topic)
    if life.is_damaged or report.failed:
        return DAMAGED
    return FOUND if life.events else NOT_FOUND


@click.command(
    "report",
    epilog="\b\nExamples:"
    "\n  reput report /data/store --output report.html"
    "\n  reput report /data/store --output report.html --quick"
    "\n  reput report --stores fleet.toml --output cluster.html",
)
@stores_argument
@page_option(required=True)
@config_options
@queue_entries_option
@click.option("--quick", is_flag=True, help="Check names, sizes, headers, ends and samples only.")
@resume_option
@runner_options
def report_command(
    targets: GivenStores,
    output: str,
    resume: str | None,
    broker_config: str | None,
    queue_entries: int | None,
    quick: bool,
    runner: Chosen,
    **sizes: int | None,
) -> int:
    """Write a page about STORE: the findings of `reput check` and charts of `reput stats`.

    The page is one file without scripts, and needs no network. STORE is only read.

    For several STOREs, or a fleet file, the page FILE (--output) is about all stores: brokers, bytes and messages of
    each topic by broker, retention, findings. Each store has a page of its own, in a folder beside FILE (for
    cluster.html, the folder cluster.stores/).

    Exits with 0 when the store is valid, with 3 when messages or entries are lost or wrong (or a store could not be
    read), and with 5 when there are only warnings.
    """
    from reput.cli import PhaseBars

    store = targets.single
    if store is None or resume is not None:
        refuse_settings(broker_config, {"queue_entries": queue_entries, **sizes})
        return _report_all(targets, output, quick, resume, runner)
    check_page(output, [store])
    config = given_config(store, broker_config, {"queue_entries": queue_entries, **sizes})
    opening: dict[str, Any] = {"broker_config": broker_config, **sizes}
    with DISK.writing_to(output, [store]):
        with PhaseBars(transient=True) as progress:
            result = api.report(
                store, quick=quick, check_config=config, runner=runner, progress=progress, **opening
            )
        write_page(output, result.html())
    return code_of(result.severity)


def _report_all(
    targets: GivenStores, output: str, quick: bool, resume: str | None, runner: Chosen
) -> int:
    from reput.cli import StoresBar
    from reput.wings.inspect.report import ClusterPages

    stores = targets.named()
    paths = [store.path for store in stores]
    check_page(output, paths)
    with DISK.writing_to(output, paths), StoresBar(len(stores)) as bar:
        pages = ClusterPages(output, [store.name for store in stores])

        def on_answer(answer: StoreAnswer[StoreReport]) -> None:
            bar(answer)
            # Write the page before the answer is recorded. So each recorded answer has its page when a run is resumed.
            pages.write(answer)

        answers = over_stores(
            api.report, stores, on_answer=on_answer, runner=runner, resume=resume,
            outputs=pages.paths, quick=quick,
        )  # fmt: skip
        page = pages.cluster(answers, is_quick=quick)
    write_page(output, page)
    for failure in answers.failed:
        warn(f"{failure.store}: not read: {failure.error}")
    return DAMAGED if answers.failed else code_of(answers.severity)
