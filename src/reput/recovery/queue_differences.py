"""ConsumeQueues held against the entries that dispatch appends, to the last byte.

An entry's place is its number in the queue, so what is wrong with one says nothing of those after it. Entries before
a queue's first message in the log are of messages that have expired, and are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

from reput.config import StoreConfig
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.queues.writer import first_position, queue_folder
from reput.recovery.difference import (
    Difference,
    Words,
    bytes_of,
    differing_rows,
    offsets_of,
    surplus,
)
from reput.recovery.expected import QueueRun, appended, queue_runs
from reput.recovery.queue_files import QueueFiles, find_queues

_WINDOW_ENTRIES = 1 << 16
_OFFSET_COLUMN = 0


@dataclass(slots=True)
class _Place:
    """How far a queue was compared: the number of its next entry, and where the message of the last one ends."""

    files: QueueFiles
    position: int
    end: int = -1


class QueueDifferences:
    """What differs, batch by batch; messages before physical offset `begin` have expired."""

    def __init__(self, folder: Path, config: StoreConfig, begin: int) -> None:
        """Raises StoreError for files of other sizes."""
        self._folder, self._config, self._begin = folder / CONSUME_QUEUE_FOLDER, config, begin
        self._found = find_queues(folder, config)
        self._places: dict[Queue, _Place] = {}

    def of_batch(self, batch: DispatchBatch) -> Iterator[Difference]:
        """In the order of the messages. Raises StoreAccessError."""
        parts = [self._of_run(batch, run) for run in queue_runs(batch)]
        yield from merge(*parts, key=lambda one: one.physical_offset or 0)

    def rest(self) -> Iterator[Difference]:
        """After the last batch: entries that are too many, queue by queue."""
        for name, found in sorted(self._found.items()):
            place = self._places.get(name) or self._after_expired(found)
            yield from self._surplus(found, place.position)

    def _of_run(self, batch: DispatchBatch, run: QueueRun) -> Iterator[Difference]:
        place = self._places.get(run.name)
        if place is None:
            place = self._places[run.name] = self._first_place(batch, run)
        position, files = place.position, place.files
        expected, end, _ = appended(batch, run.rows, run.queue_offset, position, place.end)
        place.position, place.end = position + len(expected), end
        there = files.read_padded(position, len(expected))
        return self._wrong(files, position, there, expected)

    def _wrong(
        self, files: QueueFiles, position: int, there: Words, expected: Words
    ) -> Iterator[Difference]:
        rows = differing_rows(there, expected)
        offsets = offsets_of(expected[rows], _OFFSET_COLUMN).tolist()
        for row, offset in zip(rows.tolist(), offsets, strict=True):
            path, file_offset = files.place(position + row)
            found = bytes_of(there, row) if there[row].any() else b""
            yield Difference("entry", path, file_offset, offset, bytes_of(expected, row), found)

    def _first_place(self, batch: DispatchBatch, run: QueueRun) -> _Place:
        """Where the first messages' entries are: where these say, or after those that have expired."""
        files = self._found.get(run.name)
        if files is None:
            files = QueueFiles(queue_folder(self._folder, *run.name), self._config.queue_entries)
        stated = first_position(batch.messages[run.rows], run.queue_offset)
        after_expired = self._after_expired(files).position

        def wrong_entries(position: int) -> int:
            expected = appended(batch, run.rows, run.queue_offset, position, -1).entries
            missing = len(run.rows) - len(expected)
            there = files.read_padded(position, len(expected))
            return missing + len(differing_rows(there, expected))

        places = dict.fromkeys([stated, after_expired])
        return _Place(files, min(places, key=wrong_entries))

    def _after_expired(self, files: QueueFiles) -> _Place:
        return _Place(files, files.first_at(self._begin, files.first, files.stop))

    def _surplus(self, files: QueueFiles, position: int) -> Iterator[Difference]:
        entries = self._config.queue_entries
        for first in files.starts:
            for start in range(max(first, position), first + entries, _WINDOW_ENTRIES):
                count = min(_WINDOW_ENTRIES, first + entries - start)
                path, file_offset = files.place(start)
                there = files.read_padded(start, count)
                yield from surplus("entry", path, file_offset, there, _OFFSET_COLUMN)
