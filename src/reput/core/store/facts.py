"""Find out the facts of a store that its readers need: parts, version, queues, databases, owner and checkpoint.

Each fact is read on first use, because a query needs few of them. `reput.engine.writer.survey` has the facts that
writers and checks need besides.

In RocketMQ: getStoreCheckpoint.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reput.base import Finding, late
from reput.core.log.sources import LogListing, StoreLog, ledger_folders, log_folders
from reput.core.queues.forms import ROCKSDB, QueueForm, queue_form, queue_forms
from reput.core.queues.kinds import EXTENSION, is_database, walk_queues, was_database
from reput.core.store.parts import StoreParts, parts_of
from reput.errors import StoreNotFoundError
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    LOCK_FILE,
    MESSAGE_DATABASE_FOLDERS,
    QUEUE_DATABASE_FOLDER,
    parse_offset_file_name,
)
from reput.io import LOCAL, Storage

_DATABASE_FOLDERS = (QUEUE_DATABASE_FOLDER, CONSUME_QUEUE_FOLDER)
# Only checks and writers ask who owns a store; only a store without any queue needs the second.
_is_locked = late("reput.io", "is_locked")
_stated_database = late("reput.engine.writer.survey", "stated_database")


@dataclass(frozen=True)  # Without slots=True, because cached properties need a __dict__.
class StoreFacts:
    """The facts of one store. Each is read on first use and then kept.

    Attributes:
        path: The folder of the store.
        storage: The storage that contains the store.
    """

    path: str
    storage: Storage = LOCAL

    @cached_property
    def parts(self) -> StoreParts:
        """Return the store's parts, according to the names of its files and folders. Raises StoreAccessError."""
        return parts_of(self.path, self.storage)

    @cached_property
    def log_folders(self) -> tuple[str, ...]:
        """Return the folders of the CommitLog. Raises StoreAccessError."""
        return log_folders(self.path, self.storage)

    @cached_property
    def ledger_folders(self) -> tuple[str, ...]:
        """Return the folders of the DLedger log; empty if there is none. Raises StoreAccessError."""
        return ledger_folders(self.path, self.storage)

    @cached_property
    def queue_form(self) -> QueueForm | None:
        """Return the form that has all queues of the store, such as RocksDB; None if no file shows such a form.

        Raises StoreAccessError.
        """
        forms = queue_forms(self.path, self.storage)
        return next((form for form in forms if form.has_all), None)

    @cached_property
    def form_of_remains(self) -> QueueForm | None:
        """Return `queue_form`, or RocksDB if the store only has the rest of its database. Raises StoreAccessError."""
        if self.queue_form is not None:
            return self.queue_form
        folders = (os.path.join(self.path, name) for name in _DATABASE_FOLDERS)
        has_remains = any(was_database(folder, self.storage) for folder in folders)
        return queue_form(ROCKSDB) if has_remains else None

    @cached_property
    def lost_database(self) -> str | None:
        """Return the name of the folder of the queues' database if the store had one, and now has no queues at all.

        The recovery point tells it. Raises StoreAccessError.
        """
        if not self.storage.is_local or self.form_of_remains is not None or self.has_queue_files:
            return None
        return _stated_database()(self.path) or None

    @cached_property
    def last_form(self) -> QueueForm | None:
        """Return `form_of_remains`, or RocksDB if the store has lost its whole database. Raises StoreAccessError."""
        return self.form_of_remains if self.lost_database is None else queue_form(ROCKSDB)

    @cached_property
    def has_queue_files(self) -> bool:
        """Return whether the store has a ConsumeQueue in files. Raises StoreAccessError."""
        return next(walk_queues(self._queue_folder, self.storage), None) is not None

    def has_topic(self, topic: str) -> bool:
        """Return whether the store has a folder for ConsumeQueues of this topic. Raises StoreAccessError."""
        return self.storage.entry(os.path.join(self._queue_folder, topic)) is not None

    @cached_property
    def has_extension_files(self) -> bool:
        """Return whether the store has a folder for extension files of ConsumeQueues. Raises StoreAccessError."""
        return self.storage.entry(os.path.join(self.path, EXTENSION.folder)) is not None

    @property
    def _queue_folder(self) -> str:
        return os.path.join(self.path, CONSUME_QUEUE_FOLDER)

    def local_database(self, *names: str) -> str | None:
        """Return the folder of a RocksDB database in the store; None if it does not exist or the store is not local.

        Raises StoreAccessError.
        """
        folder = os.path.join(self.path, *names)
        return folder if self.storage.is_local and is_database(folder, self.storage) else None

    @cached_property
    def message_databases(self) -> tuple[str, ...]:
        """Return the databases with a key index, timers and transactions of a local store. Raises StoreAccessError.

        The remains of a database count too: it cannot be opened, but it is not missing.
        """
        if not self.storage.is_local:
            return ()
        folders = (os.path.join(self.path, name) for name in MESSAGE_DATABASE_FOLDERS)
        return tuple(
            folder
            for folder in folders
            if is_database(folder, self.storage) or was_database(folder, self.storage)
        )

    @cached_property
    def log(self) -> LogListing:
        """Return the files of the log. Raises StoreError."""
        return self._source.list()

    @property
    def _source(self) -> StoreLog:
        return StoreLog(self.path, self.storage)

    @property
    def holes(self) -> list[Finding]:
        """Return the missing ranges between the first and the last file of the log. Raises StoreError."""
        return self.log.holes()

    @cached_property
    def is_live(self) -> bool:
        """Return whether a process of this machine, such as a broker, owns the store."""
        return self.storage.is_local and bool(_is_locked()(Path(self.path, LOCK_FILE)))

    def begin_now(self) -> int:
        """Return the offset in the name of the log's first file, listed anew; 0 if there is none.

        A running broker may have deleted log files since these facts were read. It deletes the queue files of their
        messages afterwards (`CleanCommitLogService` and `CleanConsumeQueueService` of `DefaultMessageStore`).

        Raises StoreAccessError.
        """
        names = (entry.name for folder in self.log_folders for entry in self.storage.list(folder))
        starts = (parse_offset_file_name(name) for name in names)
        return min((start for start in starts if start is not None), default=0)

    @cached_property
    def has_abort(self) -> bool:
        """Return whether the store has the file `abort`: its owner runs, or was not shut down cleanly.

        In RocketMQ: isTempFileExist.
        """
        return self.storage.entry(os.path.join(self.path, ABORT_FILE)) is not None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint; zeros if the file is missing or short. Raises StoreAccessError."""
        path = os.path.join(self.path, CHECKPOINT_FILE)
        entry = self.storage.entry(path)
        if entry is None or not entry.is_file() or not entry.stat().st_size:
            return Checkpoint()
        try:
            with closing(self.storage.open(path)) as reader:
                size = min(entry.stat().st_size, CHECKPOINT_BYTES)
                return decode_checkpoint(reader.read(0, size))
        except (StoreNotFoundError, ValueError):
            return Checkpoint()

    @property
    def is_five(self) -> bool:
        """Return whether the files show that a 5.x broker wrote the store."""
        return self.parts.version == "5.x"


def facts_of(store: str | os.PathLike[str], storage: Storage = LOCAL) -> StoreFacts:
    """Return the facts of a store, or of a folder of indexes. They come from the names and heads of its files.

    `storage` is the storage that contains the folder.
    """
    return StoreFacts(os.fspath(store), storage)
