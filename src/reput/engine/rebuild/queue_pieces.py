"""Write ConsumeQueues in object storage, where an object cannot be written in parts.

A regular task (`queue_plan.QueueTask`) writes the entries of one range of the log. It stages each file that its entries
fill: it uploads the file as an object. It writes all other entries, as pieces of files, into one object per task. Join
tasks then build the remaining files from the pieces. A row describes a piece (`_ROW`). The object of a task has this
layout:

    number of rows (8 bytes) | rows, sorted by queue and file | entries of the pieces, in the order of the rows
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from posixpath import join

import numpy as np
import numpy.typing as npt

from reput.core import CONSUME_QUEUE, Queue, queue_folder
from reput.engine.rebuild.index_layout import IndexFileTask
from reput.engine.rebuild.queue_plan import JoinTask, QueueTask, read_plan
from reput.engine.rebuild.write_files import (
    IndexFileWritten,
    QueuesWritten,
    WriteJob,
    write_index_file,
    write_queues,
)
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.io import DISK, FileReader, FileWriter, Scratch, StagedFiles, data_runs

_ROW = np.dtype(
    [("queue", np.int64), ("file", np.int64), ("first", np.int64), ("entries", np.int64)]
)
"""A piece of a queue file: `entries` entries from entry `first` on. For a piece that is a whole file, `entries` is
_WHOLE."""
_WHOLE = -1
_COUNT_BYTES = 8
_CHUNK_BYTES = 1 << 20
_Rows = npt.NDArray[np.void]


def write_objects(
    job: WriteJob, task: IndexFileTask | QueueTask
) -> IndexFileWritten | QueuesWritten:
    """Write files on the executor's disk, then stage them. Safe to run twice, also at the same time.

    Raises StoreAccessError, StoreChangedError.
    """
    if isinstance(task, IndexFileTask):
        return write_index_file(job, task)
    with Scratch.folder() as scratch:
        new, parts = scratch / "new", scratch / "parts"
        local = job._replace(new=str(new), parts=str(parts))
        for folder in (new, parts):
            DISK.create_folder(folder)
        result = write_queues(local, task)
        if task.kind == "regular":
            return result._replace(objects=_stage_pieces(job, task, new / CONSUME_QUEUE_FOLDER))
        files = list(_files_below(new))
        for path in files:
            StagedFiles.put(path, join(job.new, path.relative_to(new).as_posix()))
    return result._replace(objects=len(files))


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _pieces(job: WriteJob, number: int) -> str:
    return join(job.parts, f"pieces-{number:06d}")


def _stage_pieces(job: WriteJob, task: QueueTask, folder: Path) -> int:
    """Upload each full ConsumeQueue file, and all pieces of other files as one object. Return the number of full files.

    A piece contains the entries of a file that is not full.
    """
    numbers = {queue: number for number, queue in enumerate(read_plan(job.plan).queues)}
    of_file = job.config.queue_entries
    rows: list[tuple[int, int, int, int]] = []
    pieces: list[tuple[int, int, Path]] = []
    for path in _files_below(folder):
        queue = Queue(path.parent.parent.name, int(path.parent.name))
        pieces.append((numbers[queue], int(path.name) // (of_file * ENTRY_BYTES), path))
    pieces.sort()
    with StagedFiles.writing(_pieces(job, task.number)) as attempt, FileWriter(attempt) as file:
        position = _COUNT_BYTES + len(pieces) * _ROW.itemsize
        for number, place, path in pieces:
            first, stop = _written(path)
            if stop - first == of_file:  # The file is full, so no task adds to it.
                StagedFiles.put(path, _object_of_file(job, number, place))
                rows.append((number, place, first, _WHOLE))
                continue
            rows.append((number, place, first, stop - first))
            position = _copy(path, first * ENTRY_BYTES, stop * ENTRY_BYTES, file, position)
        file.write(len(rows).to_bytes(_COUNT_BYTES, "little"), 0)
        if rows:
            file.write(np.array(rows, _ROW).data.cast("B"), _COUNT_BYTES)
    return sum(entries == _WHOLE for *_, entries in rows)


def _object_of_file(job: WriteJob, number: int, place: int) -> str:
    queue = read_plan(job.plan).queues[number]
    name = CONSUME_QUEUE.file_name(place * job.config.queue_entries)
    folder = queue_folder(Path(CONSUME_QUEUE_FOLDER), *queue)
    return join(job.new, folder.as_posix(), name)


def _written(path: Path) -> tuple[int, int]:
    """Return the range of entries from the first written one to the last; (0, 0) if the file is empty."""
    with FileReader(str(path)) as reader:
        last = reader.last_nonzero(reader.size)
        if last is None:
            return 0, 0
        # Files are sparse: search only the ranges that have data.
        for begin, end in data_runs(reader, 0, last + 1):
            for position in range(begin, end, _CHUNK_BYTES):
                data = np.frombuffer(
                    reader.read(position, min(_CHUNK_BYTES, end - position)), np.uint8
                )
                if (nonzero := np.flatnonzero(data)).size:
                    return (position + int(nonzero[0])) // ENTRY_BYTES, last // ENTRY_BYTES + 1
    return 0, 0


def _copy(path: Path, start: int, stop: int, into: FileWriter, position: int) -> int:
    """Copy bytes of a file; return the position after them."""
    with FileReader(str(path)) as reader:
        for begin in range(start, stop, _CHUNK_BYTES):
            data = reader.read(begin, min(_CHUNK_BYTES, stop - begin))
            into.write(data, position)
            position += len(data)
    return position


def join_pieces(job: WriteJob, task: JoinTask) -> int:
    """Build ConsumeQueue files from the pieces of all tasks, and upload these files. Return the number of files.

    Safe to run twice, also at the same time.

    Raises StoreAccessError, StoreChangedError.
    """
    with Scratch.folder() as scratch:
        files = _JoinedFiles(job, scratch)
        for number in range(task.tasks):
            for row, entries in _rows_of(_pieces(job, number), task):
                files.put(*row, entries)
        return files.finish()


def _rows_of(path: str, task: JoinTask) -> Iterator[tuple[tuple[int, int, int, int], bytes]]:
    """Read the object at `path`. Yield the `_ROW` and the entries of each piece that a join task needs."""
    count = int.from_bytes(StagedFiles.read_range(path, 0, _COUNT_BYTES), "little")
    rows: _Rows = np.frombuffer(
        StagedFiles.read_range(path, _COUNT_BYTES, count * _ROW.itemsize), _ROW
    )
    ends = np.cumsum(np.maximum(rows["entries"], 0)) * ENTRY_BYTES
    first, stop = np.searchsorted(rows["queue"], [task.first, task.stop]).tolist()
    begin = _COUNT_BYTES + count * _ROW.itemsize
    for number in range(first, stop):
        start = int(ends[number - 1]) if number else 0
        length = int(ends[number]) - start
        yield rows[number].item(), StagedFiles.read_range(path, begin + start, length)


class _JoinedFiles:
    """The unfinished files of queues. Each queue has at most one, because its files come in order."""

    def __init__(self, job: WriteJob, scratch: Path) -> None:
        self._job, self._scratch, self._staged = job, scratch, 0
        self._open: dict[int, int] = {}

    def put(self, queue: int, place: int, first: int, entries: int, data: bytes) -> None:
        """Write entries to file number `place` of a queue, from entry `first` of the file on.

        The caller passes the files of a queue in order.
        """
        if self._open.get(queue, place) != place:
            self._stage(queue)
        # If one task had all entries of a file, this task has already staged the whole file. So the file is not built
        # from pieces here. But an earlier task may have staged a piece of the file that has no entries. For such a
        # piece, `put` has created an empty file in the scratch folder. Delete the empty file.
        if entries == _WHOLE:
            DISK.remove_tree(self._path(queue))
            self._open.pop(queue, None)
            return
        self._open[queue] = place
        with FileWriter(self._path(queue), size=self._job.config.queue_file_bytes) as file:
            file.write(data, first * ENTRY_BYTES)

    def finish(self) -> int:
        """Stage the last file of each queue; return the number of staged files."""
        for queue in list(self._open):
            self._stage(queue)
        return self._staged

    def _path(self, queue: int) -> Path:
        return self._scratch / str(queue)

    def _stage(self, queue: int) -> None:
        path = self._path(queue)
        StagedFiles.put(path, _object_of_file(self._job, queue, self._open.pop(queue)))
        DISK.remove_tree(path)
        self._staged += 1
