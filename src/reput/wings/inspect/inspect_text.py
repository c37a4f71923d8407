"""Format the results of an inspection as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from io import StringIO

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from reput.base import (
    counted,
    format_duration,
    format_size,
    format_time,
    one_line,
    printable,
    table_time,
)
from reput.engine.check import CheckpointInspection, IndexInspection
from reput.format.file_names import BATCH_QUEUE_FOLDER, COMMIT_LOG_FOLDER, EXTENSION_FOLDER
from reput.format.index_file import IndexHeader
from reput.wings.inspect import queue_inspection
from reput.wings.inspect.commit_log_inspection import CommitLogInspection
from reput.wings.inspect.inspection import Inspection, MarkerInspection
from reput.wings.inspect.store_inspection import IndexSummary, QueueSummary, StoreInspection

_LABEL_WIDTH = 15
_HEADER_NAMES = (
    "beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount",
)  # fmt: skip
_BAR_WIDTH = 40
_NAME_WIDTH = 40
_MOST_ROWS = 60
_LONGEST_LINE = 1 << 12
_TO_SECOND = 19

Pairs = Iterator[tuple[str, str]]


def inspection_lines(inspection: Inspection) -> Iterator[str]:
    """Yield the title, labels with values, and tables. Long lines are not wrapped."""
    yield title(inspection)
    for label, value in values(inspection):
        yield labelled(label, value)
    console = Console(
        width=_LONGEST_LINE, file=StringIO(), highlight=False, markup=False, emoji=False
    )
    for table in tables(inspection):
        yield ""
        with console.capture() as captured:
            console.print(table)
        yield from (line.rstrip() for line in captured.get().splitlines())


def title(inspection: Inspection) -> str:
    """Return the kind and the path."""
    return f"{inspection.kind}  {printable(inspection.path)}"


def labelled(label: str, value: str) -> str:
    """Return a label and a value, aligned."""
    return f"  {label:<{_LABEL_WIDTH}}{value}"


@singledispatch
def values(inspection: Inspection) -> Pairs:
    """Return the labels and values that describe an inspected file or store."""
    raise TypeError(type(inspection).__name__)


@singledispatch
def tables(inspection: Inspection) -> list[Table]:
    """Return the parts of a file's description that are printed as tables."""
    return []


@values.register
def _(store: StoreInspection) -> Pairs:
    topics = len({queue.topic for queue in store.queues})
    messages = sum(queue.messages for queue in store.queues)
    entries = sum(file.entries for file in store.index_files)
    queues = counted(len(store.queues), "queue")
    contents = {
        "commitlog": f"offsets {store.log_begin:,} to {store.log_end:,}",
        "consumequeue": f"{counted(messages, 'message')}, {queues}, {counted(topics, 'topic')}",
        "index": counted(entries, "entry", "entries"),
    }
    labels = {BATCH_QUEUE_FOLDER: "batch queues", EXTENSION_FOLDER: "extensions"}
    if store.log != "one folder":
        labels[COMMIT_LOG_FOLDER] = "CommitLog"
    for folder, size in store.sizes.items():
        lengths = f"{counted(size.files, 'file')}, {format_size(size.size_bytes)}"
        text = f"{contents[folder]}; {lengths}" if folder in contents else lengths
        yield labels.get(folder, f"{folder}/"), text
    why = "no file is of 5.x only" if store.shown_by is None else f"shown by {store.shown_by}"
    yield "store of", f"RocketMQ {store.release}: {why}"
    if store.log != "one folder" or store.queue_files != ["ConsumeQueue files"]:
        yield (
            "kept in",
            f"CommitLog in {store.log}; queues in {', '.join(store.queue_files) or 'nothing'}",
        )
    if store.other_parts:
        named = [
            f"{name} ({role})" if name != role else name for name, role in store.other_parts.items()
        ]
        yield "other parts", printable(", ".join(named))
    allocated = sum(size.allocated_bytes for size in store.sizes.values())
    yield "on disk", format_size(allocated)
    yield "checkpoint", _checkpoint(store)
    state = "exists: a broker is running, or the last one crashed" if store.has_abort else "missing"
    yield "abort", state


@tables.register
def _(store: StoreInspection) -> list[Table]:
    queues = [_topic_table(store.queues)] if store.queues else []
    return queues + ([_index_table(store.index_files)] if store.index_files else [])


