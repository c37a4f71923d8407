"""List, watch and open the files of one CommitLog, in any storage, through a `LogSource`.

The files of a store's log are in `commitlog/`, or in several folders (`storePathCommitLog=a,b`). This mirrors
`MultiPathMappedFileQueue.load` (tag rocketmq-all-5.3.3): the files of all folders, in order of their offsets, are the
log. If no setting names the folders, all folders in the store that contain log files are used.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from os import PathLike, fspath
from typing import NamedTuple, Protocol, cast

from reput.base import Finding, late
from reput.core.log.files import CommitLogFile, check_no_overlap, first_nonzero, holes
from reput.errors import ReputError, StoreAccessError, StoreNotFoundError
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
    RESTORING_FOLDER,
    parse_offset_file_name,
)
from reput.io import LOCAL, FileReader, Location, OpenFile, SparseReader, Storage, Watch, storage_of

# Number of times that a listing with missing files is repeated.
_MORE_LOOKS = 2
# Number of folder entries that are examined for a hint in an error message. More would delay the message.
_MOST_NEAR = 100
_REMOTE_PEEK_BYTES = 1 << 20
COMPACTION_LOGS = os.path.join(COMPACTION_FOLDER, COMPACTION_LOG_FOLDER)
"""Folder of a 5.x store in which each queue of a compacted topic has a separate log."""
_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2, BLANK_MAGIC)
# Only archives, and stores joined with theirs, load these.
_archived_files = late("reput.wings.archive.log_files", "archived_files")
_with_older_files = late("reput.wings.archive.log_files", "with_older_files")


def find_store(
    path: str | PathLike[str], options: Mapping[str, str] | None = None
) -> tuple[Storage, str]:
    """Return the store at a path, and its storage, without examining the store.

    Args:
        path: a store, its commitlog/ folder, or a pattern that matches one of these; a local path or a URL.
        options: options of file systems, see `reput.io.file_systems.resolve`.

    Raises:
        UsageError: the pattern matches several stores, or no file system opens such a URL.
        StoreNotFoundError: the pattern matches nothing.
        StoreAccessError: a folder cannot be listed.
    """
    storage, pattern = storage_of(path, options)
    store = store_of(log_folder(storage, Location.only_match(storage, pattern)))
    is_kept = storage.is_local or store == pattern
    return (storage, store) if is_kept else storage_of(store, options)


def log_folder(storage: Storage, path: str) -> str:
    """Return the commitlog/ folder in a folder, or the folder itself if it has no commitlog/."""
    inner = posixpath.join(path, COMMIT_LOG_FOLDER)
    entry = storage.entry(inner)
    return inner if entry is not None and entry.is_dir() else path


def store_of(folder: str) -> str:
    """Return the store of a commitlog/ folder. A folder of another name is a store itself."""
    parent, name = posixpath.split(folder)
    return (parent or ".") if name == COMMIT_LOG_FOLDER else folder


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


class BrokerNames(NamedTuple):
    """Names of the broker that writes a store, and of its cluster; None if unknown."""

    broker: str | None = None
    cluster: str | None = None


NO_NAMES: BrokerNames = BrokerNames()


@dataclass(frozen=True)
class LogListing:
    """The files of one CommitLog, or some of them, as they were when they were listed.

    name       name of the store: its path as given; the `store` column of a table
    files      the files, in order of physical offset
    open_file  opens a file for a sequential read, also in other processes
    folder     the local folder of the store, with its indexes; None for remote stores and for single files
    is_local   whether the files are local
    is_compacted  whether this is a compaction log (5.x), whose files lack removed messages and may end with zeros
    names      values of the columns `broker` and `cluster` of a table
    elsewhere  path and file system options of a remote store, or of an archive; None for local stores and single files
    """

    name: str
    files: tuple[CommitLogFile, ...]
    open_file: OpenFile = FileReader
    folder: str | None = None
    is_local: bool = True
    is_compacted: bool = False
    names: BrokerNames = NO_NAMES
    # repr omits this field, because options may contain passwords.
    elsewhere: tuple[str, Mapping[str, str]] | None = field(default=None, compare=False, repr=False)

    @property
    def begin(self) -> int:
        """Return the physical offset of the first byte that has not expired; 0 for a log without files."""
        return self.files[0].start if self.files else 0

    @property
    def end(self) -> int:
        """Return the end of the last file, which may be empty; 0 for a log without files."""
        return self.files[-1].end if self.files else 0

    def holes(self) -> list[Finding]:
        """Return the findings of missing ranges between the first file and the last."""
        return [] if self.is_compacted else holes(self.files)

    def is_at_end(self, position: int) -> bool:
        """Return whether nothing is written at a physical offset yet, with one small read. Raises StoreError."""
        for file in self.files:
            if file.start <= position < file.end:
                with self.open_file(file.path) as reader:
                    head = reader.read(position - file.start, min(BLANK_BYTES, file.end - position))
                return not any(head)
        return not self.files or position >= self.files[-1].end

    def last_with_data(self) -> CommitLogFile | None:
        """Return the last file with a nonzero byte.

        Raises:
            StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        for file in reversed(self.files):
            if has_data(self.open_file, file, is_local=self.is_local):
                return file
        return None


class LogSource(Protocol):
    """One CommitLog. Not thread-safe.

    name      place of the log's files, for error messages
    is_local  whether the files are local
    """

    @property
    def name(self) -> str: ...

    @property
    def is_local(self) -> bool: ...

    def list(self) -> LogListing:
        """Return the current files of the log, at least one.

        Raises:
            StoreNotFoundError: the log has no files.
            StoreAccessError: the files cannot be listed.
            FormatError: two files contain the same offset.
        """

    def watch(self) -> Watch:
        """Return a watch that reports whether files may have been added or removed since its last call."""

    def open(self, path: str) -> SparseReader:
        """Open a file of the log for random reads. Raises StoreNotFoundError, StoreAccessError."""


