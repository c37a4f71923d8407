"""Format the results of an inspection as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import singledispatch
from io import StringIO

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from reput.base import counted, format_duration, format_size, format_time, one_line, printable
from reput.engine.check import CheckpointInspection, IndexInspection, MarkerInspection
from reput.format.file_names import BATCH_QUEUE_FOLDER, COMMIT_LOG_FOLDER, EXTENSION_FOLDER
from reput.format.index_file import IndexHeader
from reput.wings.inspect.commit_log_inspection import CommitLogInspection
from reput.wings.inspect.inspection import Inspection
from reput.wings.inspect.queue_inspection import (
    BatchQueueInspection,
    ConsumeQueueInspection,
    QueueInspection,
)
from reput.wings.inspect.store_inspection import IndexSummary, QueueSummary, StoreInspection

_LABEL_WIDTH = 15
_HEADER_NAMES = (
    "beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount",
)  # fmt: skip
_BAR_WIDTH = 40
_NAME_WIDTH = 40
_MOST_ROWS = 60
_LONGEST_LINE = 1 << 12

Pairs = Iterator[tuple[str, str]]


def inspection_lines(found: Inspection) -> Iterator[str]:
    """Yield the title, labels with values, and tables. Long lines are not wrapped."""
    yield title(found)
    for label, value in values(found):
        yield labelled(label, value)
    console = Console(
        width=_LONGEST_LINE, file=StringIO(), highlight=False, markup=False, emoji=False
    )
    for table in tables(found):
        yield ""
        with console.capture() as captured:
            console.print(table)
        yield from (line.rstrip() for line in captured.get().splitlines())


def title(found: Inspection) -> str:
    """Return the kind and the path."""
    return f"{found.kind}  {printable(found.path)}"


def labelled(label: str, value: str) -> str:
    """Return a label and a value, aligned."""
    return f"  {label:<{_LABEL_WIDTH}}{value}"


@singledispatch
def values(found: Inspection) -> Pairs:
    """Return the labels and values that describe an inspected file or store."""
    raise TypeError(type(found).__name__)


@singledispatch
def tables(found: Inspection) -> list[Table]:
    """Return the parts of a file's description that are printed as tables."""
    return []


@values.register
def _(found: StoreInspection) -> Pairs:
    topics = len({queue.topic for queue in found.queues})
    messages = sum(queue.messages for queue in found.queues)
    entries = sum(file.entries for file in found.index_files)
    contents = {
        "commitlog": f"offsets {found.log_begin:,} to {found.log_end:,}",
        "consumequeue": f"{messages:,} messages, {len(found.queues):,} queues, {topics:,} topics",
        "index": f"{entries:,} entries",
    }
    labels = {BATCH_QUEUE_FOLDER: "batch queues", EXTENSION_FOLDER: "extensions"}
    if found.log != "one folder":
        labels[COMMIT_LOG_FOLDER] = "CommitLog"
    for folder, size in found.sizes.items():
        lengths = f"{counted(size.files, 'file')}, {format_size(size.size_bytes)}"
        what = f"{contents[folder]}; {lengths}" if folder in contents else lengths
        yield labels.get(folder, f"{folder}/"), what
    why = "no file is of 5.x only" if found.shown_by is None else f"shown by {found.shown_by}"
    yield "store of", f"RocketMQ {found.release}: {why}"
    if found.log != "one folder" or found.queue_files != ["ConsumeQueue files"]:
        yield (
            "kept in",
            f"CommitLog in {found.log}; queues in {', '.join(found.queue_files) or 'nothing'}",
        )
    if found.other_parts:
        named = [
            f"{name} ({what})" if name != what else name for name, what in found.other_parts.items()
        ]
        yield "other parts", printable(", ".join(named))
    taken = sum(size.allocated_bytes for size in found.sizes.values())
    yield "on disk", format_size(taken)
    yield "checkpoint", _checkpoint(found)
    state = "exists: a broker is running, or the last one crashed" if found.has_abort else "missing"
    yield "abort", state


@tables.register
def _(found: StoreInspection) -> list[Table]:
    queues = [_topic_table(found.queues)] if found.queues else []
    return queues + ([_index_table(found.index_files)] if found.index_files else [])


@values.register
def _(found: CommitLogInspection) -> Pairs:
    end = f"{found.free_bytes:,} bytes free after the last record"
    yield "size", f"{found.size_bytes:,} bytes ({format_size(found.size_bytes)})"
    yield "offsets", f"{found.begin:,} to {found.end:,}"
    yield "end", f"finished, {end}" if found.finished else f"not finished, {end}"
    if found.torn_tail:
        yield (
            "torn end",
            "the bytes after the last record are not a record, and no record follows them",
        )
    yield "messages", f"{found.messages:,} with {found.keys:,} index entries"
    if found.messages:
        average = (found.end - found.begin) / found.messages
        sizes = f"{found.smallest_bytes:,} to {found.largest_bytes:,} bytes"
        yield "record sizes", f"{sizes}, {average:,.0f} on average"
    if found.earliest_store_timestamp is not None and found.latest_store_timestamp is not None:
        yield "stored", _range(found.earliest_store_timestamp, found.latest_store_timestamp)
    kinds = [f"{count:,} {name}" for name, count in found.transactions.items() if name != "none"]
    if kinds:
        yield "transactions", ", ".join(kinds)
    if found.misplaced:
        yield "misplaced", f"{found.misplaced:,} records state a wrong physical offset"
    if found.wrong_bodies:
        yield "wrong bodies", f"{found.wrong_bodies:,} bodies do not match their CRC"


@tables.register
def _(found: CommitLogInspection) -> list[Table]:
    rows = [(printable(topic), count) for topic, count in found.topics.items()]
    return [bar_table("topic", "messages", rows)] if rows else []


