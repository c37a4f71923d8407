"""Hold anchors. An anchor is an open folder: no path below it is resolved through a symbolic link.

The owner of a folder can replace any name in it between two system calls. A command that runs as root could thereby be
led to write to a file of an attacker's choice. An anchor prevents this: it is a folder that was opened once. A path
below an anchor is resolved from the anchor's descriptor, name by name, and a link on the way is refused. Any other path
is opened normally.

If a command runs as root, the files and folders that it creates below an anchor get the owner of the anchor's folder.
Otherwise, a broker could not write to all files of its store.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from reput.base import is_out_of_reach
from reput.errors import StoreAccessError, StoreChangedError, explained, refused_link

AnyPath = str | os.PathLike[str]

# Linux's limit of links in one path. Opening a path with more of them fails with ELOOP.
_MOST_LINKS = 40
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Anchor(NamedTuple):
    """An open folder, described so that another process can open and verify the same folder.

    name   the path that commands use
    place  the path that is opened: it leads to the same folder, and contains no links
    inode  identifies the folder even if it is renamed
    boot   boot id of the machine that read the inode; other machines may see other inodes on a shared disk
    owner  user and group of new entries in the folder. A process that runs as root makes them the owner of every entry
           that the process creates
    """

    name: str
    place: str
    inode: int
    boot: str
    owner: tuple[int, int]


@dataclass(slots=True)
class _OpenAnchor:
    """An anchor (open folder) that this process holds, and the number of its users."""

    anchor: Anchor
    descriptor: int
    uses: int = 1


_held: dict[str, list[_OpenAnchor]] = {}
"""For each path, its anchors (open folders), the newest last. New uses of the path take the newest anchor.

A repair that replaces a folder adds an anchor for the new folder.
"""
_guard = threading.RLock()
# A thread of the parent may hold the lock at the fork. This thread does not exist in the child and would never release
# the lock there, so the child needs a new lock.
os.register_at_fork(after_in_child=lambda: globals().update(_guard=threading.RLock()))


@cache
def boot_id() -> str:
    """Return the machine's boot id; empty if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read()
    except OSError:
        return ""


@contextmanager
def anchored(
    folder: AnyPath, place: AnyPath | None = None, owner: AnyPath | None = None
) -> Iterator[None]:
    """Hold a folder open as an anchor during the with block: paths below it are never resolved through a link.

    Args:
        folder: an existing folder.
        place: if `folder` is an allowed link, the path of the link's target; this path contains no links.
        owner: a folder, by default `folder`. If this process runs as root, files that it creates below the
            anchor get the same owner as this folder.

    Raises:
        StoreAccessError: the folder cannot be opened, or its path contains a link.
    """
    name = os.path.abspath(folder)
    real = os.fspath(place) if place is not None else real_path(name)
    with explained(folder, "be opened"):
        status = _status_of(real)
        model = status if owner is None else _status_of(os.path.realpath(owner))
    identity = (real, status.st_ino, boot_id(), (model.st_uid, model.st_gid))
    # Callers use `folder`, or its path without links. So hold an anchor for each of the two paths.
    with holding(tuple(Anchor(each, *identity) for each in {name, real})):
        yield


@contextmanager
def reading_for(output: AnyPath, stores: Iterable[AnyPath]) -> Iterator[None]:
    """During the with block, hold anchors (open folders) for `stores`, which are read to write `output`.

    This is done only if this process is root, and another user owns `output` or its folder. That user could otherwise
    lead root to other files by links.

    A link in a store's folder is still followed if root created the link, or if the link and its target have the same
    owner.

    Raises:
        StoreAccessError: a file cannot be opened, or its path contains another link.
    """
    with ExitStack() as stack:
        place = os.path.abspath(output)
        above = _above(place)
        # If an anchor (a folder held open) is above the output, no user can replace this anchor. So check the anchor's
        # owner, but not the owners of the folders above the anchor.
        owner = 0 if above is None else os.fstat(above[0].descriptor).st_uid
        if os.geteuid() == 0 and any((owner, *map(_owner_of, (place, os.path.dirname(place))))):
            for store in stores:
                with explained(store, "be read"), os.scandir(store) as entries:
                    links = [entry.path for entry in entries if entry.is_symlink()]
                places = {link: real_path(link) for link in links if os.path.isdir(link)}
                stack.enter_context(anchored(store))
                for link, place in places.items():
                    stack.enter_context(anchored(link, place))
        yield


