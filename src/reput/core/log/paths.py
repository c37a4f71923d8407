"""Find the logs at paths: a store, its commitlog/ folder, a file of a CommitLog, or a pattern of these."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike, fspath
from posixpath import dirname, join

from reput.base import did_you_mean
from reput.core.log.files import CommitLogFile, check_no_overlap, find_record
from reput.core.log.sources import LogListing, StoreLog, is_compaction_log
from reput.errors import StoreAccessError, StoreNotFoundError, UsageError
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    MIN_RECORD_BYTES,
    read_size_and_magic,
    read_size_and_physical_offset,
)
from reput.format.file_names import COMMIT_LOG_FOLDER, LOCK_FILE, parse_offset_file_name
from reput.io import LOCAL, FolderEntry, Location, Scratch, Storage, listed_size, storage_of

_SEPARATOR = ","
_PEEK_BYTES = 1 << 20
_MESSAGE_MAGICS = (MESSAGE_MAGIC, MESSAGE_MAGIC_V2)
_MAGICS = (*_MESSAGE_MAGICS, BLANK_MAGIC)


def find_logs(paths: Iterable[str], options: Mapping[str, str] | None = None) -> list[LogListing]:
    """Return the logs at these paths, ordered by the names of their stores, without empty files.

    Args:
        paths: local paths or URLs.
        options: options of file systems, see `reput.io.file_systems.resolve`.

    Raises:
        UsageError: a path does not lead to a CommitLog.
        StoreNotFoundError: a path does not exist.
        StoreAccessError: a path cannot be read.
        FormatError: files of one store overlap.
    """
    # Logs are keyed by the real path of their files, so that a store with several paths is returned once.
    logs: dict[str, LogListing] = {}
    single: dict[str, tuple[Storage, str, dict[str, FolderEntry]]] = {}
    for given in paths:
        storage, pattern = storage_of(given, options, lists_all=False)
        for path in Location.matches(storage, pattern.rstrip("/") or "/"):
            entry = storage.entry(path)
            if entry is None:
                raise StoreNotFoundError(f"{given}: no such file or folder{_meant(storage, path)}")
            if entry.is_dir():
                folder = log_folder(storage, path)
                logs.setdefault(
                    Location.canonical(folder), _of_folder(storage, path, folder, options or {})
                )
            else:
                folder = posixpath.dirname(path) or "."
                of_folder = single.setdefault(Location.canonical(folder), (storage, folder, {}))
                of_folder[2][entry.name] = entry
    for place, (storage, folder, entries) in single.items():
        # These files were named one by one. If another path names their folder or their store, `logs` already has all
        # files of the folder.
        if place not in logs:
            log = logs[place] = _listed(storage, store_of(folder), entries.values(), None)
            _check_is_log(storage, log.files)
    return sorted(logs.values(), key=lambda log: log.name)


def _meant(storage: Storage, path: str) -> str:
    """Return a hint with similar names of existing files."""
    folder, name = posixpath.split(path)
    with suppress(StoreAccessError):
        return did_you_mean(name, [entry.name for entry in storage.list(folder or ".")])
    return ""


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


def find_stores(
    paths: Iterable[str | PathLike[str]], options: Mapping[str, str] | None = None
) -> list[str]:
    """Return the stores at these paths and patterns, each once, under the first path that leads to it.

    Raises as `find_store` does.
    """
    stores: dict[str, str] = {}
    for path in paths:
        storage, pattern = storage_of(path, options, lists_all=False)
        for found in Location.matches(storage, pattern):
            store = store_of(log_folder(storage, found))
            stores.setdefault(Location.canonical(store), store)
    return list(stores.values())


def log_bytes(store: str | PathLike[str], options: Mapping[str, str] | None = None) -> int:
    """Return the total length of a store's CommitLog files. Raises as `find_store` and `LogSource.list` do."""
    storage, path = find_store(store, options)
    return sum(file.size for file in StoreLog(path, storage).list().files)


