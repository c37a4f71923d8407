"""Recovery of the ConsumeQueues: where the first message is that has not exactly one entry, and what to keep.

A broker believes what it finds (`ConsumeQueue.recover`, tag rocketmq-all-4.9.3) and dispatches what lies behind the
newest entry of any queue. Here the entries of all queues together must account for the log: what none of them covers
is looked at, and where a message lies there, all queues are cut back to it and dispatched again from it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.disk import Disk
from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK
from reput.format.file_names import CONSUME_QUEUE_FOLDER, parse_offset_file_name
from reput.kernels.queue_entries import MAX_QUEUE_OFFSET
from reput.store.commit_log_files import CommitLogFile
from reput.store.consume_queue import ENTRY_DTYPE, ConsumeQueue, queue_folder
from reput.store.consume_queue_reader import ConsumeQueues
from reput.store.dispatch_batch import Queue
from reput.store.recovery.report import RecoveryReport
from reput.store.scan import FileScan, ScanBuffers

_PREPARED = 4
Entries = npt.NDArray[np.void]


class FoundQueue:
    """The files of one queue, and its run of entries up to the first that was not written.

    first    queue offset of the first entry
    entries  ENTRY_DTYPE[n]
    has_more something follows behind the run, or a file is not as long as it should be
    """

    def __init__(self, folder: Path, queue_entries: int) -> None:
        self._folder, self._queue_entries = folder, queue_entries
        starts = sorted(
            start
            for path in folder.iterdir()
            if (start := parse_offset_file_name(path.name)) is not None
        )
        self.files = [start // ENTRY_BYTES for start in starts]
        self.first = self.files[0] if self.files else 0
        self.has_more = False
        parts = []
        for expected, start in enumerate(self.files):
            data = self._read(start)
            bad = np.flatnonzero((data["physical_offset"] < 0) | (data["size"] <= 0))
            run = data[: bad[0]] if len(bad) else data
            in_place = start == self.first + expected * queue_entries
            if not in_place or self.has_more:
                self.has_more = True
                break
            parts.append(run)
            self.has_more = len(run) < queue_entries
        self.entries: Entries = np.concatenate(parts) if parts else np.empty(0, ENTRY_DTYPE)
        beyond = self.first + len(self.entries)
        self.has_more = bool(self.files) and (
            self.files[-1] > beyond or self._has_data_behind(beyond)
        )

    def _path(self, start: int) -> Path:
        return self._folder / f"{start * ENTRY_BYTES:020d}"

    def _read(self, start: int) -> Entries:
        path = self._path(start)
        count = min(path.stat().st_size // ENTRY_BYTES, self._queue_entries)
        if path.stat().st_size > self._queue_entries * ENTRY_BYTES:
            raise StoreError(
                f"{path}: is larger than {self._queue_entries} entries; "
                "give the broker's settings (mappedFileSizeConsumeQueue)"
            )
        with FileReader(str(path)) as reader:
            return np.frombuffer(reader.read(0, count * ENTRY_BYTES), ENTRY_DTYPE)

    def _has_data_behind(self, position: int) -> bool:
        start = position - position % self._queue_entries
        if start not in self.files:
            return False
        with FileReader(str(self._path(start))) as reader:
            size = self._path(start).stat().st_size
            last = reader.last_nonzero(size)
        return last is not None and last >= (position - start) * ENTRY_BYTES

    def first_out_of_order(self, log_begin: int) -> int | None:
        """Physical offset of the first entry, of a message that is there, that does not lie behind the one before."""
        offsets = self.live(log_begin)["physical_offset"].astype(np.int64)
        wrong = np.flatnonzero(np.diff(offsets) <= 0)
        return int(offsets[wrong + 1].min()) if len(wrong) else None

    def live(self, log_begin: int) -> Entries:
        """Entries of messages that have not expired."""
        return self.entries[(self.entries["physical_offset"] >= log_begin) & ~self._is_pre_blank()]

    def _is_pre_blank(self) -> npt.NDArray[np.bool_]:
        blank: npt.NDArray[np.bool_] = (self.entries["physical_offset"] == 0) & (
            self.entries["size"] == PRE_BLANK.size
        )
        return blank

    def cut(self, until: int, disk: Disk) -> ConsumeQueue:
        """Keep the entries before the first of a message at or behind physical offset `until`, durably."""
        behind = np.flatnonzero(self.entries["physical_offset"] >= until)
        kept = int(behind[0]) if len(behind) else len(self.entries)
        real = np.flatnonzero(~self._is_pre_blank()[:kept])
        kept = int(real[-1]) + 1 if len(real) else 0  # a queue does not end with pre-blank entries
        if kept < len(self.entries) or self.has_more or (self.files and not kept):
            self._cut_files(self.first + kept if kept else 0, disk)
        if not kept:
            return ConsumeQueue(self._folder, self._queue_entries, disk=disk)
        last = self.entries[kept - 1]
        end = int(last["physical_offset"]) + int(last["size"])
        position = self.first + kept
        return ConsumeQueue(self._folder, self._queue_entries, position, end, disk)

    def _cut_files(self, position: int, disk: Disk) -> None:
        for start in reversed(self.files):
            if start >= position:
                disk.delete(self._path(start))
            elif position < start + self._queue_entries:
                file = disk.open(self._path(start), self._queue_entries * ENTRY_BYTES)
                keep = (position - start) * ENTRY_BYTES
                file.write(bytes(self._queue_entries * ENTRY_BYTES - keep), keep)
                file.sync()
                file.close()
        disk.sync_folder(self._folder)


def find_queues(store: Path, config: StoreConfig) -> dict[Queue, FoundQueue]:
    """Raises StoreError for files of another size."""
    folder = store / CONSUME_QUEUE_FOLDER
    return {
        Queue(topic, queue_id): FoundQueue(
            queue_folder(folder, topic, queue_id), config.queue_entries
        )
        for topic, queue_id in ConsumeQueues(store).list()
    }


def first_missing(
    queues: dict[Queue, FoundQueue],
    files: list[CommitLogFile],
    config: StoreConfig,
    report: RecoveryReport,
) -> int:
    """Physical offset of the first message without its entry, or with more than one; the log's end if all is well."""
    begin, end = report.log_begin, report.log_end
    wrong = [end]
    for name, queue in queues.items():
        offset = queue.first_out_of_order(begin)
        if offset is not None:
            report.notes.append(f"queue {name.topic}/{name.queue_id}: entries are out of order")
            wrong.append(offset)
    stop = min(wrong)
    buffers = ScanBuffers()
    for start, gap_end in _gaps(queues, begin, stop):
        missing = _first_with_entry(files, start, gap_end, config, buffers)
        if missing is not None:
            return missing
    return stop


