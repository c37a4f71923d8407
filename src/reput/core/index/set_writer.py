"""Write the IndexFiles of a live store (`IndexService`, tag rocketmq-all-4.9.3).

When the last file is full, the next message begins a new file, even if the message has no keys. The name of a file is
the local time of its creation. If this time is not later than the previous name, the new name is the previous name plus
one. So names are unique, and sort by creation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from reput.base import StoreConfig
from reput.core.index.reader import index_paths
from reput.core.index.writer import IndexFileEnd, IndexFileWriter
from reput.core.log.dispatch_batch import DispatchBatch
from reput.errors import displaced, explained
from reput.format.file_names import is_index_file_name, next_index_file_name
from reput.io import Disk

# Maximum number of full files that wait for the syncing thread. Each of these mapped files holds two file descriptors.
_MOST_FULL = 32
NameFile = Callable[[str | None, int], str]
"""Returns the name of a new file, from the previous name and the store time (ms) of the file's first entry."""


class IndexFileSetWriter:
    """Puts batches of entries into the last file. One thread calls `put`, and another thread may call `sync`.

    last           the file that receives entries; None before the first message
    full_timestamp store time (ms) of the last entry in the durable full files
    on_roll        called after a new file has been created
    """

    def __init__(
        self,
        folder: Path,
        config: StoreConfig,
        disk: Disk,
        clock_ms: Callable[[], int],
        last: IndexFileWriter | None = None,
        full_timestamp: int = 0,
        name_file: NameFile | None = None,
    ) -> None:
        """Name new files by the current time, as a broker does, or by `name_file`."""
        self._name_file = name_file or (lambda before, _: next_index_file_name(before, clock_ms()))
        self._renames = name_file is not None
        self._folder, self._config, self._disk = folder, config, disk
        self.last, self.full_timestamp = last, full_timestamp
        self._full: list[IndexFileWriter] = []
        # Names of full files that are not yet closed: the files in `_full`, and the files that are just being synced.
        self._open_names: set[str] = set()
        self._names = {path.name for path in index_paths(folder)}
        # Name of the file that is being created. If creating it fails, it may exist or not.
        self._half_made = ""
        self._lock = Lock()
        self.on_roll: Callable[[], None] = lambda: None

    def put(self, batch: DispatchBatch) -> None:
        """Write the items of a batch. Raises StoreAccessError.

        In RocketMQ: CommitLogDispatcherBuildIndex, retryGetAndCreateIndexFile.
        """
        if not len(batch):
            return
        done, keys = 0, len(batch.key_hash)
        last = self._writable(_time_of(batch, done))
        while done < keys:
            done = last.put(batch.key_hash, batch.key_row, batch.messages, done)
            if done < keys:
                last = self._writable(_time_of(batch, done))
        # The batch may end with messages without keys. If the last file is full, even a message without keys begins a
        # new file.
        if keys and int(batch.key_row[-1]) < len(batch) - 1:
            self._writable(None)

    def _writable(self, first_timestamp: int | None) -> IndexFileWriter:
        """Return the last file, or a new file if the last one is full or missing.

        `first_timestamp` is the store time of the next entry; None if the batch has no further entry.
        """
        if self.last is not None and not self.last.is_full:
            if self._renames and self.last.count == 1 and first_timestamp is not None:
                self._rename(self.last, first_timestamp)
            return self.last
        end, previous = IndexFileEnd(), None
        if self.last is not None:
            end, previous = self.last.end, self.last.path.name
        name = self._name_file(
            previous, end.timestamp if first_timestamp is None else first_timestamp
        )
        with self._lock:
            # `sync` takes the same lock. So it does not miss the full file, which moves from `last` to `_full` here.
            self._half_made = name
            file = IndexFileWriter(self._folder / name, self._config, self._disk)
            file.seed(end)
            self._disk.sync_folder(self._folder)
            self._half_made = ""
            self._names.add(name)
            if self.last is not None:
                self._full.append(self.last)
                self._open_names.add(self.last.path.name)
            self.last = file
        self.on_roll()
        if len(self._full) >= _MOST_FULL:
            # The syncing thread is too slow. Wait here, instead of opening ever more files.
            self.sync_full()
        return file

    def _rename(self, file: IndexFileWriter, first_timestamp: int) -> None:
        """Rename a file that was created without entries: its name is the time of its first entry, which is now known.

        When the file was created, only the time of the previous file's last entry was known.
        """
        names = [path.name for path in index_paths(self._folder) if path.name < file.path.name]
        path = self._folder / self._name_file(names[-1] if names else None, first_timestamp)
        if path != file.path:
            with self._lock:
                self._names.discard(file.path.name)
                self._disk.rename(file.path, path)
                self._disk.sync_folder(self._folder)
                file.path = path
                self._names.add(path.name)

    def check_in_place(self) -> None:
        """Check that the folder contains this writer's files and no others.

        Raises StoreFailedError, StoreAccessError.
        """
        with self._lock, explained(self._folder, "be read"):
            there = {name for name in os.listdir(self._folder) if is_index_file_name(name)}
            for name in sorted(there ^ self._names):
                is_own = name == self._half_made or self._folder / name in self._disk.deleted
                if not is_own:
                    # Files that this writer creates or deletes itself are not reported.
                    how = "created" if name in there else "deleted or renamed"
                    raise displaced(self._folder / name, how)
            if self.last is not None:
                self.last.check_in_place()

    @property
    def end(self) -> tuple[str, int]:
        """Return the name of the last file, or an empty string, and the number of its next item."""
        return (self.last.path.name, self.last.count) if self.last is not None else ("", 1)

    @property
    def first_open(self) -> str:
        """Return the name of the oldest file that is still open for writing, or an empty string."""
        with self._lock:
            return min(self._open_names, default=self.end[0])

    def sync(self) -> None:
        """Sync all files, so that no entry can be lost, and close the full files. Raises StoreAccessError."""
        with self._lock:
            last = self.last
            full, self._full = self._full, []
        self._sync_full(full)
        if last is not None:
            last.sync()

    def sync_full(self) -> None:
        """Sync the full files, and close them. Raises StoreAccessError."""
        with self._lock:
            full, self._full = self._full, []
        self._sync_full(full)

    def _sync_full(self, full: list[IndexFileWriter]) -> None:
        for file in full:
            file.check_in_place()
            file.sync()
            self.full_timestamp = max(self.full_timestamp, file.end.timestamp)
            file.close()
            with self._lock:
                self._open_names.discard(file.path.name)

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for file in (*self._full, self.last):
            if file is not None:
                file.close()


def _time_of(batch: DispatchBatch, entry: int) -> int | None:
    """Return the store timestamp of the message of index entry number `entry`; None after the batch's last entry."""
    if entry >= len(batch.key_hash):
        return None
    return int(batch.messages["store_timestamp"][batch.key_row[entry]])
