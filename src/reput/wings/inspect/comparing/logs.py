"""Compare two logs: by physical offset if both are copies of one log, else by queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from reput import core
from reput.base import Finding
from reput.engine.compare import in_common, unmatched
from reput.errors import FormatError, MessageNotFoundError, StoreError
from reput.format import commit_log
from reput.kernels.checksum import body_crcs
from reput.wings.inspect.comparing.difference import Difference, Example, Extent, Part, Way, What

Column = npt.NDArray[np.int64]
NOT_QUEUED = -1
CHUNK_BYTES = 64 << 20
# The field after PHYSICALOFFSET.
_BEHIND_OFFSET = commit_log.SYS_FLAG_POSITION
_FIELDS = (
    "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "born_host", "store_timestamp",
    "store_host", "reconsume_times", "prepared_transaction_offset", "body_crc", "body", "properties_bytes", "magic",
)  # fmt: skip
# Maximum number of messages of one store in memory. Each takes 40 bytes, and more while they are sorted.
MOST_ROWS = 4 << 20
_WINDOW_BYTES = 4 << 20
_PROBE_BYTES = 64 << 10
_PROBES = 16
_SAME_SHARE = 0.5
# If there are too many messages for memory, several passes over the logs compare some of the messages each. Messages in
# the same block of 2**12 successive queue offsets are compared in the same pass.
_OFFSETS_A_PART = 12
ONLY_IN = (What.ONLY_IN_A, What.ONLY_IN_B)
Stores = tuple[core.MessageStore, core.MessageStore]
Mask = npt.NDArray[np.bool_]


class QueueNumbers:
    """Assigns a number to each queue. A queue has the same number in both stores."""

    def __init__(self) -> None:
        self._numbers: dict[core.Queue, int] = {}
        self.queues: list[core.Queue] = []

    def of(self, queues: Iterable[core.Queue]) -> Column:
        """Return the number that identifies each queue, int64[n]."""
        return np.array([self._number(queue) for queue in queues], np.int64)

    def _number(self, queue: core.Queue) -> int:
        if queue not in self._numbers:
            self._numbers[queue] = len(self.queues)
            self.queues.append(queue)
        return self._numbers[queue]


@dataclass(frozen=True, slots=True)
class LogRows:
    """Messages in log order, as columns of int64[n].

    Attributes:
        offset: Physical offsets.
        queue: Numbers of queues, from `QueueNumbers`.
        queue_offset: Queue offsets; NOT_QUEUED for a message whose transaction is open or was rolled back.
        size: Bytes of the records.
        digest: Digests of all bytes of the records except PHYSICALOFFSET, which differs between stores. The upper
            bits are the CRC-32 of the bytes before PHYSICALOFFSET, the lower bits the CRC-32 of the bytes after it.
    """

    offset: Column
    queue: Column
    queue_offset: Column
    size: Column
    digest: Column

    @classmethod
    def of(cls, piece: core.ScannedPiece, numbers: QueueNumbers) -> LogRows:
        messages = piece.batch.messages
        size = messages["size"].astype(np.int64)
        queue_offset = messages["queue_offset"].astype(np.int64)
        transaction = messages["sys_flag"] & commit_log.SYS_FLAG_TRANSACTION_MASK
        queue_offset[~np.isin(transaction, commit_log.DISPATCHED_TRANSACTIONS)] = NOT_QUEUED
        return cls(
            piece.base + piece.positions,
            numbers.of(piece.batch.queues)[messages["queue"]],
            queue_offset,
            size,
            _digests(piece.data, piece.positions, size),
        )

    @classmethod
    def joined(cls, parts: Iterable[LogRows]) -> LogRows:
        tables = list(parts)
        if not tables:
            return cls(*(np.empty(0, np.int64) for _ in range(5)))
        return cls(*(np.concatenate([getattr(part, name) for part in tables]) for name in _NAMES))

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> LogRows:
        return LogRows(*(getattr(self, name)[rows] for name in _NAMES))

    def __len__(self) -> int:
        return len(self.offset)


_NAMES = tuple(LogRows.__slots__)


class RowReader:
    """Reads the messages of one log.

    Attributes:
        damage: The unreadable ranges, in the order of reading.
    """

    def __init__(self, log: core.CommitLogReader, log_end: int, numbers: QueueNumbers) -> None:
        self._log, self._log_end, self._numbers = log, log_end, numbers
        self._buffers = core.ScanBuffers()
        self.damage: list[Finding] = list(log.holes())

    def read(self, file: core.CommitLogFile, start: int, stop: int) -> tuple[LogRows, int]:
        """Return messages that begin in [start, stop) of a file, and the offset of the next message.

        A message must begin at `start`.
        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        source = self._log.source
        scan = core.FileScan(
            file, start, stop, core.ScanMode.SALVAGE, buffers=self._buffers, open_file=source.open
        )
        rows = LogRows.joined([LogRows.of(piece, self._numbers) for piece in scan.pieces()])
        self.damage += scan.unread(self._log_end)
        return rows, file.end if scan.end.finished else scan.end.position

    def chunks(self, file: core.CommitLogFile) -> Iterator[LogRows]:
        """Yield all messages of a file in parts."""
        position = file.start
        while position < file.end:
            rows, position = self.read(file, position, min(position + CHUNK_BYTES, file.end))
            yield rows


