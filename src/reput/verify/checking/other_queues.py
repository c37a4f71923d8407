"""Queues other than ConsumeQueue files (RocksDB, batch queues), compared with the log through their readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.compare.columns import Column, ExpectedEntries, FoundEntries, Rows
from reput.errors import MessageNotFoundError, MissingExtraError, StoreError, StoreNotFoundError
from reput.findings import Finding, Kind
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.queued_record import queue_offset_in
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import SALVAGE
from reput.log.sources import StoreLog
from reput.queues.kinds import Numbering, QueueKind
from reput.queues.queue_index import LostEntriesError, QueueIndex, QueueReader
from reput.queues.rocksdb_dispatch import dispatched_entries, rocksdb_rules
from reput.queues.store_queues import ConsumeQueueSetReader, open_queues
from reput.queues.writer import BatchSizeOf, batch_size_in
from reput.verify.checking.checked_store import CheckedStore

_MOST_CLAIMS = 100_000  # records read one by one, so that a database of another log costs seconds
_Place = tuple[int, int, int]
"""Physical offset, size, tags code."""


class _Stored(NamedTuple):
    """Entries of a queue as its reader has them; the last two columns are of a batch queue only."""

    entries: FoundEntries
    times: Column
    batch_sizes: Column

    @classmethod
    def of(cls, numbered: dict[int, ConsumeQueueEntry], kind: QueueKind) -> _Stored:
        more = (
            [(one.store_timestamp, one.batch_size) for one in numbered.values()]  # type: ignore[attr-defined]
            if kind.numbering is Numbering.BASE
            else []
        )
        rows = [(number, *entry[:3]) for number, entry in numbered.items()]
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(FoundEntries(*columns), *np.array(more, np.int64).reshape(-1, 2).T)


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

    def is_of_another(self, queue: Queue, queue_offset: int, stored: _Place, own: int) -> bool:
        """Return whether a message elsewhere than at physical offset `own` has this entry and this queue offset."""
        if stored[0] == own or self._left == 0:
            return False
        self._left -= 1
        try:
            record = self._log.locate(*stored[:2])
        except StoreError:
            return False
        is_claimed = queue_offset_in(record, *queue) == queue_offset
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
                has_database = self._store.facts.has_queue_database
                kind = Kind.QUEUE_FILE_SIZE if has_database else Kind.MISSING_QUEUE
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
                    for queue, messages, queue_offset in dispatched_entries(batch):
                        if queue not in self.queues:
                            continue
                        before_end = messages["physical_offset"] < self._store.end
                        messages, queue_offset = messages[before_end], queue_offset[before_end]
                        if not len(messages):
                            continue
                        reader, claimed = index.queue(*queue), claims.count
                        differences = _Differences(queue, reader, messages, queue_offset)
                        expected[queue] += len(differences.expected.numbers)
                        for one in differences.findings(size_of, claims):
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
            yield store.lost_end(beyond)


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


class _Differences:
    """What a queue lacks, or has otherwise, of the entries that messages should have in it, by queue offset.

    Attributes:
        expected: of each queue offset, the entry of the last message
    """

    def __init__(
        self,
        queue: Queue,
        reader: QueueReader,
        messages: npt.NDArray[np.void],
        queue_offset: Column,
    ) -> None:
        self._queue, self._reader = queue, reader
        columns = (messages[name].astype(np.int64) for name in _NAMES)
        self._all = ExpectedEntries(queue_offset, *columns)
        last = len(queue_offset) - 1 - np.unique(queue_offset[::-1], return_index=True)[1]
        self.expected = self._all.at(last)
        self._is_inner = messages["sys_flag"][last] & SYS_FLAG_INNER_BATCH != 0

    def findings(self, size_of: BatchSizeOf, claims: _Claims) -> Iterator[Finding]:
        """One finding of each kind."""
        expected, numbered = self.expected, dict[int, ConsumeQueueEntry]()
        position, stop = int(expected.numbers[0]), int(expected.numbers[-1]) + 1
        while position < stop:
            try:
                numbered.update(self._reader.numbered(position, stop))
                break
            except LostEntriesError as error:
                detail, position = error.reason, max(error.resume_offset, position + 1)
                yield Finding(Kind.QUEUE_GAP, self._reader.folder, detail)
            except StoreError as error:
                detail = f"cannot be read: {error}"
                yield Finding(Kind.QUEUE_FILE_SIZE, self._reader.folder, detail)
                return
        stored = _Stored.of(numbered, self._reader.kind)
        _, both, theirs = np.intersect1d(
            expected.numbers, stored.entries.numbers, return_indices=True
        )
        missing = np.setdiff1d(np.arange(len(expected.numbers)), both)
        if len(missing):
            row = int(missing[0])
            yield self._finding(Kind.MISSING_QUEUE_ENTRY, row, len(missing), "has no entry")
        differs = self._differs(stored, both, theirs, size_of)
        wrong = [
            (row, place)
            for row, place in zip(
                both[differs].tolist(), _places(stored, theirs[differs]), strict=True
            )
            if not self._is_taken(row, place, claims)
        ]
        if wrong:
            row, _ = wrong[0]
            number = int(expected.numbers[row])
            message = tuple(int(column[row]) for column in expected[1:4])
            detail = f"has the entry {tuple(numbered[number])}, its message {message}"
            yield self._finding(Kind.WRONG_QUEUE_ENTRY, row, len(wrong), detail)

    def _differs(
        self, stored: _Stored, both: Rows, theirs: Rows, size_of: BatchSizeOf
    ) -> npt.NDArray[np.bool_]:
        expected, found = self.expected.at(both), stored.entries.at(theirs)
        differs = np.zeros(len(both), np.bool_)
        for ours, other in zip(expected[1:4], found[1:4], strict=True):
            differs |= ours != other
        if len(stored.times) and len(both):
            differs |= expected.times != stored.times[theirs]
            if not differs[-1]:
                # How many messages a batch has the next entry shows, but for the last that was read.
                last, is_inner = int(expected.offsets[-1]), self._is_inner[both[-1]]
                differs[-1] = stored.batch_sizes[theirs[-1]] != (size_of(last) if is_inner else 1)
        return differs

    def _is_taken(self, row: int, place: _Place, claims: _Claims) -> bool:
        """Whether the entry is that of another message with the same queue offset."""
        number = int(self.expected.numbers[row])
        same = self._all.at(self._all.numbers == number)
        if any(
            place == one for one in zip(*(column.tolist() for column in same[1:4]), strict=True)
        ):
            return place[:3] != tuple(int(column[row]) for column in self.expected[1:4])
        if self._reader.kind.numbering is not Numbering.KEY:
            return False
        return claims.is_of_another(self._queue, number, place, int(self.expected.offsets[row]))

    def _finding(self, kind: Kind, row: int, count: int, detail: str) -> Finding:
        text = f"queue offset {self.expected.numbers[row]} {detail}"
        at = int(self.expected.offsets[row])
        return Finding(kind, self._reader.folder, text, physical_offset=at, count=count)


_NAMES = ("physical_offset", "size", "tags_code", "store_timestamp")


def _places(stored: _Stored, rows: Rows) -> Iterator[_Place]:
    found = stored.entries.at(rows)
    return zip(found.offsets.tolist(), found.sizes.tolist(), found.tags.tolist(), strict=True)
