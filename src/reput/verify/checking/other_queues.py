"""Queues other than ConsumeQueue files (RocksDB, batch queues), compared with the log through their readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.errors import MessageNotFoundError, MissingExtraError, StoreError, StoreNotFoundError
from reput.files.storage import LOCAL
from reput.findings import Finding, Kind
from reput.format.batch_consume_queue import BatchEntry
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.queued_record import queue_offset_in
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import SALVAGE
from reput.log.sources import StoreLog
from reput.queues.queue_index import LostEntriesError, QueueIndex, QueueReader
from reput.queues.rocksdb_database import is_database
from reput.queues.rocksdb_dispatch import dispatched_entries, rocksdb_rules
from reput.queues.rocksdb_reader import RocksQueueReader
from reput.queues.store_queues import ConsumeQueueSetReader, open_queues
from reput.queues.writer import BatchSizeOf, batch_size_in
from reput.verify.checking.checked_store import CheckedStore
from reput.verify.checking.missing_parts import lost_log_end

_MOST_CLAIMS = 100_000  # records read one by one, so that a database of another log costs seconds
_Place = tuple[int, int, int]
"""Physical offset, size, tags code."""


class _Expected(NamedTuple):
    """The entry of one message, with the further fields of an entry of a batch queue."""

    place: _Place
    store_timestamp: int
    is_inner: bool


class _Batch(NamedTuple):
    """Messages of one queue by queue offset; `doubles` are those before the last with the same one."""

    rows: dict[int, _Expected]
    doubles: dict[int, list[_Expected]]


class _Claims:
    """Entries in RocksDB that are those of another message with the same queue offset.

    A broker puts an entry under the queue offset of its message. Of several messages with one queue offset, as light
    queues have after a restart, the last one dispatched keeps its entry, or the first one if they were dispatched
    together (`RocksDBConsumeQueueStore.putMessagePosition0`).

    Attributes:
        count: how many were found
    """

    def __init__(self, log: CommitLogReader) -> None:
        self._log, self._left, self.count = log, _MOST_CLAIMS, 0

    def is_of_another(
        self, reader: QueueReader, queue_offset: int, entry: ConsumeQueueEntry, message: _Place
    ) -> bool:
        """Return whether another message has this entry, and this queue offset in the queue."""
        if not isinstance(reader, RocksQueueReader) or entry.physical_offset == message[0]:
            return False
        if self._left == 0:
            return False
        self._left -= 1
        try:
            record = self._log.locate(entry.physical_offset, entry.size)
        except StoreError:
            return False
        is_claimed = queue_offset_in(record, *reader.queue) == queue_offset
        self.count += is_claimed
        return is_claimed


class OtherQueues:
    """The queues of a store that its ConsumeQueue files do not hold.

    Attributes:
        queues: all queues that were found, damaged ones included
        cannot_tell: why queues cannot be listed at all; None if they can
    """

    def __init__(self, store: CheckedStore) -> None:
        self._store = store
        self.queues: set[Queue] = set()
        self.cannot_tell: Finding | None = None

    def findings(self) -> Iterator[Finding]:
        """One finding for each queue and kind. Raises StoreAccessError."""
        with closing(open_queues(self._store.path, config=self._store.config)) as index:
            if isinstance(index, ConsumeQueueSetReader):
                return
            folder = str(self._store.path / CONSUME_QUEUE_FOLDER)
            try:
                listed = {Queue(*queue) for queue in index.list()}
            except (StoreError, MissingExtraError) as error:
                kind = Kind.QUEUE_FILE_SIZE if is_database(folder, LOCAL) else Kind.MISSING_QUEUE
                self.cannot_tell = Finding(kind, folder, f"cannot be read: {error}")
                yield self.cannot_tell
                return
            self.queues = listed - set(self._store.queues)
            yield from self._compare(index)

    def _compare(self, index: QueueIndex) -> Iterator[Finding]:
        with closing(CommitLogReader(StoreLog(self._store.path))) as log:
            yield from self._compare_with(index, batch_size_in(log), _Claims(log))

    def _compare_with(
        self, index: QueueIndex, size_of: BatchSizeOf, claims: _Claims
    ) -> Iterator[Finding]:
        found: dict[tuple[Kind, Queue], Finding] = {}
        expected: Counter[Queue] = Counter()
        readable: list[OffsetRange] = []
        buffers = ScanBuffers()
        rules = rocksdb_rules(tuple(self._store.config.delay_table_ms()))
        for file in self._store.files:
            scan = FileScan(
                file, file.start, file.end, SALVAGE, rules, buffers=buffers
            )  # fmt: skip
            try:
                for batch in scan.batches():
                    for queue, messages in self._expected(batch):
                        reader, claimed = index.queue(*queue), claims.count
                        expected[queue] += len(messages.rows)
                        for one in _differences(reader, messages, size_of, claims):
                            if one.kind is Kind.MISSING_QUEUE_ENTRY:
                                expected[queue] -= one.count
                            _add(found, queue, one)
                        expected[queue] -= claims.count - claimed
                readable += _readable(file, scan)
            except (StoreNotFoundError, MessageNotFoundError):  # expired meanwhile
                continue
        yield from found.values()
        yield from self._too_many(index, expected, readable)

    def _too_many(
        self, index: QueueIndex, expected: Counter[Queue], readable: list[OffsetRange]
    ) -> Iterator[Finding]:
        """Entries that no message has where the log can be read, and those of messages after its end."""
        store = self._store
        if store.is_live:
            return
        beyond = 0  # the end of the log
        for queue in sorted(self.queues):
            try:
                reader = index.queue(*queue)
                offsets = _stored_offsets(reader, store.begin)
            except StoreError:  # was found when it was compared
                continue
            offsets.sort()
            edges = np.searchsorted(offsets, np.array(readable, np.int64).reshape(-1, 2))
            beyond += len(offsets) - int(np.searchsorted(offsets, store.end))
            if (count := int((edges[:, 1] - edges[:, 0]).sum()) - expected[queue]) > 0:
                detail = "entries that no message of this queue has"
                yield Finding(Kind.FOREIGN_QUEUE_ENTRY, reader.folder, detail, count=count)
        if beyond:
            yield lost_log_end(store, beyond)

    def _expected(self, batch: DispatchBatch) -> Iterator[tuple[Queue, _Batch]]:
        for queue, rows, queue_offset in dispatched_entries(batch):
            if queue not in self.queues:
                continue
            names = ("physical_offset", "size", "tags_code", "store_timestamp", "sys_flag")
            columns = queue_offset.tolist(), *(rows[name].tolist() for name in names)
            messages = _Batch({}, {})
            for offset, at, size, code, time, flag in zip(*columns, strict=True):
                if at < self._store.end:
                    if offset in messages.rows:
                        messages.doubles.setdefault(offset, []).append(messages.rows[offset])
                    is_inner = bool(flag & SYS_FLAG_INNER_BATCH)
                    messages.rows[offset] = _Expected((at, size, code), time, is_inner)
            yield queue, messages


def _add(found: dict[tuple[Kind, Queue], Finding], queue: Queue, one: Finding) -> None:
    """Count a finding with the others of its kind and queue; the first one is shown."""
    first = found.get((one.kind, queue))
    if first is not None:
        one = replace(first, count=first.count + one.count)
    found[one.kind, queue] = one


def _readable(file: CommitLogFile, scan: FileScan) -> list[OffsetRange]:
    """Return the ranges of a file that a scan could read."""
    edges = [file.start, *(at for lost in scan.damage for at in (lost.start, lost.stop))]
    edges.append(scan.end.position)
    return [OffsetRange(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]


def _stored_offsets(reader: QueueReader, begin: int) -> npt.NDArray[np.int64]:
    """Physical offsets of a queue's entries from that one on. Raises StoreError."""
    first, stop = reader.min_queue_offset(begin), reader.max_queue_offset()
    parts = [np.empty(0, np.int64)]
    for data in reader.entry_bytes(first, stop):
        parts.append(np.frombuffer(data, ENTRY_DTYPE)["physical_offset"].astype(np.int64))
    found = np.concatenate(parts)
    return found[found >= begin]


