"""Classify paths: URLs, archives, patterns, and paths that name an archive together with its store."""

from __future__ import annotations

import os
from os import PathLike, fspath

from reput.errors import StoreNotFoundError, UsageError
from reput.format.file_names import ARCHIVE_MANIFEST

LOCAL_ARCHIVE = "archive://"
"""Prefix of paths in a local archive. They are not paths of the local file system."""
# Separates the archive from the store in a path that names both.
_JOIN = " + "
_CHARACTERS = frozenset("*?[")


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
    is_both = joint and "://" in archive and (store.startswith("/") or "://" in store)
    return (archive, store) if is_both else None


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
