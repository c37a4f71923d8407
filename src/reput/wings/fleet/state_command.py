"""Define the commands `reput state ...`, which show a broker's other data: offsets, transactions, timers, pops."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, NamedTuple

import click

from reput import cli
from reput.base import Finding, counted, format_time, one_line, printable
from reput.engine.five import LOST, WAITING, CompactedLog, TieredStore, Timers, compacted_queues
from reput.engine.stores import over_stores
from reput.errors import UsageError
from reput.format.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from reput.wings.fleet.faults import broker_faults
from reput.wings.fleet.lag import lag, lag_lines
from reput.wings.serve import PoppedMessages, open_transactions

_NAME_WIDTH, _UNIQUE_KEY_WIDTH = 40, 56
_INDEX_ONLY = (
    "only the index was searched: messages that are not uploaded yet, or whose entries are damaged, are missing; "
    "--scan compares every message of the topic"
)


class _StateGroup(click.Group):
    """A group that lists its commands in the order in which they are defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    "state",
    cls=_StateGroup,
    epilog="\b\nExamples:\n  reput state lag /data/store\n  reput state timer /data/store --all",
)
def state_command() -> None:
    """Show what a broker keeps besides the log: consumer lag, open transactions, timers, pops."""


class _Column(NamedTuple):
    """A column of a list: a field of its JSON objects, and perhaps a cell in each row of its table.

    Attributes:
        name: The name of the field.
        value: Returns the field of an item.
        heading: The heading of the cells, with > before that of numbers; empty for a field without cells.
        text: Returns the text of a cell.
    """

    name: str
    value: Callable[[Any], Any]
    heading: str = ""
    text: Callable[[Any], str] = str


def _name(text: str | None) -> str:
    return one_line(text or "-", _NAME_WIDTH)


_number = "{:,}".format


def _print_list(
    columns: Sequence[_Column], items: Sequence[Any], layout: str, nothing: str
) -> None:
    """Print the items as JSON lines, as CSV, or as a table; of an empty table, print the text `nothing`."""
    if layout != "text":
        rows = [{column.name: column.value(item) for column in columns} for item in items]
        cli.print_csv(rows) if layout == "csv" else cli.print_json_lines(rows)
    elif items or not nothing:
        cells = [column for column in columns if column.heading]
        texts = ([column.text(column.value(item)) for column in cells] for item in items)
        cli.print_rows([column.heading for column in cells], texts)
    else:
        click.echo(nothing)


def _exit_code(rows: object, damage: Sequence[Finding] = ()) -> int:
    """Print the damage, and return the exit code."""
    cli.warn(*damage)
    if damage:
        return cli.DAMAGED
    return cli.FOUND if rows else cli.NOT_FOUND


@state_command.command(
    "lag",
    short_help="Show how far consumer groups are behind.",
    epilog="\b\nExamples:\n  reput state lag /data/store\n  reput state lag /data/store --group billing --format jsonl",
)
@cli.stores_argument
@click.option("--group", metavar="NAME", help="Only this consumer group.")
@click.option(
    "--topic", metavar="NAME", shell_complete=cli.complete_topics, help="Only this topic."
)
@cli.reader_options
@cli.report_format("jsonl", "Output format; jsonl has one queue per line.")
def _lag(
    targets: cli.GivenStores, group: str | None, topic: str | None, as_json: bool, **opening: Any
) -> int:
    """Compare the offsets that consumer groups committed with the queues of STORE.

    The offsets come from the files consumerOffset.json and lmqConsumerOffset.json in config/. A 5.x
    broker may keep offsets in a RocksDB database instead, which is read as well (experimental). A
    running broker writes its offsets to disk only every few seconds. The lag of a queue is the queue's
    end minus the committed offset. Messages that expired before the group consumed them are counted
    in `expired`. `oldest` is the age of the oldest message that the group has not consumed and that has not
    expired. `outside` marks an offset before the begin or after the end of its queue.

    Queues of several STOREs, or of a fleet file, are listed together with their stores. The lag of
    a group is the sum over all stores.

    The lag of a queue is unknown if the queue lacks entries for its newest messages, or if the offset was
    committed after the queue's end. The age is also unknown if the message cannot be read.

    Exits with 1 if no group has committed an offset, with 3 if a store could not be read or a lag is
    unknown.
    """
    store = targets.single
    if store is None:
        return _lag_of_stores(targets, as_json, group=group, topic=topic, **opening)
    report = lag(store, group=group, topic=topic, **opening)
    if as_json:
        cli.print_json_lines(report.rows())
    else:
        click.echo(str(report))
    cli.warn(*report.problems)
    return _exit_code(report.queues) if report.is_complete else cli.DAMAGED


