"""Detect a second owner of a store that the lock did not keep out.

A lock belongs to one view of a file system. The same folder may be visible through another view (`files.mounts` has a
list), and a process that uses this view can lock the store as well. So each owner writes a random token into
`reput.owner`, before it reads the end of the log. It compares the token before it acknowledges messages: after the sync
that they wait for, or with asynchronous flushing every millisecond. So the second owner either reads a message
before it appends, or the first owner does not acknowledge this message.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import replace
from pathlib import Path

from reput.engine.writer.recovery.cut_end import MOST_OWNER_BYTES, OwnerRecord
from reput.engine.writer.recovery.recovery_point import locked_at
from reput.errors import StoreFailedError, StoreNotFoundError, displaced, explained
from reput.format.file_names import OWNER_FILE
from reput.io import Disk, FileReader

_FRESH_S = 0.001
"""Time for which a comparison of the token is valid, where messages do not wait for a sync."""
_PAUSE_S = 20 * _FRESH_S


class Owner:
    """The claim of this process to a store. Its methods raise StoreAccessError.

    fresh_until  time until which the last successful `check` is valid, by `time.monotonic`
    """

    def __init__(self, store: Path, disk: Disk) -> None:
        self._store, self._path, self._disk = store, store / OWNER_FILE, disk
        self._record = OwnerRecord(secrets.token_hex(16))
        self._content, self._name = b"", os.fspath(self._path)
        # The content before this process claimed the store; None if the file did not exist.
        self._before: bytes | None = None
        self._is_claiming, self.fresh_until = False, 0.0

    def claim(self) -> None:
        """Write the token. Recovery still needs the last owner's `end` and `lock`, so keep them."""
        try:
            self._before = FileReader.content_of(self._path, MOST_OWNER_BYTES)
        except StoreNotFoundError:
            self._before = None
        if (last := OwnerRecord.decode(self._before)) is not None:
            self._record = replace(last, token=self._record.token)
        self._is_claiming = True
        self._write()
        # An owner whose lock has no effect here may still acknowledge messages for _FRESH_S. Read the end of the log
        # after that. Without the file, no owner is left.
        if self._before is not None:
            time.sleep(_PAUSE_S)

    def confirm(self, log_end: int) -> None:
        """Record that all bytes before `log_end` were durable when this process opened the store.

        Raises StoreFailedError if another process has claimed the store since.
        """
        self.check()
        self._record = replace(self._record, end=log_end, lock=locked_at(self._store))
        self._write()
        self._is_claiming = False

    def withdraw(self) -> None:
        """Restore the file, if the store was not opened after all."""
        if self._is_claiming:
            self._is_claiming = False
            if self._before is None:
                self.release()
            else:
                self._disk.replace(self._path, self._before)

    def release(self) -> None:
        """Delete the file; durable after the store's folder is synced."""
        self._disk.delete(self._path)

    def check(self) -> None:
        """Raise StoreFailedError if another process has claimed the store."""
        begun = time.monotonic()
        # Open the file again each time: on a network file system, only this shows a change by another machine. Every
        # synchronous put waits for this check, and FileReader takes five times as long.
        with explained(self._path, "be read"):
            try:
                content = FileReader.small_file(self._name, len(self._content) + 1)
            except FileNotFoundError:
                # The second owner has closed the store, or the store was deleted.
                raise displaced(self._path, "deleted or renamed") from None
        if content != self._content:
            raise second_owner(self._path)
        self.fresh_until = begun + _FRESH_S

    def _write(self) -> None:
        self._content = self._record.encode()
        self._disk.replace(self._path, self._content)


def second_owner(path: Path) -> StoreFailedError:
    """Return the error for a store that another process also writes. `path` is the file that shows it."""
    return StoreFailedError(
        f"{path}: another process has opened this store for writing, through another view of its file system in which "
        "the lock of this process has no effect; only one of them may own the store"
    )
