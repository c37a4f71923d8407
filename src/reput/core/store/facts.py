"""Find out the facts of a store: parts, file sizes, version, the end of its log, owner and checkpoint.

Each fact is read on first use, because a query needs few of them, and `reput.core.store.file_sizes` takes long to
import.

In RocketMQ: getStoreCheckpoint.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reput.base import INDEX_SETTINGS, LOG_SETTING, QUEUE_SETTINGS, Finding, Kind, StoreConfig
from reput.core.log.ends import LogEnds, recovered_end
from reput.core.log.files import CommitLogFile
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import ListedLog, LogListing, StoreLog, ledger_folders, log_folders
from reput.core.queues.folders import is_database, walk_queues, was_database
from reput.core.queues.forms import ROCKSDB, QueueForm, queue_form, queue_forms
from reput.core.queues.kinds import EXTENSION
from reput.core.queues.store_queues import KnownOffset, known_offset, stated_offset
from reput.core.store.parts import StoreParts, parts_of
from reput.errors import FormatError, MissingExtraError, StoreError, StoreNotFoundError, UsageError
from reput.format.checkpoint import CHECKPOINT_BYTES, Checkpoint, decode_checkpoint
from reput.format.file_names import (
    ABORT_FILE,
    CHECKPOINT_FILE,
    CONSUME_QUEUE_FOLDER,
    LOCK_FILE,
    MESSAGE_DATABASE_FOLDERS,
    QUEUE_DATABASE_FOLDER,
    is_index_file_name,
    parse_offset_file_name,
)
from reput.io import LOCAL, Storage, is_locked

if TYPE_CHECKING:
    from reput.core.log.ends import LogEnds
    from reput.core.store.broker_start import DispatchPoint
    from reput.core.store.file_sizes import Doubt, FileSizes, OddFile

# The first release with the setting `writeWithoutMmap`.
_WITHOUT_MMAP = "5.4"
_DATABASE_FOLDERS = (QUEUE_DATABASE_FOLDER, CONSUME_QUEUE_FOLDER)

KEPT_BY: Mapping[str | None, tuple[str, ...]] = {
    None: (), "index": QUEUE_SETTINGS, "consumequeue": INDEX_SETTINGS,
}  # fmt: skip
"""Maps a rebuild's argument `only` (the files to rebuild; None for all) to the settings that the rebuild does not need.

