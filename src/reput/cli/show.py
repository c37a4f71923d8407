"""Define the command `reput show`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from reput import core
from reput.base import Finding, StoreConfig, counted, format_time, one_line, printable, visible
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    GivenStores,
    all_formats,
    archived_stores_argument,
    charset_option,
    flag,
    open_from,
    reader_options,
    topic_option,
)
from reput.cli.output import advise_on_topic, chosen_charset, console, stores_bar, warn
from reput.cli.query_view import print_csv
from reput.core import is_inner_batch, unwrap
from reput.engine import messages as engine_messages
from reput.engine import stores as engine_stores
from reput.engine.messages import body_text
from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format import commit_log
from reput.format.bodies import SentBody, is_compressed, sent_body
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import stated_batch_size
from reput.format.java_string import decimal_number
from reput.format.properties import (
    INNER_NUM,
    KEYS,
    SCHEDULE_TOPIC,
    TAGS,
    UNIQ_KEY,
    split_keys,
    tags_code,
)

if TYPE_CHECKING:
    from rich.text import Text

# An offset has at most 19 digits (int64). A longer number is a unique key whose hexadecimal digits happen to
# include no letters.
_MOST_OFFSET_DIGITS = 19
_QUEUE_PLACE = re.compile(r"([^/]+)/(\d{1,10})/(\d{1,19})", re.ASCII)
_LABEL_WIDTH = 17
_PREVIEW_WIDTH = 60
_FLAGS = (
    (commit_log.SYS_FLAG_COMPRESSED, "body is compressed"),
    (commit_log.SYS_FLAG_MULTI_TAGS, "several tags"),
    (commit_log.SYS_FLAG_BORN_HOST_V6, "born host is IPv6"),
    (commit_log.SYS_FLAG_STORE_HOST_V6, "store host is IPv6"),
    (commit_log.SYS_FLAG_INNER_BATCH, "inner batch"),
)
_SHOWN_APART = (KEYS, TAGS, UNIQ_KEY)


@click.command(
    "show",
    epilog="\b\nExamples:"
    "\n  reput show /data/store 53821"
    "\n  reput show /data/store C29D7DF7AC9FCF1B47E573A82B41892C"
    "\n  reput show --stores fleet.toml C29D7DF7AC9FCF1B47E573A82B41892C",
)
@archived_stores_argument
@click.argument("which", metavar="ID_OR_OFFSET")
@topic_option("Search for a unique key only in this topic.")
@all_formats("json", native=("csv",))
@charset_option
@flag("--body-only", "Write only the body, exactly as it is stored.")
@reader_options
def command(
    targets: GivenStores,
    which: str,
    topic: str | None,
    layout: str,
    body_only: bool,
    **opening: Any,
) -> int:
    """Show one message of STORE in full: properties, hosts, times, body.

    ID_OR_OFFSET is a physical offset (53821), a position in a queue (orders/1/11: topic, queue id,
    queue offset), an offset message id, or a unique key (which RocketMQ's console calls message id). A unique key is
    searched in all topics of the log, or in --topic. If several messages have it, the newest is shown.

    For several STOREs, or a fleet file, the newest message with the id is shown. For an offset or a position in a
    queue, the message of each store is shown.

    Exits with 1 if there is no such message. Exits with 3 if the message or a searched part of a
    log is damaged, or if a store could not be read.
    """
    if not which.strip():
        raise UsageError(
            "ID_OR_OFFSET is empty: pass an offset, TOPIC/QUEUE/OFFSET, an offset message id, or a unique key"
        )
    layout = "body" if body_only else layout
    if os.path.isdir(which) and not os.path.exists(targets.paths[0] if targets.paths else which):
        raise UsageError(f"the STORE comes first: reput show {quote(which)} {targets.paths[0]}")
    store = targets.single
    if store is None:
        return _show_of_stores(targets, which, topic, layout, opening)
    with open_from(store, **opening) as opened:
        messages, unreadable = _find(opened, which, topic)
        if not messages:
            advise_on_topic(opened, topic)
    warn(*unreadable)
    if not messages:
        warn(f"{store}: no message {which}{_write_place(which)}")
        return DAMAGED if unreadable else NOT_FOUND
    message = messages[0]
    _print(message, layout)
    if len(messages) > 1:
        older = ", ".join(str(other.physical_offset) for other in messages[1:])
        warn(f"older messages with this id, by offset: {older}")
    if not message.body_crc_ok:
        warn(f"{store}: offset {message.physical_offset}: the body does not match its CRC")
    return FOUND if message.body_crc_ok and not unreadable else DAMAGED


def _show_of_stores(
    targets: GivenStores, which: str, topic: str | None, layout: str, opening: dict[str, Any]
) -> int:
    is_place = _is_offset(which) or _QUEUE_PLACE.fullmatch(which) is not None
    stores = targets.named()
    with stores_bar(len(stores)) as on_answer:
        report = engine_stores.find_by(
            stores, lambda opened: _answer_of(opened, which, topic), on_answer=on_answer,
            may_fork=True, **opening,
        )  # fmt: skip
    warn(*report.problems())
    messages: list[engine_stores.FoundMessage] = list(report)
    if not messages:
        warn(f"no message {which} in {counted(len(stores), 'store')}")
        return NOT_FOUND if report.is_complete else DAMAGED
    # An id names one message, which several stores may have. An offset leads to a different message in each store.
    printed = messages if is_place else messages[:1]
    if layout == "body" and len(printed) > 1:
        names = ", ".join(message.store for message in printed)
        raise UsageError(
            f"--body-only: {counted(len(printed), 'store', verb='has')} this message ({names}); pass only one store"
        )
    for number, message in enumerate(printed):
        if number and layout == "text":
            click.echo()
        _print(message.message, layout, message.store)
    if older := ", ".join(
        f"{message.store} at {message.message.physical_offset}"
        for message in messages[len(printed) :]
    ):
        warn(f"older messages with this id: {older}")
    bad = [message for message in printed if not message.message.body_crc_ok]
    for message in bad:
        warn(
            f"{message.store}: offset {message.message.physical_offset}: the body does not match its CRC"
        )
    return FOUND if report.is_complete and not bad else DAMAGED


def _answer_of(store: core.MessageStore, which: str, topic: str | None) -> core.QueryResult:
    """Return the answer of one of several stores. If the store does not have the message, the answer is empty."""
    if _is_offset(which):
        return core.answer_at(store, int(which))
    if (place := _QUEUE_PLACE.fullmatch(which)) is None:
        return store.find_by_id(which, topic)
    try:
        return core.answer_of(store, store.get_by_queue(place[1], int(place[2]), int(place[3])))
    except MessageNotFoundError:
        # Nothing is missing: if the log had this message, the store would report the lost entry.
        return core.answer_at(store, store.end_offset())


def _write_place(which: str) -> str:
    """Return advice on an id that was not found, if it looks like a position in a queue."""
    return "; write a position in a queue as TOPIC/QUEUE/OFFSET, such as orders/1/11" * (
        "/" in which
    )


def _is_offset(which: str) -> bool:
    return decimal_number(which, _MOST_OFFSET_DIGITS) is not None


def _find(
    store: core.MessageStore, which: str, topic: str | None
) -> tuple[Sequence[MessageExt], Sequence[Finding]]:
    """Return the messages with an id, newest first, and the unreadable parts of the searched log."""
    if _is_offset(which):
        return [store.get(int(which))], []
    if place := _QUEUE_PLACE.fullmatch(which):
        return [_of_queue(store, place[1], int(place[2]), int(place[3]))], []
    result = store.find_by_id(which, topic)
    return result.messages, result.coverage.unreadable


def _of_queue(store: core.MessageStore, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
    """Return the message at a queue offset. Raises MessageNotFoundError, whose text states the queue's offsets."""
    try:
        return store.get_by_queue(topic, queue_id, queue_offset)
    except MessageNotFoundError as error:
        if (topic, queue_id) not in store.list_queues():
            raise
        first, end = (
            store.min_queue_offset(topic, queue_id),
            store.max_queue_offset(topic, queue_id),
        )
        offsets = f"{first} to {end - 1}" if end > first else "none"
        raise MessageNotFoundError(
            f"{error}; queue {topic}/{queue_id} has offsets {offsets}"
        ) from error


def _print(message: MessageExt, layout: str, store: str | None = None) -> None:
    if layout == "body":
        click.echo(message.body, nl=False)
    elif layout == "csv":
        print_csv([message])
    elif layout == "json":
        fields = {**engine_messages.message_fields(message), "tags_code": _tags_code(message)}
        if store is not None:
            fields = {"store": store, **fields}
        click.echo(visible(json.dumps(fields, ensure_ascii=False, indent=2)).encode())
    else:
        if store is not None:
            click.echo(f"{'store':<{_LABEL_WIDTH}}{printable(store)}")
        console().print(message_text(message), soft_wrap=True)


def message_text(message: MessageExt) -> Text:
    """Return the text of a message: labelled fields, properties, and a preview of the body."""
    from rich.text import Text

    view = Text()
    for label, value in _fields(message):
        view.append(f"{label:<{_LABEL_WIDTH}}", style="bold")
        view.append(f"{printable(value)}\n")
    sent = sent_body(message)
    inner = _inner_lines(message)
    body = body_text(b"" if inner else sent.data, charset=chosen_charset())
    view.append(f"{'body':<{_LABEL_WIDTH}}", style="bold")
    kind = counted(len(inner), "message") if inner else body.kind
    view.append(f"{_size(message, sent)}, {kind}{_crc(message)}\n")
    if sent.error is not None:
        view.append(f"{'':<{_LABEL_WIDTH}}{sent.error}\n")
    for line in inner:
        view.append(f"\n{printable(line)}")
    if inner:
        view.append("\n")
    if body.lines:
        view.append(f"\n{body.lines}")
    if body.unshown_bytes:
        more = counted(body.unshown_bytes, "more byte")
        view.append(f"\n… {more}; --body-only writes all stored bytes")
    return view


def _inner_lines(message: MessageExt) -> list[str]:
    """Return a line per message of an inner batch (5.x). Other messages and unreadable batches have no lines."""
    if not is_inner_batch(message):
        return []
    try:
        inner = unwrap(message)
    except CorruptMessageError:
        return []
    lines = []
    for one in inner:
        tags, keys = one.tags or "-", " ".join(one.keys) or "-"
        preview = one_line(body_text(one.body, charset=chosen_charset()).lines, _PREVIEW_WIDTH)
        lines.append(
            f"entry {one.queue_offset:,}  {one.unique_key or '-'}  {tags}  {keys}  {preview}"
        )
    return lines


def flags_in_words(message: MessageExt) -> str:
    """Return the system flags as a number and in words: `5 (body is compressed, transaction: prepared)`."""
    words = [name for bit, name in _FLAGS if message.sys_flag & bit]
    if message.transaction != "none":
        words.append(f"transaction: {message.transaction}")
    return f"{message.sys_flag} ({', '.join(words) or 'none set'})"


def _fields(message: MessageExt) -> list[tuple[str, str]]:
    properties = message.properties
    keys = split_keys(properties.get(KEYS, ""))
    fields = [
        ("topic", message.topic),
        ("queue", f"{message.queue_id}, {_entries(message)}"),
        ("physical offset", f"{message.physical_offset} ({message.size_bytes:,} bytes)"),
        ("message id", message.message_id),
        ("unique key", properties.get(UNIQ_KEY, "-")),
        ("tags", properties.get(TAGS, "-")),
        ("tags code", _tags_code_in_words(message)),
        ("keys", ", ".join(keys) or "-"),
        ("stored", _moment(message.store_timestamp, str(message.store_host))),
        ("born", _moment(message.born_timestamp, str(message.born_host))),
        ("flag", str(message.flag)),
        ("system flags", flags_in_words(message)),
        ("reconsumed", counted(message.reconsume_times, "time")),
    ]
    if message.prepared_transaction_offset:
        fields.append(("ends transaction", str(message.prepared_transaction_offset)))
    others = [f"{name} = {value}" for name, value in properties.items() if name not in _SHOWN_APART]
    fields += [("properties" if number == 0 else "", pair) for number, pair in enumerate(others)]
    return fields


def _tags_code(message: MessageExt) -> int | None:
    """Return the tags code of the message's queue entry, with the default delay levels; None if DELAY is not valid."""
    try:
        delays = StoreConfig().delay_table_ms()
        return tags_code(message.topic, message.properties, message.store_timestamp, delays)
    except ValueError:
        return None


def _tags_code_in_words(message: MessageExt) -> str:
    code = _tags_code(message)
    if code is None:
        return "-"
    is_due = message.topic == SCHEDULE_TOPIC and code > message.store_timestamp
    return f"{code}  due {format_time(code)}" if is_due else str(code)


def _entries(message: MessageExt) -> str:
    first = message.queue_offset
    count = stated_batch_size(message.properties.get(INNER_NUM)) or 1
    if not is_inner_batch(message) or count == 1:
        return f"entry {first:,}"
    return f"entries {first:,} to {first + count - 1:,}"


def _moment(timestamp_ms: int, host: str) -> str:
    return f"{format_time(timestamp_ms)}  {timestamp_ms}  {host}"


def _size(message: MessageExt, sent: SentBody) -> str:
    size = counted(len(message.body), "byte")
    if not is_compressed(message.sys_flag):
        return size
    return f"{size} compressed" + (f", {len(sent.data):,} sent" if sent.was_compressed else "")


def _crc(message: MessageExt) -> str:
    return "" if message.body_crc_ok else ", DAMAGED: it does not match its CRC"