@values.register
def _(log: CommitLogInspection) -> Pairs:
    end = f"{counted(log.free_bytes, 'byte')} free after the last record"
    yield "size", f"{log.size_bytes:,} bytes ({format_size(log.size_bytes)})"
    yield "offsets", f"{log.begin:,} to {log.end:,}"
    yield "end", f"finished, {end}" if log.finished else f"not finished, {end}"
    if log.torn_tail:
        yield (
            "torn end",
            "the bytes after the last record are not a record, and no record follows them",
        )
    yield "messages", f"{log.messages:,} with {counted(log.keys, 'index entry', 'index entries')}"
    if log.messages:
        average = (log.end - log.begin) / log.messages
        sizes = f"{log.smallest_bytes:,} to {log.largest_bytes:,} bytes"
        yield "record sizes", f"{sizes}, {average:,.0f} on average"
    if log.earliest_store_timestamp is not None and log.latest_store_timestamp is not None:
        yield "stored", _range(log.earliest_store_timestamp, log.latest_store_timestamp)
    kinds = [f"{count:,} {name}" for name, count in log.transactions.items() if name != "none"]
    if kinds:
        yield "transactions", ", ".join(kinds)
    if log.misplaced:
        yield (
            "misplaced",
            f"{counted(log.misplaced, 'record', verb='states')} a wrong physical offset",
        )
    if log.wrong_bodies:
        yield (
            "wrong bodies",
            f"{counted(log.wrong_bodies, 'body', 'bodies', 'does')} not match the CRC",
        )


@tables.register
def _(log: CommitLogInspection) -> list[Table]:
    rows = [(printable(topic), count) for topic, count in log.topics.items()]
    return [bar_table("topic", "messages", rows)] if rows else []


@values.register
def _(queue: queue_inspection.BatchQueueInspection) -> Pairs:
    yield "size", f"{queue.size_bytes:,} bytes, room for {counted(queue.room, 'entry', 'entries')}"
    yield "entries", f"{queue.entries:,} written"
    if queue.begin is not None and queue.end is not None:
        numbers = f"queue offsets {queue.first_message:,} to {queue.next_message:,}"
        yield "messages", f"{queue.messages:,}, {numbers}"
        yield "leads to", f"CommitLog {queue.begin:,} to {queue.end:,}"


@values.register
def _(queue: queue_inspection.ConsumeQueueInspection) -> Pairs:
    yield "size", f"{queue.size_bytes:,} bytes, room for {counted(queue.room, 'entry', 'entries')}"
    first = f", the first is number {queue.first_entry:,}" if queue.first_entry is not None else ""
    yield "entries", f"{queue.entries:,} written{first}"
    if queue.pre_blank:
        yield (
            "pre-blank",
            f"{counted(queue.pre_blank, 'entry', 'entries', 'fills')} the file up to the beginning of the queue",
        )
    if queue.begin is not None and queue.end is not None:
        yield "leads to", f"CommitLog {queue.begin:,} to {queue.end:,}"
        yield "messages", f"{queue.message_bytes:,} bytes"
        yield "tags codes", f"{queue.distinct_tags_codes:,} different ones"


@values.register
def _(queue: queue_inspection.QueueInspection) -> Pairs:
    yield "queue", printable(f"{queue.topic}/{queue.queue_id}")
    if queue.files:
        yield "files", f"{queue.files:,}"
    yield "queue offsets", f"{queue.first:,} to {queue.stop:,}"
    if queue.min_logical_offset is not None and queue.max_logical_offset is not None:
        yield (
            "logical",
            f"offsets {queue.min_logical_offset:,} to {queue.max_logical_offset:,}",
        )
    yield "entries", "listed with --entries FROM-TO or --at LOGICAL_OFFSET"


@values.register
def _(index: IndexInspection) -> Pairs:
    header = index.header
    sizes = f"{index.hash_slots:,} slots, {index.index_items:,} items"
    yield "size", f"{index.size_bytes:,} bytes: {sizes}"
    # A broker never uses item 0, so a full file has one entry fewer than it has items.
    full = "full" if index.entries >= index.index_items - 1 else f"{100 * index.fill:.1f} % full"
    yield (
        "entries",
        f"{index.entries:,} ({full}), {index.distinct_hashes:,} different key hashes",
    )
    yield "header", ", ".join(f"{name} {value}" for name, value in header_in_java(header))
    if index.entries:
        first, last = header.begin_physical_offset, header.end_physical_offset
        yield "CommitLog", f"first message at {first:,}, last at {last:,}"
        yield "stored", _range(header.begin_timestamp, header.end_timestamp)
        mean = index.entries / max(index.used_slots, 1)
        share = f"{index.used_slots:,} of {index.hash_slots:,} ({100 * index.slot_load:.1f} %)"
        yield "slots used", f"{share}, {mean:.2f} entries each"
    if index.unreachable:
        yield "unreachable", f"{counted(index.unreachable, 'entry', 'entries', 'is')} on no chain"


