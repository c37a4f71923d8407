"""Compare the log with queues that are read by queue offset: batch queues, and queues in RocksDB.

Their entries are not in the order of the log. Therefore `reput.engine.compare.log_file`, which assigns a range of
entries to each file of the log, does not apply. Instead, the queue offsets in the messages are used to read their
entries.

Into RocksDB, a broker writes an entry of each message for its own queue, and one for each light queue (%LMQ%) that its
properties name (`RocksDBConsumeQueueStore`, tag rocketmq-all-5.3.3). Other queues that the properties name get no
entry. Messages of retry and system topics are in no light queue. Their properties may still name light queues, because
they are copied from another message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput import core
from reput.engine.compare.columns import Column, ExpectedEntries, Flags, FoundEntries, Rows
from reput.errors import MessageNotFoundError, StoreNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.properties import LMQ_PREFIX

_NOTHING = core.OffsetRange(0, 0)
_NAMES = ("physical_offset", "size", "tags_code", "store_timestamp")
EntryPlace = tuple[int, int, int]
"""Physical offset, size and tags code of an entry."""


def rocksdb_rules(delays_ms: tuple[int, ...]) -> core.DispatchRules:
    """Return the rules by which a scan of the log finds the queue entries for RocksDB.

    By these rules, light queues get entries too.
    """
    return core.DispatchRules(delays_ms, multi_dispatch=True, lmq=True, checks_topic=True)


class DispatchedEntries(NamedTuple):
    """Messages of one queue in the order of the log, and their offsets in this queue."""

    queue: core.Queue
    messages: npt.NDArray[np.void]
    queue_offset: npt.NDArray[np.int64]


def dispatched_entries(batch: core.DispatchBatch) -> Iterator[DispatchedEntries]:
    """Yield the entries of a batch by queue. The batch must have been scanned with `rocksdb_rules`."""
    for number, queue, numbers, queue_offset in batch.by_queue():
        rows = batch.messages[numbers]
        if not queue.topic.startswith(LMQ_PREFIX):
            # INNER_MULTI_DISPATCH of a message may name further queues. In RocksDB, the message has entries only in its
            # own queue and in further queues that are light queues.
            is_own = rows["queue"] == number
            rows, queue_offset = rows[is_own], queue_offset[is_own]
        if len(rows):
            yield DispatchedEntries(queue, rows, queue_offset)


class NumberedEntries(NamedTuple):
    """Entries of a queue as its reader returns them. `times` and `batch_sizes` are empty except for batch queues."""

    entries: FoundEntries
    times: Column
    batch_sizes: Column

    @classmethod
    def of(cls, numbered: dict[int, ConsumeQueueEntry], kind: core.QueueKind) -> NumberedEntries:
        more = (
            [(one.store_timestamp, one.batch_size) for one in numbered.values()]  # type: ignore[attr-defined]
            if kind.numbering is core.Numbering.BASE
            else []
        )
        rows = [(number, *entry[:3]) for number, entry in numbered.items()]
        # reshape gives an empty table its columns; np.array([]) has only one dimension.
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(FoundEntries(*columns), *np.array(more, np.int64).reshape(-1, 2).T)

    def places(self, rows: Rows) -> Iterator[EntryPlace]:
        entries = self.entries.at(rows)
        return zip(
            entries.offsets.tolist(), entries.sizes.tolist(), entries.tags.tolist(), strict=True
        )


class NumberedRun(NamedTuple):
    """Differences of a queue from its expected entries. Rows are row numbers in `NumberedMessages.expected`.

    Attributes:
        missing: rows without an entry
        different: rows with an unexpected entry
        places: the entry found for each row of `different`
    """

    missing: Rows
    different: Rows
    places: list[EntryPlace]


class NumberedMessages:
    """The entries that some messages of a queue should have, by queue offset.

    Attributes:
        queue: The queue of the messages.
        expected: For each queue offset, the entry of the last message that states this offset.
    """

    def __init__(self, queue: core.Queue, messages: npt.NDArray[np.void], numbers: Column) -> None:
        self.queue = queue
        columns = (messages[name].astype(np.int64) for name in _NAMES)
        self._every = ExpectedEntries(numbers, *columns)
        # Several messages may state one queue offset, for instance after a restart with lost queues. Dispatch
        # overwrites the entry each time, so the last message has the entry. np.unique finds first occurrences, hence
        # the reversal.
        last = len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]
        self.expected = self._every.at(last)
        self._is_inner = messages["sys_flag"][last] & SYS_FLAG_INNER_BATCH != 0

    def place(self, row: int) -> EntryPlace:
        """Return physical offset, size and tags code of the entry in row number `row` of `expected`."""
        offset, size, tags = (int(column[row]) for column in self.expected[1:4])
        return offset, size, tags

    def is_of_earlier(self, row: int, place: EntryPlace) -> bool:
        """Return whether an entry belongs to an earlier message that has the same queue offset as message `row`."""
        of_number = self._every.at(self._every.numbers == self.expected.numbers[row])
        columns = (column.tolist() for column in of_number[1:4])
        return place != self.place(row) and place in zip(*columns, strict=True)

    def compare(self, entries: NumberedEntries, size_of: core.BatchSizeOf) -> NumberedRun:
        """Compare the messages with the queue's entries at the same queue offsets.

        Args:
            entries: The entries of the queue.
            size_of: Reads the inner batch at a physical offset of the log, and returns its number of messages.
        """
        expected = self.expected
        _, rows, entry_rows = np.intersect1d(
            expected.numbers, entries.entries.numbers, return_indices=True
        )
        missing = np.setdiff1d(np.arange(len(expected.numbers)), rows)
        differs = self._differs(entries, rows, entry_rows, size_of)
        return NumberedRun(missing, rows[differs], list(entries.places(entry_rows[differs])))

    def _differs(
        self, numbered: NumberedEntries, rows: Rows, entry_rows: Rows, size_of: core.BatchSizeOf
    ) -> Flags:
        expected, entries = self.expected.at(rows), numbered.entries.at(entry_rows)
        differs = np.zeros(len(rows), np.bool_)
        for column, stored_column in zip(expected[1:4], entries[1:4], strict=True):
            differs |= column != stored_column
        if len(numbered.times) and len(rows):
            differs |= expected.times != numbered.times[entry_rows]
            if not differs[-1]:
                # A batch ends at the queue offset of the next entry. No entry after the last one was read, so the
                # number of messages in the last batch is read from the log.
                last, is_inner = int(expected.offsets[-1]), self._is_inner[rows[-1]]
                differs[-1] = numbered.batch_sizes[entry_rows[-1]] != (
                    size_of(last) if is_inner else 1
                )
        return differs


class NumberedLog:
    """The messages of a log, batch by batch, for comparison with queues that are read by queue offset.

    Attributes:
        readable: The ranges of the log that could be read so far.
    """

    def __init__(
        self, files: Sequence[core.CommitLogFile], log_end: int, rules: core.DispatchRules
    ) -> None:
        self._files, self._end, self._rules = files, log_end, rules
        self.readable: list[core.OffsetRange] = []

    def messages(self, queues: Mapping[core.Queue, core.OffsetRange]) -> Iterator[NumberedMessages]:
        """Yield the messages of the given queues in a range of the log each, up to the log's end. Raises StoreError."""
        buffers = core.ScanBuffers()
        for file in self._files:
            scan = core.FileScan(
                file, file.start, file.end, core.ScanMode.SALVAGE, self._rules, buffers=buffers
            )
            try:
                for batch in scan.batches():
                    for queue, messages, numbers in dispatched_entries(batch):
                        # In salvage mode, a scan also finds records after the offset at which a broker ends the log.
                        # These records have no entries.
                        part = queues.get(queue, _NOTHING)
                        offsets = messages["physical_offset"]
                        inside = (offsets >= part.start) & (offsets < min(part.stop, self._end))
                        if inside.any():
                            yield NumberedMessages(queue, messages[inside], numbers[inside])
            except (StoreNotFoundError, MessageNotFoundError):  # A broker deleted the expired file.
                continue
            self._add_readable(file, scan)

    def _add_readable(self, file: core.CommitLogFile, scan: core.FileScan) -> None:
        # Readable ranges are the complement of the damaged ones within the file.
        edges = [file.start, *(at for lost in scan.damage for at in (lost.start, lost.stop))]
        edges.append(scan.end.position)
        self.readable += [
            core.OffsetRange(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)
        ]
