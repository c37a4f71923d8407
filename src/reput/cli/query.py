"""Define the command `reput query`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from reput import core
from reput.base import counted, format_time, printable
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.cli.options import (
    GivenStores,
    archived_stores_argument,
    check_window,
    flag,
    message_options,
    open_from,
    reader_options,
    refuse_a_message,
    time_window_options,
    topic_option,
)
from reput.cli.output import advise_on_key, advise_on_topic, stores_bar, warn
from reput.cli.query_view import (
    FoundPrinter,
    print_csv,
    print_json_messages,
    print_jsonl,
    table_printer,
)
from reput.engine import messages as engine_messages
from reput.engine import stores as engine_stores
from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format.commit_log import read_size_and_physical_offset
from reput.format.java_string import decimal_number
from reput.io import Location

_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


class Answer(NamedTuple):
    """An answer to print.

    records: the messages, in the order of output
    remarks: lines about the searched ranges and limits
    damage: lines about unreadable parts
    """

    records: Sequence[core.LocatedRecord]
    remarks: Sequence[str]
    damage: Sequence[str]
    is_incomplete: bool

    @classmethod
    def of(cls, result: core.QueryRecords) -> Answer:
        """Return an answer that `MessageStore.find_records` found, with its coverage."""
        remarks = list(engine_messages.answer_in_words(result, "--after"))
        damage = [str(lost) for lost in result.coverage.unreadable]
        return cls(result.records, remarks, damage, not result.is_complete)


def ask_as_broker(
    store: core.MessageStore,
    topic: str,
    key: str,
    begin: int | None,
    end: int | None,
    limit: int | None,
) -> Answer:
    """Search as a broker's DefaultMessageStore.queryMessage does, and read the messages that it finds.

    Raises StoreAccessError, and UsageError for a limit below zero.
    """
    most = store.config.max_query_messages if limit is None else limit
    window = (_LONG_MIN if begin is None else begin, _LONG_MAX if end is None else end)
    result = store.query_message(topic, key, most, *window)
    records, damage = [], []
    for offset in result.physical_offsets:
        try:
            record = store.commit_log.locate(offset, in_place=False).alone()
            # A broker returns the offset that a record states, even if its file was renamed and the record
            # is at another offset.
            _, physical_offset = read_size_and_physical_offset(record.data, 0)
            records.append(record._replace(physical_offset=physical_offset))
        except (MessageNotFoundError, CorruptMessageError) as error:
            damage.append(str(error))
    remarks = [
        f"{counted(len(records), 'message')}, as a broker answers: candidates by the hash of the key, "
        f"at most {min(most, store.config.max_query_messages):,} per index look-up.",
    ]
    if result.index_last_update_timestamp:
        ends = format_time(result.index_last_update_timestamp)
        offset = result.index_last_update_physical_offset
        remarks.append(f"The index ends with the message at {offset:,}, stored {ends}.")
    return Answer(records, remarks, damage, bool(damage))


def print_answer(answer: Answer, layout: str, csv_safe: bool = False) -> None:
    """Print messages on stdout and damage on stderr. Remarks go to stdout, or with jsonl and csv to stderr."""
    if layout == "jsonl":
        print_jsonl(answer.records, engine_messages.RecordLines())
    elif layout == "csv":
        print_csv((record.message() for record in answer.records), is_safe=csv_safe)
    elif answer.records:
        table_printer()([record.message() for record in answer.records])
        click.echo()
    # With jsonl and csv, stdout has only messages, so that programs can parse it.
    for remark in answer.remarks:
        click.echo(printable(remark), err=layout != "text")
    warn(*answer.damage)


def _count_in_words(count: int, is_limited: bool) -> str:
    messages = counted(count, "message") if count else "No message"
    return f"{messages}, and there are older ones." if is_limited else f"{messages}."


def advise_to_prove(coverage: core.Coverage, store: str) -> None:
    """Print advice on stderr if an answer relies on IndexFiles that were only spot-checked."""
    count = coverage.spot_checked_files
    if count:
        # With --archive, `store` consists of the path of the archive and the path of the store. Advise to run
        # `reput prove` on the store only, because the archive's indexes need no proof.
        paths = Location.split(store)
        store = store if paths is None else paths[1]
        warn(
            f"{counted(count, 'IndexFile', verb='is')} not proven, only spot-checked; "
            f"to prove all: reput prove {shlex.quote(store)}"
        )


@click.command(
    "query",
    epilog="\b\nExamples:"
    "\n  reput query /data/store --topic orders --key order-100377 --begin '3 days ago'"
    "\n  reput query /brokers/*/store --key order-100377"
    "\n  reput query --stores fleet.toml --topic orders --begin '1h ago' --tag 'created || paid'",
)
@archived_stores_argument
@topic_option("Topic to search; all topics if omitted.")
@click.option("--key", metavar="K", help="One of a message's KEYS, or its unique key.")
@click.option("--id", "message_id", metavar="ID", help="Offset message id, or unique key.")
@click.option(
    "--tag",
    "tags",
    metavar="EXPR",
    help="Messages with one of these tags, 'a || b'; not with --key.",
)
@time_window_options
@click.option(
    "--limit",
    type=int,
    metavar="N",
    help="Maximum number of messages.  [default: 1000 without a key]",
)
@click.option(
    "--after",
    type=int,
    metavar="CURSOR",
    help="Continue after the last message of a limited answer.",
)
@flag("--compat", "Answer as a 4.9.3 broker does, its limits included.")
@message_options
@reader_options
def command(
    targets: GivenStores,
    topic: str | None,
    key: str | None,
    message_id: str | None,
    tags: str | None,
    begin: int | None,
    end: int | None,
    limit: int | None,
    after: int | None,
    compat: bool,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Find all messages with a key or an id, or of a topic and time, newest first.

    IndexFiles have only hashes of keys, and two keys may have the same hash. So each message found is
    read, and printed only if its topic and key match. Ranges that no IndexFile covers are read message
    by message. The last lines report the searched and the unreadable ranges. If no range is
    unreadable, "No message" means that the store does not contain the message. With jsonl and csv
    these lines go to stderr, as does the advice to run `reput prove` if only samples of an IndexFile
    were compared with the log.

    For several STOREs, or a fleet file, there is one answer with a column for the store. If a store cannot be read,
    the answer is incomplete.

    If the CommitLog of STORE is in other folders (storePathCommitLog=a,b), write STORE,a,b.

    {times}

    --compat answers as a broker does: from IndexFiles only, times in whole seconds, at most 64
    messages, hash collisions included.

    If nothing is found and the store has no such topic, a line on stderr lists topics that it has,
    similar names first.

    Exits with 1 if nothing was found, with 3 if a part of a log or index, or a store, could not be
    read.
    """
    check_window(begin, end)
    refuse_a_message(targets)
    if message_id is not None and decimal_number(message_id, 19) is not None:
        raise UsageError(
            f"--id {message_id}: is an offset, not an id: reput show STORE {message_id}"
        )
    if compat and (topic is None or key is None):
        raise UsageError(
            "--compat needs --topic and --key, because a broker searches one topic for one key"
        )
    if after is not None and (compat or key is None):
        raise UsageError("--after needs --key, and cannot be combined with --compat")
    store = targets.single
    if store is None and (compat or after is not None):
        raise UsageError("--compat and --after work with one store only")
    if key is None or store is None:
        question = engine_stores.FindRequest.of(key, message_id, topic, begin, end, tags, limit)
        if store is None:
            return ask_stores(targets, question, layout, csv_safe, opening)
        return ask_store(store, question, layout, csv_safe, opening)
    if message_id is not None or tags is not None:
        raise UsageError("--id, --tag: cannot be combined with --key")
    return _ask_by_key(
        store, topic, key, begin, end, limit, after, compat, layout, csv_safe, opening
    )