def _digests(data: npt.NDArray[np.uint8], positions: Column, size: Column) -> Column:
    # A digest joins two CRCs of 31 bits: one of the record's bytes before the field PHYSICALOFFSET, and one of the
    # record's bytes after this field.
    low, high = np.empty(len(size), np.int32), np.empty(len(size), np.int32)
    body_crcs(data, positions, np.full(len(size), commit_log.PHYSICAL_OFFSET_POSITION), low)
    body_crcs(data, positions + _BEHIND_OFFSET, size - _BEHIND_OFFSET, high)
    return low.astype(np.int64) << 31 | high


def add_different(
    difference: Difference,
    stores: tuple[core.MessageStore, core.MessageStore],
    left: LogRows,
    right: LogRows,
) -> None:
    """Add examples of messages whose content differs between the stores.

    The n-th row of `left` is compared with the n-th row of `right`.
    """
    room = difference.room(Part.MESSAGE, What.DIFFERENT)
    offsets = zip(left.offset[:room].tolist(), right.offset[:room].tolist(), strict=True)
    for a, b in offsets:
        pair = _read(stores[0], a), _read(stores[1], b)
        readable = next((message for message in pair if message is not None), None)
        difference.examples.append(
            Example(
                Part.MESSAGE, What.DIFFERENT, _place(readable), a, b, _differing_fields(*pair)
            )
        )  # fmt: skip


def add_only_in(difference: Difference, store: core.MessageStore, side: int, rows: LogRows) -> None:
    """Add examples of messages that only one store has."""
    what = What.ONLY_IN_B if side else What.ONLY_IN_A
    for offset in rows.offset[: difference.room(Part.MESSAGE, what)].tolist():
        places = (None, offset) if side else (offset, None)
        difference.examples.append(
            Example(Part.MESSAGE, what, _place(_read(store, offset)), *places)
        )


def _read(store: core.MessageStore, offset: int) -> commit_log.MessageExt | None:
    try:
        return store.get(offset)
    except StoreError:  # A reader may refuse a record that the scan in salvage mode can read.
        return None


def _place(message: commit_log.MessageExt | None) -> str:
    if message is None:
        return ""
    return f"{message.topic}, queue {message.queue_id}, queue offset {message.queue_offset}"


def _differing_fields(
    left: commit_log.MessageExt | None, right: commit_log.MessageExt | None
) -> str:
    """Return the names of the fields that differ, for example `body, properties`."""
    if left is None or right is None:
        return ""
    names = [name for name in _FIELDS if getattr(left, name) != getattr(right, name)]
    return ", ".join(name.removesuffix("_bytes") for name in names)


