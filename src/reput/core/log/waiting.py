"""Wait for a CommitLog that does not exist yet. A broker creates its first file with its first message."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from posixpath import dirname, join

from reput.core.log.paths import find_store
from reput.core.log.sources import StoreLog
from reput.errors import StoreNotFoundError
from reput.format.file_names import COMMIT_LOG_FOLDER
from reput.io import Storage


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
