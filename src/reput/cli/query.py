"""`reput query`."""

from __future__ import annotations

from typing import Any

import click

from reput.cli.answer import Answer, advise_to_prove, ask_as_broker, print_answer
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    complete_topics,
    csv_safe_option,
    index_option,
    messages_format_option,
    open_from,
    read_store_argument,
    with_config_options,
)
from reput.cli.times import TIME_HELP, check_window, time_option
from reput.cli.topics import advise_on_key, advise_on_topic
from reput.errors import UsageError


@click.command(
    "query",
    short_help="Find messages by key.",
    epilog="\b\nExample:"
    "\n  reput query /data/store --topic orders --key order-100377 --begin '3 days ago'",
)
@read_store_argument
@click.option(
    "--topic",
    metavar="T",
    shell_complete=complete_topics,
    help="Topic to search; all topics if omitted.",
)
@click.option(
    "--key", required=True, metavar="K", help="One of a message's KEYS, or its unique key."
)
@click.option("--begin", callback=time_option, metavar="TIME", help="Stored at this time or later.")
@click.option("--end", callback=time_option, metavar="TIME", help="Stored at this time or earlier.")
@click.option("--limit", type=int, metavar="N", help="Maximum number of messages.")
@click.option("--after", type=int, metavar="CURSOR", help="Continue after a limited answer.")
@click.option("--compat", is_flag=True, help="Answer as a 4.9.3 broker does, its limits included.")
@messages_format_option
@csv_safe_option
@with_config_options
@index_option
def command(
    store: str,
    topic: str | None,
    key: str,
    begin: int | None,
    end: int | None,
    limit: int | None,
    after: int | None,
    compat: bool,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Find all messages that have a key, in one topic or in all, newest first.

    Topic and keys of every candidate are compared, so no message with another key is printed. What
    no IndexFile covers is read message by message. The last lines report what was searched and what
    could not be read, so "No message" means that there is none. With jsonl and csv these lines go to
    stderr, as does the advice to prove IndexFiles that were only spot-checked.

    If its CommitLog lies in other folders (storePathCommitLog=a,b), give them after it: STORE,a,b.

    {times}

    --compat answers as a broker does: from IndexFiles only, times in whole seconds, at most 64
    messages, hash collisions included.

    If nothing is found and the store has no such topic, a line on stderr lists topics that it has,
    similar names first.

    Exits with 1 if nothing was found, with 3 if a part of the log or index could not be read.
    """
    check_window(begin, end)
    if compat and topic is None:
        raise UsageError("--topic: a broker's answer (--compat) is about one topic")
    if compat and after is not None:
        raise UsageError("--after: a broker's answer (--compat) has no cursor")
    found = None
    with open_from(store, **opening) as opened:
        if compat and topic is not None:
            answer = ask_as_broker(opened, topic, key, begin, end, limit)
        else:
            found = opened.find_records(topic, key, begin=begin, end=end, limit=limit, after=after)
            answer = Answer.of(found)
        print_answer(answer, layout, csv_safe)
        if not answer.records:
            advise_on_topic(opened, topic)
            advise_on_key(key)
    if found is not None:
        advise_to_prove(found.coverage, store)
    if answer.is_incomplete:
        return DAMAGED
    return FOUND if answer.records else NOT_FOUND


command.help = (command.help or "").format(times=TIME_HELP)
