"""Copy one log file into an archive, as seekable zstd, with indexes of its keys and queues."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from reput.archives.indexing import (
    ENTRIES,
    KEYS,
    ScannedFile,
    scan_log_file,
    write_keys,
    write_queues,
)
from reput.config import StoreConfig
from reput.errors import StoreChangedError, StoreError
from reput.files.object_store import ObjectStore
from reput.files.reader import FileReader
from reput.files.scratch import scratch_folder
from reput.format.archive import IndexObject, LogFile, tree_root
from reput.format.file_names import offset_file_name
from reput.format.seekable_zstd import FRAME_BYTES, encode_tail
from reput.log.files import CommitLogFile
from reput.log.scan_mode import DispatchRules
from reput.queues.store_queues import open_queues
from reput.store.facts import facts_of
from reput.store.topics_file import batch_topics
from reput.tasks import Progress, silent

_LEVEL = 3
_READ_BYTES = 4 << 20
_PART_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A picklable task: upload one log file with its indexes."""

    store: str
    config: StoreConfig
    objects: ObjectStore
    file: CommitLogFile
    is_sealed: bool


class Copied(NamedTuple):
    """The result of a CopyTask: the entries for the manifest, and notes for the report."""

    entry: LogFile
    keys: IndexObject
    queues: IndexObject
    path: str
    batch_topics: frozenset[str]
    notes: tuple[str, ...]

    @property
    def objects(self) -> tuple[LogFile | IndexObject, ...]:
        return self.entry, self.keys, self.queues


def copied(task: CopyTask, progress: Progress = silent) -> Copied:
    """Upload a log file and its indexes. Running it twice is safe, because each run uses its own object names."""
    file = task.file
    entry, topics = _upload_log(task), batch_topics(task.store)
    progress("scan", 0, 1)
    found = _scanned(task, entry, topics)
    end = file.end if task.is_sealed else max(found.messages_end, file.start)
    entry = msgspec.structs.replace(
        entry, messages=found.messages, messages_end=end, times=found.times,
        is_indexed=found.is_whole, has_replaced_ids=found.has_replaced_ids,
    )  # fmt: skip
    with scratch_folder() as folder:
        progress("keys", 0, 1)
        path = Path(folder, KEYS)
        keys = upload_file(task.objects, write_keys(path, found, file.start, file.end), path)
        progress("queues", 0, 1)
        path = Path(folder, ENTRIES)
        queues = upload_file(task.objects, write_queues(path, found, file.start, file.end), path)
    notes = tuple(
        f"{queue.topic}/{queue.queue_id}: has no ConsumeQueue entries in the store, so its queue offsets are unknown"
        for queue in found.unplaced
    )
    return Copied(entry, keys, queues, file.path, topics, notes)


def _upload_log(task: CopyTask) -> LogFile:
    file = task.file
    name = f"log/{offset_file_name(file.start)}-{uuid.uuid4().hex}.zst"
    with FileReader(file.path) as reader, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        size = file.size
        if not task.is_sealed:
            last = reader.last_nonzero(size)
            # Copy the last file only up to its last message, because the rest is not written yet.
            size = 0 if last is None else last + 1
        frames = LogFrames(reader, size, pool)
        stored = task.objects.upload(name, frames.chunks())
        if reader.size < file.size:
            raise StoreChangedError(
                f"{file.path}: became shorter while it was read; run the command again"
            )
    inside = os.path.relpath(file.path, task.store)
    # A log file from outside of the store is restored into the store's own commitlog/.
    if inside.startswith(".."):
        inside = f"commitlog/{os.path.basename(file.path)}"
    return LogFile(
        inside, file.start, file.size, size, task.is_sealed, name, stored, frames.sha256, frames.tail_sha256,
        tree_root(frames.digests), 0, file.start, None, False, False,
    )  # fmt: skip


def _scanned(task: CopyTask, entry: LogFile, topics: frozenset[str]) -> ScannedFile:
    if not entry.data_bytes:
        return ScannedFile()
    file, facts = task.file, facts_of(task.store, task.config)
    part = CommitLogFile(file.start, entry.data_bytes, file.path, file.inode)
    # If the queues are unreadable, the queue offsets that messages state are used.
    queues = None
    with suppress(StoreError):
        queues = open_queues(task.store, config=task.config)
    try:
        return scan_log_file(
            FileReader, part, DispatchRules.of(task.config), queues, is_last=not entry.is_sealed,
            may_replace_ids=facts.is_five, batch_topics=topics,
        )  # fmt: skip
    finally:
        if queues is not None:
            queues.close()


def upload_file(objects: ObjectStore, index: IndexObject, path: Path) -> IndexObject:
    """Upload an index from a local file, in parts, and return it."""

    def chunks() -> Iterator[bytes]:
        with FileReader(str(path)) as file:
            for at in range(0, index.object_bytes, _PART_BYTES):
                yield file.read(at, min(_PART_BYTES, index.object_bytes - at))

    objects.upload(index.object, chunks())
    return index


class LogFrames:
    """Compresses a log file into frames. Read all `chunks` before using the digests."""

    def __init__(self, reader: FileReader, size: int, pool: ThreadPoolExecutor) -> None:
        self._reader, self._size, self._pool = reader, size, pool
        self.sha256 = self.tail_sha256 = ""
        self.digests = b""

    def chunks(self) -> Iterator[bytes]:
        whole, digests, sizes = hashlib.sha256(), [], []
        for position in range(0, self._size, _READ_BYTES):
            data = self._reader.read(position, min(_READ_BYTES, self._size - position))
            pieces = [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]
            done = self._pool.map(_compressed, pieces)
            whole.update(data)
            stored = []
            for frame, digest in done:
                stored.append(frame)
                sizes.append(len(frame))
                digests.append(digest)
            yield b"".join(stored)
        self.digests = b"".join(digests)
        tail = encode_tail(sizes, self._size, self.digests)
        self.sha256, self.tail_sha256 = whole.hexdigest(), hashlib.sha256(tail).hexdigest()
        yield tail


def _compressed(data: bytes) -> tuple[bytes, bytes]:
    frame = pa.Codec("zstd", compression_level=_LEVEL).compress(data, asbytes=True)
    return frame, hashlib.sha256(data).digest()
