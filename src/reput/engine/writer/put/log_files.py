"""Write the files of a CommitLog (`MappedFileQueue`, `MappedFile`, tag rocketmq-all-4.9.3).

All files have one size and are named by the physical offset of their first byte. The last file is written through a
memory map. Earlier files stay open until they are synced.

Each part of a file is prepared before records are written to it: its pages are loaded, so that puts do not wait for
page faults.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

from reput.engine.writer.threads import join_thread
from reput.errors import StoreAccessError
from reput.format.file_names import offset_file_name
from reput.io import DISK, Disk, MappedWriter

_HURRY_S = 0.2
_PIECE_BYTES = 4 << 20
_AHEAD_BYTES = 16 << 20
_MOST_OPEN = 32


class Preparer:
    """Calls `prepare_piece` in a thread, on request, until `prepare_piece` returns False.

    The thread starts only after two requests within a fifth of a second. If puts are rare, preparing is a waste: the
    zeros that `prepare_piece` writes to the file are flushed before messages replace the zeros.
    """

    def __init__(self, prepare_piece: Callable[[], bool]) -> None:
        self._prepare_piece = prepare_piece
        self._request = Event()
        self._asked_at = time.monotonic() - _HURRY_S
        self._is_closing = False
        self._thread: Thread | None = None

    def ask(self) -> None:
        now = time.monotonic()
        is_in_hurry, self._asked_at = now - self._asked_at < _HURRY_S, now
        if is_in_hurry:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="reput-prepare", daemon=True)
                self._thread.start()
            self._request.set()

    def close(self) -> None:
        self._is_closing = True
        self._request.set()
        if self._thread is not None and self._thread.ident is not None:
            join_thread(self._thread)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                if not self._prepare_piece():
                    self._request.wait()
                    self._request.clear()
        except StoreAccessError:
            # The thread that writes will meet the same error, and can report it to its caller.
            return


class LogFiles:
    """The files of a log. One thread appends and rolls, another may sync.

    start, file  the last file: physical offset of its first byte, and its memory map
    ready        physical offset up to which the pages of the last file are loaded for writing; it never decreases
    mark         physical offset, at most `ready`; call `prepare` before any write that ends after `mark`
    make_room    called if the disk has no space for the next file; returns whether to try again
    """

    def __init__(self, disk: Disk, folder: Path, file_bytes: int, start: int) -> None:
        """Open the file that begins at `start`, or create it. Raises StoreAccessError."""
        self._disk, self._folder, self.file_bytes = disk, folder, file_bytes
        self._open: dict[int, MappedWriter] = {}
        self._syncing = Lock()
        self.syncs = 0
        self.make_room: Callable[[], bool] = lambda: False
        self.start, self.file = start, self._make(start)
        self.ready = self.mark = start
        self._used = start
        self._is_closed = False
        self._preparing = Lock()
        self._preparer = Preparer(self._prepare_ahead)

    def _make(self, start: int) -> MappedWriter:
        # The file may be open already: an earlier call may have opened the file just before an interrupt (Ctrl-C)
        # stopped the put that needed the file. In this case, return the open file.
        if start in self._open:
            return self._open[start]
        path = self._folder / offset_file_name(start)
        is_new = not path.exists()
        file = None
        try:
            file = self._disk.map(path, self.file_bytes)
            self._disk.sync_folder(self._folder)
        except BaseException as error:
            if file is not None:
                file.close()
            if is_new and isinstance(error, StoreAccessError):
                # Delete the incomplete file, so that the next owner of the store does not find it.
                with suppress(StoreAccessError):
                    self._disk.delete(path)
            raise
        self._open[start] = file
        return file

    def opened(self, start: int) -> MappedWriter:
        """Return the open file that begins at `start`: the last file, or an earlier one that is not synced yet.

        In RocketMQ: getLastMappedFile.
        """
        return self._open[start]

    def begin(self, position: int) -> None:
        """Set the physical offset at which the writer begins."""
        self.ready = self.mark = self._used = position

    def prepare(self, end: int) -> None:
        """Load the pages of the last file up to physical offset `end` for writing.

        Also ask the thread of `Preparer` to prepare more bytes in this way.

        In RocketMQ: AllocateMappedFileService.
        """
        while end > self.ready:
            with self._preparing:
                # The thread of `Preparer` may have prepared this part while this call waited for the lock.
                if end > self.ready:
                    self._prepare_piece()
        self.mark, self._used = self.ready, end
        if self.ready < self.end:
            self._preparer.ask()

    def _prepare_piece(self) -> None:
        ready = min(self.ready + _PIECE_BYTES, self.end)
        # `prepare_empty` overwrites the bytes with zeros. No message was written to this part of the file yet.
        self.file.prepare_empty(self.ready - self.start, ready - self.start)
        self.ready = ready

    def _prepare_ahead(self) -> bool:
        """Prepare one more piece of the last file for writing. Return whether there was a piece to prepare."""
        with self._preparing:
            if self._is_closed:
                return False
            is_short = self.ready < min(self._used + _AHEAD_BYTES, self.end)
            if is_short:
                self._prepare_piece()
                # The writer calls `prepare` before a write that ends after `mark`, and `prepare` wakes this thread. The
                # next _AHEAD_BYTES / 2 after `mark` are already prepared, so that the write need not wait.
                self.mark = max(self.mark, self.ready - _AHEAD_BYTES // 2)
            return is_short

    @property
    def end(self) -> int:
        """Return the physical offset after the last file."""
        return self.start + self.file_bytes

    def roll(self) -> None:
        """Begin the next file (`CommitLog.rollNextFile`). If this raises StoreAccessError, nothing has changed."""
        start = self.end
        # Each mapped file keeps two descriptors, so sync and close the earlier files.
        if len(self._open) >= _MOST_OPEN:
            self.sync(min(self._open), self.start)
        try:
            file = self._make(start)
        except StoreAccessError as error:
            if not _is_disk_full(error) or not self.make_room():
                raise
            file = self._make(start)
        with self._preparing:
            self.file, self.start, self.ready, self.mark, self._used = (
                file,
                start,
                start,
                start,
                start,
            )

    def check_in_place(self) -> None:
        """Check that the open files still have their names. Raises StoreFailedError, StoreAccessError."""
        with self._syncing:
            self._check_in_place()

    def _check_in_place(self) -> None:
        for start in sorted(self._open, reverse=True):
            file = self._open[start]
            self._disk.check_in_place(file.path, file.identity)

    def put_back(self) -> None:
        """Restore files that another process deleted, under their old names. No message may be put at the same time.

        Raises StoreAccessError, for example if another file has one of the names.
        """
        with self._syncing:
            for file in self._open.values():
                # Restore only files that another process deleted. The files in `deleted` had expired, and this process
                # deleted them.
                if file.path not in self._disk.deleted and not os.path.lexists(file.path):
                    DISK.create_durable(file.path, file.data)
            self._disk.sync_folder(self._folder)

    def sync(self, begin: int, until: int) -> None:
        """Make the bytes from `begin` to `until` durable. All bytes before `begin` must be durable already.

        Raises StoreAccessError, and StoreFailedError if a file was deleted or renamed.
        """
        with self._syncing:
            # A sync of a deleted file succeeds, but its messages would be lost.
            self._check_in_place()
            # Another thread may begin a new file during the sync. The new file stays open.
            last = self.start
            for start in sorted(self._open):
                if start < until and start + self.file_bytes > begin:
                    self._open[start].sync()
                    self.syncs += 1
                # A full file is never written again, so it need not stay open.
                if start != last and start + self.file_bytes <= until:
                    self._open.pop(start).close()

    def close(self) -> None:
        """Unmap and close the files. Nothing is written to the files afterwards."""
        with self._preparing:
            self._is_closed = True
        self._preparer.close()
        for file in self._open.values():
            file.close()
        self._open.clear()


def _is_disk_full(error: StoreAccessError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno == errno.ENOSPC