def log_folder(storage: Storage, path: str) -> str:
    """Return the commitlog/ folder in a folder, or the folder itself if it has no commitlog/."""
    inner = posixpath.join(path, COMMIT_LOG_FOLDER)
    entry = storage.entry(inner)
    return inner if entry is not None and entry.is_dir() else path


def store_of(folder: str) -> str:
    """Return the store of a commitlog/ folder. A folder of another name is a store itself."""
    parent, name = posixpath.split(folder)
    return (parent or ".") if name == COMMIT_LOG_FOLDER else folder


def split_logs(path: str) -> tuple[str, tuple[str, ...]]:
    """Split STORE,LOG,LOG into the store and the folders of its CommitLog outside the store."""
    store, *logs = path.split(_SEPARATOR)
    # A comma may also be part of an existing path.
    return (
        (path, ())
        if not logs or Location.is_url(path) or os.path.exists(path)
        else (store, tuple(logs))
    )


def with_logs(store: str, logs: Sequence[str]) -> str:
    """Return a folder of links to the parts of a store, and to `logs`, which are further folders of its CommitLog.

    Without `logs`, return the store itself. The folder of links has no `lock`, so commands do not notice a broker that
    runs on the store.

    Raises StoreNotFoundError, StoreAccessError.
    """
    if not logs:
        return store
    for path in (store, *logs):
        if not os.path.isdir(path):
            raise StoreNotFoundError(
                f"{path}: no such directory, but it is named in {_SEPARATOR.join((store, *logs))}"
            )
    entries = {entry.name: entry.path for entry in LOCAL.list(store)}
    # The store's lock file gets no link, because a lock file is never opened through a link.
    entries.pop(LOCK_FILE, None)
    folders = [entries[COMMIT_LOG_FOLDER]] if COMMIT_LOG_FOLDER in entries else []
    named = {os.path.realpath(path): path for path in (*folders, *logs)}
    # Each log folder gets a numbered link below. So first remove the entries that lead to log folders: otherwise a log
    # folder could have two links.
    entries = {name: path for name, path in entries.items() if os.path.realpath(path) not in named}
    entries |= {f"{COMMIT_LOG_FOLDER}-{n}": path for n, path in enumerate(named.values(), 1)}
    return Scratch.view_of_links(os.path.basename(os.path.abspath(store)), entries)


def with_archive(
    store: str | PathLike[str],
    archive: str | PathLike[str],
    options: Mapping[str, str] | None = None,
) -> str:
    """Return a path that stands for a store and its archive as one log. Readers accept it in place of a store's path.

    Args:
        store: a store, or its commitlog/ folder; a local path or a URL.
        archive: a folder or URL to which `reput archive` has written.
        options: options of file systems, see `reput.io.file_systems.resolve`.

    Raises:
        UsageError: the store is an archive, or `archive` is not an archive.
        StoreNotFoundError, StoreAccessError.
    """
    storage, place = find_store(store, options)
    if storage.is_archive or storage.is_joined:
        raise UsageError(
            f"{fspath(store)}: an archive cannot be joined with an archive; pass the path of a store"
        )
    older = fspath(archive)
    if not Location.is_url(older):
        path = Location.local_path(older)
        if not Location.is_archive(path):
            raise Location.not_an_archive(older)
        older = Location.ARCHIVE_SCHEME + os.path.abspath(path)
    return Location.joined(older.rstrip("/"), Location.absolute(place))


