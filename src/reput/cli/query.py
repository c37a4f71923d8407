"""`reput query`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    TIME_HELP,
    check_window,
    complete_topics,
    message_options,
    open_from,
    read_store_argument,
    reader_options,
    time_window_options,
)
from reput.cli.output import advise_on_key, advise_on_topic, warn
from reput.cli.query_view import print_csv, print_jsonl, table_printer
from reput.clock import format_time
from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format.commit_log import read_size_and_physical_offset
from reput.messages.json_codec import RecordLines
from reput.query.answers import answer_in_words, index_files_in_words
from reput.text import printable

if TYPE_CHECKING:
    from reput.log.reader import LocatedRecord
    from reput.query.answers import Coverage, QueryRecords
    from reput.query.message_store import MessageStore

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Records in the order to print them; lines about the answer; lines about what is damaged."""

    records: Sequence[LocatedRecord]
    remarks: Sequence[str]
    damage: Sequence[str]
    is_incomplete: bool

    @classmethod
    def of(cls, found: QueryRecords) -> Answer:
        """An exact query's."""
        remarks = list(answer_in_words(found, "--after"))
        damage = [str(lost) for lost in found.coverage.unreadable]
        return cls(found.records, remarks, damage, not found.is_complete)


def ask_as_broker(
    store: MessageStore,
    topic: str,
    key: str,
    begin: int | None,
    end: int | None,
    limit: int | None,
) -> Answer:
    """Ask DefaultMessageStore.queryMessage and read what it names.

    Raises UsageError for a limit below zero, StoreAccessError.
    """
    most = store.config.max_query_messages if limit is None else limit
    window = (_LONG_MIN if begin is None else begin, _LONG_MAX if end is None else end)
    found = store.query_message(topic, key, most, *window)
    records, damage = [], []
    for offset in found.physical_offsets:
        try:
            located = store.locate(offset)
            # A broker reports the offset that the record states.
            _, stated = read_size_and_physical_offset(located.data, 0)
            records.append(located._replace(physical_offset=stated))
        except (MessageNotFoundError, CorruptMessageError) as error:
            damage.append(str(error))
    remarks = [
        f"{len(records):,} messages, as a broker answers: candidates by the key's hash, "
        f"at most {min(most, store.config.max_query_messages):,} an index look-up.",
    ]
    if found.index_last_update_timestamp:
        ends = format_time(found.index_last_update_timestamp)
        offset = found.index_last_update_physical_offset
        remarks.append(f"The index ends with the message at {offset:,}, stored {ends}.")
    return Answer(records, remarks, damage, bool(damage))


def print_answer(answer: Answer, layout: str, csv_safe: bool = False) -> None:
    """Messages to stdout, and for people the remarks; else these to stderr, as damage always."""
    if layout == "jsonl":
        print_jsonl(answer.records, RecordLines())
    elif layout == "csv":
        print_csv((record.message() for record in answer.records), is_safe=csv_safe)
    elif answer.records:
        table_printer()([record.message() for record in answer.records])
        click.echo()
    for remark in answer.remarks:
        click.echo(printable(remark), err=layout != "text")
    warn(*answer.damage)


def advise_to_prove(coverage: Coverage, store: str) -> None:
    """One line on stderr where an answer rests on IndexFiles that nobody has proved."""
    count = coverage.spot_checked_files
    if count:
        warn(
            f"{index_files_in_words(count)} {'is' if count == 1 else 'are'} not proven, only spot-checked; "
            f"to prove all: reput prove {shlex.quote(store)}"
        )


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
@time_window_options
@click.option("--limit", type=int, metavar="N", help="Maximum number of messages.")
@click.option("--after", type=int, metavar="CURSOR", help="Continue after a limited answer.")
@click.option("--compat", is_flag=True, help="Answer as a 4.9.3 broker does, its limits included.")
@message_options
@reader_options
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
