"""Define the commands `reput diff`, `stats`, `trace` and `report`.

Each command imports its operation when it runs, because the others would delay `reput trace`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reput import cli
from reput.base import json_text, printable
from reput.engine.stores import open_named, over_stores
from reput.errors import UsageError
from reput.io import DISK, Disk
from reput.wings.inspect import api
from reput.wings.inspect.trace_text import life_lines

if TYPE_CHECKING:
    from reput.engine.stores import Chosen, StoreAnswer
    from reput.wings.inspect.api import StoreReport

SAME, DIFFERENT = cli.FOUND, 1
# Default limits of `trace`. A frequent key, or a retry queue of millions of entries, must not cause reads of the whole
# store.
_MOST_MESSAGES, _MOST_ENTRIES = 100, 20_000


def _page_option(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --output FILE."""
    return click.option(
        "--output",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        required=required,
        help="The HTML file to write; an existing file is replaced.",
    )


@click.command(
    "diff",
    epilog="\b\nExamples:"
    "\n  reput diff /data/store /backup/store"
    "\n  reput diff /data/store /lake/messages"
    "\n  reput diff /master/store /replica/store --format json",
)
@click.argument("a", metavar="A", type=click.Path(), callback=cli.split_logs_option)
@click.argument("b", metavar="B", type=click.Path(), callback=cli.split_logs_option)
@cli.config_options
@click.option(
    "--name",
    help="The store's name in the export.  [default: its path, or the name of a store with the same log]",
)
@click.option("--catalog", help="The catalog of an Iceberg export.")
@click.option("--table", help="The table of an Iceberg export.")
@cli.report_format("json")
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
        cli.warn(*side)
    if report.is_damaged:
        return cli.DAMAGED
    return SAME if report.is_same else DIFFERENT


