"""The kinds of queues and their folders, described once for readers, writers, recovery, rebuild and check.

    kind           files in           entry     entry of the n-th message of a queue
    ConsumeQueue   consumequeue       20 bytes  the n-th entry
    batch queue    batchconsumequeue  46 bytes  the entry whose base offset and batch size include n
    extension      consumequeue_ext   a unit    the unit at the address in its ConsumeQueue entry
    RocksDB        a database         28 bytes  the entry with n in its key

The files of a queue lie in <topic>/<queue id>. All of them have the same size, and each is named by the byte offset of
its first entry. The first unwritten entry ends the queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reput.base import StoreConfig
from reput.errors import StoreError
from reput.format.consume_queue import (
    BATCH_ENTRY,
    BATCH_ENTRY_BYTES,
    ENTRY,
    ENTRY_BYTES,
    ConsumeQueueEntry,
    decode_batch_entries,
    decode_batch_entry,
    decode_entries,
    decode_entry,
)
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    CONSUME_QUEUE_FOLDER,
    DATABASE_SIGN,
    EXTENSION_FOLDER,
    QUEUE_DATABASE_FOLDER,
    is_folder_name,
    offset_file_name,
    parse_offset_file_name,
    parse_queue_id,
    whole_size,
)
from reput.format.properties import LMQ_PREFIX
from reput.io import LOCAL, FolderEntry, GrowthWatch, Storage, listed_size

# Import these only for typing, because a query by key must not load NumPy.
if TYPE_CHECKING:
    import numpy as np

# Maximum number of times that a folder is listed again if its list of files has a gap.
_MORE_LOOKS = 2


class Numbering(Enum):
    """The place where the queue offset of an entry is stated."""

    PLACE = "its place in the files"
    BASE = "its base offset"
    KEY = "its key"


@dataclass(frozen=True, slots=True)
class QueueKind:
    """One kind of queue.

    Attributes:
        name: RocketMQ's name for such files
        folder: name of the folder with all queues of the kind
        entry_bytes: size of an entry
        fields: fields of an entry, as a NumPy dtype
        numbering: where the queue offset of an entry is stated
        setting: the broker setting for the file size
        file_bytes: function that returns the file size for a store's settings
        decode: function that decodes one entry
        decode_all: function that decodes many entries
    """

    name: str
    folder: str
    entry_bytes: int
    fields: tuple[tuple[str, str], ...]
    numbering: Numbering
    setting: str
    file_bytes: Callable[[StoreConfig], int]
    decode: Callable[[bytes], ConsumeQueueEntry] = decode_entry
    decode_all: Callable[[bytes], Iterator[ConsumeQueueEntry]] = decode_entries

    @property
    def dtype(self) -> np.dtype[np.void]:
        """Return the dtype of a stored entry."""
        import numpy as np

        return np.dtype(list(self.fields))

    def first_entry(self, name: str) -> int | None:
        """Return the number of the first entry in a file with this name.

        Returns None if the name is not valid for this kind.
        """
        start = parse_offset_file_name(name)
        return None if start is None or start % self.entry_bytes else start // self.entry_bytes

    def file_name(self, first_entry: int) -> str:
        """Return the name of the file whose first entry has this number."""
        return offset_file_name(first_entry * self.entry_bytes)

    def queue_folder(self, store: Path, topic: str, queue_id: int) -> Path:
        """Return the folder of a queue's files. Raises StoreError for a topic that cannot name a folder."""
        return queue_folder(store / self.folder, topic, queue_id)


CONSUME_QUEUE = QueueKind(
    "ConsumeQueue", CONSUME_QUEUE_FOLDER, ENTRY_BYTES, ENTRY.columns,
    Numbering.PLACE, "mappedFileSizeConsumeQueue", lambda config: config.queue_file_bytes,
)  # fmt: skip
BATCH_QUEUE = QueueKind(
    "batch queue", BATCH_QUEUE_FOLDER, BATCH_ENTRY_BYTES, BATCH_ENTRY.columns, Numbering.BASE,
    "mapperFileSizeBatchConsumeQueue", lambda config: config.batch_queue_file_bytes,
    decode_batch_entry, decode_batch_entries,
)  # fmt: skip
EXTENSION = QueueKind(
    "extension", EXTENSION_FOLDER, 1, (), Numbering.PLACE, "mappedFileSizeConsumeQueueExt",
    lambda config: config.extension_file_bytes,
)  # fmt: skip


def check_topic(topic: str) -> None:
    """Raise StoreError for a topic that cannot name a folder."""
    if not is_folder_name(topic):
        raise StoreError(f"topic {topic!r} cannot be the name of a folder")


def queue_folder(queues: Path, topic: str, queue_id: int) -> Path:
    """Return the folder of a queue's files below `queues`. Raises StoreError for a topic that cannot name a folder."""
    check_topic(topic)
    return queues / f"{topic}/{queue_id}"


