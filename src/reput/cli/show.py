"""`reput show`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    complete_topics,
    index_option,
    open_from,
    read_store_argument,
    text_or_json,
    with_config_options,
)
from reput.cli.output import console
from reput.cli.topics import advise_on_topic
from reput.errors import MessageNotFoundError
from reput.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reput.findings import Finding
    from reput.format.commit_log import MessageExt
    from reput.query.message_store import MessageStore

_MOST_OFFSET_DIGITS = 19  # a unique key of 32 digits may have no letter
_QUEUE_PLACE = re.compile(r"([^/]+)/(\d{1,10})/(\d{1,19})", re.ASCII)


@click.command(
    "show",
    short_help="Show one message in full.",
    epilog="\b\nExample:"
    "\n  reput show /data/store 53821"
    "\n  reput show /data/store C29D7DF7AC9FCF1B47E573A82B41892C",
)
@read_store_argument
@click.argument("which", metavar="ID_OR_OFFSET")
@click.option(
    "--topic",
    metavar="T",
    shell_complete=complete_topics,
    help="Search for a unique key in this topic only.",
)
@text_or_json("Output format.")
@click.option(
    "--body-only", is_flag=True, help="Write only the body, in the bytes that are stored."
)
@with_config_options
@index_option
def command(
    store: str,
    which: str,
    topic: str | None,
    layout: str,
    body_only: bool,
    **opening: Any,
) -> int:
    """Show one message of STORE in full: properties, hosts, times, body.

    ID_OR_OFFSET is a physical offset (53821), a position in a queue (orders/1/11: topic, queue id,
    queue offset), an offset message id, or a unique key (consoles call it message id). A unique key
    is searched in the topics of consumequeue/, or in --topic; if several messages have it, the newest
    is shown.

    Exits with 1 if there is no such message, with 3 if it, or a part of the log that was searched
    for it, is damaged.
    """
    with open_from(store, **opening) as opened:
        messages, unreadable = _find(opened, which, topic)
        if not messages:
            advise_on_topic(opened, topic)
    for lost in unreadable:
        click.echo(f"reput: {printable(str(lost))}", err=True)
    if not messages:
        click.echo(f"reput: {printable(store)}: no message {printable(which)}", err=True)
        return DAMAGED if unreadable else NOT_FOUND
    message = messages[0]
    _print(message, "body" if body_only else layout)
    if len(messages) > 1:
        older = ", ".join(str(other.physical_offset) for other in messages[1:])
        click.echo(f"reput: older messages with this id, by offset: {older}", err=True)
    if not message.body_crc_ok:
        where = f"{printable(store)}: offset {message.physical_offset}"
        click.echo(f"reput: {where}: the body does not match its CRC", err=True)
    return FOUND if message.body_crc_ok and not unreadable else DAMAGED


def _find(
    store: MessageStore, which: str, topic: str | None
) -> tuple[Sequence[MessageExt], Sequence[Finding]]:
    """Messages, newest first, and what could not be read on the way."""
    if which.isascii() and which.isdigit() and len(which) <= _MOST_OFFSET_DIGITS:
        return [store.get(int(which))], []
    if place := _QUEUE_PLACE.fullmatch(which):
        return [_of_queue(store, place[1], int(place[2]), int(place[3]))], []
    found = store.find_by_id(which, topic)
    return found.messages, found.coverage.unreadable


def _of_queue(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> MessageExt:
    """Raises MessageNotFoundError, with the offsets that the queue has."""
    try:
        return store.get_by_queue(topic, queue_id, queue_offset)
    except MessageNotFoundError as error:
        if (topic, queue_id) not in store.list_queues():
            raise
        first, end = (
            store.min_queue_offset(topic, queue_id),
            store.max_queue_offset(topic, queue_id),
        )
        held = f"{first} to {end - 1}" if end > first else "none"
        raise MessageNotFoundError(
            f"{error}; queue {topic}/{queue_id} has offsets {held}"
        ) from error


def _print(message: MessageExt, layout: str) -> None:
    if layout == "body":
        click.echo(message.body, nl=False)
    elif layout == "json":
        from reput.messages.json_codec import message_fields
        from reput.messages.json_text import visible

        fields = message_fields(message)
        click.echo(visible(json.dumps(fields, ensure_ascii=False, indent=2)).encode())
    else:
        from reput.cli.message_view import message_text

        console().print(message_text(message), soft_wrap=True)
