"""Put the new files in place: name them, make them durable, swap the folders, write `checkpoint`.

A crash before the first swap leaves the old store unchanged. A crash between two swaps leaves old and new folders of
the same log, each complete. The next rebuild replaces both.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from reput.core import facts_of
from reput.engine.rebuild.staging import Staging
from reput.engine.rebuild.write_files import index_part
from reput.errors import StoreError
from reput.format.checkpoint import Checkpoint, encode_checkpoint
from reput.format.file_names import (
    CHECKPOINT_FILE,
    INDEX_FOLDER,
    MESSAGE_DATABASE_FOLDERS,
    QUEUE_FOLDERS,
)
from reput.io import DISK


class RebuildCommit(NamedTuple):
    """The results of a rebuild that `checkpoint` needs, and the folders to delete.

    last_timestamp   store timestamp of the log's last message; None if ConsumeQueues were not rebuilt
    log_end          the end of the last log file
    index_timestamp  the latest end timestamp of all IndexFiles; None if they were not rebuilt. After a crash, the
                     broker deletes every IndexFile with a later end (IndexService.load, 4.9.3)
    logics           whether the form of the queues has logicsMsgTimestamp, which a broker does not update for RocksDB
    without          folders of the old store to delete, because they do not belong in a store with the new form of
                     queues
    """

    last_timestamp: int | None
    index_timestamp: int | None
    log_end: int
    logics: bool = True
    without: Collection[str] = ()

    def checkpoint_after(self, old: Checkpoint) -> Checkpoint:
        """Return a checkpoint with which a broker keeps the rebuilt files, after a clean shutdown and after a crash.

        Timestamps of parts that were not rebuilt keep their old value.
        """
        new = old.without_offsets_outside(self.log_end)
        if self.last_timestamp is not None:
            new = new._replace(physic_msg_timestamp=self.last_timestamp)
            if self.logics:
                new = new._replace(logics_msg_timestamp=self.last_timestamp)
        if self.index_timestamp is not None:
            new = new._replace(index_msg_timestamp=self.index_timestamp)
        return new


class Target(Protocol):
    """The destination of a rebuild's result."""

    def clear(self) -> None:
        """Delete the output of an unfinished rebuild."""

    def take_queues(self, staged: int) -> None:
        """Collect the queue files, after all tasks have written them. `staged` is the number of staged objects."""

    def take_index_files(self, names: Mapping[int, str]) -> None:
        """Give the staged IndexFiles their final names. `names` maps the number of each file to its final name."""

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each file of the result, by its path below the output."""

    def commit(self, commit: RebuildCommit) -> None:
        """Put the result in place, then delete the staging files. Raises StoreAccessError, StoreError."""


class FolderTarget:
    """An output folder. The staging folder lies in it, so both are in one file system."""

    def __init__(self, output: Path, staging: Staging) -> None:
        self._output, self._staging = output, staging

    def clear(self) -> None:
        """Do nothing: a folder never has part of a result, because the commit swaps whole folders."""

    def take_queues(self, staged: int) -> None:
        """Do nothing: the tasks have written the files into the new folders."""

    def take_index_files(self, names: Mapping[int, str]) -> None:
        """See Target. Raises StoreAccessError."""
        folder = self._staging.new / INDEX_FOLDER
        DISK.create_folder(folder)
        for number, name in names.items():
            DISK.rename(Path(index_part(str(self._staging.parts), number)), folder / name)

    def sizes(self) -> dict[str, int]:
        """See Target."""
        return _sizes(self._staging.new)

    def commit(self, commit: RebuildCommit) -> None:
        """See Target."""
        # Write `checkpoint` after the swap. Its times tell a broker up to which message the files are complete, which
        # is true of the new files only.
        swap_in(self._output, self._staging, commit.without)
        _write_checkpoint(self._output, self._staging, commit)
        self._staging.remove()


def swap_in(output: Path, staging: Staging, without: Collection[str] = ()) -> None:
    """Swap each folder of staging.new into `output`, then delete the old folders and the folders named in `without`.

    The old folders are kept in staging.old until all new ones are in place. Raises StoreAccessError.
    """
    # Sync before the first swap. Otherwise a power cut could leave new folders with empty files.
    DISK.sync_tree(staging.new)
    DISK.create_folder(staging.old)
    for name in sorted(os.listdir(staging.new), key=_place):
        fresh, place = staging.new / name, output / name
        expected = _sizes(fresh)
        # If the file system can swap names in one step, readers never find the folder missing.
        if place.exists():
            DISK.exchange(fresh, place)
            DISK.rename(fresh, staging.old / name)
        else:
            DISK.rename(fresh, place)
        # The lock keeps out only brokers and other rebuilds. So check whether any other program has changed the files.
        if _sizes(place) != expected:
            raise StoreError(
                f"{place}: changed during the commit; the old files are in {staging.old}"
            )
    for name in without:
        if (output / name).exists():
            DISK.rename(output / name, staging.old / name)
    # Before the old folders are deleted, and before `checkpoint` states the times of the new ones.
    DISK.sync_folder(output)
    DISK.remove_tree(staging.old)


def _place(name: str) -> tuple[bool, int]:
    """Return a sort key for the folders of a result: queues first, then IndexFiles, then a database of keys."""
    order = (*QUEUE_FOLDERS, INDEX_FOLDER, *MESSAGE_DATABASE_FOLDERS)
    return name in order, order.index(name) if name in order else 0


def _sizes(folder: Path) -> dict[str, int]:
    return {
        os.path.relpath(os.path.join(parent, name), folder): os.stat(
            os.path.join(parent, name)
        ).st_size
        for parent, _, names in os.walk(folder)
        for name in names
    }


def _write_checkpoint(output: Path, staging: Staging, commit: RebuildCommit) -> None:
    checkpoint = commit.checkpoint_after(facts_of(output).checkpoint)
    fresh = staging.new / CHECKPOINT_FILE
    DISK.write_durable(fresh, encode_checkpoint(checkpoint))
    DISK.put_in_place(fresh, output / CHECKPOINT_FILE)
    DISK.sync_folder(output)