@contextmanager
def writing_to(output: AnyPath, stores: Iterable[AnyPath] = ()) -> Iterator[None]:
    """During the with block, hold anchors (open folders) for the parent folder of `output`, and for the stores to read.

    If no other user can replace files in the parent folder, no anchors are needed, and none are held. Otherwise the
    parent folder is created if it is missing, because only an existing folder can be held open.

    Raises StoreAccessError if a folder cannot be opened, or its path contains a link.
    """
    if is_out_of_reach(output):
        yield
        return
    parent = os.path.dirname(os.path.abspath(output))
    existing = parent
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if existing != parent:
        with anchored(existing), explained(parent, "be created"):
            make_folders(parent)
    with anchored(parent), reading_for(output, filter(os.path.isdir, stores)):
        yield


@contextmanager
def writing_into(folder: AnyPath, stores: Iterable[AnyPath] = ()) -> Iterator[None]:
    """During the with block, hold the folder `folder`, into which files are written, as `writing_to` holds a parent.

    Raises StoreAccessError as `writing_to` does. Nothing is held for a URL.
    """
    if "://" in os.fspath(folder):
        yield
        return
    with writing_to(os.path.join(folder, "entry"), stores):
        yield


def _owner_of(path: AnyPath) -> int:
    """Return the owner of a file or folder, or of the nearest folder above it that exists."""
    place = os.path.realpath(path)
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return os.stat(place).st_uid


def anchors() -> tuple[Anchor, ...]:
    """Return all anchors (open folders) of this process, so that tasks in other processes can hold the same ones."""
    with _guard:
        return tuple(held[-1].anchor for held in _held.values())


@contextmanager
def holding(folders: Sequence[Anchor]) -> Iterator[None]:
    """Hold these anchors during the with block.

    Raises StoreAccessError, and StoreChangedError if a path now leads to another folder.
    """
    with ExitStack() as stack:
        for anchor in folders:
            with explained(anchor.place, "be opened"):
                _hold(anchor)
            stack.callback(_let_go, anchor)
        yield


def _hold(anchor: Anchor) -> None:
    with _guard:
        stack = _held.setdefault(anchor.name, [])
        if stack and stack[-1].anchor == anchor:
            stack[-1].uses += 1
            return
        descriptor = -1
        try:
            descriptor = _open_real(anchor.place)
            # On another machine, or after a reboot, a different inode proves nothing.
            is_same = os.fstat(descriptor).st_ino == anchor.inode
            if not is_same and anchor.boot == boot_id():
                raise StoreChangedError(
                    f"{anchor.place}: was replaced by another folder; run the command again"
                )
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            # Do not leave an empty list in `_held`: each name there must have an anchor.
            if not stack:
                del _held[anchor.name]
            raise
        stack.append(_OpenAnchor(anchor, descriptor))


def _let_go(anchor: Anchor) -> None:
    with _guard:
        stack = _held[anchor.name]
        entry = next(one for one in reversed(stack) if one.anchor == anchor)
        entry.uses -= 1
        if entry.uses == 0:
            stack.remove(entry)
            os.close(entry.descriptor)
        if not stack:
            del _held[anchor.name]


