"""Create copies of files and folders, with hard links or byte by byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from reput.errors import StoreChangedError, StoreError, explained, refused_link
from reput.io.anchors import at, open_anchored
from reput.io.reader import FileReader, data_runs
from reput.io.writer import FileWriter

_COPIED_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Bytes per unit of st_blocks.
_BLOCK_BYTES = 512


class TreeEntry(NamedTuple):
    """A file or folder below a root: its relative path and its status.

    changed_ns  time of the last change of its content or status (ctime)
    used_bytes  allocated bytes, which are fewer than `size` if the file has holes
    """

    name: str
    is_folder: bool
    inode: int
    size: int
    mtime_ns: int
    changed_ns: int
    used_bytes: int


def tree_entries(root: Path) -> Iterator[TreeEntry]:
    """Yield all entries below a folder, sorted by name, each folder before its content. No file is opened.

    Raises:
        StoreAccessError: an entry cannot be read, or is a link.
        StoreError: an entry is neither a file nor a folder, or lies on another file system.
    """
    with explained(root, "be read"):
        folder = open_anchored(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield from _entries(root, "", folder, os.fstat(folder).st_dev)
    finally:
        os.close(folder)


def _entries(root: Path, below: str, folder: int, device: int) -> Iterator[TreeEntry]:
    with explained(root / below, "be read"):
        entries = [
            (name, os.stat(name, dir_fd=folder, follow_symlinks=False))
            for name in sorted(os.listdir(folder))
        ]
    for name, status in entries:
        inside = os.path.join(below, name)
        path = root / inside
        # A link may lead to files outside the store.
        if stat.S_ISLNK(status.st_mode):
            raise refused_link(path)
        is_folder = stat.S_ISDIR(status.st_mode)
        if not (is_folder or stat.S_ISREG(status.st_mode)):
            raise StoreError(f"{path}: is neither a file nor a folder; move it out of the store")
        # Neither hard links nor renames can cross file systems.
        if status.st_dev != device:
            raise StoreError(
                f"{path}: is on another file system than {root}; unmount it, or move it out of the store"
            )
        yield TreeEntry(
            inside, is_folder, status.st_ino, status.st_size, status.st_mtime_ns,
            status.st_ctime_ns, status.st_blocks * _BLOCK_BYTES,
        )  # fmt: skip
        if is_folder:
            with explained(path, "be read"):
                # Open the folder relative to its parent, so that no link can take the place of a folder above.
                subfolder = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from _entries(root, inside, subfolder, device)
            finally:
                os.close(subfolder)


def copy_file(source: Path, target: Path, inode: int | None = None) -> None:
    """Create a file with the bytes, holes, times and permissions of another. It is not synced.

    Args:
        source: not a link.
        target: the new file.
        inode: inode of the source, if the caller has already inspected it.

    Raises:
        StoreChangedError: the source was replaced meanwhile.
        StoreAccessError: a file cannot be read or written.
    """
    with FileReader(str(source)) as reader, FileWriter(target, size=reader.size) as writer:
        if inode is not None and os.fstat(reader.fileno).st_ino != inode:
            raise StoreChangedError(f"{source}: was replaced meanwhile; run the command again")
        # Only data is written, so the holes of the source stay holes.
        for begin, end in data_runs(reader, 0, reader.size):
            for position in range(begin, end, _COPIED_BYTES):
                data = reader.read(position, min(_COPIED_BYTES, end - position))
                writer.write(data, position)
        with explained(target, "be given its owner and times"):
            _copy_look(reader.fileno, writer.fileno)


def look_like(path: Path, model: Path) -> None:
    """Give a file or folder the permissions and times of another, and its owner if this user may change it.

    Raises StoreAccessError, for example for a link.
    """
    action = "be given its owner and times"
    with explained(path, action), _opened(path) as changed, _opened(model) as source:
        _copy_look(source, changed)


def own_like(path: Path, model: Path) -> None:
    """Give a file or folder the owner of another one, so that a broker can write to it.

    If this process does not run as root, the owner stays.

    Raises StoreAccessError, for example for a link.
    """
    with explained(path, "be given its owner"), _opened(path) as changed, _opened(model) as source:
        _copy_owner(os.fstat(source), changed)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = open_anchored(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _copy_look(source: int, changed: int) -> None:
    status = os.fstat(source)
    _copy_owner(status, changed)
    os.fchmod(changed, stat.S_IMODE(status.st_mode))
    # Access control lists are copied if the system and both file systems have them.
    with suppress(OSError, AttributeError):
        for name in os.listxattr(source):
            os.setxattr(changed, name, os.getxattr(source, name))
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_owner(status: os.stat_result, changed: int) -> None:
    # Only root may change an owner.
    if os.geteuid() == 0:
        os.fchown(changed, status.st_uid, status.st_gid)


def inode_of(path: Path) -> int | None:
    """Return the inode of a folder; None if the path leads to no folder.

    Raises StoreAccessError.
    """
    with explained(path, "be looked at"):
        try:
            with at(path) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
    return status.st_ino if stat.S_ISDIR(status.st_mode) else None


def shares_parent_s_disk(folder: Path) -> bool:
    """Return whether a folder is on the file system of its parent. A mount point is not. Raises StoreAccessError."""
    with explained(folder, "be looked at"):
        return os.stat(folder).st_dev == os.stat(folder.parent).st_dev
