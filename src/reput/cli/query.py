"""`reput query`."""

from __future__ import annotations

from typing import Any

import click

from reput.cli.answer import Answer, ask_as_broker, print_answer
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    index_option,
    messages_format_option,
    open_from,
    store_argument,
    with_config_options,
)
from reput.cli.times import TIME_HELP, time_option
from reput.errors import UsageError


@click.command(
    "query",
    short_help="Find messages by key.",
    epilog="\b\nExample:"
    "\n  reput query /data/store --topic orders --key order-100377 --begin '3 days ago'",
)
@store_argument
@click.option("--topic", required=True, metavar="T", help="The topic to look in.")
@click.option(
    "--key", required=True, metavar="K", help="One of a message's KEYS, or its unique key."
)
@click.option("--begin", callback=time_option, metavar="TIME", help="Stored at this time or later.")
@click.option("--end", callback=time_option, metavar="TIME", help="Stored at this time or earlier.")
@click.option("--limit", type=int, metavar="N", help="At most so many messages.")
@click.option("--after", type=int, metavar="CURSOR", help="Go on where a limited answer ended.")
@click.option("--compat", is_flag=True, help="Answer as a 4.9.3 broker does, its limits included.")
@messages_format_option
@with_config_options
@index_option
def command(
    store: str,
    topic: str,
    key: str,
    begin: int | None,
    end: int | None,
    limit: int | None,
    after: int | None,
    compat: bool,
    layout: str,
    **opening: Any,
) -> int:
    """Find the messages of a topic that have a key: all of them, newest first.

    Each is read and its topic and keys compared, so a message with another key never shows. What no
    IndexFile covers is read message by message, and the last lines say what was searched and what
    could not be read: "not found" means that it is not there. With jsonl and csv those lines go to
    stderr.

    {times}

    --compat answers as a broker does instead: from IndexFiles only, times in whole seconds, at most
    64 messages, collisions of the key's hash among them.

    Exits with 1 when nothing was found, with 3 when something that was searched could not be read.
    """
    if compat and after is not None:
        raise UsageError("--after: a broker's answer (--compat) has no cursor")
    with open_from(store, **opening) as opened:
        if compat:
            answer = ask_as_broker(opened, topic, key, begin, end, limit)
        else:
            found = opened.query(topic, key, begin=begin, end=end, limit=limit, after=after)
            answer = Answer.of(found)
    print_answer(answer, layout)
    if answer.is_incomplete:
        return DAMAGED
    return FOUND if answer.messages else NOT_FOUND


command.help = (command.help or "").format(times=TIME_HELP)
