"""Expand patterns of paths: * ? [] in any folder or file name, with the same rules on every file system."""

from __future__ import annotations

import fnmatch

from reput.errors import StoreNotFoundError, UsageError
from reput.io.places import is_pattern as is_pattern
from reput.io.storage import Storage


def expand_to_one(storage: Storage, pattern: str) -> str:
    """Return the only path that matches a pattern. Raises UsageError for several, and the errors of `expand`."""
    found = expand(storage, pattern)
    if len(found) > 1:
        raise UsageError(
            f"{pattern}: matches {len(found)} paths, {found[0]} and others; specify one"
        )
    return found[0]


def expand(storage: Storage, pattern: str) -> list[str]:
    """Return the paths that match a pattern, in order. A path without * ? [] is returned as it is.

    Raises:
        StoreNotFoundError: no path matches.
        StoreAccessError: a folder cannot be listed.
    """
    found = _matches(storage, pattern)
    if not found:
        raise StoreNotFoundError(f"{pattern}: no file or folder matches this pattern")
    return found


def _matches(storage: Storage, pattern: str) -> list[str]:
    if not is_pattern(pattern):
        return [pattern]
    folder, slash, name = pattern.rstrip("/").rpartition("/")
    found = []
    for parent in _matches(storage, folder) if folder else [""]:
        inside = f"{parent}{slash}"
        if not is_pattern(name):
            if storage.entry(inside + name) is not None:
                found.append(inside + name)
            continue
        names = sorted(entry.name for entry in storage.list(inside or "."))
        found += [inside + each for each in names if fnmatch.fnmatchcase(each, name)]
    return found
