"""List the folders of a store's queues: `<kind>/<topic>/<queue id>/`, with files that are named by offsets.

Readers, writers and checks all use this module, so they see the same queues.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from reput.format.file_names import (
    CONSUME_QUEUE_FOLDER,
    DATABASE_SIGN,
    QUEUE_DATABASE_FOLDER,
    parse_offset_file_name,
    parse_queue_id,
)
from reput.io import LOCAL, FolderEntry, Storage


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