def _differences(
    reader: QueueReader, messages: _Batch, size_of: BatchSizeOf, claims: _Claims
) -> Iterator[Finding]:
    """Yield what a queue lacks or has otherwise of the entries that it should have, by queue offset."""
    expected = messages.rows
    if not expected:
        return
    stop, position = max(expected) + 1, min(expected)
    stored: dict[int, ConsumeQueueEntry] = {}
    while position < stop:
        try:
            stored.update(reader.numbered(position, stop))
            break
        except LostEntriesError as error:
            detail, position = error.reason, max(error.resume_offset, position + 1)
            yield Finding(Kind.QUEUE_GAP, reader.folder, detail)
        except StoreError as error:
            yield Finding(Kind.QUEUE_FILE_SIZE, reader.folder, f"cannot be read: {error}")
            return
    missing = sorted(expected.keys() - stored.keys())
    if missing:
        yield _entry_finding(
            Kind.MISSING_QUEUE_ENTRY, reader, missing[0], expected[missing[0]].place, len(missing),
            "has no entry",
        )  # fmt: skip
    both = sorted(expected.keys() & stored.keys())
    # How many messages a batch has the next entry shows, but for the last that was read.
    wrong = [
        n for n in both if not _is_of(stored[n], expected[n], size_of if n == both[-1] else None)
    ]
    wrong = [
        n
        for n in wrong
        if not any(stored[n][:3] == one.place for one in messages.doubles.get(n, ()))
        and not claims.is_of_another(reader, n, stored[n], expected[n].place)
    ]
    if wrong:
        first = wrong[0]
        yield _wrong_entries(reader, first, stored[first], expected[first].place, len(wrong))


def _wrong_entries(
    reader: QueueReader, queue_offset: int, entry: ConsumeQueueEntry, message: _Place, count: int
) -> Finding:
    detail = f"has the entry {tuple(entry)}, its message {message}"
    return _entry_finding(Kind.WRONG_QUEUE_ENTRY, reader, queue_offset, message, count, detail)


def _is_of(entry: ConsumeQueueEntry, message: _Expected, size_of: BatchSizeOf | None) -> bool:
    """Whether an entry is that of a message; `size_of` says that the number of a batch's messages is compared, too."""
    if entry[:3] != message.place:
        return False
    if not isinstance(entry, BatchEntry):
        return True
    if entry.store_timestamp != message.store_timestamp:
        return False
    if size_of is None:
        return True
    return entry.batch_size == (size_of(message.place[0]) if message.is_inner else 1)


def _entry_finding(
    kind: Kind, reader: QueueReader, queue_offset: int, place: _Place, count: int, detail: str
) -> Finding:
    text = f"queue offset {queue_offset} {detail}"
    return Finding(kind, reader.folder, text, physical_offset=place[0], count=count)
