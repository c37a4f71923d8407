"""What `reput query` prints: messages, and in words what was searched for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from reput.cli.output import console
from reput.cli.query_view import print_csv, print_jsonl, print_table
from reput.clock import format_time
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.commit_log import read_size_and_physical_offset
from reput.messages.json_codec import RecordLines
from reput.store.coverage_text import coverage_in_words, index_files_in_words
from reput.text import printable

if TYPE_CHECKING:
    from reput.log.reader import LocatedRecord
    from reput.query.message_store import MessageStore
    from reput.store.answers import Coverage, QueryRecords

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
        remarks = [_count_in_words(found), *coverage_in_words(found.coverage)]
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
        print_table([record.message() for record in answer.records], console())
        click.echo()
    for remark in answer.remarks:
        click.echo(printable(remark), err=layout != "text")
    for line in answer.damage:
        click.echo(f"reput: {printable(line)}", err=True)


def _count_in_words(found: QueryRecords) -> str:
    count = len(found.records)
    messages = f"{count:,} message{'' if count == 1 else 's'}" if count else "No message"
    if found.cursor is None:
        return f"{messages}."
    return f"{messages}, and there are more: continue with --after {found.cursor}"


def advise_to_prove(coverage: Coverage, store: str) -> None:
    """One line on stderr where an answer rests on IndexFiles that nobody has proved."""
    count = coverage.spot_checked_files
    if count:
        click.echo(
            f"reput: {index_files_in_words(count)} {'is' if count == 1 else 'are'} not proven, only spot-checked; "
            f"to prove all: reput prove {printable(shlex.quote(store))}",
            err=True,
        )
