"""Whether ConsumeQueues and IndexFiles hold what dispatch makes of the log: one entry each, no other.

The log is scanned as for dispatch, and what would be appended is compared with what is there. Each file of the log is a
piece of work of its own, for any thread; then the pieces must join: an entry between two of them is one too many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event, local

from reput.config import StoreConfig
from reput.format.dtypes import ENTRY_DTYPE
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import BROKER, DispatchRules
from reput.queues.writer import first_position
from reput.recovery.difference import equal_rows
from reput.recovery.expected import appended, queue_runs
from reput.recovery.index_files import IndexFiles
from reput.recovery.queue_files import QueueFiles

_MOST_THREADS = 4


@dataclass
class Run:
    """Entries from `begin` to `end` are those that dispatch makes.

    refused  after the last one there was an entry from before the end, which a queue does not take
    """

    begin: int
    end: int
    refused: bool = False


@dataclass
class Piece:
    """What comparing one range of the log found.

    start        physical offset at which it begins, a record
    queues       entries of each queue that it has messages of
    index        items
    last         where its last message begins, or one before it; None where it has none
    queue_wrong  physical offset of the first message whose ConsumeQueue entry is not there, None where all are
    index_wrong  the same of index entries
    """

    start: int
    index: Run
    queues: dict[Queue, Run] = field(default_factory=dict)
    last: int | None = None
    queue_wrong: int | None = None
    index_wrong: int | None = None


class Comparison:
    """Compares the messages from `begin` to `end`, physical offsets.

    queues_from, index_from  physical offset of the first message without its entries, or `end`
    queue_begins, queue_ends by queue, positions of the entries compared that are right
    queue_refused            queues that refused an entry behind their last
    index_begin, index_end   numbers of the items
    last_message             where the last message begins, or one before it; None where there is none
    """

    def __init__(
        self,
        files: Sequence[CommitLogFile],
        begin: int,
        end: int,
        config: StoreConfig,
        queues: dict[Queue, QueueFiles],
        index: IndexFiles,
        batch_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._batch_topics = batch_topics
        self._files, self._begin, self._end = files, begin, end
        self._rules = DispatchRules.of(config)
        self._queues, self._index = queues, index
        self._stop = Event()
        self._own = local()
        self.queues_from = self.index_from = end
        self.queue_begins: dict[Queue, int] = {}
        self.queue_ends: dict[Queue, int] = {}
        self.queue_refused: set[Queue] = set()
        self.index_begin = self.index_end = 0
        self.last_message: int | None = None

    def run(self, queue_begins: dict[Queue, int], index_begin: int | None) -> None:
        """Compare from these positions on; those of queues not given are looked for. Raises StoreAccessError."""
        for name, found in self._queues.items():
            if found.starts:
                known = queue_begins.get(name)
                self.queue_begins[name] = self._first_of(found) if known is None else known
        self.queue_ends |= self.queue_begins
        if index_begin is None:
            index_begin = self._index.first_at(self._begin, self._index.stop)
        self.index_begin = self.index_end = index_begin
        ranges = [
            (file, max(self._begin, file.start), min(self._end, file.end))
            for file in self._files
            if file.end > self._begin and file.start < self._end
        ]
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            try:
                self._join(pool.map(lambda one: self._compare(*one), ranges))
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def kept_of_queue(self, name: Queue) -> tuple[int, int]:
        """Position after the last entry to be kept of a queue, and of the first that was compared."""
        found, begin = self._queues[name], self.queue_begins.get(name, 0)
        end = self.queue_ends.get(name, 0)
        return found.first_at(self.queues_from, found.first, end), begin

    def _first_of(self, found: QueueFiles) -> int:
        return found.first_at(self._begin, found.first, found.stop)

    def _join(self, pieces: Iterator[Piece]) -> None:
        queues_done = index_done = False
        for piece in pieces:
            self.last_message = self.last_message if piece.last is None else piece.last
            if not queues_done:
                queues_done = self._join_queues(piece)
            if not index_done:
                index_done = self._join_index(piece)
            if queues_done and index_done:
                return

    def _join_queues(self, piece: Piece) -> bool:
        """Whether something is wrong from here on."""
        if any(
            run.begin != self.queue_ends.get(name, run.begin) for name, run in piece.queues.items()
        ):
            self.queues_from = piece.start
            return True
        for name, run in piece.queues.items():
            self.queue_ends[name] = run.end
            if run.refused:
                self.queue_refused.add(name)
            elif run.end > run.begin:
                self.queue_refused.discard(name)
        if piece.queue_wrong is not None:
            self.queues_from = piece.queue_wrong
        return piece.queue_wrong is not None

    def _join_index(self, piece: Piece) -> bool:
        if piece.index.begin != self.index_end:
            self.index_from = piece.start
            return True
        self.index_end = piece.index.end
        if piece.index_wrong is not None:
            self.index_from = piece.index_wrong
        return piece.index_wrong is not None

    def _compare(self, file: CommitLogFile, start: int, stop: int) -> Piece:
        if not hasattr(self._own, "buffers"):
            self._own.buffers = ScanBuffers()
        first_item = self.index_end if start == self._begin else None
        if first_item is None:
            first_item = self._index.first_at(start, self._index.stop)
        piece = Piece(start, Run(first_item, first_item))
        scan = FileScan(file, start, stop, BROKER, self._rules, buffers=self._own.buffers)
        begin = start
        for batch in scan.batches():
            # Where records do not lie where they say that they do, no offset of theirs is a place to begin at.
            trusted = None if scan.misplaced else range(begin, scan.end.position)
            piece.last = _place(int(batch.messages["physical_offset"][-1]), trusted, begin)
            if piece.queue_wrong is None:
                wrong = self._compare_queues(batch, piece)
                piece.queue_wrong = _place(wrong, trusted, begin)
            if piece.index_wrong is None:
                wrong = self._compare_index(batch, piece)
                piece.index_wrong = _place(wrong, trusted, begin)
            both = piece.queue_wrong is not None and piece.index_wrong is not None
            if both or self._stop.is_set():
                break
            begin = scan.end.position
        return piece

    def _compare_index(self, batch: DispatchBatch, piece: Piece) -> int | None:
        offsets = batch.messages["physical_offset"][batch.key_row]
        count = self._index.matching(piece.index.end, batch.key_hash, offsets)
        piece.index.end += count
        return int(offsets[count]) if count < len(offsets) else None

    def _compare_queues(self, batch: DispatchBatch, piece: Piece) -> int | None:
        wrong = []
        for name, rows, queue_offset in queue_runs(batch):
            if name.topic in self._batch_topics:
                continue
            found = self._queues.get(name)
            run = piece.queues.get(name)
            if run is None:
                run = self._begin_run(name, piece.start)
                if run is None:
                    first = first_position(batch.messages[rows], queue_offset)
                    run = Run(first, first)
                piece.queues[name] = run
            before = found.end_before(run.end) if found is not None else -1
            expected, _, refused = appended(batch, rows, queue_offset, run.end, before)
            run.refused = refused or (run.refused and not len(expected))
            count = 0 if found is None else equal_rows(found.read(run.end, len(expected)), expected)
            run.end += count
            if count < len(expected):
                wrong.append(int(expected[count].view(ENTRY_DTYPE)["physical_offset"][0]))
        return min(wrong, default=None)

    def _begin_run(self, name: Queue, start: int) -> Run | None:
        """Where the queue's entries of a piece begin, None where it has no entry before it."""
        found = self._queues.get(name)
        if found is None or not found.starts:
            return None
        begin = self.queue_ends[name]
        if start != self._begin:
            begin = found.first_at(start, found.first, found.stop)
        return Run(begin, begin) if found.end_before(begin) >= 0 else None


def _place(wrong: int | None, trusted: range | None, begin: int) -> int | None:
    if wrong is None or (trusted is not None and wrong in trusted):
        return wrong
    return begin
