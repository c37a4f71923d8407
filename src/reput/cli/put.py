"""Define the command `reput put`."""

from __future__ import annotations

import json
import os
from typing import BinaryIO, Literal

import click

from reput.base import STORE_VERSIONS
from reput.cli import options
from reput.cli.main import DAMAGED, FOUND
from reput.cli.output import warn
from reput.cli.put_view import (
    PutProgress,
    count_in_words,
    lines_fields,
    lines_text,
    message_place,
    message_place_text,
)
from reput.engine.messages import LineError, LinesPut
from reput.engine.stores import open_store
from reput.engine.writer import Message, WritableStore, check_message
from reput.errors import UsageError

# A broker's sizes would take 1.4 GB for one message.
_SMALL: dict[str, int | None] = {
    "commit_log_file_bytes": 16 << 20,
    "queue_entries": 10_000,
    "hash_slots": 100_000,
    "index_items": 400_000,
}
_CREATED = (
    "created with small files: CommitLog 16 MiB, ConsumeQueue 10,000 entries, IndexFile 100,000 slots and 400,000 "
    "items; for a broker's store, pass its --broker-config"
)
_EXAMPLES = (
    "\b\nExamples:"
    "\n  reput put /data/store --topic orders --key o-17 --tag created --body '{\"total\": 12}'"
    "\n  reput put /data/store messages.jsonl"
    "\n  reput tail /old/store --lines all --format jsonl | reput put /data/store"
)


@click.command("put", epilog=_EXAMPLES)
@options.store_argument
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--topic", metavar="T", help="Topic of a single message.")
@click.option("--body", metavar="TEXT", help="Body of the message; otherwise the contents of FILE.")
@click.option("--key", "keys", multiple=True, metavar="K", help="A key of the message; repeatable.")
@click.option("--tag", metavar="TAG", help="Tag of the message.")
@click.option(
    "--queue-id",
    type=click.IntRange(min=0),
    metavar="N",
    help="Queue of the message.  [default: 0]",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the message; repeatable.",
)
@options.flag("--skip-bad", "Report lines that are not messages, and continue.")
@click.option(
    "--flush",
    type=click.Choice(["async", "sync"]),
    help="When to flush: async at intervals, sync after each block of input.  "
    "[default: async, or flushDiskType of --broker-config]",
)
@options.all_formats("json")
@click.option(
    "--log-file-size",
    "commit_log_file_bytes",
    type=options.SIZE,
    help="Bytes of a new store's CommitLog files (mappedFileSizeCommitLog).",
)
@click.option(
    "--store-version",
    type=click.Choice(STORE_VERSIONS),
    help="RocketMQ version of a new store. A later version upgrades an existing store.  [default: the store's, or 4.9]",
)
@options.queue_entries_option
@options.config_options
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
    flush: Literal["async", "sync"] | None,
    layout: str,
    broker_config: str | None,
    store_version: str | None,
    **sizes: int | None,
) -> int:
    """Put messages into STORE, which no broker may have open; create it if it does not exist.

    Without --topic, each line of FILE, or of standard input, is a message as JSON (docs/message-json.md). A minimal
    line is {"topic": "orders", "body": "hello", "keys": ["o-17"]}. Lines that `reput query` or `reput tail` printed
    with --format jsonl are put back unchanged. The command stops at the first line that is not a message; messages of
    earlier lines stay in the store.

    With --topic, put a single message, whose body is --body or the contents of FILE.

    When the command ends, all its messages are durable, and have their entries in ConsumeQueue and IndexFile.

    The sizes and the version apply to a new store; an existing store keeps its own. A new store has small files (16 MiB
    of CommitLog) unless a size or --broker-config is passed. For a store that a broker will open, pass its
    --broker-config. Stores with queues both in files and in RocksDB are refused.

    Exits with 3 if a line was not a message, or if older parts of the CommitLog cannot be read (see reput recover).
    """
    parts = (body, tag, queue_id, *keys, *properties)
    if topic is None and any(part is not None for part in parts):
        raise UsageError("--body, --key, --tag, --queue-id and --property need --topic")
    message = None
    if topic is not None:
        message = _message(topic, body, file, keys, tag, queue_id, properties)
        # Before the store is created: a mistake creates nothing.
        check_message(message)
    options.refuse_part_of_store(store)
    if os.path.isfile(store):
        raise UsageError(f"{store}: is a file; a store is a folder")
    is_small = broker_config is None and not any(sizes.values()) and _is_new(store)
    values = {"store_version": store_version, **(_SMALL if is_small else sizes)}
    config = options.given_config(store, broker_config, values, writes=True)
    settings = options.writer_settings(broker_config)
    if flush is not None:
        settings["flush"] = flush
    with open_store(store, mode="rw", config=config, **settings) as writer:
        if is_small:
            warn(f"{store}: {_CREATED}")
        _tell_recovery(writer)
        code = (
            _put_lines(writer, file, skip_bad, layout)
            if message is None
            else _put_message(writer, message, layout)
        )
        return DAMAGED if writer.recovery.damage else code


def _is_new(store: str) -> bool:
    """Return whether a store would be created. A folder with any file, such as config/, may belong to a broker."""
    return not os.path.exists(store) or (os.path.isdir(store) and not os.listdir(store))


def _message(
    topic: str,
    body: str | None,
    file: BinaryIO,
    keys: tuple[str, ...],
    tag: str | None,
    queue_id: int | None,
    properties: tuple[str, ...],
) -> Message:
    pairs = [text.partition("=") for text in properties]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError("--property: write NAME=VALUE")
    return Message(
        topic=topic,
        # Python replaces bytes of an argument that are not UTF-8 by surrogates. Restore these bytes.
        body=file.read() if body is None else body.encode(errors="surrogateescape"),
        keys=keys,
        tags=tag or "",
        queue_id=queue_id or 0,
        properties={name: value for name, _, value in pairs},
    )


def _tell_recovery(store: WritableStore) -> None:
    if not store.recovery.is_clean:
        warn(f"{store.path}: recovered: {store.recovery}")


def _put_message(store: WritableStore, message: Message, layout: str) -> int:
    put = store.get(store.put(message).physical_offset)
    store.flush()  # Report only messages that are durable.
    click.echo(json.dumps(message_place(put)) if layout == "json" else message_place_text(put))
    return FOUND


def _put_lines(store: WritableStore, file: BinaryIO, skip_bad: bool, layout: str) -> int:
    def complain(fault: str) -> None:
        warn(f"{file.name}: {fault}")

    with PutProgress(file) as progress:
        put = LinesPut(store, complain if skip_bad else None, progress)
        try:
            put.run(file)
        except LineError as error:
            complain(f"{error}; stopped after putting {count_in_words(put.report)}")
            return DAMAGED
        # Even after Ctrl-C, users must know how many messages are in the store.
        except BaseException:
            complain(f"stopped after putting {count_in_words(put.report)}")
            raise
    store.flush()
    report, end = put.report, store.end_offset()
    summary = lines_text(report, end)
    click.echo(json.dumps(lines_fields(report, end)) if layout == "json" else summary)
    return DAMAGED if report.skipped else FOUND