@click.command(
    "stats",
    epilog="\b\nExamples:"
    "\n  reput stats /data/store"
    "\n  reput stats /data/store --format json > stats.json"
    "\n  reput stats /brokers/*/store",
)
@cli.archived_stores_argument
@cli.reader_options
@cli.resume_option
@cli.runner_options
@cli.report_format("json")
def stats_command(
    targets: cli.GivenStores, as_json: bool, resume: str | None, runner: Chosen, **opening: Any
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
        return cli.answer_stores(
            api.stats, targets, layout, resume=resume, runner=runner, **opening
        )
    report = api.stats(store, **opening)
    click.echo(json.dumps(report.as_dict()) if as_json else str(report))
    cli.warn(*report.figures.damage)
    return cli.FOUND if report.is_complete else cli.DAMAGED


@click.command(
    "trace",
    epilog="\b\nExamples:"
    "\n  reput trace /data/store --key order-100377"
    "\n  reput trace /brokers/a/store /brokers/b/store --id 7F00000100002A9F0000000000000000"
    "\n  reput trace /data/store --topic orders --key order-100377 --format jsonl"
    "\n  reput trace /data/store --key order-100377 --output trace.html",
)
@cli.archived_stores_argument
@click.option("--key", metavar="K", help="One of a message's KEYS, or its unique key.")
@click.option(
    "--id", "--message", "message_id", metavar="ID", help="Offset message id, or unique key."
)
@cli.topic_option("Topic in which to look for the key.  [default: all]")
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
@_page_option()
@cli.reader_options
@cli.report_format("jsonl", "Output format; jsonl has one event per line.", row="event")
def trace_command(
    targets: cli.GivenStores,
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
    cli.refuse_a_message(targets, "reput trace {store} --id {text}, or --key {text}")
    if (key is None) == (message_id is None):
        raise UsageError("pass one of --key and --id")
    stores = targets.named()
    paths = [store.path for store in stores]
    if output is not None:
        _check_page(output, paths)
    with nullcontext() if output is None else DISK.writing_to(output, paths):
        report = api.trace(
            stores, key=key, message_id=message_id, topic=topic, most_messages=most_messages,
            most_entries=most_entries, **opening,
        )  # fmt: skip
        life = report.life
        if output is not None:
            from reput.wings.inspect.pages.life_page import life_page

            question = f"message {message_id}" if key is None else f"key {key}"
            _write_page(output, life_page(life, question))
    if as_json:
        click.echo(json.dumps(report.header()))
        for fields in report.fields():
            click.echo(json_text(fields).encode() if "message" in fields else json.dumps(fields))
    else:
        for line in life_lines(life):
            click.echo(line)
    cli.warn(*report.problems())
    # Check the topic: a wrong one is the most frequent reason for an empty answer.
    if not life.events and len(stores) == 1:
        with open_named(stores[0], **opening) as reader:
            cli.advise_on_topic(reader, topic)
    if life.is_damaged or report.failed:
        return cli.DAMAGED
    return cli.FOUND if life.events else cli.NOT_FOUND


@click.command(
    "report",
    epilog="\b\nExamples:"
    "\n  reput report /data/store --output report.html"
    "\n  reput report /data/store --output report.html --quick"
    "\n  reput report --stores fleet.toml --output cluster.html",
)
@cli.stores_argument
@_page_option(required=True)
@cli.config_options
@cli.queue_entries_option
@cli.flag("--quick", "Check names, sizes, headers, ends and samples only.")
@cli.resume_option
@cli.runner_options
def report_command(
    targets: cli.GivenStores,
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
    store = targets.single
    if store is None or resume is not None:
        cli.refuse_settings(broker_config, {"queue_entries": queue_entries, **sizes})
        return _report_all(targets, output, quick, resume, runner)
    _check_page(output, [store])
    config = cli.given_config(store, broker_config, {"queue_entries": queue_entries, **sizes})
    opening: dict[str, Any] = {"broker_config": broker_config, **sizes}
    with DISK.writing_to(output, [store]):
        with cli.PhaseBars(transient=True) as progress:
            result = api.report(
                store, quick=quick, check_config=config, runner=runner, progress=progress, **opening
            )
        _write_page(output, result.html())
    return cli.code_of(result.severity)


def _report_all(
    targets: cli.GivenStores, output: str, quick: bool, resume: str | None, runner: Chosen
) -> int:
    from reput.wings.inspect.report import ClusterPages

    stores = targets.named()
    paths = [store.path for store in stores]
    _check_page(output, paths)
    with DISK.writing_to(output, paths), cli.StoresBar(len(stores)) as bar:
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
    _write_page(output, page)
    for failure in answers.failed:
        cli.warn(f"{failure.store}: not read: {failure.error}")
    return cli.DAMAGED if answers.failed else cli.code_of(answers.severity)


def _check_page(output: str, stores: Iterable[str]) -> None:
    """Raise UsageError if the page would be written into a store, or if its folder is missing."""
    path = _page_place(output)
    if not path.parent.is_dir():
        raise UsageError(f"--output {output}: {path.parent} is not a folder")
    for store in stores:
        if path.is_relative_to(Path(store).resolve()):
            raise UsageError(f"--output {output}: is in the store {store}, which is only read")


def _write_page(output: str, page: str) -> None:
    """Write the page, completely or not at all, and print its place. Raises StoreAccessError."""
    place = _page_place(output)
    with DISK.writing_to(place):
        Disk().replace(place, page.encode("utf-8", "backslashreplace"))
    click.echo(f"Wrote {printable(output)}", err=True)


def _page_place(output: str) -> Path:
    """Return the real path of the file to write. Raises UsageError if root would write to a link of another user.

    Otherwise, a user could link the path to a system file, which root would overwrite.
    """
    path = Path(output)
    if path.is_symlink() and os.geteuid() == 0 and path.lstat().st_uid != 0:
        raise UsageError(f"--output {output}: is another user's link, which root does not follow")
    return Path(DISK.real_path(output))
