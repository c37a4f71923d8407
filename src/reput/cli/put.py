"""`reput put`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import click

from reput.cli.main import DAMAGED, FOUND
from reput.cli.options import config_from, store_argument, with_config_options
from reput.cli.sizes import size_option
from reput.cli.text import printable
from reput.errors import StoreNotFoundError, UsageError

if TYPE_CHECKING:
    from reput.config import StoreConfig
    from reput.query.living_store import LivingStore
    from reput.store.put.message import Message

_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput put /data/store --topic orders --key o-17 --tag created --body '{\"total\": 12}'"
    "\n  reput put /data/store messages.jsonl"
    "\n  reput tail /old/store --lines all --format jsonl | reput put /data/store"
)


@click.command("put", short_help="Put messages into a store.", epilog=_EXAMPLES)
@store_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--topic", metavar="T", help="Put one message into this topic.")
@click.option("--body", metavar="TEXT", help="Its body; else what FILE holds.")
@click.option("--key", "keys", multiple=True, metavar="K", help="A key of it; may be repeated.")
@click.option("--tag", metavar="TAG", help="Its tag.")
@click.option("--queue-id", type=int, metavar="N", help="Its queue.  [default: 0]")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of it; may be repeated.",
)
@click.option("--skip-bad", is_flag=True, help="Tell lines that are no message, and go on.")
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    default="async",
    show_default=True,
    help="Make messages durable at intervals, or some thousands at a time before going on.",
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print what was put.",
)
@click.option(
    "--log-file-size",
    "commit_log_file_bytes",
    callback=size_option,
    metavar="SIZE",
    help="Of a CommitLog file of a new store (mappedFileSizeCommitLog).",
)
@click.option(
    "--queue-entries",
    type=int,
    metavar="N",
    help="Entries of a ConsumeQueue file (mappedFileSizeConsumeQueue / 20).",
)
@with_config_options
def command(
    store: str,
    file: BinaryIO,
    topic: str | None,
    body: str | None,
    keys: tuple[str, ...],
    tag: str | None,
    queue_id: int | None,
    properties: tuple[str, ...],
    skip_bad: bool,
    flush: str,
    layout: str,
    broker_config: str | None,
    **sizes: int | None,
) -> int:
    """Put messages into STORE, which no broker may have open; make it where there is none.

    Without --topic each line of FILE, or of standard input, is a message as JSON: one that `reput
    query` or `reput tail` printed with --format jsonl goes back in as it was, and {"topic": "orders",
    "body": "hello", "keys": ["o-17"]} is enough (docs/message-json.md). A line that is no message
    ends it; what lies before it is put.

    With --topic it is one message, whose body is --body or all of FILE.

    When the command has ended, all that it put is durable, and in ConsumeQueue and IndexFile.

    The sizes are for a new store; one that is there goes on with those of its files. Exits with 3
    when a line was bad.
    """
    parts = (body, tag, queue_id, *keys, *properties)
    if topic is None and any(part is not None for part in parts):
        raise UsageError("--body, --key, --tag, --queue-id, --property need --topic")
    one = None
    if topic is not None:
        one = _message(topic, body, file, keys, tag, queue_id, properties)
    from reput.query.open_store import open_store

    config = _config(store, broker_config, sizes)
    with open_store(store, mode="rw", config=config, flush=flush) as opened:
        _tell_recovery(opened)
        if one is not None:
            return _put_one(opened, one, layout)
        return _put_lines(opened, file, skip_bad, layout)


def _message(
    topic: str,
    body: str | None,
    file: BinaryIO,
    keys: tuple[str, ...],
    tag: str | None,
    queue_id: int | None,
    properties: tuple[str, ...],
) -> Message:
    from reput.store.put.message import Message

    named = [text.partition("=") for text in properties]
    if not all(equals for _, equals, _ in named):
        raise UsageError("--property: write NAME=VALUE")
    return Message(
        topic=topic,
        body=file.read() if body is None else body.encode(errors="surrogateescape"),
        keys=keys,
        tags=tag or "",
        queue_id=queue_id or 0,
        properties={name: value for name, _, value in named},
    )


def _config(
    store: str, broker_config: str | None, sizes: dict[str, int | None]
) -> StoreConfig | None:
    """The settings given; None where there are none, for the store's own."""
    if broker_config is None and all(size is None for size in sizes.values()):
        return None
    from reput.store.commit_log_files import list_commit_log_files
    from reput.store.rebuild.existing import config_of

    try:
        files = list_commit_log_files(store)
    except StoreNotFoundError:
        return config_from(broker_config, None, **sizes)
    known = replace(config_of(store), commit_log_file_bytes=files[0].size)
    return config_from(broker_config, known, **sizes)


def _tell_recovery(store: LivingStore) -> None:
    if not store.recovery.is_clean:
        click.echo(f"reput: {printable(str(store.path))}: recovered: {store.recovery}", err=True)


def _put_one(store: LivingStore, message: Message, layout: str) -> int:
    from reput.cli.put_view import message_place, message_place_text

    put = store.get(store.put(message).physical_offset)
    store.flush()
    click.echo(json.dumps(message_place(put)) if layout == "json" else message_place_text(put))
    return FOUND


def _put_lines(store: LivingStore, file: BinaryIO, skip_bad: bool, layout: str) -> int:
    from reput.cli.message_lines import LineError
    from reput.cli.put_lines import LinesPut
    from reput.cli.put_view import PutProgress, count_in_words, lines_fields, lines_text

    def complain(fault: str) -> None:
        click.echo(f"reput: {printable(f'{file.name}: {fault}')}", err=True)

    with PutProgress(file) as progress:
        put = LinesPut(store, complain if skip_bad else None, progress)
        try:
            put.run(file)
        except LineError as error:
            complain(f"{error}; put before it: {count_in_words(put.report)}")
            return DAMAGED
        except BaseException:
            complain(f"stopped; put so far: {count_in_words(put.report)}")
            raise
    store.flush()
    report, end = put.report, store.end_offset()
    summary = lines_text(report, end)
    click.echo(json.dumps(lines_fields(report, end)) if layout == "json" else summary)
    return DAMAGED if report.skipped else FOUND