def _of_folder(storage: Storage, path: str, folder: str, options: Mapping[str, str]) -> LogListing:
    """Return the log whose files lie in `folder`. `path` is the store, or the folder of the log itself."""
    if storage.is_archive or storage.is_joined:
        return replace(StoreLog(path, storage).list(), elsewhere=(path, options))
    entries = [
        entry
        for entry in storage.list(folder)
        if parse_offset_file_name(entry.name) is not None and entry.is_file()
    ]
    if not entries and folder == path:
        # A store without commitlog/ may have its log in several other folders. If it has no such folders either, the
        # error below is raised.
        with suppress(StoreNotFoundError):
            return StoreLog(path, storage).list()
    if not entries:
        raise StoreNotFoundError(
            f"{path}: not a RocketMQ store, nor a {COMMIT_LOG_FOLDER} folder: "
            "it has no file whose name is an offset of 20 digits"
        )
    is_store = folder != path
    store = path if is_store else store_of(path)
    is_whole = is_store or store != path
    log = _listed(storage, store, entries, store if storage.is_local and is_whole else None)
    if not is_whole:
        _check_is_log(storage, log.files)
    return log if storage.is_local or not is_whole else replace(log, elsewhere=(store, options))


def _listed(
    storage: Storage, name: str, entries: Iterable[FolderEntry], folder: str | None
) -> LogListing:
    sizes = [(entry, listed_size(entry)) for entry in entries]
    files = sorted(
        CommitLogFile(
            _start_of(storage, entry, size),
            size,
            entry.path,
            inode=0 if storage.is_local else entry.inode(),
            gap=CommitLogFile.gap_of(entry.path),
        )
        for entry, size in sizes
        if size
    )
    check_no_overlap(files)
    is_compacted = bool(files) and is_compaction_log(posixpath.dirname(files[0].path))
    return LogListing(name, tuple(files), storage.open_file, folder, storage.is_local, is_compacted)


def _check_is_log(storage: Storage, files: Sequence[CommitLogFile]) -> None:
    """Raise UsageError if the first file has bytes but no record.

    Such a file may be a ConsumeQueue file: the names of ConsumeQueue files and of log files have the same form.
    """
    for file in files[:1]:
        with storage.open_file(file.path) as reader:
            head = reader.read(0, min(file.size, BLANK_BYTES))
            if len(head) == BLANK_BYTES and read_size_and_magic(head, 0)[1] in _MAGICS:
                continue
            written = reader.read(0, min(file.size, _PEEK_BYTES))
            if any(written) and find_record(reader, file, file.start, file.end) is None:
                raise UsageError(f"{file.path}: not a CommitLog file: it contains no record")


def _start_of(storage: Storage, entry: FolderEntry, size: int) -> int:
    """Return the physical offset of a file's first byte, from its name or else from its first record."""
    start = parse_offset_file_name(entry.name)
    if start is not None:
        return start
    if size >= MIN_RECORD_BYTES:
        with storage.open_file(entry.path) as reader:
            head = reader.read(0, MIN_RECORD_BYTES)
        stated = read_size_and_physical_offset(head, 0)[1]
        if read_size_and_magic(head, 0)[1] in _MESSAGE_MAGICS and stated >= 0:
            return stated
    raise UsageError(
        f"{entry.path}: not a CommitLog file: "
        "its name is not an offset of 20 digits, and the file does not begin with a record"
    )


def wait_for_log(
    store: str | PathLike[str], pause: Callable[[], bool], on_wait: Callable[[], None]
) -> bool:
    """Wait until the CommitLog of `store` has a file with bytes; return whether it has one.

    Args:
        store: an existing folder or its URL, with or without `commitlog/`; see `find_store`.
        pause: waits a moment, and returns whether to continue waiting.
        on_wait: called once, if the log does not exist yet.

    Raises:
        StoreNotFoundError: `store` or its `commitlog` is not a folder.
        StoreAccessError, FormatError: as `LogSource.list`.
    """
    storage, path = find_store(store)
    if _has_log(path, storage):
        return True
    on_wait()
    while pause():
        if _has_log(path, storage):
            return True
    return False


def _has_log(store: str, storage: Storage) -> bool:
    try:
        return StoreLog(store, storage).list().files[0].size > 0
    except StoreNotFoundError:
        folder = join(store, COMMIT_LOG_FOLDER)
        entry = storage.entry(folder) or storage.entry(dirname(folder))
        if entry is None or not entry.is_dir():
            raise
        return False