def _lag_of_stores(targets: cli.GivenStores, as_json: bool, **options: Any) -> int:
    stores = targets.named()
    with cli.StoresBar(len(stores)) as bar:
        answers = over_stores(lag, stores, on_answer=bar, **options)
    queues = [
        (answer.store, queue)
        for answer in answers.counted
        if answer.report is not None
        for queue in answer.report.queues
    ]
    if as_json:
        for one in answers.counted:
            if one.report is not None:
                cli.print_json_lines({"store": one.store, **row} for row in one.report.rows())
    else:
        for line in lag_lines(queues):
            click.echo(line)
    cli.warn(
        *(f"{answer.store}: not read: {answer.error}" for answer in answers.failed),
        *answers.differing,
    )
    problems = [
        f"{answer.store}: {problem}"
        for answer in answers.counted
        if answer.report is not None
        for problem in answer.report.problems
    ]
    cli.warn(*problems)
    if answers.failed or problems:
        return cli.DAMAGED
    return cli.FOUND if queues else cli.NOT_FOUND


@state_command.command(
    "transactions",
    short_help="List half messages that were never committed nor rolled back.",
    epilog="\b\nExamples:"
    "\n  reput state transactions /data/store"
    "\n  reput state transactions /data/store --format jsonl",
)
@cli.read_store_argument
@cli.reader_options
@cli.all_formats("jsonl", "Output format; jsonl has one message per line.")
def _transactions(store: str, layout: str, **opening: Any) -> int:
    """List the half messages of STORE that are neither committed nor rolled back, one per transaction.

    A half message is open if no op message names it, and if it is not before the offset that the broker has
    committed for the group CID_RMQ_SYS_TRANS (in config/). Each time a broker asks the producer about a transaction, it
    writes the half message again; only the newest copy is listed. If no offset is committed, decided transactions
    reappear in the list after their op messages have expired.

    Transactions that a 5.4 broker keeps in RocksDB are listed as well. `checks` is the number of times that
    the broker has asked the producer.

    Exits with 1 if no transaction is open.
    """
    with cli.open_from(store, **opening) as reader:
        transactions = list(open_transactions(reader))
    _print_list(_TRANSACTIONS, transactions, layout, "No open transaction.")
    return _exit_code(transactions)


_TRANSACTIONS = (
    _Column("stored", attrgetter("message.store_timestamp"), "stored (UTC)", format_time),
    _Column("topic", attrgetter("real_topic"), "topic", _name),
    _Column("producer_group", lambda item: item.message.properties.get("PGROUP")),
    _Column(
        "unique_key", attrgetter("message.unique_key"), "unique key",
        lambda key: one_line(key or "-", _UNIQUE_KEY_WIDTH),
    ),
    _Column("keys", attrgetter("message.keys")),
    _Column("queue_offset", attrgetter("message.queue_offset"), ">queue offset", _number),
    _Column("physical_offset", attrgetter("message.physical_offset"), ">physical offset", _number),
    _Column("checks", attrgetter("checks")),
)  # fmt: skip


@state_command.command(
    "timer",
    short_help="List the messages that wait in a broker's timer (5.x).",
    epilog="\b\nExamples:"
    "\n  reput state timer /data/store"
    "\n  reput state timer /data/store --key order-100377"
    "\n  reput state timer /data/store --all --format jsonl",
)
@cli.read_store_argument
@cli.flag("--all", "Also list delivered and recalled messages, and recalls.", "take_all")
@click.option(
    "--key",
    metavar="K",
    help="List all messages with this key or unique key, in any state, and their recalls.",
)
@cli.reader_options
@cli.all_formats("jsonl", "Output format; jsonl has one message per line.")
def _timer(store: str, take_all: bool, key: str | None, layout: str, **opening: Any) -> int:
    """List the messages that wait in the timer of STORE, with their due times.

    The messages are read from timerlog/. A 5.4 broker may keep them in RocksDB instead, which is read as well
    (experimental).

    A message that must wait longer than one turn of the timer wheel is `rolled`: after that turn, the
    broker schedules it again. --all adds messages that a recall cancelled (`recalled`: they are never
    delivered) and the recalls themselves (`recall`, or `done` once their time has passed). Queue
    offset and physical offset belong to the record in the topic rmq_sys_wheel_timer. A message that waits
    but that the log no longer has is `lost`.

    Exits with 1 if no message waits or has the --key, and with 3 if a part of the timer log could not be read, messages
    are lost, or the store has messages of timers but neither a timer log nor a database.
    """
    with cli.open_from(store, **opening) as reader:
        timers = Timers(reader)
        has_levels = not timers.exists and SCHEDULE_TOPIC in reader.queues.topics()
        units = [
            timed
            for timed in timers
            if (take_all or key is not None or timed.state in (*WAITING, LOST))
            and (key is None or timed.has_key(key))
        ]
    units.sort(key=lambda timed: timed.unit.due)
    if timers.unread:
        cli.warn(
            f"{store}: {counted(timers.unread, 'message', verb='is')} in {TIMER_TOPIC}, which no timer has read, or "
            f"whose timer is lost; to list them: reput tail {shlex.quote(store)} --topic {TIMER_TOPIC}"
        )
        return cli.DAMAGED
    nothing = "No message in the timer." if take_all else "No message waits."
    if key is not None:
        nothing = "No message in the timer has this key."
    if not timers.exists:
        levels = f" Messages with a delay level are in {SCHEDULE_TOPIC}." if has_levels else ""
        place = printable(store)
        nothing = (
            f"No message: {place} has no timer log (timerlog/), and no timers in RocksDB.{levels}"
        )
    _print_list(_TIMED, units, layout, nothing)
    return _exit_code(units, timers.damage)