@values.register
def _(found: BatchQueueInspection) -> Pairs:
    yield "size", f"{found.size_bytes:,} bytes, room for {found.room:,} entries"
    yield "entries", f"{found.entries:,} written"
    if found.begin is not None and found.end is not None:
        numbers = f"queue offsets {found.first_message:,} to {found.next_message:,}"
        yield "messages", f"{found.messages:,}, {numbers}"
        yield "leads to", f"CommitLog {found.begin:,} to {found.end:,}"


@values.register
def _(found: ConsumeQueueInspection) -> Pairs:
    yield "size", f"{found.size_bytes:,} bytes, room for {found.room:,} entries"
    first = f", the first is number {found.first_entry:,}" if found.first_entry is not None else ""
    yield "entries", f"{found.entries:,} written{first}"
    if found.pre_blank:
        yield (
            "pre-blank",
            f"{found.pre_blank:,} entries fill the file up to the beginning of the queue",
        )
    if found.begin is not None and found.end is not None:
        yield "leads to", f"CommitLog {found.begin:,} to {found.end:,}"
        yield "messages", f"{found.message_bytes:,} bytes"
        yield "tags codes", f"{found.distinct_tags_codes:,} different ones"


@values.register
def _(found: QueueInspection) -> Pairs:
    yield "queue", printable(f"{found.topic}/{found.queue_id}")
    if found.files:
        yield "files", f"{found.files:,}"
    yield "queue offsets", f"{found.first:,} to {found.stop:,}"
    if found.min_logical_offset is not None and found.max_logical_offset is not None:
        yield "logical", f"offsets {found.min_logical_offset:,} to {found.max_logical_offset:,}"
    yield "entries", "listed with --entries FROM-TO or --at LOGICAL_OFFSET"


@values.register
def _(found: IndexInspection) -> Pairs:
    header = found.header
    sizes = f"{found.hash_slots:,} slots, {found.index_items:,} items"
    yield "size", f"{found.size_bytes:,} bytes: {sizes}"
    # A broker never uses item 0, so a full file has one entry fewer than it has items.
    full = "full" if found.entries >= found.index_items - 1 else f"{100 * found.fill:.1f} % full"
    yield "entries", f"{found.entries:,} ({full}), {found.distinct_hashes:,} different key hashes"
    yield "header", ", ".join(f"{name} {value}" for name, value in header_in_java(header))
    if found.entries:
        first, last = header.begin_physical_offset, header.end_physical_offset
        yield "CommitLog", f"first message at {first:,}, last at {last:,}"
        yield "stored", _range(header.begin_timestamp, header.end_timestamp)
        mean = found.entries / max(found.used_slots, 1)
        share = f"{found.used_slots:,} of {found.hash_slots:,} ({100 * found.slot_load:.1f} %)"
        yield "slots used", f"{share}, {mean:.2f} entries each"
    if found.unreachable:
        yield "unreachable", f"{found.unreachable:,} entries are on no chain"


@tables.register
def _(found: IndexInspection) -> list[Table]:
    if not found.entries:
        return []
    lengths = [
        (str(low) if low == high else f"{low}-{high}", slots)
        for low, high, slots in found.chain_lengths
    ]
    longest = _table("longest chains", "slot", "entries", "different hashes")
    for chain in found.longest_chains:
        longest.add_row(f"{chain.slot:,}", f"{chain.entries:,}", f"{chain.hashes:,}")
    return [
        bar_table("entries", "slots", lengths, title="slots by the length of their chain"),
        longest,
    ]


@values.register
def _(found: CheckpointInspection) -> Pairs:
    yield "size", f"{found.size_bytes:,} bytes"
    names = ("CommitLog", "ConsumeQueue", "IndexFile")
    for name, timestamp in zip(names, found.checkpoint.times, strict=True):
        yield name, f"{format_time(timestamp)}  {timestamp}" if timestamp else "not set"
    if found.checkpoint.master_flushed_offset:
        yield "master flushed", f"{found.checkpoint.master_flushed_offset:,}"
    if found.checkpoint.confirmed_offset:
        yield "confirmed", f"{found.checkpoint.confirmed_offset:,}"


@values.register
def _(found: MarkerInspection) -> Pairs:
    yield "size", f"{found.size_bytes:,} bytes"
    yield "meaning", printable(found.meaning)


def header_in_java(header: IndexHeader) -> list[tuple[str, int]]:
    """Return the six stored fields of an IndexFile's header with their names in RocketMQ (`IndexHeader`)."""
    return list(zip(_HEADER_NAMES, header, strict=True))


def bar_table(
    name: str, counted: str, rows: Sequence[tuple[str, int]], title: str | None = None
) -> Table:
    """Return a histogram as a table with a name, a count and a bar in each row."""
    table = _table(title, name, counted)
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
            _to_second(header.begin_timestamp), _to_second(header.end_timestamp),
        )  # fmt: skip
    return table


def _checkpoint(found: StoreInspection) -> str:
    if found.checkpoint is None:
        return "missing"
    times = [
        _to_second(timestamp) if timestamp else "not set" for timestamp in found.checkpoint.times
    ]
    return "CommitLog {}, ConsumeQueue {}, IndexFile {}".format(*times)


def _to_second(timestamp_ms: int) -> str:
    text = format_time(timestamp_ms)
    return text[: -len(".000Z")].replace("T", " ") if text.endswith("Z") else text


def _range(earliest_ms: int, latest_ms: int) -> str:
    duration = format_duration(latest_ms - earliest_ms)
    return f"{format_time(earliest_ms)} to {format_time(latest_ms)} ({duration})"
