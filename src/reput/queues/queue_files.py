"""The files of one queue that is being written: entries of one size, one behind the other, in files of one size."""

from __future__ import annotations

from pathlib import Path

from reput.files.dirty_pages import is_worth_a_flush
from reput.files.disk import Disk, PooledWriter
from reput.files.reader import Identity
from reput.format.file_names import offset_file_name


class QueueFiles:
    """Files of a folder, made when they are written to. Entries are numbered from the queue's beginning."""

    def __init__(
        self, folder: Path, file_bytes: int, entry_bytes: int, disk: Disk | None, flushed: int
    ) -> None:
        """Entries before number `flushed` are durable."""
        self._folder, self._file_bytes, self._entry_bytes = folder, file_bytes, entry_bytes
        self._file_entries = file_bytes // entry_bytes
        self._files: dict[int, PooledWriter] = {}
        self._disk = disk or Disk()
        self._has_new_files = False
        self._flushed = flushed
        self._newest: tuple[int, Identity] | None = None  # closed or not: it is not to be another

    def write(self, entries: memoryview, number: int) -> None:
        """Write the bytes of entries, of which the first has this number. Raises StoreAccessError, StoreFailedError."""
        while entries:
            within = number % self._file_entries
            part = entries[: (self._file_entries - within) * self._entry_bytes]
            self.make(number).write(part, within * self._entry_bytes)
            entries, number = entries[len(part) :], number + len(part) // self._entry_bytes

    def make(self, number: int) -> PooledWriter:
        """The file of an entry; made where it is not there."""
        place = number // self._file_entries
        file = self._files.get(place)
        if file is None:
            if not self._files:
                self._disk.create_folder(self._folder)
            path = self._path(place)
            is_new = not path.exists()
            if self._newest is not None and self._newest[0] == place:
                self._disk.check_in_place(path, self._newest[1])
            file = self._files[place] = self._disk.open_pooled(path, self._file_bytes)
            self._newest = place, file.identity
            self._has_new_files |= is_new
        return file

    def _path(self, place: int) -> Path:
        return self._folder / offset_file_name(place * self._file_bytes)

    def check_in_place(self) -> None:
        """Check that the newest file that was written to still has its name, whether it is open or not.

        Raises StoreFailedError, StoreAccessError.
        """
        if (newest := self._newest) is not None:
            self._disk.check_in_place(self._path(newest[0]), newest[1])

    def delete_all(self) -> None:
        """Delete what is in the folder: the queue begins anew."""
        for path in sorted(self._folder.iterdir(), reverse=True):
            self._disk.delete(path)
        self._disk.sync_folder(self._folder)
        self._flushed, self._newest = 0, None

    def is_due(self, count: int, least_pages: int) -> bool:
        """Whether, of so many entries, so many pages are dirty, or a file is full (`ConsumeQueue.flush`).

        0 pages are anything that is dirty.
        """
        flushed, written = self._flushed * self._entry_bytes, count * self._entry_bytes
        return least_pages == 0 or is_worth_a_flush(flushed, written, least_pages, self._file_bytes)

    def start_writeback(self) -> None:
        """Have the system write what is dirty."""
        for file in list(self._files.values()):
            file.start_writeback()

    def sync(self, count: int) -> None:
        """Make the first `count` entries and the names of their files durable; keeps only the last file open.

        Another thread may append meanwhile: a file that another follows is written to no more. Raises StoreAccessError,
        StoreFailedError.
        """
        files, has_new_names = self._files.copy(), self._has_new_files
        if has_new_names:  # set again by whoever makes a file from now on
            self._has_new_files = False
        for file in files.values():
            self._disk.check_in_place(Path(file.path), file.identity)
            file.sync()
        for place in sorted(files)[:-1]:
            self._files.pop(place).close()
        if has_new_names:
            for folder in (self._folder, self._folder.parent, self._folder.parent.parent):
                self._disk.sync_folder(folder)
        self._flushed = count

    def close(self, sync: bool) -> None:
        """Close them; they can still be written to."""
        for file in self._files.values():
            if sync:
                file.sync()
            file.close()
        self._files.clear()
