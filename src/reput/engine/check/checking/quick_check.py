"""Run the quick check: names, sizes, headers, ends and samples. Its cost grows with the number of files.

Names and sizes are judged by the rules of the full check (`listings`). In each queue, of whatever kind, the last entry
must lead to its message. Where one IndexFile ends, the next must begin: the first messages between them must have no
keys. Samples from the whole log show whether queues, the first or last files of queues, or all IndexFiles are missing.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core import (
    EXTENSION,
    CommitLogFile,
    CommitLogReader,
    ConsumeQueueReader,
    ExtensionFiles,
    IndexFileReader,
    IndexFileSetReader,
    LastEntry,
    LocatedRecord,
    Numbering,
    OffsetRange,
    Queue,
    QueueForm,
    QueueIndex,
    QueueReader,
    QueuesOf,
    StoreLog,
    first_keyed,
    list_queue_files,
    open_queues,
    queue_forms,
    sampled_records,
    spot_check,
)
from reput.engine.check.checking.checked_store import CheckedStore, IndexTable, lost_files
from reput.engine.check.checking.index_database import message_databases
from reput.engine.check.checking.listings import (
    check_queue_ends,
    index_file_size,
    index_order,
    of_queue,
)
from reput.engine.check.checking.next_start import (
    UNNOTICED,
    absent,
    dispatched_from,
    indexed_again,
    next_start,
    of_index_file,
    of_missing_keys,
)
from reput.engine.compare import Span
from reput.engine.five import TimerWheel, check_timer_files, timer_units
from reput.errors import (
    FormatError,
    MessageNotFoundError,
    MissingExtraError,
    ReputError,
    StoreError,
    StoreNotFoundError,
    raise_if_refused,
)
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.consume_queue_ext import is_address
from reput.format.file_names import (
    CONSUME_QUEUE_FOLDER,
    EXTENSION_FOLDER,
    INDEX_FOLDER,
    TIMER_WHEEL_FILE,
)
from reput.format.properties import allows_light_queues
from reput.io import LOCAL, FileReader, OpenFiles, size_of

# Each sample reads one record, so this bounds the time for a log of any size.
_SAMPLES = 128
# The records before the end of the log, and before the end of the queues, are read more closely: a queue that lost its
# last file lacks just these.
_TAIL_BYTES, _TAIL_RECORDS = 64 << 10, 256


class _Last(NamedTuple):
    """The last entry of a queue.

    `position` is the entry's byte offset, counted over all files of the queue. It is None in a database.
    """

    queue: Queue
    folder: str
    number: int
    entry: ConsumeQueueEntry
    position: int | None = None


Ends = dict[Queue, int]
"""The physical offset to which the last entry of each queue leads; -1 for an empty queue.

