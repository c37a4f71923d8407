"""The folders of a repair beside the store, the swap with the store, and the undo.

The folder STORE.reput-repair lies beside STORE. It has a numbered folder for each repair:

    owner        locked while a repair, or an undo, runs
    1/
      new/          the repaired state, until it is swapped with STORE as a whole by one rename; then the old state
      repair.json   written before the swap: the inodes of the old and the repaired state
      backup/       the old state; after the swap, `new` is renamed to `backup`
      undone/       the repaired state, after an undo. The undo swaps `backup` with STORE, so `backup` contains the
                    repaired state. Then the undo renames `backup` to `undone`.

Folders are identified by inode, which a rename keeps. So after a kill at any point, `settle` can identify each folder,
and completes or undoes the swap.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reput.core import facts_of
from reput.errors import StoreChangedError, StoreError, StoreNotFoundError, explained, refused_link
from reput.format.untrusted_json import parse_json
from reput.io import DISK, FileReader, locked

SUFFIX = ".reput-repair"
_RECORD_FILE, _OWNER_FILE = "repair.json", "owner"
_MOST_BYTES = 1 << 26
_FORM = 1
AtStep = Callable[[str], None]
"""Called after each step with the step's name. Tests interrupt a repair there."""
LogLook = list[list[Any]]


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of `repair.json`.

    old, new  inodes of the store's old and new folder
    log       name, size and modification time of each file of the repaired log
    form      version of the format of repair.json
    """

    old: int
    new: int
    log: LogLook
    form: int = _FORM


@dataclass(frozen=True, slots=True)
class Attempt:
    """One repair of a store."""

    folder: Path

    @property
    def number(self) -> int:
        return int(self.folder.name)

    @property
    def new(self) -> Path:
        return self.folder / "new"

    @property
    def backup(self) -> Path:
        return self.folder / "backup"

    @property
    def undone(self) -> Path:
        return self.folder / "undone"

    def record(self) -> Record | None:
        """Return the contents of `repair.json`, or None if the file has not been written yet.

        Raises:
            StoreError: The file is not in the format of this version of reput.
            StoreAccessError: The file cannot be read.
        """
        path = self.folder / _RECORD_FILE
        try:
            record = Record(**parse_json(FileReader.content_of(path, _MOST_BYTES)))
        except StoreNotFoundError:
            return None
        except (ValueError, TypeError):
            raise StoreError(
                f"{path}: was not written by this version of reput; use the version that repaired the store"
            ) from None
        if record.form != _FORM:
            raise StoreError(
                f"{path}: was not written by this version of reput; use the version that repaired the store"
            )
        return record

    def write_record(self, store: Path) -> Record:
        """Write `repair.json` durably, and return its contents.

        Raises StoreAccessError, and StoreChangedError if the folder of the store or of the repaired store is missing.
        """
        old, new = DISK.inode_of(store), DISK.inode_of(self.new)
        if old is None or new is None:
            raise StoreChangedError(f"{store}: was moved meanwhile; repair it again")
        attempt = self.folder / f"{_RECORD_FILE}.tmp"
        record = Record(old, new, look_of_log(self.new))
        DISK.write_durable(attempt, json.dumps(asdict(record)).encode())
        DISK.rename(attempt, self.folder / _RECORD_FILE)
        DISK.sync_folder(self.folder)
        return record


class RepairPlaces:
    """The folder STORE.reput-repair, which lies beside a store and contains the repairs of the store."""

    def __init__(self, store: Path) -> None:
        """Choose the folder beside a store for its repairs. `store` is a real path, without links.

        Raises StoreError if no folder can be created beside the store.
        """
        if store == store.parent:
            raise StoreError(
                f"{store}: has no parent folder in which a repair could build the new store"
            )
        self.store, self.root = store, store.with_name(store.name + SUFFIX)
        if self.root.is_symlink():
            raise refused_link(self.root)

    def next(self) -> Attempt:
        """Return the `Attempt` for the next repair, without creating its folder."""
        return Attempt(
            self.root / str(max((attempt.number for attempt in self.attempts()), default=0) + 1)
        )

    def new_attempt(self, backup: Path) -> Attempt:
        """Create the folder of a new repair, the parent folder of `backup`.

        `backup` is the path that the repair's plan has chosen for the old state of the store.

        Raises StoreChangedError if another repair has created the same folder since the plan was made.
        """
        attempt = Attempt(backup.parent)
        if DISK.inode_of(attempt.folder) is not None:
            raise StoreChangedError(
                f"{attempt.folder}: belongs to another repair; plan this repair again"
            )
        with explained(attempt.folder, "be created"):
            DISK.make_own_folder(attempt.folder)
        return attempt

    def attempts(self) -> list[Attempt]:
        """Return all attempts, the oldest first. Raises StoreAccessError."""
        if DISK.inode_of(self.root) is None:
            return []
        with explained(self.root, "be read"):
            folders = [
                folder
                for folder in self.root.iterdir()
                if not folder.is_symlink() and folder.is_dir()
            ]
        # `isdigit` alone accepts characters that `int` refuses, such as superscripts.
        numbered = [folder for folder in folders if folder.name.isascii() and folder.name.isdigit()]
        return [Attempt(folder) for folder in sorted(numbered, key=lambda folder: int(folder.name))]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the store and its parent open during the `with` block.

        Paths below the two folders then follow no link, even if another program replaces a folder by a link.
        """
        with ExitStack() as stack:
            for folder in (self.store.parent, self.store):
                if DISK.inode_of(folder) is not None:
                    stack.enter_context(DISK.anchored(folder))
            yield

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock out other repairs of the store during the `with` block. Raises StoreLockedError, StoreAccessError.

        If root creates the folder of the repairs, it belongs to root until `give` is called, so that no other user can
        change the repaired state in it.
        """
        if DISK.inode_of(self.root) is None:
            with explained(self.root, "be created"):
                DISK.make_own_folder(self.root)
        busy = "another repair of this store is running; wait for it or stop it"
        with locked(self.root / _OWNER_FILE, busy):
            yield

    def give(self, attempt: Attempt) -> None:
        """Give the folders that root created beside the store to the store's owner.

        Only folders that still belong to root are changed, because no other user can have put files into them. Raises
        StoreAccessError.
        """
        if os.geteuid() != 0:
            return
        for folder, name in ((attempt.folder, _RECORD_FILE), (self.root, _OWNER_FILE)):
            if DISK.is_own_folder(folder):
                DISK.own_like(folder / name, self.store)
                DISK.look_like(folder, self.store)

    def check_disk(self) -> None:
        """Raise StoreError if the store is a mount point, which cannot be renamed, and so cannot be swapped."""
        if not DISK.shares_parent_s_disk(self.store):
            raise StoreError(
                f"{self.store}: is a mount point, which a repair cannot swap; specify a store "
                f"below it, or rebuild its indexes in place"
            )

    def settle(self, at: AtStep) -> None:
        """Finish an interrupted swap. Delete a built store that was not swapped in.

        Raises StoreAccessError, StoreError.
        """
        attempts = self.attempts()
        if DISK.inode_of(self.store) is None:
            self._finish_renames(attempts, at)
        store = DISK.inode_of(self.store)
        if store is None:
            return
        for attempt in attempts:
            record = attempt.record()
            # An earlier repair was killed before the swap, so the store is unchanged.
            if record is None or (store == record.old and DISK.inode_of(attempt.new) == record.new):
                DISK.remove_tree(attempt.folder)
                at("dropped")
            # An earlier repair was killed after the swap, before it renamed the folder of the old state.
            elif DISK.inode_of(attempt.new) == record.old:
                self._rename(attempt.new, attempt.backup)
            # An undo was killed after its swap, before it renamed the folder of the repaired state.
            elif DISK.inode_of(attempt.backup) == record.new:
                self._rename(attempt.backup, attempt.undone)

    def _finish_renames(self, attempts: list[Attempt], at: AtStep) -> None:
        """Finish a swap that was killed between its two renames: give the store's name to the new state."""
        for attempt in attempts:
            record = attempt.record()
            if record is None:
                continue
            old, new = DISK.inode_of(attempt.backup), DISK.inode_of(attempt.new)
            if old == record.old and new == record.new:
                self._rename(attempt.new, self.store)
            elif old == record.old and DISK.inode_of(attempt.undone) == record.new:
                self._rename(attempt.backup, self.store)
            else:
                continue
            at("finished")
            return

    def swap(self, record: Record, fresh: Path, old: Path, at: AtStep) -> None:
        """Durably replace the store's folder by `fresh`, and rename the old folder to `old`.

        If the file system can exchange two names, one rename does this. Otherwise two renames do, and a kill between
        them leaves the store without its name until `settle`. Raises StoreChangedError, before any change, if another
        folder now has one of these names.
        """
        states = {record.old, record.new}
        with explained(self.store, "be swapped"):
            exchanged = DISK.exchange_at_once(self.store, fresh)
            # The store and `fresh` were exchanged, but another program had replaced one of the two folders after
            # `repair.json` was written. So undo the exchange.
            if exchanged and {DISK.inode_of(self.store), DISK.inode_of(fresh)} != states:
                DISK.exchange_at_once(self.store, fresh)
                raise StoreChangedError(f"{self.store}: was replaced meanwhile; repair it again")
        if exchanged:
            at("swapped")
            self._rename(fresh, old)
        else:
            self._rename(self.store, old)
            at("half swapped")
            self._rename(fresh, self.store)
        at("named")

    def _rename(self, path: Path, name: Path) -> None:
        DISK.rename(path, name)
        for folder in {path.parent, name.parent, self.store.parent}:
            DISK.sync_folder(folder)


def look_of_log(store: Path) -> LogLook:
    """Return name, size and time (ns) of each file of a log, to detect later writes. Raises StoreAccessError."""
    return [
        [entry.name, entry.size, entry.mtime_ns]
        for folder in facts_of(store).log_folders
        for entry in DISK.tree_entries(Path(folder))
        if not entry.is_folder
    ]