def real_path(path: AnyPath) -> str:
    """Return an absolute path that leads to the same place as `path`, but contains no links.

    Links below an anchor (open folder) are not resolved, because opening the path refuses them.

    Raises StoreAccessError if the links form a cycle, or if this process runs as root, and the path contains a link of
    another user to a target that this other user does not own.
    """
    above = _above(path)
    if above is not None:
        return os.path.join(above[0].anchor.place, *above[1])
    real, names, links = "/", os.path.abspath(path).split("/")[::-1], dict[str, int]()
    # A link in a cycle is met again and again.
    met = 0
    while names and met <= _MOST_LINKS:
        name = names.pop()
        place = os.path.normpath(os.path.join(real, name))
        with suppress(OSError):
            # If no file or folder has this name, the name is kept: the caller may want to create one.
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                met += 1
                links[place] = status.st_uid
                target = os.readlink(place)
                real = "/" if target.startswith("/") else real
                names += target.split("/")[::-1]
                continue
        real = place
    if met > _MOST_LINKS:
        raise StoreAccessError(
            f"{os.fspath(path)}: leads through more than {_MOST_LINKS} links, perhaps in a cycle; "
            f"pass the folder itself"
        )
    if os.geteuid() == 0 and links:
        owner = _owner_of(real)
        for link, user in links.items():
            if user not in (0, owner):
                raise StoreAccessError(
                    f"{link}: this link and its target {real} belong to different users; "
                    f"pass {real} itself"
                )
    return real


def _status_of(real: str) -> os.stat_result:
    descriptor = _open_real(real)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _open_real(real: str) -> int:
    """Open a folder by a path that contains no links.

    The path is resolved from the anchor (open folder) above it, or from the root if no folder above it is an anchor.

    Raises OSError, and StoreAccessError for a link.
    """
    above = _above(real, strictly=True)
    if above is not None:
        base, names = above
        return _walk(base.descriptor, names, real)
    root = os.open("/", _FOLDER)
    try:
        return _walk(root, [name for name in real.split("/") if name], real)
    finally:
        os.close(root)


def _walk(start: int, names: Sequence[str], path: str, create: _OpenAnchor | None = None) -> int:
    """Return a descriptor of the folder at the relative path `names`, which begins at the folder `start`.

    If the anchor `create` is given, missing folders are created. They get the owner that the anchor specifies.
    """
    descriptor = os.dup(start)
    try:
        for name in names:
            below = _step(descriptor, name, path, create)
            # An interrupt between these two lines leaks a descriptor. In the other order, it would make the `except`
            # block close the descriptor again. Another thread could have opened a file with the same number meanwhile,
            # and that file would be closed.
            descriptor, above = below, descriptor
            os.close(above)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _step(folder: int, name: str, path: str, create: _OpenAnchor | None) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if create is None:
            raise
    except OSError as error:
        raise _refusal(error, folder, name, path) from None
    with suppress(FileExistsError):  # Another process has created it first.
        os.mkdir(name, dir_fd=folder)
        below = _step(folder, name, path, None)
        _give(below, create.anchor.owner)
        return below
    return _step(folder, name, path, None)


def _refusal(error: OSError, folder: int, name: str, path: str) -> Exception:
    # For a link, O_NOFOLLOW fails with ELOOP, EMLINK (BSD) or ENOTDIR (with O_DIRECTORY).
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        with suppress(OSError):
            if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                return refused_link(path)
    return error


def _above(path: AnyPath, strictly: bool = False) -> tuple[_OpenAnchor, list[str]] | None:
    """Return the innermost anchor at or above a path, and the names that lead from it to the path.

    With `strictly`, an anchor at the path itself is ignored.
    """
    if not _held:
        return None
    text = os.path.abspath(path)
    names: list[str] = []
    while True:
        anchors_here = _held.get(text)
        if anchors_here and (names or not strictly):
            return anchors_here[-1], names[::-1]
        above, _, name = text.rpartition("/")
        if not name:
            return None
        text = above or "/"
        names.append(name)