Queues whose end cannot be read are missing.
"""


def queue_ends(store: CheckedStore, log: CommitLogReader, ends: Ends) -> Iterator[Finding]:
    """Check the files of each queue and its last entry. Fill `ends`. Raises StoreAccessError."""
    entries = store.config.queue_entries
    for queue, folder in sorted(store.queues.items()):
        first = yield from check_queue_ends(folder, entries, store.is_live)
        with closing(ConsumeQueueReader(folder)) as reader:
            yield from _of_files(store, log, queue, reader, ends, first)
            if store.config.is_five and not store.is_live:
                yield from _lost_units(store, queue, reader, first)
    path = str(store.path)
    for form in queue_forms(path):
        if form.states_end:
            yield from _of_stated(store, log, form, ends)
            continue
        with closing(form.open(QueuesOf.of(path))) as index:
            for topic, queue_id in index.list():
                queue = Queue(topic, queue_id)
                yield from _of_files(store, log, queue, index.queue(*queue), ends)


def _of_files(
    store: CheckedStore,
    log: CommitLogReader,
    queue: Queue,
    reader: QueueReader,
    ends: Ends,
    first: int = 0,
) -> Iterator[Finding]:
    """Check the last entry of a queue. `first` is the number of its first entry."""
    try:
        number = reader.max_queue_offset() - 1
        if number < 0:
            ends[queue] = -1
            return
        entry = reader.entry(number)
    except ReputError as error:
        raise_if_refused(error)
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, reader.folder, f"its last entry: {error}")
        return
    ends[queue] = entry.physical_offset
    store.unread.queue_entries += max(number - first - 1, 0)
    has_place = reader.kind.numbering is Numbering.PLACE
    position = number * reader.kind.entry_bytes if has_place else None
    yield from _compare_last(store, log, _Last(queue, reader.folder, number, entry, position))


def _lost_units(
    store: CheckedStore, queue: Queue, reader: ConsumeQueueReader, first: int
) -> Iterator[Finding]:
    """Check the extension files (5.x) of a queue whose last entry leads to a unit in them.

    Each file must continue the previous one, and the first and the last entry must lead to a unit.
    """
    entries: list[ConsumeQueueEntry] = []
    for number in (reader.max_queue_offset() - 1, first):
        with suppress(MessageNotFoundError, FormatError):
            entries.append(reader.entry(number))
        if not entries or not is_address(entries[0].tags_code):
            return
    folder = os.path.join(store.path, EXTENSION_FOLDER, queue.topic, str(queue.queue_id))
    files = list_queue_files(folder, kind=EXTENSION) if os.path.isdir(folder) else []
    for before, after in pairwise(files):
        if before.stop != after.start:
            detail = f"no file has the units from {before.stop} to {after.start}"
            yield of_queue(Finding(Kind.MISSING_QUEUE_FILE, folder, detail))
    with closing(OpenFiles(LOCAL.open)) as opened:
        units = ExtensionFiles(folder, opened)
        for entry in entries:
            is_expired = entry.physical_offset < store.begin
            if (
                is_address(entry.tags_code)
                and not is_expired
                and units.unit(entry.tags_code) is None
            ):
                yield Finding(
                    Kind.WRONG_QUEUE_ENTRY, reader.folder,
                    f"the entry of the message at {entry.physical_offset} leads to no unit in {EXTENSION_FOLDER}/",
                    None, entry.physical_offset, cost="messages of the queue pass a wrong filter",
                    at_next_start="does not notice it",
                )  # fmt: skip
                return


def _compare_last(store: CheckedStore, log: CommitLogReader, last: _Last) -> Iterator[Finding]:
    queue, folder, number, entry, position = last
    at = entry.physical_offset
    # The message has expired, so it cannot be compared. A queue keeps its last entry nevertheless.
    if at < store.begin:
        return
    try:
        record = log.locate(at)
    except MessageNotFoundError:
        if at < store.begin_now():  # The message has expired since the check began.
            return
        detail = f"its last entry, {number}, leads to {at}, but the log has no message there"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, None, at)
        return
    except ReputError as error:
        raise_if_refused(error)
        if not store.is_live:
            yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, f"its last entry: {error}")
        return
    is_own = record.queue_offset_in(*queue) is not None
    if not is_own or record.layout.total_bytes != entry.size:
        detail = f"its last entry, {number}, leads to another message at {at}"
        yield Finding(Kind.FOREIGN_QUEUE_ENTRY, folder, detail, position, at)
        return
    place = record.own_place()
    # In further queues of a message, numbers begin again after a restart of the broker.
    is_numbered = position is not None and place is not None and place[:2] == queue
    if is_numbered and place != (*queue, number):
        detail = f"entry {number} belongs to the message with another queue offset"
        yield Finding(
            Kind.MISPLACED_QUEUE_ENTRY, folder, detail, position, at, at_next_start="does not notice it"
        )  # fmt: skip


def _of_stated(
    store: CheckedStore, log: CommitLogReader, form: QueueForm, ends: Ends
) -> Iterator[Finding]:
    """Check the last entry of each queue in a form that states the end of each queue, such as RocksDB.

    Like a broker, the check ignores entries after this end.
    """
    folder = form.folder(str(store.path))
    try:
        for last in form.last_entries(str(store.path)):
            # If the queue is also in files, those are read.
            ends.setdefault(Queue(last.topic, last.queue_id), last.physical_offset)
            store.unread.queue_entries += max(last.queue_offset, 0)
            yield from _of_end(store, log, folder, last)
    except (StoreError, MissingExtraError) as error:
        raise_if_refused(error)
        yield Finding(Kind.QUEUE_FILE_SIZE, folder, f"cannot be read: {error}")


def _of_end(
    store: CheckedStore, log: CommitLogReader, folder: str, last: LastEntry
) -> Iterator[Finding]:
    # The message has expired, and compaction may have dropped its entry.
    if last.physical_offset < store.begin:
        return
    queue = Queue(last.topic, last.queue_id)
    place = f"{folder}/{queue.topic}/{queue.queue_id}"
    if last.entry is None:
        if last.physical_offset < store.begin_now():
            return
        detail = f"ends with queue offset {last.queue_offset} at {last.physical_offset}, but it has no such entry"
        yield Finding(Kind.MISSING_QUEUE_ENTRY, place, detail, None, last.physical_offset)
        return
    yield from _compare_last(store, log, _Last(queue, place, last.queue_offset, last.entry))


def quick_findings(store: CheckedStore) -> Iterator[Finding]:
    """Check the first record of each log file, the last entry of each queue and samples of each IndexFile.

    Raises StoreAccessError.
    """
    for file in store.files[: store.last_file + 1]:
        if file.start >= store.end and _is_new(store, file):
            break
        try:
            yield from _first_record(file)
        except StoreNotFoundError:
            if not store.is_live:  # In a live store, the error means that the file has expired.
                raise
    store.unread.log_bytes = store.end - store.begin
    with closing(CommitLogReader(StoreLog(store.path))) as log:
        ends = Ends()
        yield from queue_ends(store, log, ends)
        yield from missing_indexes(store, log, ends)
        tables: list[IndexTable] = []
        if store.knows_index_sizes:
            yield from _index(store, log, tables)
    yield from _timers(store)
    yield from message_databases(store, quick=True)
    yield from next_start(store, tables)


def _timers(store: CheckedStore) -> Iterator[Finding]:
    """Yield findings for a missing or empty wheel of the timer (5.x), and for lost or cut files of the timer log.

    The slots of a wheel and the chains of the timer log are not compared. Raises StoreAccessError.
    """
    store.unread.timer_units = timer_units(str(store.path), LOCAL)
    if store.is_live:
        return
    wheel = store.path / TIMER_WHEEL_FILE
    is_lost = not wheel.exists() or not wheel.stat().st_size
    if is_lost:
        yield from TimerWheel(store.path).findings
    else:
        store.unread.parts.append("the slots of the timer wheel")
    yield from check_timer_files(str(store.path), LOCAL, store.begin)


def missing_indexes(store: CheckedStore, log: CommitLogReader, ends: Ends) -> Iterator[Finding]:
    """Yield missing queues, missing first and last files of queues, and missing indexes. Raises StoreAccessError."""
    try:
        with closing(open_queues(store.path, config=store.config)) as index:
            queues = set(index.list())
            known_end = store.facts.known_offset.physical_offset if queues else store.end
            queues -= lost_files(store)
            yield from _missing_queues(store, log, index, queues, known_end, ends)
    # `queue_ends` has reported the error.
    except (FormatError, MissingExtraError):
        return


@dataclass(slots=True)
class _Lacking:
    """Sampled messages of one queue that lack an entry: their number, and the physical offset of the first one."""

    count: int = 0
    first: int = 0

    def add(self, offset: int) -> None:
        self.first = self.first if self.count else offset
        self.count += 1


def _missing_queues(
    store: CheckedStore,
    log: CommitLogReader,
    index: QueueIndex,
    queues: Set[tuple[str, int]],
    known_end: int,
    ends: Ends,
) -> Iterator[Finding]:
    samples: dict[int, tuple[Queue, int, int]] = {}
    further: dict[int, list[Queue]] = {}
    # A broker whose settings the files do not show may ignore INNER_MULTI_DISPATCH, unless one of its queues exists.
    dispatches_further = store.config.enable_multi_dispatch
    firsts: dict[Queue, int] = {}
    read: set[int] = set()
    for record in _samples(store, log, known_end):
        place = record.own_place()
        at = record.physical_offset
        if at not in read:
            read.add(at)
            store.unread.log_bytes -= record.layout.total_bytes
        if place is None or at >= store.end:
            continue
        queue, number = Queue(place[0], place[1]), place[2]
        samples[at] = queue, number, len(record.keyed().keys)
        named, lost = _further_queues(record, queues)
        further[at] = lost
        dispatches_further |= len(named) > len(lost)
        if tuple(queue) in queues and queue not in firsts:
            firsts[queue] = index.queue(*queue).min_queue_offset(0)
    without, before, after, late = (defaultdict[Queue, _Lacking](_Lacking) for _ in range(4))
    keys, begin = 0, store.begin_now()
    for at, (queue, number, its_keys) in sorted(samples.items()):
        if at < begin:  # Messages that expired meanwhile need no entry.
            continue
        # Messages after the newest one that has a queue entry are not dispatched yet.
        if at > known_end or (at == known_end and queue in store.queues):
            late[queue].add(at)
            continue
        keys += its_keys
        for further_queue in further[at] if dispatches_further else ():
            without[further_queue].add(at)
        if queue not in firsts:
            without[queue].add(at)
        elif number < firsts[queue]:
            before[queue].add(at)
        elif at > ends.get(queue, at):
            after[queue].add(at)
    counts = {queue: (lacking.count, lacking.first) for queue, lacking in without.items()}
    for finding in absent(store, counts, 0 if store.index else keys, bool(queues)):
        yield replace(finding, cost=_COSTS[finding.kind])
    for queue, lacking in sorted(before.items()):
        detail = f"begins with entry {firsts[queue]}, but the log has earlier messages of the queue"
        yield _missing_entries(index.queue(*queue).folder, detail, lacking, "before")
    for queue, lacking in sorted(after.items()):
        end = f"ends with the message at {ends[queue]}" if ends[queue] >= 0 else "has no entry"
        detail = f"{end}, but the log has later messages of the queue"
        yield _missing_entries(index.queue(*queue).folder, detail, lacking, "after")
    empty = {Queue(*queue) for queue in queues if ends.get(Queue(*queue)) == -1}
    yield from _empty_queues(store, index, empty - after.keys())
    if late and queues and known_end >= 0 and not store.is_live:
        queue, lacking = min(late.items(), key=lambda item: item[1].first)
        yield Finding(
            Kind.UNDISPATCHED_TAIL, str(store.path / CONSUME_QUEUE_FOLDER),
            "the queues end before messages of the log", physical_offset=lacking.first,
            count=sum(lacking.count for lacking in late.values()),
            cost="they cannot be consumed until dispatched",
            at_next_start=f"dispatches messages from {dispatched_from(store)} on",
        )  # fmt: skip


def _further_queues(
    record: LocatedRecord, queues: Set[tuple[str, int]]
) -> tuple[list[Queue], list[Queue]]:
    """Return the queues that INNER_MULTI_DISPATCH of a record names, and those of them that do not exist.

    A broker without enableLmq gives a light queue the id of the message's own queue (`queue_offset_in`).
    """
    if not record.names_further_queues() or not allows_light_queues(record.topic()):
        return [], []
    own_id = record.message().queue_id
    named = [Queue(topic, queue_id) for topic, queue_id, _ in record.further_places()]
    lost = [queue for queue in named if queues.isdisjoint({queue, Queue(queue.topic, own_id)})]
    return named, lost


def _empty_queues(
    store: CheckedStore, index: QueueIndex, queues: Iterable[Queue]
) -> Iterator[Finding]:
    """Yield a finding for each queue without an entry of which no sample is a message.

    A broker creates a queue for its first message. Only a recovery after a crash leaves one without an entry, if all
    of its messages were lost. Otherwise the queue has lost its only file.
    """
    if store.is_live:
        return
    for queue in sorted(queues):
        yield Finding(
            Kind.EMPTY_QUEUE, index.queue(*queue).folder, "the queue has no entry, and no sample is a message of it",
            cost=Kind.EMPTY_QUEUE.cost,
            at_next_start="begins the queue again at queue offset 0",
        )  # fmt: skip


def _samples(store: CheckedStore, log: CommitLogReader, known_end: int) -> Iterator[LocatedRecord]:
    """Yield records from all parts of the log, from its end, and from the place where the queues end."""
    whole = OffsetRange(store.begin, store.end)
    yield from sampled_records(log, whole, _SAMPLES)
    for stop in {min(known_end, store.end), store.end}:
        tail = OffsetRange(max(stop - _TAIL_BYTES, store.begin), stop)
        yield from sampled_records(log, tail, 1, _TAIL_RECORDS)
    if store.begin <= known_end < store.end:
        yield from sampled_records(log, OffsetRange(known_end, store.end), 1)


def _missing_entries(folder: str, detail: str, lacking: _Lacking, side: str) -> Finding:
    return Finding(
        Kind.MISSING_QUEUE_ENTRY, folder, detail, physical_offset=lacking.first,
        count=lacking.count, cost=f"messages {side} it cannot be consumed",
        at_next_start="does not notice it; the entries stay missing",
    )  # fmt: skip


_COSTS = {
    Kind.QUEUES_DELETED: "no message can be consumed",
    Kind.MISSING_QUEUE: "no message of it can be consumed",
    Kind.TOPIC_DELETED: "no message of it can be consumed",
    Kind.INDEX_DELETED: "no message can be found by key",
}


def _is_new(store: CheckedStore, file: CommitLogFile) -> bool:
    """Return whether a log file may have no record because it is new.

    Brokers create later files in advance. The first file of a log is new only if the checkpoint has no time of a
    message. Otherwise its records were lost.
    """
    was_written = store.facts.checkpoint.physic_msg_timestamp > 0
    return store.is_live or file.start > store.begin or not was_written


def _first_record(file: CommitLogFile) -> Iterator[Finding]:
    with FileReader(file.path) as reader:
        head = reader.read(file.gap, min(MIN_RECORD_BYTES, max(file.size - file.gap, 0)))
    magic = read_size_and_magic(head, 0)[1] if len(head) >= BLANK_BYTES else None
    if magic == BLANK_MAGIC:
        return
    is_message = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and len(head) == MIN_RECORD_BYTES
    if not is_message or read_size_and_physical_offset(head, 0)[1] != file.start + file.gap:
        yield file.lost(
            file.start, file.start, "the file does not begin with a record of this offset"
        )


def _index(
    store: CheckedStore, log: CommitLogReader, tables: list[IndexTable]
) -> Iterator[Finding]:
    """Check sizes, headers and samples of IndexFiles, and that each continues the previous one.

    Append each header to `tables`.
    """
    config = store.config
    sizes = list(_index_sizes(store))
    yield from sizes
    wrong = {finding.file for finding in sizes}
    files = IndexFileSetReader(store.path / INDEX_FOLDER, config.hash_slots, config.index_items)
    with closing(files):
        yield from (finding for finding in files.problems if finding.file not in wrong)
        current = files.current()
        for file in current:
            last = file.next_item - 1
            store.unread.index_items += max(last - 2, 0)
            tables.append(_index_table(store, file, last))
            # A broker fills the slot of one item before the header counts this item. A writer of Reput fills the
            # slots of many items before the header counts these items.
            uncounted = (
                IndexFileReader.UNCOUNTED_ITEMS if store.is_live and file is current[-1] else 1
            )
            if last <= 0 and file.used_slots() > uncounted:
                detail = (
                    "its header counts no item, but its slots lead to items: the header is lost"
                )
                at_start = of_index_file(store, tables[-1])
                yield Finding(Kind.INDEX_HEADER, file.path, detail, 0, at_next_start=at_start)
                continue
            verdict = spot_check(file, log, last, None, len(current))
            if verdict.problem:
                at_start = of_index_file(store, tables[-1])
                yield Finding(Kind.INDEX_HEADER, file.path, verdict.problem, at_next_start=at_start)
            elif last and not store.is_live and file.offset(last) >= store.end:
                detail = f"leads to offset {file.offset(last)}, but the log ends at {store.end}"
                yield Finding(Kind.INDEX_AHEAD_OF_LOG, file.path, detail)
        used = [file for file in current if file.next_item > 1 and file.is_consistent()]
        yield from _index_joints(store, log, used, tables)


def _index_table(store: CheckedStore, file: IndexFileReader, last: int) -> IndexTable:
    """Return an IndexFile's header, and the number of its items that a starting broker does not index again.

    After a crash, a broker indexes messages again from the first log file that its recovery checks.
    """
    starts = [file.start for file in store.files]
    number = starts.index(store.broker_start) if store.broker_start in starts else 0
    before = bisect_left(range(1, last + 1), store.broker_start, key=file.offset)
    newest = file.offset(last) if last > 0 else -1
    spans = {number - 1: Span(1, before, before)} if before and number else {}
    return IndexTable(file.path, file.header(), max(last, 0), last=newest, spans=spans)


def _index_sizes(store: CheckedStore) -> Iterator[Finding]:
    config = store.config
    for path in store.index:
        try:
            size = size_of(path, LOCAL)
        except StoreNotFoundError:  # The file has expired since it was listed.
            continue
        is_new = store.is_live and path == store.index[-1]
        for finding in index_file_size(path, size, config.hash_slots, config.index_items, is_new):
            yield replace(finding, at_next_start=UNNOTICED)


def _index_joints(
    store: CheckedStore,
    log: CommitLogReader,
    files: list[IndexFileReader],
    tables: list[IndexTable],
) -> Iterator[Finding]:
    """Check that no message with keys lies before the first IndexFile, between two files, or after the last one.

    Only the first messages of each range are read. A file may begin with the message with which the previous one ends,
    because a broker continues with the keys of a message in a new file if the old one is full.
    """
    if not files:
        return
    known_end = min(store.facts.known_offset.physical_offset, store.end)
    for before, after in pairwise(files):
        last = before.offset(before.next_item - 1)
        yield from index_order(after.path, after.offset(1), before.name, last)
    ends = [file.offset(file.next_item - 1) for file in files]
    starts = [store.begin, *(_after(log, end) for end in ends)]
    stops = [*(file.offset(1) for file in files), known_end]
    for number, gap in enumerate(map(OffsetRange, starts, stops)):
        at = first_keyed(log, gap)[0] if gap.start < gap.stop else None
        if at is None or at < store.begin_now():
            continue
        is_last = number == len(files)
        yield Finding(
            Kind.MISSING_INDEX_ENTRY if is_last else Kind.INDEX_FILE_LOST,
            files[min(number, len(files) - 1)].path,
            f"no entry for a key of the message at {at}", None, at,
            cost="keys of messages after it cannot be found" if is_last
            else "keys of messages before it cannot be found",
            at_next_start=of_missing_keys(indexed_again(store, tables), at, gap.stop - 1),
        )  # fmt: skip


def _after(log: CommitLogReader, at: int) -> int:
    """Return the physical offset after the record at `at`, or a value after every log if the record is unreadable."""
    try:
        return at + log.locate(at, in_place=False).layout.total_bytes
    except StoreError as error:
        raise_if_refused(error)
        return sys.maxsize