_TIMED = (
    _Column("due", attrgetter("unit.due"), "due (UTC)", format_time),
    _Column("state", attrgetter("state"), "state"),
    _Column("topic", attrgetter("real_topic"), "topic", _name),
    _Column(
        "keys", lambda timed: timed.message and timed.message.keys, "keys",
        lambda keys: one_line(" ".join(keys or ()), _NAME_WIDTH),
    ),
    _Column("unique_key", lambda timed: timed.message and timed.message.unique_key),
    _Column("queue_offset", lambda timed: timed.message and timed.message.queue_offset),
    _Column("physical_offset", attrgetter("unit.physical_offset"), ">physical offset", _number),
)  # fmt: skip


@state_command.command(
    "popped",
    short_help="List messages that consumers popped and did not acknowledge (5.x).",
    epilog="\b\nExamples:\n  reput state popped /data/store\n  reput state popped /data/store --all --format jsonl",
)
@cli.read_store_argument
@cli.flag(
    "--all",
    "Also list acknowledged messages, and revived messages that were popped again.",
    "take_all",
)
@cli.reader_options
@cli.report_format("jsonl", "Output format; jsonl has one pop per line.")
def _popped(store: str, take_all: bool, as_json: bool, **opening: Any) -> int:
    """List the messages of STORE that consumers popped and did not acknowledge, one line per pop.

    The pops are read from checkpoints and acknowledgements in the revive topics and in the timer, or
    from kvStore/ (RocksDB; experimental). Pops of orderly consumers are read from
    config/consumerOrderInfo.json, which has only the last pop of each queue. A message whose
    invisible time has passed is `revived`: the broker puts a copy of it into the retry topic of its
    group. Revived messages are listed until the group pops the copy.

    Exits with 1 if nothing is listed, and with 3 if a record of the broker could not be read.
    """
    with cli.open_from(store, **opening) as reader:
        notes = PoppedMessages(reader)
        pops = [pop for pop in notes if take_all or pop.is_open]
    if as_json:
        cli.print_json_lines(map(asdict, pops))
    elif pops:
        cli.print_rows(
            (
                "due (UTC)", "group", "topic", ">queue", ">popped", ">unacknowledged", ">revived",
                "in order",
            ),
            (
                (
                    format_time(pop.revive_time),
                    one_line(pop.group, _NAME_WIDTH),
                    one_line(pop.topic, _NAME_WIDTH),
                    str(pop.queue_id),
                    f"{len(pop.offsets):,}",
                    one_line(" ".join(map(str, pop.unacked)), _NAME_WIDTH),
                    one_line(" ".join(str(message.queue_offset) for message in pop.revived), _NAME_WIDTH),
                    "yes" if pop.in_order else "",
                )
                for pop in pops
            ),
        )  # fmt: skip
    else:
        click.echo("No popped message." if take_all else "No unacknowledged message.")
    return _exit_code(pops, notes.damage)


@state_command.command(
    "faults",
    short_help="Find traces of known faults of brokers.",
    epilog="\b\nExamples:\n  reput state faults /data/store\n  reput state faults /data/store --format jsonl",
)
@cli.read_store_argument
@cli.reader_options
@cli.report_format("jsonl", "Output format; jsonl has one finding per line.")
def _faults(store: str, as_json: bool, **opening: Any) -> int:
    """Find traces of known faults of brokers in STORE, with their versions and the affected messages.

    The faults are: timers that were rolled again and again, transactions that were committed twice, and popped messages
    that were lost. The newest 100,000 messages in each queue of the broker's own topics are read. `reput check` reports
    them as well, if the store is not damaged, and duplicate index entries after a recovery.

    Exits with 0 if no trace was found, and with 5 otherwise.
    """
    report = broker_faults(store, **opening)
    if as_json:
        cli.print_json_lines(finding.as_json() for finding in report.findings)
    else:
        click.echo(str(report))
    return cli.code_of(report.severity)