@contextmanager
def at(path: AnyPath) -> Iterator[tuple[int | None, str]]:
    """Yield the descriptor of a file's folder, and the file's name.

    If the file is not below an anchor (a folder that this process holds open), yield None and the path instead.

    Raises OSError, and StoreAccessError for a link in the path.
    """
    above = _above(path, strictly=True)
    if above is None:
        yield None, os.fspath(path)
        return
    base, names = above
    folder = _walk(base.descriptor, names[:-1], os.fspath(path))
    try:
        yield folder, names[-1]
    finally:
        os.close(folder)


def open_anchored(path: AnyPath, flags: int, mode: int = 0o666) -> int:
    """Open a file or folder as `os.open` does.

    A file with several hard links is refused if its owner does not own its folder. Otherwise, the owner of the folder
    could make this process open any file of the file system, through a hard link in the folder.

    Raises OSError, and StoreAccessError for a link below an anchor (open folder).
    """
    flags |= os.O_CLOEXEC
    above = _above(path)
    if above is None:
        return os.open(path, flags, mode)
    base, names = above
    if not names:
        return os.open(".", flags & ~(os.O_CREAT | os.O_EXCL), dir_fd=base.descriptor)
    with at(path) as (folder, name):
        assert folder is not None
        # Another user may have put a FIFO here. Without O_NONBLOCK, opening it would wait for ever.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = _open_or_create(folder, name, flags, mode, base.anchor.owner)
        except OSError as error:
            raise _refusal(error, folder, name, os.fspath(path)) from None
        try:
            _check_owner(descriptor, folder, path)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def _open_or_create(folder: int, name: str, flags: int, mode: int, owner: tuple[int, int]) -> int:
    """Open as `os.open` does. A file that is created here gets the user and group `owner`."""
    if not flags & os.O_CREAT:
        return os.open(name, flags, dir_fd=folder)
    # Only a file that is created here is given to the user and group `owner`. But O_CREAT alone does not show whether
    # the file is new. So the file is first opened without O_CREAT, then created with O_EXCL. Another process may create
    # or delete the file between these steps, so both are repeated.
    while True:
        if not flags & os.O_EXCL:
            with suppress(FileNotFoundError):
                return os.open(name, flags & ~os.O_CREAT, dir_fd=folder)
        try:
            descriptor = os.open(name, flags | os.O_EXCL, mode, dir_fd=folder)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            continue
        _give(descriptor, owner)
        return descriptor


def _check_owner(descriptor: int, folder: int, path: AnyPath) -> None:
    status, owner = os.fstat(descriptor), os.fstat(folder).st_uid
    has_more_names = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    # If root or this user owns the folder, no other user can have created a hard link in it.
    if has_more_names and status.st_uid != owner and owner not in (0, os.geteuid()):
        raise StoreAccessError(
            f"{os.fspath(path)}: has several hard links and belongs to another user than its "
            f"folder; replace it by a copy"
        )


def _give(descriptor: int, owner: tuple[int, int]) -> None:
    """Make `owner` (the anchor's owner) the owner of a new file or folder, if this process runs as root."""
    if os.geteuid() != 0 or owner == (0, 0):
        return
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.fchown(descriptor, *owner)
    # Between mkdir and open, an attacker may have replaced the new folder by another folder that belongs to root.
    elif _is_new(descriptor):
        os.chown(".", *owner, dir_fd=descriptor, follow_symlinks=False)


def _is_new(folder: int) -> bool:
    """Return whether a folder belongs to root and is empty.

    If root has just created the folder, both conditions are true.
    """
    listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.fstat(listing).st_uid == 0 and not os.listdir(listing)
    finally:
        os.close(listing)


def make_folders(path: AnyPath) -> None:
    """Create a folder and its missing parents. Raises OSError, and StoreAccessError for a link."""
    above = _above(path)
    if above is None:
        os.makedirs(path, exist_ok=True)
        return
    base, names = above
    os.close(_walk(base.descriptor, names, os.fspath(path), create=base))