@tables.register
def _(index: IndexInspection) -> list[Table]:
    if not index.entries:
        return []
    lengths = [
        (str(low) if low == high else f"{low}-{high}", slots)
        for low, high, slots in index.chain_lengths
    ]
    longest = _table("longest chains", "slot", "entries", "different hashes")
    for chain in index.longest_chains:
        longest.add_row(f"{chain.slot:,}", f"{chain.entries:,}", f"{chain.hashes:,}")
    return [
        bar_table("entries", "slots", lengths, title="slots by the length of their chain"),
        longest,
    ]


@values.register
def _(file: CheckpointInspection) -> Pairs:
    yield "size", f"{file.size_bytes:,} bytes"
    names = ("CommitLog", "ConsumeQueue", "IndexFile")
    for name, timestamp in zip(names, file.checkpoint.times, strict=True):
        yield name, f"{format_time(timestamp)}  {timestamp}" if timestamp else "not set"
    if file.checkpoint.master_flushed_offset:
        yield "master flushed", f"{file.checkpoint.master_flushed_offset:,}"
    if file.checkpoint.confirmed_offset:
        yield "confirmed", f"{file.checkpoint.confirmed_offset:,}"


@values.register
def _(file: MarkerInspection) -> Pairs:
    yield "size", f"{file.size_bytes:,} bytes"
    yield "meaning", printable(file.meaning)


def header_in_java(header: IndexHeader) -> list[tuple[str, int]]:
    """Return the six stored fields of an IndexFile's header with their names in RocketMQ (`IndexHeader`)."""
    return list(zip(_HEADER_NAMES, header, strict=True))


def bar_table(
    name: str, unit: str, rows: Sequence[tuple[str, int]], title: str | None = None
) -> Table:
    """Return a histogram as a table with a name, a count and a bar in each row."""
    table = _table(title, name, unit)
    table.add_column(width=_BAR_WIDTH)
    most = max(count for _, count in rows)
    for label, count in rows[:_MOST_ROWS]:
        bar = Bar(size=most, begin=0, end=count, width=_BAR_WIDTH, color="cyan")
        table.add_row(one_line(label, _NAME_WIDTH), f"{count:,}", bar)
    return table


def _table(title: str | None, name: str, *numbers: str) -> Table:
    table = Table(
        box=None, padding=(0, 3, 0, 0), title=title, title_justify="left", title_style="bold"
    )
    table.add_column(name, no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table


def _topic_table(queues: Sequence[QueueSummary]) -> Table:
    table = _table(None, "topic", "queue", "first entry", "next entry", "messages")
    topic = None
    for queue in queues[:_MOST_ROWS]:
        name = one_line(queue.topic, _NAME_WIDTH) if queue.topic != topic else ""
        numbers = (queue.queue_id, queue.min_offset, queue.max_offset, queue.messages)
        table.add_row(name, *(f"{number:,}" for number in numbers))
        topic = queue.topic
    if len(queues) > _MOST_ROWS:
        table.add_row(f"… {len(queues) - _MOST_ROWS:,} more")
    return table


def _index_table(files: Sequence[IndexSummary]) -> Table:
    table = _table(None, "IndexFile", "entries", "from offset", "stored from", "to")
    for file in files[-_MOST_ROWS:]:
        header = file.header
        table.add_row(
            file.name, f"{file.entries:,}",
            f"{header.begin_physical_offset:,}",
            table_time(header.begin_timestamp, _TO_SECOND), table_time(header.end_timestamp, _TO_SECOND),
        )  # fmt: skip
    return table


def _checkpoint(store: StoreInspection) -> str:
    if store.checkpoint is None:
        return "missing"
    times = [
        table_time(timestamp, _TO_SECOND) if timestamp else "not set"
        for timestamp in store.checkpoint.times
    ]
    return "CommitLog {}, ConsumeQueue {}, IndexFile {}".format(*times)


def _range(earliest_ms: int, latest_ms: int) -> str:
    duration = format_duration(latest_ms - earliest_ms)
    return f"{format_time(earliest_ms)} to {format_time(latest_ms)} ({duration})"
