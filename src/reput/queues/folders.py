"""The folders of a store's queues: `<kind>/<topic>/<queue id>/`, with files that are named by offsets.

Nothing else walks them, so that readers, writers and checks see the same queues.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from reput.files.storage import LOCAL, FolderEntry, Storage
from reput.format.file_names import parse_offset_file_name

_MOST_ID_DIGITS = 10  # of Java's int


class QueueFolder(NamedTuple):
    """A folder in the folder of a topic.

    Attributes:
        topic: The name of the folder above.
        name: Its own name.
        path: Its path.
    """

    topic: str
    name: str
    path: str

    @property
    def queue_id(self) -> int | None:
        """The queue id; None if no queue has this name."""
        is_number = self.name.isascii() and self.name.isdigit()
        return int(self.name) if is_number and len(self.name) <= _MOST_ID_DIGITS else None


def walk_topics(folder: str, storage: Storage = LOCAL) -> Iterator[FolderEntry]:
    """Yield the folders of topics below consumequeue/ or the like, sorted. Raises StoreAccessError."""
    for entry in sorted(storage.list(folder), key=lambda entry: entry.name):
        if entry.is_dir():
            yield entry


def walk_queues(folder: str, storage: Storage = LOCAL) -> Iterator[QueueFolder]:
    """Yield all folders in the folders of topics, sorted, also those without a queue id. Raises StoreAccessError."""
    for topic in walk_topics(folder, storage):
        yield from walk_queues_of(folder, topic.name, storage)


def walk_queues_of(folder: str, topic: str, storage: Storage = LOCAL) -> Iterator[QueueFolder]:
    """Yield the queues of one topic, whose name can be the name of a folder."""
    entries = storage.list(os.path.join(folder, topic))
    for name in sorted(entry.name for entry in entries if entry.is_dir()):
        yield QueueFolder(topic, name, os.path.join(folder, topic, name))


def offset_entries(folder: str, storage: Storage = LOCAL) -> list[tuple[int, FolderEntry]]:
    """Return the entries of a folder named by an offset, with it, in ascending order. Raises StoreAccessError."""
    named = ((parse_offset_file_name(entry.name), entry) for entry in storage.list(folder))
    found = [(start, entry) for start, entry in named if start is not None]
    return sorted(found, key=lambda one: one[0])
