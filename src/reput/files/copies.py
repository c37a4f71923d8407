"""A second folder that has the files of another: by a further name for each, or by a copy of its bytes."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reput.errors import StoreError
from reput.files.links import refused_link
from reput.files.reader import FileReader, data_runs
from reput.files.writer import FileWriter, explained

_COPIED_BYTES = 1 << 20
_BLOCK_BYTES = 512  # the unit of st_blocks


class TreeEntry(NamedTuple):
    """A file or folder below another: its path there, and how it looks."""

    name: str
    is_folder: bool
    inode: int
    size: int
    mtime_ns: int
    used_bytes: int


def tree_entries(root: Path) -> Iterator[TreeEntry]:
    """Everything below a folder, by name, folders before what they hold; only looked at.

    Raises:
        StoreError: for a link, for what is neither file nor folder, and for what lies on another file system.
        StoreAccessError: something cannot be read.
    """
    with explained(root, "be read"):
        device = os.stat(root).st_dev
    return _entries(root, "", device)


def _entries(root: Path, below: str, device: int) -> Iterator[TreeEntry]:
    with explained(root / below, "be read"), os.scandir(root / below) as found:
        entries = [
            (entry.name, entry.path, entry.stat(follow_symlinks=False))
            for entry in sorted(found, key=lambda entry: entry.name)
        ]
    for name, path, status in entries:
        if stat.S_ISLNK(status.st_mode):
            raise refused_link(Path(path))
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            raise StoreError(f"{path}: is neither a file nor a folder; move it out of the store")
        if status.st_dev != device:
            raise StoreError(
                f"{path}: lies on another file system than {root}, so it cannot be swapped with it"
            )
        inside = os.path.join(below, name)
        yield TreeEntry(
            inside, is_folder, status.st_ino, status.st_size, status.st_mtime_ns,
            status.st_blocks * _BLOCK_BYTES,
        )  # fmt: skip
        if is_folder:
            yield from _entries(root, inside, device)


def copy_file(source: Path, target: Path) -> None:
    """A new file with the bytes, holes, times and permissions of another, not synced. Raises StoreAccessError."""
    with FileReader(str(source)) as reader, FileWriter(target, size=reader.size) as writer:
        for begin, end in data_runs(reader, 0, reader.size):
            for at in range(begin, end, _COPIED_BYTES):
                writer.write(reader.read(at, min(_COPIED_BYTES, end - at)), at)
    look_like(target, source)


def look_like(path: Path, model: Path) -> None:
    """Give a file or folder the permissions and times of another, and its owner where this user may.

    Raises StoreAccessError.
    """
    with explained(path, "be given its owner and times"):
        own_like(path, model)
        shutil.copystat(model, path, follow_symlinks=False)


def own_like(path: Path, model: Path) -> None:
    """Give a file or folder the owner of another, where this user may; a broker must be able to write it.

    Raises StoreAccessError.
    """
    if os.geteuid() == 0:
        with explained(path, "be given its owner"):
            status = os.stat(model)
            os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)


def inode_of(path: Path) -> int | None:
    """What tells a folder from every other one of this file system, whatever its name; None where there is none.

    Raises StoreAccessError.
    """
    with explained(path, "be looked at"):
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_ino if stat.S_ISDIR(status.st_mode) else None


def shares_parent_s_disk(folder: Path) -> bool:
    """Whether a folder lies on the file system of its parent: no mount point. Raises StoreAccessError."""
    with explained(folder, "be looked at"):
        return os.stat(folder).st_dev == os.stat(folder.parent).st_dev