A rebuild of IndexFiles does not need QUEUE_SETTINGS, and a rebuild of ConsumeQueues does not need INDEX_SETTINGS.
"""


@dataclass(frozen=True)  # Without slots=True, because cached properties need a __dict__.
class StoreFacts:
    """The facts of one store. Each is read on first use and then kept. After a change, call `refresh`.

    Attributes:
        path: The folder of the store.
        given: The settings that the user gave; None to derive them from the files.
        storage: The storage that contains the store.
    """

    path: str
    given: StoreConfig | None = None
    storage: Storage = LOCAL

    def refresh(self) -> StoreFacts:
        """Return new facts, without the values read so far."""
        return StoreFacts(self.path, self.given, self.storage)

    @cached_property
    def parts(self) -> StoreParts:
        """Return the store's parts, according to the names of its files and folders. Raises StoreAccessError."""
        return parts_of(self.path, self.storage)

    @cached_property
    def _sizes(self) -> FileSizes:
        from reput.core.store.file_sizes import sizes_of

        return sizes_of(self)

    @property
    def config(self) -> StoreConfig:
        """Return the given settings, or else settings derived from the files, with a broker's defaults for the rest.

        `shown`, `doubts` and `odd_files` come from the same survey of the files. These three properties and `config`
        raise StoreAccessError.
        """
        return self._sizes.config

    @property
    def shown(self) -> Mapping[str, int]:
        """Return the settings that are certain from the store's files (mostly file sizes), by field of StoreConfig."""
        return self._sizes.shown

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Return the file sizes that the store's files do not show with certainty; empty if the user gave settings."""
        return self._sizes.doubts

    @property
    def odd_files(self) -> tuple[OddFile, ...]:
        """Return the files whose length differs from the size in `config`."""
        return self._sizes.odd_files

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
        from reput.core.store.recovery_file import stated_database

        return stated_database(self.path) or None

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

    @cached_property
    def ends(self) -> LogEnds:
        """Return where the log ends for readers, for a rebuild, and by its data. Raises StoreError."""
        return LogEnds.of(self._source)

    @property
    def holes(self) -> list[Finding]:
        """Return the missing ranges between the first and the last file of the log. Raises StoreError."""
        return self.log.holes()

    @cached_property
    def broker_end(self) -> int:
        """Return the end of the log that a broker would find at its next start. Slow: reads the last files of the log.

        Raises StoreError.
        """
        with closing(CommitLogReader(self._source)) as log:
            start = self.broker_start(self.log.files)
            return recovered_end(log, start, whole_records=self.config.check_record_crc)

    def broker_start(self, files: Sequence[CommitLogFile]) -> int:
        """Return the physical offset from which a broker would check the log if it started now.

        `files` are the files of the log. Raises StoreAccessError.
        """
        from reput.core.store.broker_start import checked_from

        storage = self.storage
        listing = LogListing(self.path, tuple(files), storage.open_file, is_local=storage.is_local)
        with closing(CommitLogReader(ListedLog(listing))) as log:
            return checked_from(log, self.dispatch_point(is_clean=not self.has_abort))

    def dispatch_point(self, *, is_clean: bool) -> DispatchPoint:
        """Return how far the store is dispatched, as its broker knows it. Raises StoreAccessError."""
        from reput.core.store.broker_start import DispatchPoint
        from reput.core.store.message_database import dispatch_marks

        config = self.config
        point = DispatchPoint(
            self.checkpoint, is_clean, None, self.release,
            whole_records=config.check_record_crc, is_accelerated=config.accelerated_recovery,
        )  # fmt: skip
        # Only a 5.x broker uses its queues to choose the file from which it checks the log. Do not read the queues of
        # a remote store: they may be in RocksDB, which can open a database only in a local folder.
        if not config.is_five or not self.storage.is_local:
            return point
        second = None if self.known_offset.is_stated else self._stated_offset
        return replace(
            point, queues_end=self.known_offset, second_end=second, others=dispatch_marks(self)
        )

    @property
    def _stated_offset(self) -> int | None:
        try:
            return stated_offset(self.path)
        except (MissingExtraError, FormatError):
            return None

    @cached_property
    def release(self) -> str:
        """Return the release of the broker that recovers the store: "4.9", "5.3", "5.4" or "5.5".

        The settings name it, or the files of the store show it. Raises StoreAccessError.
        """
        shown = self.parts.least_version
        return max(shown, self.config.store_version or shown)

    @cached_property
    def known_offset(self) -> KnownOffset:
        """Return the physical offset at which the log ends according to the queues; -1 for an unreadable database.

        Raises StoreAccessError.
        """
        try:
            return known_offset(self.path)
        except (MissingExtraError, FormatError):
            return KnownOffset(-1, True)

    @cached_property
    def is_live(self) -> bool:
        """Return whether a process of this machine, such as a broker, owns the store."""
        return self.storage.is_local and is_locked(Path(self.path, LOCK_FILE))

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

    def findings(self) -> list[Finding]:
        """Return findings about missing log files, file sizes, the end of the log, and unknown files or folders.

        Findings about file sizes are reported if sizes are uncertain, or if files of one kind have several sizes.

        Raises StoreError.
        """
        sizes = [doubt.finding() for doubt in self.doubts]
        sizes += [odd.finding() for odd in self.odd_files if not self._is_unsettled(odd)]
        # While a broker writes, the end of the log is always incomplete.
        ends = [] if self.is_live else self.of_ends(self.ends)
        holes = self.holes
        if holes and self.is_live:
            # Files that the broker deleted while the folder was listed are no hole.
            begin = self.begin_now()
            holes = [hole for hole in holes if hole.start >= begin]
        return [*self.parts.findings, *holes, *sizes, *ends]

    def of_ends(self, ends: LogEnds) -> list[Finding]:
        """Return the findings about these ends of the log. Raises StoreAccessError.

        After a clean shutdown of a broker that may write without mmap, the rest of the last page is no finding.
        """
        return ends.findings(is_padded=self.release >= _WITHOUT_MMAP and not self.has_abort)

    def _is_unsettled(self, odd: OddFile) -> bool:
        """Return whether a file's size of 0 is no damage, because the store's owner was creating or deleting the file.

        The owner creates a file with 0 bytes, and then extends the file to its whole size at once.
        """
        if not self.is_live or odd.size:
            return False
        folder = os.path.dirname(odd.path)
        folders = self.log_folders if folder in self.log_folders else (folder,)
        names = [entry.name for place in folders for entry in self.storage.list(place)]
        if odd.kind is Kind.INDEX_FILE_SIZE:
            names = [name for name in names if is_index_file_name(name)]
        else:
            names = [name for name in names if parse_offset_file_name(name) is not None]
        # List the folder before reading the file's size. The owner completes a file before it creates the next one. So
        # if the list has a later file, this file is already complete, and a size of 0 is damage.
        entry = self.storage.entry(odd.path)
        return (
            entry is None
            or entry.stat().st_size > 0
            or os.path.basename(odd.path) == max(names, default="")
        )

    @property
    def is_five(self) -> bool:
        """Return whether the files show that a 5.x broker wrote the store."""
        return self.parts.version == "5.x"

    def require_certain(self, but: Collection[str] = ()) -> None:
        """Raise UsageError if a file size is uncertain. Call this method before files of this size are written.

        Args:
            but: Settings that are not checked, because they are known from elsewhere or not needed. The size of log
                files is never checked here: before messages are appended to a log, recovery checks the size of its
                files, and reports files of several sizes.

        Raises:
            UsageError: A size is uncertain. The message names the files and the settings.
        """
        for doubt in self.doubts:
            if not set(doubt.settings) <= {LOG_SETTING, *but}:
                raise UsageError(
                    f"{self.path}: {doubt}; nothing was changed; pass broker_config with {doubt.names}",
                    arguments=["broker_config"],
                )

    def require_shown(self) -> None:
        """Raise StoreError if the given settings contradict the sizes of existing files.

        A broker does not start with such files.

        Raises:
            StoreError: The sizes differ. The message names the setting.
        """
        from reput.core.store.file_sizes import BROKER_NAMES, QUEUE_SIZES

        units = {
            kind.setting: (f"its {kind.title} have", kind.unit, "bytes") for kind in QUEUE_SIZES
        }
        units |= {
            "hash_slots": ("its IndexFiles have", 1, "slots"),
            "index_items": ("its IndexFiles have", 1, "items"),
        }
        for setting, (files, unit, noun) in units.items():
            value = getattr(self.config, setting)
            evident = self.shown.get(setting, value)
            if value != evident:
                raise StoreError(
                    f"{self.path}: {files} {evident * unit:,} {noun}, not the {value * unit:,} of "
                    f"the settings "
                    f"({BROKER_NAMES[setting]}); omit the setting, or rebuild the indexes with "
                    f"it first"
                )


def facts_of(
    store: str | os.PathLike[str], given: StoreConfig | None = None, storage: Storage = LOCAL
) -> StoreFacts:
    """Return the facts of a store. They come from names, sizes, headers and samples, never from the whole log.

    Args:
        store: The folder of a store, or of indexes.
        given: The broker's settings; None to take the sizes from the files.
        storage: The storage that contains the folder.
    """
    return StoreFacts(os.fspath(store), given, storage)
