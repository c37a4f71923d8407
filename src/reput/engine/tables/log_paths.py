"""Find the logs at paths: a store, its commitlog/ folder, a file of a CommitLog, or a pattern of these."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from reput.base import did_you_mean
from reput.core import (
    CommitLogFile,
    LogListing,
    StoreLog,
    check_no_overlap,
    find_record,
    is_compaction_log,
    log_folder,
    store_of,
)
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
from reput.format.file_names import COMMIT_LOG_FOLDER, parse_offset_file_name
from reput.io import FolderEntry, Location, Storage, listed_size, storage_of

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