def find_way(stores: Stores) -> Way:
    """Choose how to pair messages.

    Pair by offset if each log has a file with the same start offset, and the first bytes of the two files are mostly
    the same. Bytes that are zero in both files are not compared, because every new log file is full of zeros.
    """
    files = [{file.start: file for file in store.commit_log.files} for store in stores]
    for start in sorted(files[0].keys() & files[1].keys())[:_PROBES]:
        pair = [
            np.frombuffer(store.commit_log.read(of[start], start, _PROBE_BYTES), np.uint8)
            for store, of in zip(stores, files, strict=True)
        ]
        length = min(map(len, pair))
        left, right = pair[0][:length], pair[1][:length]
        used = (left != 0) | (right != 0)
        if used.any() and np.mean(left[used] == right[used]) > _SAME_SHARE:
            return Way.BY_OFFSET
    return Way.BY_QUEUE


class LogComparison:
    """Compares the logs of two stores, and adds the differences to a `Difference`."""

    def __init__(self, stores: Stores, difference: Difference) -> None:
        self._stores, self._difference = stores, difference
        self._numbers = QueueNumbers()
        self._readers = [
            RowReader(store.commit_log, extent.end, self._numbers)
            for store, extent in zip(stores, difference.logs, strict=True)
        ]

    def run(self) -> None:
        """Compare the logs. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
        if self._difference.way is Way.BY_OFFSET:
            self._by_offset()
        else:
            self._by_queue()
        for side, reader in enumerate(self._readers):
            self._difference.damage[side].extend(dict.fromkeys(reader.damage))

    # Comparison by physical offset: file by file.

    def _by_offset(self) -> None:
        files = [{file.start: file for file in store.commit_log.files} for store in self._stores]
        for start in sorted(files[0].keys() | files[1].keys()):
            left, right = files[0].get(start), files[1].get(start)
            if left is not None and right is not None:
                if not self._are_equal(left, right):
                    self._compare_files(left, right)
                continue
            side = 0 if left is not None else 1
            for rows in self._readers[side].chunks(files[side][start]):
                self._only_in(side, rows)

    def _are_equal(self, left: core.CommitLogFile, right: core.CommitLogFile) -> bool:
        """Return whether two files have the same bytes."""
        if left.size != right.size:
            return False
        logs = [store.commit_log for store in self._stores]
        for position in range(left.start, left.end, _WINDOW_BYTES):
            if logs[0].read(left, position, _WINDOW_BYTES) != logs[1].read(
                right, position, _WINDOW_BYTES
            ):
                return False
        self._difference.equal_bytes += left.size
        return True

    def _compare_files(self, left: core.CommitLogFile, right: core.CommitLogFile) -> None:
        files, positions = (left, right), [left.start, right.start]
        for cut in range(left.start, max(left.end, right.end), CHUNK_BYTES):
            rows = []
            for side, file in enumerate(files):
                part = LogRows.joined([])
                stop = min(cut + CHUNK_BYTES, file.end)
                if positions[side] < stop:
                    part, positions[side] = self._readers[side].read(file, positions[side], stop)
                rows.append(part)
            self._pair(rows[0], rows[1], by_offset=True)

    # A comparison by queue makes one pass over both logs if all rows fit into memory. Otherwise, it makes several
    # passes, each over a part of every queue.

    def _by_queue(self) -> None:
        passes = 1
        while not self._try_by_queue(passes):
            # A pass had too many rows. Begin again, with more passes over smaller parts.
            passes *= 2
            self._difference.clear_messages()

    def _try_by_queue(self, passes: int) -> bool:
        for number in range(passes):
            tables = []
            for reader, store in zip(self._readers, self._stores, strict=True):
                # Forget the damage of the previous pass: each pass reads the whole log, and finds all damage again.
                reader.damage = list(store.commit_log.holes())
                parts, count = [], 0
                for rows in _all_rows(reader, store):
                    part = rows.take(_share(rows, passes) == number) if passes > 1 else rows
                    count += len(part)
                    if count > MOST_ROWS:
                        return False
                    parts.append(part)
                tables.append(LogRows.joined(parts))
            self._pair(tables[0], tables[1], by_offset=False)
        return True

    def _pair(self, left: LogRows, right: LogRows, *, by_offset: bool) -> None:
        sides = left, right
        if by_offset:
            alone = unmatched(*((rows.offset, rows.digest) for rows in sides))
        else:
            alone = unmatched(
                *((rows.queue, rows.queue_offset, rows.size, rows.digest) for rows in sides)
            )
        self._difference.equal_messages += len(left) - len(alone[0])
        left, right = left.take(alone[0]), right.take(alone[1])
        if by_offset:
            pairs = in_common((left.offset,), (right.offset,))
        else:
            # The remaining messages have no equal message in the other store. Pair them by queue offset: the two
            # messages of a pair differ. A message without a queue offset cannot be paired, and counts as being in one
            # store only.
            queued = [np.flatnonzero(rows.queue_offset != NOT_QUEUED) for rows in (left, right)]
            pairs = in_common(
                *(
                    (rows.queue[rows_in_queue], rows.queue_offset[rows_in_queue])
                    for rows, rows_in_queue in zip((left, right), queued, strict=True)
                )
            )
            pairs = queued[0][pairs[0]], queued[1][pairs[1]]
        self._difference.add(Part.MESSAGE, What.DIFFERENT, len(pairs[0]))
        add_different(self._difference, self._stores, left.take(pairs[0]), right.take(pairs[1]))
        for side, (rows, paired) in enumerate(zip((left, right), pairs, strict=True)):
            rest = np.ones(len(rows), np.bool_)
            rest[paired] = False
            self._only_in(side, rows.take(rest))

    def _only_in(self, side: int, rows: LogRows) -> None:
        if not len(rows):
            return
        difference = self._difference
        difference.add(Part.MESSAGE, ONLY_IN[side], len(rows))
        if difference.way is Way.BY_OFFSET:
            extent: Extent = difference.logs[1 - side]
            before, behind = rows.offset < extent.begin, rows.offset >= extent.end
        else:
            before, behind = self._outside_queues(rows, self._stores[1 - side])
        difference.expired[side] += int(np.count_nonzero(before))
        difference.behind[side] += int(np.count_nonzero(behind))
        add_only_in(difference, self._stores[side], side, rows)

    def _outside_queues(self, rows: LogRows, store: core.MessageStore) -> tuple[Mask, Mask]:
        """Return two flags per row: whether it precedes, or follows, all messages of its queue in the other store."""
        before, behind = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for number in np.unique(rows.queue).tolist():
            queue = self._numbers.queues[number]
            try:
                least = _first_unexpired(store, *queue)
                most = store.max_queue_offset(*queue)
            except MessageNotFoundError:
                continue
            of_queue = (rows.queue == number) & (rows.queue_offset != NOT_QUEUED)
            before |= of_queue & (rows.queue_offset < least)
            behind |= of_queue & (rows.queue_offset >= most)
        return before, behind


def _first_unexpired(store: core.MessageStore, topic: str, queue_id: int) -> int:
    """Return the queue offset of the first message that has not expired; 0 if its entry is damaged."""
    try:
        return store.min_queue_offset(topic, queue_id)
    except FormatError:
        return 0


def _all_rows(reader: RowReader, store: core.MessageStore) -> Iterator[LogRows]:
    for file in store.commit_log.files:
        yield from reader.chunks(file)


def _share(rows: LogRows, passes: int) -> npt.NDArray[np.int64]:
    """Return for each row the number of the pass that compares it: the same number for the same message in A and B.

    The number depends on queue and queue offset. For a message without a queue offset, it depends on the digest.
    """
    part = rows.queue * 31 + (rows.queue_offset >> _OFFSETS_A_PART)
    return np.where(rows.queue_offset == NOT_QUEUED, rows.digest, part) % passes