def is_light(topic: str) -> bool:
    """Return whether a topic has light queues (%LMQ%).

    Entries of a light queue have no gaps, so an entry's number may differ from the queue offset of its message.
    Messages of open transactions take queue offsets but have no entry. When a 4.9.3 broker starts, the queue offsets in
    light queues begin at 0 again.
    """
    return topic.startswith(LMQ_PREFIX)


class QueueFolder(NamedTuple):
    """A folder in the folder of a topic.

    Attributes:
        topic: Name of the topic's folder.
        name: Name of this folder.
        path: Path of this folder.
    """

    topic: str
    name: str
    path: str

    @property
    def queue_id(self) -> int | None:
        """Return the queue id; None if no queue can have this name."""
        return parse_queue_id(self.name)


def walk_topics(folder: str, storage: Storage = LOCAL) -> Iterator[FolderEntry]:
    """Yield the folders of topics in a folder such as consumequeue/, sorted. Raises StoreAccessError."""
    for entry in sorted(storage.list(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            yield entry


def walk_queues(folder: str, storage: Storage = LOCAL) -> Iterator[QueueFolder]:
    """Yield all folders in the folders of topics, sorted, including folders whose name is not a queue id.

    Raises StoreAccessError.
    """
    for topic in walk_topics(folder, storage):
        yield from walk_queues_of(folder, topic.name, storage)


def walk_queues_of(folder: str, topic: str, storage: Storage = LOCAL) -> Iterator[QueueFolder]:
    """Yield the folders of one topic's queues. The topic must be a valid folder name."""
    entries = storage.list(os.path.join(folder, topic))
    for name in sorted(entry.name for entry in entries if entry.is_dir()):
        yield QueueFolder(topic, name, os.path.join(folder, topic, name))


def offset_entries(folder: str, storage: Storage = LOCAL) -> list[tuple[int, FolderEntry]]:
    """Return the files and subfolders of a folder that have an offset as their name, each with its offset, ascending.

    Raises StoreAccessError.
    """
    named = ((parse_offset_file_name(entry.name), entry) for entry in storage.list(folder))
    entries = [(start, entry) for start, entry in named if start is not None]
    return sorted(entries, key=lambda pair: pair[0])


def queue_database(store: str, storage: Storage) -> str:
    """Return the folder in which a store has its database of queues, or would have it. Raises StoreAccessError.

    A broker of 5.5 does not start if both folders have a database.
    """
    separate = os.path.join(store, QUEUE_DATABASE_FOLDER)
    common = os.path.join(store, CONSUME_QUEUE_FOLDER)
    if is_database(separate, storage):
        return separate
    # Without the file CURRENT, a database cannot be opened, but its remains show its place.
    is_separate = not is_database(common, storage) and was_database(separate, storage)
    return separate if is_separate else common


def is_database(folder: str, storage: Storage) -> bool:
    """Return whether a folder contains a RocksDB database. Raises StoreAccessError."""
    return storage.entry(os.path.join(folder, DATABASE_SIGN)) is not None


def was_database(folder: str, storage: Storage) -> bool:
    """Return whether a folder contains files of a RocksDB database, complete or not. Raises StoreAccessError."""
    names = [entry.name for entry in storage.list(folder)]
    return any(
        name == DATABASE_SIGN or name.endswith(".sst") or name.startswith("MANIFEST-")
        for name in names
    )


class QueueFile(NamedTuple):
    """A file of a queue: number of its first entry, number of entries for which it has room, path, inode."""

    start: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    path: str
    inode: int

    @property
    def stop(self) -> int:
        return self.start + self.count


def list_queue_files(
    folder: str, storage: Storage = LOCAL, kind: QueueKind = CONSUME_QUEUE
) -> list[QueueFile]:
    """Return the files of a queue, in order. Names that are not offsets of entries are ignored.

    Raises StoreAccessError.
    """
    files = _list(folder, storage, kind)
    for _ in range(_MORE_LOOKS):
        if not any(before.stop != after.start for before, after in pairwise(files)):
            break
        # If a file expires and another file is created while the folder is listed, the list may have a gap. List the
        # folder again.
        files = _list(folder, storage, kind)
    return files


def follow_growth(watch: GrowthWatch, files: Sequence[QueueFile], kind: QueueKind) -> None:
    """Make a watch report when listed files of a queue have another number of entries."""
    whole = whole_size([file.start for file in files])
    watch.follow([(file.path, file.count) for file in files], whole, kind.entry_bytes)


def _list(folder: str, storage: Storage, kind: QueueKind) -> list[QueueFile]:
    files = []
    for entry in storage.list(folder):
        start = kind.first_entry(entry.name)
        if start is not None and (size := listed_size(entry)) is not None:
            files.append(QueueFile(start, size // kind.entry_bytes, entry.path, entry.inode()))
    return sorted(files)
