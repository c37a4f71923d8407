"""Find stores at paths, open one to read it or to own it, and write paths that stand for several places.

Such places are logs outside a store, and its archive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from posixpath import dirname, join
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from reput import core, io
from reput.base import StoreConfig, checked, late, refuse_unknown
from reput.core import StoreLog, find_store, log_folder, store_of
from reput.errors import StoreNotFoundError, UsageError
from reput.format.file_names import COMMIT_LOG_FOLDER, LOCK_FILE
from reput.io import LOCAL, Location, Storage, storage_of

# Imported later. Writing needs the compiled kernels, which load slowly, and readers need not wait for them. Who only
# asks for paths needs no reader either.
if TYPE_CHECKING:
    from reput.core import MessageStore, ReaderOptions
    from reput.engine.writer import WritableStore, WriterOptions

_SEPARATOR = ","
# Few commands have a limit of time.
_within = late("reput.engine.stores.limited", "within")


def find_stores(
    paths: Iterable[str | PathLike[str]],
    options: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> list[str]:
    """Return the stores at these paths and patterns, each once, under the first path that leads to it.

    With `limit_s`, a path that does not answer within so many seconds counts as a store. Raises as `find_store` does.
    """
    stores: dict[str, str] = {}
    for path in paths:
        storage, pattern = storage_of(path, options, lists_all=False)

        def exists(place: str, storage: Storage = storage) -> bool:
            return bool(_within()(limit_s, lambda: storage.entry(place) is not None, True))

        def named(place: str, storage: Storage = storage) -> tuple[str, str]:
            store = store_of(log_folder(storage, place))
            return Location.canonical(store), store

        for found in Location.matches(storage, pattern, exists):
            place, store = _within()(limit_s, partial(named, found), (found, found))
            stores.setdefault(place, store)
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


@overload
def open_store(
    path: str | PathLike[str], mode: Literal["r"] = "r", **settings: Unpack[ReaderOptions]
) -> MessageStore: ...


@overload
def open_store(
    path: str | PathLike[str],
    mode: Literal["rw"],
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Unpack[WriterOptions],
) -> WritableStore: ...


@checked
def open_store(
    path: str | PathLike[str],
    mode: str = "r",
    *,
    config: StoreConfig | None = None,
    broker_config: str | PathLike[str] | None = None,
    **settings: Any,
) -> MessageStore | WritableStore:
    """Open the store of a stopped or running broker, a copy of a store, or (mode 'rw') a new store.

    Args:
        path: the directory that contains commitlog/; for reading, also a URL of any file system that
            pyarrow.fs or fsspec opens (s3://bucket/store)
        mode: 'r' writes nothing into the store; 'rw' makes this process the owner, as a broker would be, and creates
            the store if it does not exist (see WritableStore)
        config: the broker's settings; alternatively, pass `broker_config`
        broker_config: the path of a file with the broker's settings (broker.conf)

    Further settings of mode 'r': `hash_slots` and `index_items` describe the IndexFiles, and by default are derived
    from the files. `index` is a directory whose index/ (and consumequeue/, if it has one) is read instead of the
    store's own. `storage_options` are options of the URL's file system (`s3.endpoint_override`, `fsspec.NAME`, ...).
    With mode 'rw': the fields of reput.engine.writer.writer_settings.WriterSettings, which override `broker_config`.

    Raises StoreNotFoundError, StoreAccessError, FormatError, UsageError; with mode 'rw' also StoreLockedError.
    """
    if mode == "r":
        refuse_unknown("open_store", settings, core.ReaderOptions.__annotations__)
        return core.MessageStore(path, config=config, broker_config=broker_config, **settings)
    if mode != "rw":
        raise UsageError(f"mode must be 'r' (read) or 'rw' (own the store), not {mode!r}")
    Location.refuse_url(path)
    from reput.engine.writer import WritableStore

    return WritableStore.open(path, config, broker_config, **settings)
