"""Write a new store into an empty folder, so that readers and brokers never see it incomplete.

.reput-restoring/
  lock      locked while a restore runs
  store/    the incomplete store
  moving    written when the store is complete: the names in store/ that must be moved up, log folders last

A killed run leaves this folder, and the next one continues it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reput.errors import UsageError
from reput.format.file_names import RESTORING_FOLDER, is_folder_name
from reput.io import DISK, FileReader, locked

_LOCK, _STORE, _MOVING = "lock", "store", "moving"


class NewStore:
    """A store that is being written. `new_store` yields it.

    Attributes:
        folder: The folder into which the store must be written.
    """

    def __init__(self, target: Path) -> None:
        self._target, self._staging = target, target / RESTORING_FOLDER
        self.folder = self._staging / _STORE

    def keep_only(self, paths: Sequence[str]) -> None:
        """Delete everything that a killed run left, except files with these paths in the store."""
        if not self.folder.is_dir():
            return
        log_folders = {path.split("/")[0] for path in paths}
        for name in os.listdir(self.folder):
            if name not in log_folders:
                DISK.remove_tree(self.folder / name)
        names = set(paths)
        for entry in list(DISK.tree_entries(self.folder)):
            if not entry.is_folder and entry.name not in names:
                DISK.delete(self.folder / entry.name)

    def finish(self, last: Sequence[str]) -> None:
        """Move the complete store to its place.

        The folders in `last` are moved at the end, because readers recognize a store by them.
        """
        DISK.sync_tree(self.folder)
        names = sorted(os.listdir(self.folder), key=lambda name: (name in last, name))
        DISK.write_durable(self._staging / _MOVING, "\n".join(names).encode())
        DISK.sync_folder(self._staging)
        for name in names:
            # Make the earlier renames durable first, so that the log never appears without the other folders.
            if name in last:
                DISK.sync_folder(self._target)
            DISK.rename(self.folder / name, self._target / name)
        DISK.sync_folder(self._target)

    def take_back(self) -> None:
        """Undo the moves of a killed run. Raises UsageError if the target contains other files or a complete store."""
        moving = self._staging / _MOVING
        names = FileReader.text_of(moving).split("\n") if moving.exists() else []
        entries = [name for name in os.listdir(self._target) if name != RESTORING_FOLDER]
        # A run that was killed after its last rename has finished the store, which may already be in use.
        is_complete = entries and not any(self.folder.iterdir())
        is_ours = all(
            name in names and is_folder_name(name) and not (self.folder / name).exists()
            for name in entries
        )
        if is_complete or not is_ours:
            raise _not_empty(self._target)
        for name in entries:
            DISK.rename(self._target / name, self.folder / name)
        DISK.sync_folder(self.folder)
        DISK.delete(moving)


@contextmanager
def new_store(target: Path) -> Iterator[NewStore]:
    """Yield a store, which the `with` block must write and finish.

    If the block fails, the next run can continue.

    Raises:
        UsageError: The target contains anything other than an unfinished store.
        StoreLockedError: Another process is writing it.
        StoreAccessError.
    """
    check_empty(target)
    staging = target / RESTORING_FOLDER
    DISK.create_folder(staging)
    with locked(staging / _LOCK, "another restore is writing there", ["destination"]):
        store = NewStore(target)
        DISK.create_folder(store.folder)
        store.take_back()
        yield store
        DISK.remove_tree(staging)
    DISK.sync_folder(target)


def check_empty(target: Path) -> None:
    """Raise UsageError if the target is neither missing, nor empty, nor an unfinished store."""
    try:
        names = os.listdir(target)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise UsageError(f"{target}: is not a folder", arguments=["destination"]) from None
    if names and RESTORING_FOLDER not in names:
        raise _not_empty(target)


def _not_empty(target: Path) -> UsageError:
    return UsageError(f"{target}: is not empty; choose a new folder", arguments=["destination"])
