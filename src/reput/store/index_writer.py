"""The IndexFiles of a store that is alive, the writing side (`IndexService`, tag rocketmq-all-4.9.3).

A full file is followed by a new one when the next message comes, of whatever kind. Its name is the local time, or
the one after its predecessor's where that is not earlier: no two files share one, and their order is that of creation.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from reput.config import StoreConfig
from reput.files.disk import Disk
from reput.format.file_names import next_index_file_name
from reput.store.dispatch_batch import DispatchBatch
from reput.store.index_file import FileEnd
from reput.store.index_file_writer import IndexFileWriter


class IndexWriter:
    """Puts batches; one thread puts, another may sync.

    last           the file that is put to, None before the first message
    full_timestamp end (ms) of the last full file that is durable
    """

    def __init__(
        self,
        folder: Path,
        config: StoreConfig,
        disk: Disk,
        clock_ms: Callable[[], int],
        last: IndexFileWriter | None = None,
        full_timestamp: int = 0,
    ) -> None:
        self._folder, self._config, self._disk, self._clock_ms = folder, config, disk, clock_ms
        self.last, self.full_timestamp = last, full_timestamp
        self._full: list[IndexFileWriter] = []
        self._lock = Lock()

    def put(self, batch: DispatchBatch) -> None:
        """Raises StoreAccessError."""
        if not len(batch):
            return
        last = self._writable()
        done, keys = 0, len(batch.key_hash)
        while done < keys:
            done = last.put(batch.key_hash, batch.key_row, batch.messages, done)
            if done < keys:
                last = self._writable()
        if keys and int(batch.key_row[-1]) < len(batch) - 1:
            self._writable()

    def _writable(self) -> IndexFileWriter:
        """The last file, or a new one where that is full or there is none."""
        if self.last is not None and not self.last.is_full:
            return self.last
        end, previous = FileEnd(), None
        if self.last is not None:
            end, previous = self.last.end, self.last.path.name
        name = next_index_file_name(previous, self._clock_ms())
        file = IndexFileWriter(self._folder / name, self._config, self._disk)
        file.seed(end)
        self._disk.sync_folder(self._folder)
        with self._lock:  # a file is one of the two at any time
            if self.last is not None:
                self._full.append(self.last)
            self.last = file
        return file

    @property
    def end(self) -> tuple[str, int]:
        """Name of the last file, empty where there is none, and the number that its next item gets."""
        return (self.last.path.name, self.last.count) if self.last is not None else ("", 1)

    def sync(self) -> None:
        """Make everything that was put durable, and close the files that are full. Raises StoreAccessError."""
        with self._lock:
            full, self._full = self._full, []
            last = self.last
        for file in full:
            file.sync()
            self.full_timestamp = max(self.full_timestamp, file.end.timestamp)
            file.close()
        if last is not None:
            last.sync()

    def close(self, sync: bool) -> None:
        if sync:
            self.sync()
        for file in (*self._full, self.last):
            if file is not None:
                file.close()
