"""Which stores are served: those that are named, and those in folders that are named, as they come and go."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from reput.files.storage import is_url
from reput.format.file_names import COMMIT_LOG_FOLDER

_PLAIN_NAME = "store"  # what a broker calls its own, so that it tells nothing


def find_stores(paths: Iterable[str]) -> list[str]:
    """The stores that are there, in order: each path that is one, and of each other folder those in it."""
    found: dict[str, None] = {}
    for path in paths:
        if is_url(path) or _is_store(path):
            found[path] = None
            continue
        try:
            inside = sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
        except OSError:  # it is not there yet
            continue
        found.update(dict.fromkeys(folder for folder in inside if _is_store(folder)))
    return list(found)


def _is_store(path: str) -> bool:
    return os.path.isdir(os.path.join(path, COMMIT_LOG_FOLDER))


def broker_name(path: str, taken: Iterable[str]) -> str:
    """A name for the broker of a store, after its folder, that no other has."""
    parts = [part for part in Path(path.rstrip("/")).parts if part.strip("/.")]
    if not is_url(path):
        parts = list(Path(os.path.abspath(path)).parts)
    names = [part for part in reversed(parts) if part not in ("/", _PLAIN_NAME)]
    plain = "".join(
        c if c.isascii() and (c.isalnum() or c in "-_") else "-"
        for c in (names or [_PLAIN_NAME])[0]
    )
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name