def _gaps(queues: dict[Queue, FoundQueue], begin: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges of the log that no entry covers, in order; an entry that overlaps another ends them all there."""
    live = [queue.live(begin) for queue in queues.values()]
    offset = np.concatenate([np.empty(0, np.int64), *(part["physical_offset"] for part in live)])
    size = np.concatenate([np.empty(0, np.int64), *(part["size"] for part in live)])
    offset, first = np.unique(offset.astype(np.int64), return_index=True)
    ends = offset + size[first].astype(np.int64)
    before = offset < stop
    offset, ends = offset[before], ends[before]
    edges = np.concatenate([[begin], ends]).astype(np.int64)
    starts = np.concatenate([offset, [stop]]).astype(np.int64)
    for place in np.flatnonzero(edges != starts).tolist():
        if edges[place] < starts[place]:
            yield int(edges[place]), int(starts[place])
        else:  # one of the two points astray: look at all from the first on
            yield int(offset[place - 1]) if place else begin, stop
            return


def _first_with_entry(
    files: list[CommitLogFile], start: int, stop: int, config: StoreConfig, buffers: ScanBuffers
) -> int | None:
    """The first message in this range of the log that ConsumeQueues have an entry for."""
    for file in files:
        begin, end = max(start, file.start), min(stop, file.end)
        if begin >= end:
            continue
        scan = FileScan(file, begin, end, config, buffers=buffers)
        for batch in scan.batches():
            rows = np.flatnonzero(
                (batch.messages["sys_flag"] & _PREPARED == 0)
                & (batch.messages["queue_offset"] <= MAX_QUEUE_OFFSET)
            )
            if len(rows):
                return int(batch.messages["physical_offset"][rows[0]])
    return None
