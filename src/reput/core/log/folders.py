"""Find the folders of a store's CommitLog files: `commitlog/`, or several (`storePathCommitLog=a,b`).

Mirrors `MultiPathMappedFileQueue.load` (tag rocketmq-all-5.3.3): the files of all folders, in order of their offsets,
are the log. If no setting names the folders, all folders in the store that contain log files are used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from reput.errors import ReputError
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    read_size_and_magic,
)
from reput.format.file_names import (
    COMMIT_LOG_FOLDER,
    COMPACTION_FOLDER,
    COMPACTION_LOG_FOLDER,
    LEDGER_DATA_FOLDER,
    LEDGER_PREFIX,
    parse_offset_file_name,
)
from reput.io import Storage, Watch

COMPACTION_LOGS = os.path.join(COMPACTION_FOLDER, COMPACTION_LOG_FOLDER)
"""Folder of a 5.x store in which each queue of a compacted topic has a separate log."""
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC)


def log_folders(store: str, storage: Storage) -> tuple[str, ...]:
    """Return the folders of a store's log: `commitlog/`, else its DLedger log, else all its folders with log files.

    The last case returns each folder that lies directly in the store and whose first file begins with a record.
    Without such a folder, return `commitlog/`, although it does not exist. Raises StoreAccessError.
    """
    usual = os.path.join(store, COMMIT_LOG_FOLDER)
    if storage.entry(usual) is not None:
        return (usual,)
    ledgers = ledger_folders(store, storage)
    if ledgers:
        return ledgers
    folders = sorted(
        entry.path for entry in storage.list(store) if entry.is_dir() and _holds_log(entry.path, storage)
    )  # fmt: skip
    return tuple(folders) or (usual,)


def ledger_folders(store: str, storage: Storage) -> tuple[str, ...]:
    """Return `dledger-<id>/data` of a store with a DLedger log (`enableDLegerCommitLog`). Raises StoreAccessError."""
    names = [entry.path for entry in storage.list(store) if entry.name.startswith(LEDGER_PREFIX)]
    data = (os.path.join(path, LEDGER_DATA_FOLDER) for path in sorted(names))
    return tuple(folder for folder in data if storage.entry(folder) is not None)


def _holds_log(folder: str, storage: Storage) -> bool:
    """Return whether the first file that is named by an offset begins with a CommitLog record."""
    files = [e for e in storage.list(folder) if parse_offset_file_name(e.name) is not None]
    try:
        for file in sorted(files, key=lambda entry: entry.name)[:1]:
            with closing(storage.open(file.path)) as reader:
                head = reader.read(0, min(BLANK_BYTES, file.stat().st_size))
            return len(head) == BLANK_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS
    # The file is missing or unreadable. Reading the log reports it.
    except (ReputError, OSError):
        return False
    return False


def is_compaction_log(folder: str) -> bool:
    """Return whether a path is that of a compaction log: compaction/compactionLog/<topic>/<queue id>."""
    parts = os.path.normpath(folder).split(os.sep)
    return parts[-4:-2] == COMPACTION_LOGS.split(os.sep)


class FoldersWatch:
    """A Watch of several folders. It reports whether any of them may have changed since the last call."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    def changed(self) -> bool:
        # All watches are called, because each remembers its state. `any` alone would stop at the first change.
        changed = [watch.changed() for watch in self._watches]
        return any(changed)
