"""Copy one log file into an archive, as seekable zstd, with indexes of its keys and queues."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Progress, StoreConfig, silent, usable_cpus
from reput.core import CommitLogFile, DispatchRules, batch_topics, open_queues
from reput.engine.writer import survey_of
from reput.errors import StoreChangedError, StoreError
from reput.format.archive import KEY_INDEX, QUEUE_INDEX, IndexObject, LogFile, tree_root
from reput.format.file_names import offset_file_name
from reput.format.seekable_zstd import FRAME_BYTES, encode_tail
from reput.io import FileReader, ObjectStore, Scratch
from reput.wings.archive.indexing import (
    ScannedFile,
    scan_log_file,
    upload_index,
    write_keys,
    write_queues,
)

LEVEL = 3
_BATCH_BYTES = 1 << 20
_WAITING_PER_THREAD = 4
"""Number of compressed batches per thread that may wait for the upload."""


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
    file, topics, size = task.file, batch_topics(task.store), _data_bytes(task)
    # Scan during the upload, because each of the two waits at times: for the disk, or for the server.
    with Scratch.folder() as folder, ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(_write_indexes, task, size, topics, folder)
        entry = _upload_log(task, size)
        progress("scan", 0, 1)
        scan, keys, queues = waiting.result()
        progress("keys", 0, 1)
        upload_index(task.objects, keys, folder / KEY_INDEX)
        progress("queues", 0, 1)
        upload_index(task.objects, queues, folder / QUEUE_INDEX)
    end = file.end if task.is_sealed else max(scan.messages_end, file.start)
    entry = msgspec.structs.replace(
        entry, messages=scan.messages, messages_end=end, times=scan.times,
        is_indexed=scan.is_whole, has_replaced_ids=scan.has_replaced_ids,
    )  # fmt: skip
    notes = tuple(
        f"{queue.topic}/{queue.queue_id}: has no ConsumeQueue entries in the store, so its queue offsets are unknown"
        for queue in scan.unplaced
    )
    return Copied(entry, keys, queues, file.path, topics, notes)


def _data_bytes(task: CopyTask) -> int:
    """Return the number of bytes of a log file to copy.

    The last file is copied only up to its last byte that is not zero, because the rest is not written yet.
    """
    if task.is_sealed:
        return task.file.size
    with FileReader(task.file.path) as reader:
        last = reader.last_nonzero(task.file.size)
    return 0 if last is None else last + 1


def _write_indexes(
    task: CopyTask, size: int, topics: frozenset[str], folder: Path
) -> tuple[ScannedFile, IndexObject, IndexObject]:
    """Scan the first `size` bytes of a log file, and write its indexes into a local folder."""
    file, scan = task.file, _scanned(task, size, topics)
    keys = write_keys(folder / KEY_INDEX, scan, file.start, file.end)
    return scan, keys, write_queues(folder / QUEUE_INDEX, scan, file.start, file.end)


def _upload_log(task: CopyTask, size: int) -> LogFile:
    file = task.file
    with FileReader(file.path) as reader:
        location = upload_log(task.objects, file.start, reader, size)
        if reader.size < file.size:
            raise StoreChangedError(
                f"{file.path}: became shorter while it was read; run the command again"
            )
    inside = os.path.relpath(file.path, task.store)
    # A log file from outside of the store is restored into the store's own commitlog/.
    if inside.startswith(".."):
        inside = f"commitlog/{os.path.basename(file.path)}"
    return LogFile(
        inside, file.start, file.size, size, task.is_sealed, *location, messages=0, messages_end=file.start,
        times=None, is_indexed=False, has_replaced_ids=False,
    )  # fmt: skip


def _scanned(task: CopyTask, size: int, topics: frozenset[str]) -> ScannedFile:
    if not size:
        return ScannedFile()
    file, facts = task.file, survey_of(task.store, task.config)
    part = CommitLogFile(file.start, size, file.path, file.inode)
    # If the queues are unreadable, the queue offsets that messages state are used.
    queues = None
    with suppress(StoreError):
        queues = open_queues(task.store, config=task.config)
    try:
        return scan_log_file(
            FileReader, part, DispatchRules.of(task.config), queues, is_last=not task.is_sealed,
            may_replace_ids=facts.is_five, batch_topics=topics,
        )  # fmt: skip
    finally:
        if queues is not None:
            queues.close()


class StoredLog(NamedTuple):
    """The object of an uploaded log file: the fields of `LogFile` that depend on its bytes."""

    object: str
    object_bytes: int
    sha256: str
    tail_sha256: str
    tree: str


def upload_log(objects: ObjectStore, begin: int, reader: FileReader, size: int) -> StoredLog:
    """Upload the first `size` bytes of a log file that begins at a physical offset, as a new object."""
    name = f"log/{offset_file_name(begin)}-{uuid.uuid4().hex}.zst"
    frames = LogFrames(reader, size)
    stored_bytes = objects.upload(name, frames.chunks())
    return StoredLog(
        name, stored_bytes, frames.sha256, frames.tail_sha256, tree_root(frames.digests)
    )


class LogFrames:
    """Compresses a log file into frames. Read all `chunks` before using the digests."""

    def __init__(self, reader: FileReader, size: int) -> None:
        self._reader, self._size = reader, size
        self.sha256 = self.tail_sha256 = ""
        self.digests = b""

    def chunks(self) -> Iterator[bytes]:
        whole, digests, sizes = hashlib.sha256(), [], []
        for batch in self._batches():
            whole.update(batch.content.data)
            digests.append(batch.digests)
            sizes += batch.sizes
            yield batch.stored
        self.digests = b"".join(digests)
        tail = encode_tail(sizes, self._size, self.digests)
        self.sha256, self.tail_sha256 = whole.hexdigest(), hashlib.sha256(tail).hexdigest()
        yield tail

    def _batches(self) -> Iterator[_Batch]:
        """Yield the file's frames in order, while threads compress the next ones."""
        threads = usable_cpus()
        most = _WAITING_PER_THREAD * threads
        # Reuse a few buffers, because the system must clear the memory of each new one.
        buffers = [np.empty(min(_BATCH_BYTES, self._size), np.uint8) for _ in range(most)]
        waiting: deque[Future[_Batch]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            for number, position in enumerate(range(0, self._size, _BATCH_BYTES)):
                if len(waiting) == most:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(self._batch, position, buffers[number % most]))
            while waiting:
                yield waiting.popleft().result()

    def _batch(self, position: int, buffer: npt.NDArray[np.uint8]) -> _Batch:
        content = buffer[: self._size - position]
        self._reader.read_into(content, position)
        view, codec = content.data, pa.Codec("zstd", compression_level=LEVEL)
        frames, digests = [], []
        for at in range(0, len(view), FRAME_BYTES):
            frame = view[at : at + FRAME_BYTES]
            frames.append(codec.compress(frame, asbytes=True))
            digests.append(hashlib.sha256(frame).digest())
        return _Batch(content, b"".join(frames), [*map(len, frames)], b"".join(digests))


class _Batch(NamedTuple):
    """Consecutive frames that were compressed by one call, because each call costs time."""

    content: npt.NDArray[np.uint8]
    stored: bytes
    sizes: list[int]
    digests: bytes
