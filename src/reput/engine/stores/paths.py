"""Find stores at paths, and write paths that stand for several places: logs outside a store, or its archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from posixpath import dirname, join

from reput import io
from reput.core import StoreLog, find_store, log_folder, store_of
from reput.errors import StoreNotFoundError, UsageError
from reput.format.file_names import COMMIT_LOG_FOLDER, LOCK_FILE
from reput.io import LOCAL, Location, Storage, storage_of

_SEPARATOR = ","


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
    return io.Scratch.view_of_links(os.path.basename(os.path.abspath(store)), entries)


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
