"""Classify paths: URLs, archives, patterns, and paths that name an archive together with its store.

Patterns have * ? [] in any folder or file name, with the same rules on every file system.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol

from reput.errors import StoreNotFoundError, UsageError
from reput.format.file_names import ARCHIVE_MANIFEST

LOCAL_ARCHIVE = "archive://"
"""Prefix of paths in a local archive. They are not paths of the local file system."""
# Separates the archive from the store in a path that names both.
_JOIN = " + "
_CHARACTERS = frozenset("*?[")


class _Folders(Protocol):
    """What the search for paths that match a pattern needs of a `reput.io.storage.Storage`."""

    def list(self, folder: str) -> Sequence[Any]: ...

    def entry(self, path: str) -> object | None: ...


def is_url(path: str | PathLike[str]) -> bool:
    """Return whether a path belongs to a file system other than the local one."""
    text = fspath(path)
    return "://" in text and not text.startswith("file:")


def joined_place(archive: str, store: str) -> str:
    """Return a path that names both an archive and its store, which are read as one log. Raises UsageError.

    Both places are absolute paths or URLs.
    """
    if _JOIN in archive:
        raise UsageError(
            f"{archive}: an archive with {_JOIN!r} in its name cannot be joined with a store; rename it"
        )
    return f"{archive}{_JOIN}{store}"


def split_joined(path: str) -> tuple[str, str] | None:
    """Return archive and store of a path that `joined_place` returned; None for any other path."""
    archive, joint, store = path.partition(_JOIN)
    # The separator between archive and store may also occur within a local path. Such a path must not be split.
    is_pair = joint and "://" in archive and (store.startswith("/") or "://" in store)
    return (archive, store) if is_pair else None


def local_path(path: str | PathLike[str]) -> str:
    """Return a local path without the scheme `file:`."""
    text = fspath(path)
    # Hadoop also writes URLs with a single slash: file:/data.
    return text.removeprefix("file:").removeprefix("//") if text.startswith("file:") else text


def is_pattern(path: str) -> bool:
    """Return whether a path contains * ? or [."""
    return not _CHARACTERS.isdisjoint(path)


def is_archive(path: str) -> bool:
    """Return whether a local folder is an archive."""
    return os.path.isfile(os.path.join(path, ARCHIVE_MANIFEST))


def not_an_archive(place: str) -> StoreNotFoundError:
    """Return the error for a place that is read as an archive, but has no manifest."""
    return StoreNotFoundError(f"{place}: is not an archive: it has no {ARCHIVE_MANIFEST}")


def refuse_url(path: str | PathLike[str]) -> None:
    """Raise UsageError if a path is a URL. Operations that need a local store call this function first."""
    if is_url(path):
        raise UsageError(f"{fspath(path)}: this command needs a store on a local file system")


def refuse_archive(path: str | PathLike[str]) -> None:
    """Raise UsageError if a path is a local archive.

    Operations that need a store's own files call this function first.
    """
    place = fspath(path).removeprefix(LOCAL_ARCHIVE)
    if is_archive(place):
        raise UsageError(
            f"{place}: is an archive; restore it into a folder and use that, or verify it with reput archive"
        )


def absolute(path: str | PathLike[str]) -> str:
    """Return a path that means the same in another process: absolute, or an unchanged URL."""
    return fspath(path) if is_url(path) else os.path.abspath(path)


def real_place(path: str | PathLike[str]) -> str:
    """Return the canonical path of a folder, which is the same for all local paths that lead to the folder.

    A URL is unchanged, except that a slash at its end is removed.
    """
    return fspath(path).rstrip("/") if is_url(path) else os.path.realpath(path)


def expand_to_one(storage: _Folders, pattern: str) -> str:
    """Return the only path that matches a pattern. Raises UsageError for several, and the errors of `expand`."""
    paths = expand(storage, pattern)
    if len(paths) > 1:
        raise UsageError(
            f"{pattern}: matches {len(paths)} paths, {paths[0]} and others; specify one"
        )
    return paths[0]


def expand(
    storage: _Folders, pattern: str, exists: Callable[[str], bool] | None = None
) -> list[str]:
    """Return the paths that match a pattern, in order. A path without * ? [] is returned as it is.

    `exists` returns whether a path exists; by default it asks the storage, however long that takes.

    Raises:
        StoreNotFoundError: no path matches.
        StoreAccessError: a folder cannot be listed.
    """
    paths = _matches(storage, pattern, exists or (lambda path: storage.entry(path) is not None))
    if not paths:
        raise StoreNotFoundError(f"{pattern}: no file or folder matches this pattern")
    return paths


def _matches(storage: _Folders, pattern: str, exists: Callable[[str], bool]) -> list[str]:
    if not is_pattern(pattern):
        return [pattern]
    folder, slash, name = pattern.rstrip("/").rpartition("/")
    paths = []
    for parent in _matches(storage, folder, exists) if folder else [""]:
        inside = f"{parent}{slash}"
        if not is_pattern(name):
            if exists(inside + name):
                paths.append(inside + name)
            continue
        names = sorted(entry.name for entry in storage.list(inside or "."))
        paths += [inside + each for each in names if fnmatch.fnmatchcase(each, name)]
    return paths


def refuse_inside(
    place: str | PathLike[str], store: str | PathLike[str], arguments: Iterable[str] = ()
) -> None:
    """Raise UsageError if a place that will be written is a local store, or lies in it.

    The broker of the store might read the new files, or refuse to start because of them.
    """
    real = Path(os.path.realpath(place))
    if not is_url(place) and real.is_relative_to(os.path.realpath(store)):
        raise UsageError(
            f"{fspath(place)}: lies in the store {fspath(store)}; name a place outside",
            arguments=arguments,
        )


class Location:
    """What a path or URL names: a place here or elsewhere, an archive, a pattern, or an archive and its store.

    Its functions take the path as users write it.
    """

    ARCHIVE_SCHEME = LOCAL_ARCHIVE

    is_url = staticmethod(is_url)
    is_archive = staticmethod(is_archive)
    is_pattern = staticmethod(is_pattern)
    local_path = staticmethod(local_path)
    absolute = staticmethod(absolute)
    canonical = staticmethod(real_place)
    joined = staticmethod(joined_place)
    split = staticmethod(split_joined)
    matches = staticmethod(expand)
    only_match = staticmethod(expand_to_one)
    refuse_url = staticmethod(refuse_url)
    refuse_archive = staticmethod(refuse_archive)
    refuse_inside = staticmethod(refuse_inside)
    not_an_archive = staticmethod(not_an_archive)