@state_command.command(
    "compacted",
    short_help="Print the messages that compacted topics keep (5.x).",
    epilog="\b\nExamples:"
    "\n  reput state compacted /data/store"
    "\n  reput state compacted /data/store --topic prices --latest --format jsonl",
)
@cli.read_store_argument
@click.option("--topic", metavar="NAME", help="Only this topic.")
@click.option("--queue-id", type=int, metavar="N", help="Only this queue of each topic.")
@cli.flag("--latest", "Only the newest message of each key.")
@cli.message_options
@cli.reader_options
def _compacted(
    store: str,
    topic: str | None,
    queue_id: int | None,
    latest: bool,
    layout: str,
    csv_safe: bool,
    **opening: Any,
) -> int:
    """Print the messages in the compaction logs of STORE, queue by queue, oldest first.

    A 5.x broker keeps these logs for topics whose cleanup.policy is COMPACTION. They also contain
    messages that are not yet compacted; --latest excludes messages whose key has a newer message,
    and keys whose newest message has no body. The physical offset of a message is its position in
    the log of its queue.

    Exits with 1 if there is no message, and with 3 if a part of a log could not be read.
    """
    show, count = cli.record_printer(layout, csv_safe), 0
    damage: list[Finding] = []
    with cli.open_from(store, **opening) as reader:
        queues = compacted_queues(reader.path, reader.storage)
        if not queues:
            cli.warn(f"{reader.path}: has no compaction logs (compaction/)")
        for queue in queues:
            if topic not in (None, queue.topic) or queue_id not in (None, queue.queue_id):
                continue
            log = CompactedLog(queue, reader.storage)
            count += show(log.latest() if latest else [record.alone() for record in log])
            damage += log.damage
    return _exit_code(count, damage)


@state_command.command(
    "tiered",
    short_help="Read the messages of tiered storage (5.x).",
    epilog="\b\nExamples:"
    "\n  reput state tiered /data/tiered"
    "\n  reput state tiered s3://bucket/tiered --topic orders --key o-17"
    "\n  reput state tiered /data/store --topic orders --queue-id 3 --offset 100 --lines 20 --format jsonl",
)
@cli.store_argument
@click.option("--topic", metavar="NAME", help="Messages of this topic.")
@click.option("--key", metavar="KEY", help="Messages that have this key; needs --topic.")
@cli.flag("--scan", "Compare every message of the topic with --key.")
@click.option("--queue-id", type=int, metavar="N", help="Messages of this queue of --topic.")
@click.option("--offset", type=int, metavar="N", help="First queue offset.  [default: the first]")
@click.option("--lines", "-n", type=int, metavar="N", help="Maximum number of messages.")
@cli.message_options
def _tiered(
    store: str,
    topic: str | None,
    key: str | None,
    scan: bool,
    queue_id: int | None,
    offset: int | None,
    lines: int | None,
    layout: str,
    csv_safe: bool,
) -> int:
    """Read messages that a 5.x broker uploaded to tiered storage.

    STORE is the broker's tieredStoreFilePath, or the broker's store. Without --topic, list the queues, their
    offsets and sizes. --key looks in the index that was uploaded, and in tiered_index_file/ of a broker's store;
    --scan reads every message of the topic instead, so the answer is complete. With --queue-id, print messages of
    that queue, oldest first. The physical offset of a message is its position in the uploaded log of its queue.

    Exits with 1 if there is no message, and with 3 if something could not be read.
    """
    if topic is None and any(option is not None for option in (key, queue_id, offset, lines)):
        raise UsageError("--key, --queue-id, --offset and --lines need --topic")
    if topic is not None and (key is None) == (queue_id is None):
        raise UsageError("--topic needs --key or --queue-id")
    tiered = TieredStore(store)
    if topic is None:
        queues = tiered.queues()
        _print_list(_TIERED, queues, layout, "")
        return _exit_code(queues)
    show = cli.record_printer(layout, csv_safe)
    if key is not None:
        records = tiered.query(topic, key, scan)[:lines]
    else:
        queue = tiered.queue(topic, queue_id or 0)
        first = queue.min_offset if offset is None else offset
        count = queue.max_offset - first if lines is None else lines
        records = tiered.pull(topic, queue.queue_id, first, count)
    show(records)
    if key is not None and not scan:
        cli.warn(_INDEX_ONLY)
    return _exit_code(records, tiered.damage)


_TIERED = (
    _Column("topic", attrgetter("topic"), "topic", _name),
    _Column("queue_id", attrgetter("queue_id"), ">queue", _number),
    _Column("first", attrgetter("min_offset"), ">first", _number),
    _Column("end", attrgetter("max_offset"), ">end", _number),
    _Column("bytes", lambda queue: queue.log.stop - queue.log.start, ">bytes", _number),
)
