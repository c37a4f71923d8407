"""Find the stores to serve: paths of stores, and folders in which stores may appear and disappear."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from reput.core import StoreLog
from reput.errors import ReputError
from reput.format.file_names import COMMIT_LOG_FOLDER
from reput.io import Location

_PLAIN_NAME = "store"  # The default name of a store's folder. It does not identify a broker.


def find_stores(paths: Iterable[str]) -> list[str]:
    """Return the stores at the given paths, in the order of the paths.

    A path is a store, or a folder that contains stores.
    """
    stores: dict[str, None] = {}
    for path in paths:
        if Location.is_url(path) or Location.is_archive(path) or is_store(path):
            stores[path] = None
        else:
            stores.update(dict.fromkeys(folder for folder in _folders(path) if is_store(folder)))
    return list(stores)


def missing_stores(paths: Iterable[str]) -> dict[str, str]:
    """Return the paths at which no store was found, each with the reason."""
    reasons: dict[str, str] = {}
    for path in paths:
        if find_stores([path]):
            continue
        if not os.path.lexists(path):
            reasons[path] = "there is no such folder yet"
        elif not os.path.isdir(path):
            reasons[path] = "it is not a folder"
        elif not os.access(path, os.R_OK | os.X_OK):
            reasons[path] = "its folder cannot be read"
        else:
            reasons[path] = f"no {COMMIT_LOG_FOLDER}/ or other CommitLog in it or in its folders"
    return reasons


def _folders(path: str) -> list[str]:
    try:
        return sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
    except OSError:  # The folder does not exist yet.
        return []


def is_store(path: str) -> bool:
    """Return whether a folder has a CommitLog: in commitlog/, in several folders, or as a DLedger log."""
    try:
        return any(map(os.path.isdir, StoreLog(path).folders))
    except ReputError:  # The folder is missing, or cannot be read.
        return False


def broker_name(path: str, used_names: Iterable[str], preferred: str | None = None) -> str:
    """Return a unique name for the broker of a store: the given name, or its folder's name."""
    parts = [part for part in Path(path.rstrip("/")).parts if part.strip("/.")]
    if not Location.is_url(path):
        parts = list(Path(os.path.abspath(path)).parts)
    names = [part for part in reversed(parts) if part not in ("/", _PLAIN_NAME)]
    plain = "".join(
        c if c.isascii() and (c.isalnum() or c in "-_") else "-"
        for c in preferred or (names or [_PLAIN_NAME])[0]
    )
    name, number = plain, 1
    while name in used_names:
        number += 1
        name = f"{plain}-{number}"
    return name
