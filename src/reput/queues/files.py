"""The files of one queue, as found: each named by the byte offset of its first entry."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from reput.files.storage import LOCAL, Storage
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.file_names import parse_offset_file_name

_MORE_LOOKS = 2


class QueueFile(NamedTuple):
    """Queue offset of the first entry, how many there is room for, path; another inode is another file."""

    start: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    path: str
    inode: int

    @property
    def stop(self) -> int:
        return self.start + self.count


def list_queue_files(
    folder: str, storage: Storage = LOCAL, entry_bytes: int = ENTRY_BYTES
) -> list[QueueFile]:
    """The files in order; names that are not offsets of entries are ignored. Raises StoreAccessError."""
    files = _list(folder, storage, entry_bytes)
    for _ in range(_MORE_LOOKS):
        if not any(before.stop != after.start for before, after in pairwise(files)):
            break
        # A file may have expired, and one been created, while the folder was read.
        files = _list(folder, storage, entry_bytes)
    return files


def _list(folder: str, storage: Storage, entry_bytes: int) -> list[QueueFile]:
    found = []
    for entry in storage.list(folder):
        start = parse_offset_file_name(entry.name)
        if start is not None and start % entry_bytes == 0 and entry.is_file():
            with suppress(FileNotFoundError):  # expired since it was listed
                count = entry.stat().st_size // entry_bytes
                found.append(QueueFile(start // entry_bytes, count, entry.path, entry.inode()))
    return sorted(found)
