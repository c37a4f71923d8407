"""Describe a whole store by the names, sizes and headers of its files. This is fast for a store of any size."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike, fspath

from reput.base import Finding, Kind
from reput.core import open_queues
from reput.engine.check import inspect_checkpoint
from reput.engine.writer import survey_of
from reput.errors import FormatError, StoreNotFoundError
from reput.format.checkpoint import Checkpoint
from reput.format.file_names import (
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    QUEUE_FOLDERS,
    is_index_file_name,
)
from reput.format.index_file import HEADER, HEADER_BYTES, IndexHeader, decode_header
from reput.io import LOCAL, Storage, listed_size

_LEVELS = 3  # Deepest folders of a store: consumequeue/TOPIC/QUEUE.


@dataclass(slots=True)
class QueueSummary:
    """One queue: the offset of its first message that has not expired, and the offset of its next message."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(slots=True)
class IndexSummary:
    """One IndexFile, as its header describes it."""

    name: str
    size_bytes: int
    header: IndexHeader

    @property
    def entries(self) -> int:
        return self.header.next_item - 1


@dataclass(slots=True)
class FolderSize:
    """The size of a folder: number of files, sum of their lengths, and allocated bytes (fewer if files are sparse)."""

    files: int = 0
    size_bytes: int = 0
    allocated_bytes: int = 0


@dataclass(slots=True)
class StoreInspection:
    """The description of a store. Offsets are physical; `log_end` is the end of the last readable record."""

    path: str
    kind: str = "store"
    version: str = ""
    release: str = ""
    shown_by: str | None = None
    log: str = ""
    queue_files: list[str] = field(default_factory=list)
    other_parts: dict[str, str] = field(default_factory=dict)
    log_begin: int = 0
    log_end: int = 0
    sizes: dict[str, FolderSize] = field(default_factory=dict)
    queues: list[QueueSummary] = field(default_factory=list)
    index_files: list[IndexSummary] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    has_abort: bool = False
    findings: list[Finding] = field(default_factory=list)


def inspect_store(path: str | PathLike[str], storage: Storage = LOCAL) -> StoreInspection:
    """Inspect a store. Raises StoreAccessError, FormatError, and StoreNotFoundError if it has no CommitLog."""
    store = StoreInspection(fspath(path))
    facts = survey_of(store.path, storage=storage)
    store.log_begin, store.log_end = facts.log.begin, facts.ends.rebuild
    parts = facts.parts
    store.version, store.log, store.queue_files = parts.version, parts.log, parts.queues
    store.release, store.shown_by = parts.release, parts.shown_by
    version = facts.config.store_version
    if facts.config.is_since_5_4 and version != parts.least_version:
        store.version, store.release = "5.x", f"{version} or later"
        store.shown_by = f"items for tags in {INDEX_FOLDER}/"
    store.other_parts = parts.others
    store.findings += facts.findings()
    store.sizes[COMMIT_LOG_FOLDER] = _sizes(facts.log_folders, storage)
    for folder in (*QUEUE_FOLDERS, INDEX_FOLDER):
        path = os.path.join(store.path, folder)
        # List these two folders even if they are missing, with size 0. List others only if they exist.
        if folder in (CONSUME_QUEUE_FOLDER, INDEX_FOLDER) or storage.entry(path) is not None:
            store.sizes[folder] = _sizes([path], storage)
    _read_queues(store, storage)
    _read_index_files(store, storage, facts.is_live)
    checkpoint = os.path.join(store.path, CHECKPOINT_FILE)
    if storage.entry(checkpoint) is not None:
        _read_checkpoint(store, checkpoint, storage)
    store.has_abort = facts.has_abort
    return store


def _read_queues(store: StoreInspection, storage: Storage) -> None:
    with closing(open_queues(store.path, storage)) as queues:
        for topic, queue_id in queues.list():
            queue = queues.queue(topic, queue_id)
            begin, end = queue.min_queue_offset(store.log_begin), queue.max_queue_offset()
            store.queues.append(QueueSummary(topic, queue_id, begin, end))


def _read_index_files(store: StoreInspection, storage: Storage, is_live: bool) -> None:
    folder = os.path.join(store.path, INDEX_FOLDER)
    entries = sorted(storage.list(folder), key=lambda entry: entry.name)
    newest = max((entry.name for entry in entries if is_index_file_name(entry.name)), default="")
    for entry in entries:
        name, path = entry.name, entry.path
        if not is_index_file_name(name):
            store.findings.append(Finding(Kind.FOREIGN_FILE, path, "not the name of an IndexFile"))
            continue
        size = listed_size(entry)
        if size is None and (os.path.islink(path) or storage.entry(path) is not None):
            store.findings.append(Finding(Kind.FOREIGN_FILE, path, "not a regular file"))
        # A running broker may have deleted the file since it was listed, or may still be creating it.
        if size is None or (is_live and not size and name == newest):
            continue
        if size < HEADER_BYTES:
            reason = "too short for the header of an IndexFile"
            store.findings.append(Finding(Kind.INDEX_FILE_SIZE, path, reason, size))
            continue
        try:
            with storage.open(path) as reader:
                header = decode_header(reader.read(0, HEADER_BYTES))
        except StoreNotFoundError:  # The file has expired since it was listed.
            continue
        store.index_files.append(IndexSummary(name, size, header))
        # The header of a new IndexFile has offset 0. This offset is not damage, even if the log is empty and ends at 0.
        end = header.end_physical_offset
        if end >= max(store.log_end, 1) and is_live:
            # The log has grown since its end was found.
            store.log_end = max(survey_of(store.path, storage=storage).ends.rebuild, store.log_end)
        if end >= max(store.log_end, 1):
            reason = f"leads to offset {end}, the log ends at {store.log_end}"
            store.findings.append(
                Finding(Kind.INDEX_HEADER, path, reason, HEADER.positions["end_physical_offset"])
            )


def _read_checkpoint(store: StoreInspection, path: str, storage: Storage) -> None:
    try:
        inspected = inspect_checkpoint(path, storage)
    except FormatError as error:
        store.findings.append(Finding.of_error(Kind.CHECKPOINT, error))
    else:
        store.checkpoint = inspected.checkpoint
        store.findings += inspected.findings


def _sizes(folders: Iterable[str], storage: Storage, levels: int = _LEVELS) -> FolderSize:
    total = FolderSize()
    for entry in chain.from_iterable(map(storage.list, folders)):
        if entry.is_dir():
            # Do not read folders below the deepest ones of a store (see `_LEVELS`): a link could lead back up.
            if levels == 1:
                continue
            inner = _sizes([entry.path], storage, levels - 1)
            total.files += inner.files
            total.size_bytes += inner.size_bytes
            total.allocated_bytes += inner.allocated_bytes
        else:
            try:
                status = entry.stat()
            except FileNotFoundError:  # The file was deleted since it was listed.
                continue
            total.files += 1
            total.size_bytes += status.st_size
            # The unit of `st_blocks` is 512 bytes, whatever the block size of the file system.
            total.allocated_bytes += status.st_blocks * 512
    return total