class FoldersWatch:
    """A Watch of several folders. It reports whether any of them may have changed since the last call."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    def changed(self) -> bool:
        # All watches are called, because each remembers its state. `any` alone would stop at the first change.
        changed = [watch.changed() for watch in self._watches]
        return any(changed)


class StoreLog:
    """The LogSource of a store: the files named by offsets in its CommitLog folders.

    Mirrors `MappedFileQueue.load` (tag rocketmq-all-4.9.3), but takes sizes from the files, not from a setting.
    """

    def __init__(
        self,
        store: str | PathLike[str],
        storage: Storage = LOCAL,
        folders: Sequence[str] | None = None,
    ) -> None:
        """Use the log in `folders`. Without them, find its folders in the store. Raises StoreAccessError."""
        self.store, self._storage = fspath(store), storage
        self.folders = tuple(folders or log_folders(self.store, storage))
        self.name = self.folders[0]

    @property
    def is_local(self) -> bool:
        return self._storage.is_local

    def watch(self) -> Watch:
        if len(self.folders) == 1:
            return self._storage.watch(self.name)
        return FoldersWatch([self._storage.watch(folder) for folder in self.folders])

    def open(self, path: str) -> SparseReader:
        return self._storage.open(path)

    def list(self) -> LogListing:
        files = self._files()
        for _ in range(_MORE_LOOKS):
            if files and not holes(files):
                break
            # A file that expires, or is created, while the folder is read may look like a hole. So list again.
            files = self._files()
        if not files:
            if self._storage.is_archive:
                raise StoreNotFoundError(f"{self.store}: the archive has no log file yet")
            raise StoreNotFoundError(
                f"{self.name}: has no CommitLog file (a file whose name is an offset in 20 digits)"
            )
        check_no_overlap(files)
        folder = self.store if self.is_local else None
        both = Location.split(self.store)
        name = self.store if both is None else both[1]
        return LogListing(name, files, self._storage.open_file, folder, self.is_local)

    def _files(self) -> tuple[CommitLogFile, ...]:
        if self._storage.is_archive:
            files_of_archive: tuple[CommitLogFile, ...] = _archived_files()(self._storage)
            return files_of_archive
        files = []
        for entry in chain.from_iterable(map(self._storage.list, self.folders)):
            if (offset := parse_offset_file_name(entry.name)) is not None:
                # The file may have expired since it was listed.
                with suppress(FileNotFoundError):
                    size = entry.stat().st_size
                    files.append(
                        CommitLogFile(
                            offset,
                            size,
                            entry.path,
                            entry.inode(),
                            CommitLogFile.gap_of(entry.path),
                        )
                    )
        if not files and self._storage.entry(self.name) is None:
            if self.is_local:
                Location.refuse_archive(self.store)
            raise StoreNotFoundError(
                f"{self.store}: not a RocketMQ store: it has no {COMMIT_LOG_FOLDER} folder"
                + _store_near(self.store, self._storage)
            )
        if not self._storage.is_joined or not files:
            return tuple(sorted(files))
        newer = tuple(sorted(files))
        listing = LogListing(self.store, newer, self._storage.open_file, is_local=False)
        joined: tuple[CommitLogFile, ...] = _with_older_files()(
            self._storage, newer, listing.last_with_data()
        )
        return joined


class ListedLog:
    """A LogSource that always returns the given listing. So its files never change."""

    def __init__(self, listing: LogListing) -> None:
        self._listing, self.name, self.is_local = listing, listing.name, listing.is_local

    def list(self) -> LogListing:
        return self._listing

    def watch(self) -> Watch:
        return self

    def changed(self) -> bool:
        return False

    def open(self, path: str) -> SparseReader:
        # Remote files have no holes, so the methods of a SparseReader that find holes are not called for them.
        return (
            LOCAL.open(path)
            if self.is_local
            else cast("SparseReader", self._listing.open_file(path))
        )


def _store_near(path: str, storage: Storage) -> str:
    """Return a hint for an error message: a store in a folder nearby, or an unfinished restore; "" without either."""
    above = posixpath.dirname(path.rstrip("/"))
    with suppress(StoreAccessError):
        if storage.entry(posixpath.join(path, RESTORING_FOLDER)) is not None:
            return "; a restore into this folder is not finished; run `reput restore` again"
        for place in filter(None, chain((above, posixpath.dirname(above)), _below(path, storage))):
            inner = storage.entry(posixpath.join(place, COMMIT_LOG_FOLDER))
            if inner is not None and inner.is_dir():
                return f"; the store is in {place}"
    return ""


def _below(path: str, storage: Storage) -> Iterator[str]:
    """Yield the folders directly in `path`. On a local disk, where listings are fast, also yield their subfolders."""
    places = [path]
    for _ in range(2 if storage.is_local else 1):
        entries = (entry for place in places for entry in storage.list(place))
        places = [entry.path for entry in islice(entries, _MOST_NEAR) if entry.is_dir()]
        yield from places


def has_data(open_file: OpenFile, file: CommitLogFile, *, is_local: bool) -> bool:
    """Return whether a file has a nonzero byte.

    Raises:
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    # A remote file has no holes that a search could skip, so search only its first MiB. One MiB is enough: files are
    # written from their beginning, so a file with data has data in its first MiB.
    if not is_local:
        file = replace(file, size=min(file.size, _REMOTE_PEEK_BYTES))
    with open_file(file.path) as reader:
        if any(reader.read(0, min(BLANK_BYTES, file.size))):
            return True
        return first_nonzero(reader, file, file.start) is not None
