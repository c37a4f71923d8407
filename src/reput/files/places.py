"""Properties of a place, by its path."""

from __future__ import annotations

import os
from os import PathLike, fspath

from reput.errors import UsageError
from reput.format.file_names import ARCHIVE_MANIFEST

LOCAL_ARCHIVE = "archive://"
"""Prefix of the paths in a local archive, whose files are not files of the machine."""
_JOIN = " + "
_CHARACTERS = frozenset("*?[")


def is_url(path: str | PathLike[str]) -> bool:
    """Return whether a path names a file system that is not this machine's."""
    text = fspath(path)
    return "://" in text and not text.startswith("file:")


def joined_place(archive: str, store: str) -> str:
    """Return the path of an archive and its store as one log; both are absolute or URLs. Raises UsageError."""
    if _JOIN in archive:
        raise UsageError(
            f"{archive}: an archive with {_JOIN!r} in its name cannot be joined; rename it"
        )
    return f"{archive}{_JOIN}{store}"


def split_joined(path: str) -> tuple[str, str] | None:
    """Return the archive and the store of a path of both; None for any other path."""
    archive, joint, store = path.partition(_JOIN)
    is_both = joint and "://" in archive and (store.startswith("/") or "://" in store)
    return (archive, store) if is_both else None


def local_path(path: str | PathLike[str]) -> str:
    """Return a path of this machine without the scheme that it may have."""
    text = fspath(path)
    # Hadoop writes file:/data
    return text.removeprefix("file:").removeprefix("//") if text.startswith("file:") else text


def is_pattern(path: str) -> bool:
    """Return whether a path has * ? [] in it."""
    return not _CHARACTERS.isdisjoint(path)


def is_archive(path: str) -> bool:
    """Return whether a folder of this machine is an archive."""
    return os.path.isfile(os.path.join(path, ARCHIVE_MANIFEST))


def refuse_url(path: str | PathLike[str]) -> None:
    """Raise UsageError for a URL, where a store on this machine is needed."""
    if is_url(path):
        raise UsageError(f"{fspath(path)}: this command needs a store on a local file system")


def refuse_archive(path: str | PathLike[str]) -> None:
    """Raise UsageError for a local archive, for callers that need a store with files of its own."""
    place = fspath(path).removeprefix(LOCAL_ARCHIVE)
    if is_archive(place):
        raise UsageError(
            f"{place}: is an archive; restore it into a folder and use that, or verify it with reput archive"
        )
