"""Check each ConsumeQueue on its own: the order of its entries, the gaps between them, and their log files."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.base import Finding
from reput.core import Queue
from reput.engine.check.checking import listings
from reput.engine.compare import EntryPlaces, LogEdges, Span, Spans
from reput.errors import ReputError, StoreNotFoundError
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK
from reput.format.dtypes import ENTRY_DTYPE, raw_entries
from reput.io import FileReader
from reput.kernels.entry_checks import entries_follow

_PIECE_ENTRIES = 1 << 16


@dataclass(frozen=True, slots=True)
class QueueJob:
    """The common arguments of all tasks on ConsumeQueues. `is_live`: a broker is appending to them."""

    queue_entries: int
    edges: LogEdges
    is_live: bool


@dataclass(slots=True)
class CheckedQueue:
    """The result of checking one queue. Entries are numbered by queue offset.

    places  the queue's files
    spans   summary of the entries that lead into each log file, by number of the log file
    end     physical offset at which the message of its last entry ends; -1 if it has no entries. Entries that lead
            beyond the end of the log are ignored.
    stop    number of the first unwritten entry
    """

    queue: Queue
    places: EntryPlaces
    spans: dict[int, Span] = field(default_factory=dict)
    end: int = -1
    stop: int = 0
    findings: list[Finding] = field(default_factory=list)


def read_queue_table(job: QueueJob, task: tuple[Queue, str]) -> CheckedQueue:
    """Check one queue in its folder. Unreadable parts become findings."""
    queue, folder = task
    table = CheckedQueue(queue, EntryPlaces(folder, ()))
    try:
        listing = listings.list_queue(folder, job.queue_entries, job.is_live)
        table.places, table.findings = listing.places, listing.findings
        _QueueReading(job, table).run()
    except (ReputError, OSError) as error:
        table.findings += listings.unreadable_queue(folder, error, job.is_live)
    return table


class _QueueReading:
    """Reads the entries of a queue in order, including entries after the first unwritten one."""

    def __init__(self, job: QueueJob, table: CheckedQueue) -> None:
        self._job, self._table = job, table
        self._spans = Spans(job.edges)
        self._before = -1  # Physical offset at which the message of the last entry ends.
        self._next: int | None = None  # Number that the next entry should have.
        self._gap: int | None = None  # Number of the first unwritten entry.
        # `_disorder` has the number and physical offset of the first entry out of order; empty if all are in order.
        self._disorder: list[tuple[int, int]] = []
        self._disordered = 0
        self._ended_early = False

    def run(self) -> None:
        for first, count, path in self._table.places.files:
            try:
                reader = FileReader(path)
            except StoreNotFoundError:
                if not self._job.is_live:
                    raise
                # The file has expired, so all files before it have expired as well.
                self._next = None
                continue
            if self._next is not None and self._gap is None:
                self._table.findings += listings.missing_files(
                    self._table.places, self._next, first
                )
            self._next = first + count
            with reader:
                last = reader.last_nonzero(count * ENTRY_BYTES)
                used = 0 if last is None else last // ENTRY_BYTES + 1
                for begin in range(0, used, _PIECE_ENTRIES):
                    data = np.empty(min(_PIECE_ENTRIES, used - begin), ENTRY_DTYPE)
                    reader.read_into(data.view(np.uint8), begin * ENTRY_BYTES)
                    self._take(data, first + begin)
            if used < count and self._gap is None:
                self._gap = first + used
        self._table.spans = self._spans.by_file
        self._table.stop = self._gap if self._gap is not None else self._next or 0
        if self._disorder:
            entry, offset = self._disorder[0]
            self._table.findings.append(
                listings.disorder(self._table.places, entry, offset, self._disordered)
            )

    def _take(self, data: npt.NDArray[np.void], first: int) -> None:
        words = raw_entries(data)
        rows, end = entries_follow(words, max(self._before, 0)) if self._gap is None else (0, -1)
        # The usual case: the entries are in order and without gaps. Then a bisection finds the log files into which
        # they lead, without a look at every entry.
        if rows and end <= self._job.edges.end:
            self._before = int(end)
            self._table.end = max(self._table.end, int(end))
            self._spans.add_ordered(rows, first, lambda row: int(data[row]["physical_offset"]))
            data, words, first = data[rows:], words[rows:], first + rows
        if words.any():
            self._look_closer(data, first)
        elif len(data) and self._gap is None:
            self._gap = first

    def _look_closer(self, data: npt.NDArray[np.void], first: int) -> None:
        """Report a gap and entries out of order, and find the log files into which the entries lead, entry by entry."""
        offsets = data["physical_offset"].astype(np.int64)
        sizes = data["size"].astype(np.int64)
        blank = (offsets == PRE_BLANK.physical_offset) & (sizes == PRE_BLANK.size)
        written = (offsets >= 0) & (sizes > 0)
        if not written.all() and self._gap is None:
            self._gap = first + int(np.argmin(written))
        if self._gap is not None and written[max(self._gap - first, 0) :].any():
            if not self._job.is_live and not self._ended_early:
                self._table.findings.append(listings.gap(self._table.places, self._gap))
            self._ended_early = True
        rows = np.flatnonzero(written & ~blank)
        self._in_order(offsets[rows], sizes[rows], first + rows)

    def _in_order(
        self,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
    ) -> None:
        if not len(offsets):
            return
        ends = offsets + sizes
        before = np.concatenate([[self._before], ends[:-1]])
        # Messages do not overlap: each begins where the previous one of the queue ends, or later.
        wrong = np.flatnonzero(offsets < before)
        self._disorderly(numbers[wrong], offsets[wrong])
        self._before = int(ends[-1])
        inside = ends[ends <= self._job.edges.end]
        self._table.end = max(self._table.end, int(inside.max(initial=-1)))
        gaps = np.flatnonzero(np.diff(numbers) != 1) + 1
        for part, entries in zip(np.split(offsets, gaps), np.split(numbers, gaps), strict=True):
            self._spans.add(part, int(entries[0]))

    def _disorderly(self, numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> None:
        self._disordered += len(numbers)
        if len(numbers) and not self._disorder:
            self._disorder.append((int(numbers[0]), int(offsets[0])))
