"""What a whole store holds, by its files' names, sizes and headers: quick, however large it is."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike, fspath

from reput.errors import FormatError, StoreAccessError
from reput.files.reader import FileReader
from reput.format.checkpoint import Checkpoint
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    LOCK_FILE,
    is_index_file_name,
)
from reput.format.index_file import HEADER_BYTES, IndexHeader, decode_header
from reput.store.commit_log_files import list_commit_log_files
from reput.store.consume_queue_reader import ConsumeQueues
from reput.verify.marker_inspection import inspect_checkpoint
from reput.verify.problem import Problem


@dataclass(slots=True)
class QueueSummary:
    """Queue offsets: of the first message that has not expired, and the one the next will get."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(slots=True)
class IndexSummary:
    """One IndexFile by its header."""

    name: str
    size_bytes: int
    header: IndexHeader

    @property
    def entries(self) -> int:
        return self.header.next_item - 1


@dataclass(slots=True)
class FolderSize:
    """What a folder takes: its files, their lengths, and what of them is on disk (sparse files)."""

    files: int = 0
    size_bytes: int = 0
    allocated_bytes: int = 0


@dataclass(slots=True)
class StoreInspection:
    """Offsets are physical. `log_end` is behind the last byte of the CommitLog that is not zero."""

    path: str
    kind: str = "store"
    log_begin: int = 0
    log_end: int = 0
    sizes: dict[str, FolderSize] = field(default_factory=dict)
    queues: list[QueueSummary] = field(default_factory=list)
    index_files: list[IndexSummary] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    has_abort: bool = False
    has_lock: bool = False
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def inspect_store(path: str | PathLike[str]) -> StoreInspection:
    """Raises StoreNotFoundError where there is no CommitLog, StoreAccessError, FormatError."""
    found = StoreInspection(fspath(path))
    _read_log(found)
    for folder in (COMMIT_LOG_FOLDER, CONSUME_QUEUE_FOLDER, INDEX_FOLDER):
        found.sizes[folder] = _folder_size(os.path.join(found.path, folder))
    _read_queues(found)
    _read_index_files(found)
    checkpoint = os.path.join(found.path, CHECKPOINT_FILE)
    if os.path.exists(checkpoint):
        _read_checkpoint(found, checkpoint)
    found.has_abort = os.path.exists(os.path.join(found.path, ABORT_FILE))
    found.has_lock = os.path.exists(os.path.join(found.path, LOCK_FILE))
    return found


def _read_log(found: StoreInspection) -> None:
    files = list_commit_log_files(found.path)
    found.log_begin = found.log_end = files[0].start
    for before, after in pairwise(files):
        if before.end < after.start:
            reason = f"{after.start - before.end} bytes before this file are in none"
            found.problems.append(Problem(after.path, 0, reason))
    for file in reversed(files):
        with FileReader(file.path) as reader:
            last = reader.last_nonzero(file.size)
        if last is not None:
            found.log_end = file.start + last + 1
            return


def _read_queues(found: StoreInspection) -> None:
    queues = ConsumeQueues(found.path)
    for topic, queue_id in queues.list():
        queue = queues.queue(topic, queue_id)
        begin, end = queue.min_queue_offset(found.log_begin), queue.max_queue_offset()
        found.queues.append(QueueSummary(topic, queue_id, begin, end))


def _read_index_files(found: StoreInspection) -> None:
    folder = os.path.join(found.path, INDEX_FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for name in names:
        path = os.path.join(folder, name)
        if not is_index_file_name(name):
            found.notes.append(f"{path}: not the name of an IndexFile, a broker passes it over")
            continue
        size = os.stat(path).st_size
        if size < HEADER_BYTES:
            found.problems.append(Problem(path, size, "too short for the header of an IndexFile"))
            continue
        with FileReader(path) as reader:
            header = decode_header(reader.read(0, HEADER_BYTES))
        found.index_files.append(IndexSummary(name, size, header))
        if header.end_physical_offset >= max(found.log_end, 1):
            end = header.end_physical_offset
            reason = f"leads to offset {end}, the log ends at {found.log_end}"
            found.problems.append(Problem(path, 24, reason))
    _compare_sizes(found, folder)


def _compare_sizes(found: StoreInspection, folder: str) -> None:
    """A broker makes all its IndexFiles equally long."""
    sizes = Counter(index.size_bytes for index in found.index_files)
    for index in found.index_files:
        usual = sizes.most_common(1)[0][0]
        if index.size_bytes != usual:
            path = os.path.join(folder, index.name)
            reason = f"{index.size_bytes} bytes, others have {usual}"
            found.problems.append(Problem(path, min(index.size_bytes, usual), reason))


def _read_checkpoint(found: StoreInspection, path: str) -> None:
    try:
        inspected = inspect_checkpoint(path)
    except FormatError as error:
        found.problems.append(Problem(path, error.offset, error.reason))
    else:
        found.checkpoint = inspected.checkpoint
        found.problems += inspected.problems


def _folder_size(folder: str) -> FolderSize:
    total = FolderSize()

    def refuse(error: OSError) -> None:
        raise StoreAccessError(f"{error.filename}: cannot be read: {error.strerror}") from error

    for parent, _, names in os.walk(folder, onerror=refuse if os.path.isdir(folder) else None):
        for name in names:
            status = os.stat(os.path.join(parent, name))
            total.files += 1
            total.size_bytes += status.st_size
            total.allocated_bytes += status.st_blocks * 512
    return total
