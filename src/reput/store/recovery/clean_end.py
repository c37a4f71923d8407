"""What a store that was closed in order looked like, so that the next to open it need not look at all of it again.

`reput.clean` holds the end of the log and a digest of what tells whether anything has changed since: names, sizes and
times of the newest CommitLog files and of all IndexFiles, where each ConsumeQueue ends, the checkpoint. A broker knows
nothing of it; what a broker writes changes what is digested, and then the store is recovered as after a broker.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.errors import StoreError
from reput.files.disk import Disk
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.file_names import (
    CHECKPOINT_FILE,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    INDEX_FOLDER,
    is_index_file_name,
    parse_offset_file_name,
)
from reput.store.consume_queue import ConsumeQueue, queue_folder
from reput.store.consume_queue_reader import ConsumeQueues
from reput.store.dispatch_batch import Queue
from reput.store.index_file_writer import IndexFileWriter

CLEAN_END_FILE = "reput.clean"
_DIGESTED_LOG_FILES = 3
_FORM = "reput 1"
QueueEnds = dict[Queue, tuple[int, ConsumeQueueEntry]]


class CleanEnd(NamedTuple):
    """End of the log (physical offset), and per queue its end and its last entry."""

    log_end: int
    queues: QueueEnds


def write_clean_end(store: Path, log_end: int, disk: Disk) -> None:
    """Last of all, when the store is synced. Raises StoreAccessError."""
    digest = _digest(store, log_end, _queue_ends(store))
    disk.replace(store / CLEAN_END_FILE, f"{_FORM} {log_end} {digest}\n".encode())


def read_clean_end(store: Path) -> CleanEnd | None:
    """What was written, if the store is still as it was then."""
    try:
        form, _, rest = (store / CLEAN_END_FILE).read_text("ascii").rpartition(f"{_FORM} ")
        log_end, digest = rest.split()
        queues = _queue_ends(store)
        same = not form and digest == _digest(store, int(log_end), queues)
    except (OSError, ValueError, StoreError):
        return None
    return CleanEnd(int(log_end), queues) if same else None


def open_queues(
    store: Path, queues: QueueEnds, config: StoreConfig, disk: Disk
) -> dict[Queue, ConsumeQueue]:
    """The queues, to be appended to."""
    folder = store / CONSUME_QUEUE_FOLDER
    return {
        name: ConsumeQueue(
            queue_folder(folder, *name), config.queue_entries, end,
            last.physical_offset + last.size, disk,
        )
        for name, (end, last) in queues.items()
    }  # fmt: skip


def open_last_index_file(store: Path, config: StoreConfig, disk: Disk) -> IndexFileWriter | None:
    names = _index_names(store)
    return IndexFileWriter(store / INDEX_FOLDER / names[-1], config, disk) if names else None


def _index_names(store: Path) -> list[str]:
    return sorted(name for name in os.listdir(store / INDEX_FOLDER) if is_index_file_name(name))


def _queue_ends(store: Path) -> QueueEnds:
    found = ConsumeQueues(store)
    ends = {}
    for topic, queue_id in found.list():
        reader = found.queue(topic, queue_id)
        end = reader.max_queue_offset()
        if end > 0:
            ends[Queue(topic, queue_id)] = end, reader.entry(end - 1)
    return ends


def _digest(store: Path, log_end: int, queues: QueueEnds) -> str:
    log = sorted(
        name
        for name in os.listdir(store / COMMIT_LOG_FOLDER)
        if parse_offset_file_name(name) is not None
    )
    parts = [str(log_end), repr(sorted(queues.items()))]
    parts += [_look(store / COMMIT_LOG_FOLDER / name) for name in log[-_DIGESTED_LOG_FILES:]]
    parts += [_look(store / INDEX_FOLDER / name) for name in _index_names(store)]
    parts.append((store / CHECKPOINT_FILE).read_bytes().hex())
    return sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _look(path: Path) -> str:
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