def make_own_folder(path: AnyPath) -> None:
    """Create a folder that only this user can enter. It always belongs to this user.

    So a folder that root creates here belongs to root, although other files and folders that root creates below an
    anchor (open folder) get the owner of the anchor.

    Raises OSError, for example if it exists already, and StoreAccessError if another folder has replaced it.
    """
    with at(path) as (folder, name):
        os.mkdir(name, 0o700, dir_fd=folder)
    check_own_folder(path)


def check_own_folder(path: AnyPath) -> None:
    """Raise StoreAccessError for a link, or for a folder that another user owns or can write to.

    Raises OSError if the folder cannot be opened.
    """
    if not is_own_folder(path):
        raise StoreAccessError(f"{os.fspath(path)}: another user may write there; delete it")


def is_own_folder(path: AnyPath) -> bool:
    """Return whether only this user can write in a folder. Raises OSError, and StoreAccessError for a link."""
    descriptor = open_anchored(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not writable


@contextmanager
def native(path: AnyPath) -> Iterator[str]:
    """Yield a path to a file for a library that opens files itself. No other user can replace the file's folder.

    Raises OSError, and StoreAccessError for a link above the file.
    """
    with at(path) as (folder, name):
        # A path below /proc/self/fd starts at the open descriptor, so no name above it is resolved again.
        is_linux = os.path.exists("/proc/self/fd")
        yield (
            os.fspath(path) if folder is None or not is_linux else f"/proc/self/fd/{folder}/{name}"
        )


@contextmanager
def native_folder(folder: AnyPath) -> Iterator[str]:
    """Yield a path to a folder for a library that itself creates and opens the files in the folder.

    Raises StoreAccessError for a link. If this process is root, StoreAccessError is also raised for another user's
    folder, because that user could put links in it. Raises OSError.
    """
    above = _above(folder)
    if above is None:
        yield os.fspath(folder)
        return
    owner = os.fstat(above[0].descriptor).st_uid
    if os.geteuid() == 0 and owner != 0:
        raise StoreAccessError(
            f"{os.fspath(folder)}: is in a store of user {owner}, who could put links there that RocksDB follows; "
            "run the command as that user"
        )
    descriptor = open_anchored(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        is_linux = os.path.exists("/proc/self/fd")
        yield f"/proc/self/fd/{descriptor}" if is_linux else os.fspath(folder)
    finally:
        os.close(descriptor)


def give(path: AnyPath) -> None:
    """If this process is root, change the owner of a file below an anchor (open folder) to the anchor's owner.

    Call it for a file that a library has created, because the library does not change the owner itself.
    The file's folder must not be writable for other users. Raises OSError, and StoreAccessError for a link.
    """
    above = _above(path)
    if above is not None and os.geteuid() == 0:
        descriptor = open_anchored(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fchown(descriptor, *above[0].anchor.owner)
        finally:
            os.close(descriptor)


def refuse_links(root: Path, names: Iterable[str], allowed: Path | None = None) -> None:
    """Refuse symbolic links among these entries of `root`, and at any depth below them.

    Args:
        root: may be a link itself.
        names: names in `root`; missing entries are skipped.
        allowed: a folder to which a link directly in `root` may lead.

    Raises:
        StoreError: for the first link found.
        StoreAccessError: a folder cannot be read.
    """
    for name in names:
        path = root / name
        if path.is_symlink():
            if allowed is None or path.resolve() != allowed.resolve():
                raise refused_link(path)
            # This link may be followed. But the folder to which it leads must not contain links.
            path = allowed
        if path.is_dir():
            _refuse_below(str(path))


def _refuse_below(folder: str) -> None:
    with explained(folder, "be read"), os.scandir(folder) as entries:
        below = []
        for entry in entries:
            if entry.is_symlink():
                raise refused_link(Path(entry.path))
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
    for path in below:
        _refuse_below(path)