def _ask_by_key(
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
    opening: dict[str, Any],
) -> int:
    result = None
    with open_from(store, **opening) as reader:
        if compat and topic is not None:
            answer = ask_as_broker(reader, topic, key, begin, end, limit)
        else:
            result = reader.find_records(topic, key, begin, end, limit, after, any_case=True)
            answer = Answer.of(result)
        print_answer(answer, layout, csv_safe)
        if not answer.records:
            advise_on_topic(reader, topic)
            advise_on_key(key)
    if result is not None:
        advise_to_prove(result.coverage, store)
    if answer.is_incomplete:
        return DAMAGED
    return FOUND if answer.records else NOT_FOUND


def ask_store(
    store: str,
    question: engine_stores.FindRequest,
    layout: str,
    csv_safe: bool,
    opening: dict[str, Any],
) -> int:
    """Query one store by id, text, or topic and time; print the answer, and return the exit code."""
    with open_from(store, **opening) as reader:
        answer = question.answer(reader)
        if layout == "text" and answer.messages:
            table_printer()(answer.messages)
            click.echo()
        elif layout == "csv":
            print_csv(answer.messages, is_safe=csv_safe)
        elif layout == "jsonl":
            print_json_messages(answer.messages)
        remarks = [_count_in_words(len(answer.messages), answer.cursor is not None)]
        if not question.is_by_time:
            remarks += engine_messages.coverage_in_words(answer.coverage)
        else:
            remarks.append(engine_stores.BY_QUEUES)
        for remark in remarks:
            click.echo(printable(remark), err=layout != "text")
        warn(*answer.coverage.unreadable)
        if not answer.messages:
            advise_on_topic(reader, question.topic)
    if not answer.is_complete:
        return DAMAGED
    return FOUND if answer.messages else NOT_FOUND


def ask_stores(
    targets: GivenStores,
    question: engine_stores.FindRequest,
    layout: str,
    csv_safe: bool,
    opening: dict[str, Any],
) -> int:
    """Query several stores, print one answer, and return the exit code."""
    stores = targets.named()
    with stores_bar(len(stores)) as on_answer:
        report = engine_stores.find_by(
            stores, question.answer, question.limit, on_answer,
            is_by_time=question.is_by_time, may_fork=True, **opening,
        )  # fmt: skip
    FoundPrinter(layout, is_safe=csv_safe).print(report.messages)
    if layout == "text" and report.messages:
        click.echo()
    for line in report.summary():
        click.echo(printable(line), err=layout != "text")
    warn(*report.problems())
    if question.key is not None and not report.messages:
        advise_on_key(question.key)
    if not report.is_complete:
        return DAMAGED
    return FOUND if report.messages else NOT_FOUND
