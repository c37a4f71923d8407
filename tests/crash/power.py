"""Cut the power of a folder in which any part of reput works.

`Power` replaces the functions of `os` that create, sync, rename, link and delete, so each durable write passes it, and
also a write of a module that bypasses `reput.io`. It remembers the synced content of each file, and the changes of
names in folders that were not synced since. Each call is a step, and the power can be cut before any step, or after the
last one. After a cut, each later step raises `PowerCut`.

`come_back` gives the folder a random state that a power cut may leave:

- Of a file that was not synced, each page has its last or its synced content, the rest may be zeros, or the file has
  its synced length.
- Of the changes of names, some are kept and others are lost. A change may be kept although an earlier one is lost, if
  they concern different names. A rename is kept or lost as a whole, as on a file system with a journal, so it never
  loses a file.

Files and folders keep their inodes, because repairs and caches identify them by inode.
"""

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from typing import Any

import pytest

from reput.io import writer

_PAGE_BYTES = 4096
_AT_FDCWD = -100
Entry = tuple[int, str]
"""The inode of a folder, and a name in it."""


class PowerCut(BaseException):
    """The power is off: raised by each step from the cut on. No code handles it."""


@dataclass(frozen=True)
class _Change:
    """A change of names. `emptied` is the inode of the folder that it deletes."""

    entries: dict[Entry, int | None]
    emptied: int | None = None

    @property
    def moves(self) -> bool:
        return len(self.entries) > 1


@dataclass
class _State:
    """The names and the file contents after a cut, by inode."""

    names: dict[int, dict[str, int]]
    contents: dict[int, bytes]


@dataclass
class Power:
    """The power supply of a folder.

    Attributes:
        root: The folder. Its content at the beginning is durable.
        cut_at: Number of the step before which the power is cut; None if it is cut after the last step.
        random: Chooses what survives.
        keeps: Share of the unsynced writes and names that survive; None for a random share. If it is 0, none survives.
        steps: The passed steps: the call, and the name of the file or folder.
    """

    root: Path
    cut_at: int | None = None
    random: Random = field(default_factory=lambda: Random(0))
    keeps: float | None = None
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._lock = RLock()
        self._durable: dict[int, dict[str, int]] = {}
        self._pending: list[_Change] = []
        self._synced: dict[int, bytes] = {}
        self._state: _State | None = None
        self.root = self.root.resolve()
        self._aside = self.root.with_name(f"{self.root.name}.aside")
        self._aside.mkdir()
        for folder, _, names in os.walk(self.root):
            self._durable[os.stat(folder).st_ino] = _listed(folder)
            for path in (Path(folder, name) for name in names):
                if not path.is_symlink():
                    self._synced[path.stat().st_ino] = path.read_bytes()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record all steps of the `with` block, which ends without an error when the power is cut."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _CALLS:
                patch.setattr(os, name, self._wrapped(name))
            patch.setattr(writer, "_libc", lambda: self)
            try:
                yield
            except PowerCut:
                assert self._state
        if self._state is None:
            self._cut()

    def come_back(self) -> None:
        """Give the folder its state after the cut."""
        assert self._state
        pool = self.root.with_name(f"{self.root.name}.pool")
        pool.mkdir()
        for place in (self.root, self._aside):
            for folder, folders, names in os.walk(place, topdown=False):
                for name in [*folders, *names]:
                    path = os.path.join(folder, name)
                    target = pool / str(os.lstat(path).st_ino)
                    # `rename` does nothing if both names are links of one file.
                    os.unlink(path) if target.exists() else os.rename(path, target)
        self._aside.rmdir()
        self._build(self.root, pool, self._state)
        for left in pool.iterdir():
            left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
        pool.rmdir()

    def _build(self, folder: Path, pool: Path, state: _State) -> None:
        for name, inode in state.names.get(folder.stat().st_ino, {}).items():
            path, source = folder / name, pool / str(inode)
            if source.is_symlink() or not source.is_dir():
                os.link(source, path, follow_symlinks=False)
            else:
                source.rename(path)
                self._build(path, pool, state)
                continue
            if inode in state.contents and path.read_bytes() != (data := state.contents[inode]):
                times = path.stat()
                path.write_bytes(data)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _wrapped(self, name: str) -> Callable[..., Any]:
        handle = getattr(self, f"_{name}")

        def step(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                return handle(*arguments, **options)

        return step

    def _pass(self, call: str, path: str) -> None:
        if self._state is None and len(self.steps) == self.cut_at:
            self._cut()
        if self._state:
            raise PowerCut
        self.steps.append(f"{call} {os.path.relpath(path, self.root)}")

    def _place(self, path: Any, folder: int | None = None) -> tuple[Entry, str] | None:
        """Return the entry and the real path of a name; None if it is outside the folder."""
        above, name = os.path.split(os.fsdecode(path))
        if folder is not None:
            above = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), above)
        real = os.path.realpath(above)
        if real != str(self.root) and not real.startswith(f"{self.root}/"):
            return None
        return (
            ((os.stat(real).st_ino, name), os.path.join(real, name))
            if os.path.exists(real)
            else None
        )

    def _note(self, entries: dict[Entry, int | None], emptied: int | None = None) -> None:
        self._pending.append(_Change(entries, emptied))

    def _look_again(self, entry: Entry, path: str) -> None:
        """Note a change of a name that was made without a step, such as the creation of a file."""
        inode = os.lstat(path).st_ino if os.path.lexists(path) else None
        if self._last(entry) != inode:
            self._note({entry: inode})

    def _last(self, entry: Entry) -> int | None:
        for change in reversed(self._pending):
            if entry in change.entries:
                return change.entries[entry]
        return self._durable.get(entry[0], {}).get(entry[1])

    def _look_at_folder(self, folder: str) -> None:
        inode = os.stat(folder).st_ino
        pending = {name for change in self._pending for at, name in change.entries if at == inode}
        for name in {*_listed(folder), *self._durable.get(inode, {}), *pending}:
            self._look_again((inode, name), os.path.join(folder, name))

    # The calls.

    def _rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        old, new = self._place(src, src_dir_fd), self._place(dst, dst_dir_fd)
        if old is None and new is None:
            self._real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        # A rename into the folder, or out of it, is not simulated.
        assert old, src
        assert new, dst
        self._pass("rename", new[1])
        for entry, path in (old, new):
            self._look_again(entry, path)
        self._keep(new[1])
        inode = os.lstat(old[1]).st_ino if os.path.lexists(old[1]) else None
        self._real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._note({old[0]: None, new[0]: inode})

    _replace = _rename

    def _link(self, src: Any, dst: Any, **options: Any) -> None:
        new = self._place(dst, options.get("dst_dir_fd"))
        if new:
            self._pass("link", new[1])
            self._look_again(*new)
        self._real["link"](src, dst, **options)
        if new:
            self._note({new[0]: os.lstat(new[1]).st_ino})

    def _symlink(self, src: Any, dst: Any, *arguments: Any, **options: Any) -> None:
        new = self._place(dst, options.get("dir_fd"))
        if new:
            self._pass("symlink", new[1])
        self._real["symlink"](src, dst, *arguments, **options)
        if new:
            self._note({new[0]: os.lstat(new[1]).st_ino})

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        new = self._place(path, dir_fd)
        if new and not os.path.lexists(new[1]):
            self._pass("mkdir", new[1])
            self._look_again(*new)
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if new:
            self._note({new[0]: os.lstat(new[1]).st_ino})

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        old = self._place(path, dir_fd)
        if old is None or not os.path.lexists(old[1]) or stat.S_ISDIR(os.lstat(old[1]).st_mode):
            self._real["unlink"](path, dir_fd=dir_fd)
            return
        self._pass("unlink", old[1])
        self._look_again(*old)
        self._put_aside(old[1])
        self._note({old[0]: None})

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        old = self._place(path, dir_fd)
        if old is None or not os.path.isdir(old[1]) or os.listdir(old[1]):
            self._real["rmdir"](path, dir_fd=dir_fd)
            return
        self._pass("rmdir", old[1])
        self._look_again(*old)
        inode = os.lstat(old[1]).st_ino
        self._put_aside(old[1])
        self._note({old[0]: None}, emptied=inode)

    def _fsync(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = os.readlink(f"/proc/self/fd/{number}")
        if path != str(self.root) and not path.startswith(f"{self.root}/"):
            return
        status = os.fstat(number)
        self._pass("sync", path)
        if stat.S_ISDIR(status.st_mode):
            self._look_at_folder(path)
            self._sync_names(status.st_ino)
        else:
            self._synced[status.st_ino] = _content(f"/proc/self/fd/{number}")

    _fdatasync = _fsync

    # The functions of the C library that `reput.io.writer` calls.

    def renameat2(self, old: int, left: bytes, new: int, right: bytes, flags: int) -> int:
        one, other = (
            self._place(name, None if folder == _AT_FDCWD else folder)
            for folder, name in ((old, left), (new, right))
        )
        with self._lock:
            assert one
            assert other
            self._pass("exchange", one[1])
            inodes = [self._now(*place) for place in (one, other)]
            result: int = ctypes.CDLL(None, use_errno=True).renameat2(old, left, new, right, flags)
            if result == 0:
                self._note({one[0]: inodes[1], other[0]: inodes[0]})
            return result

    def sync_file_range(self, *arguments: Any) -> int:
        return 0

    def _now(self, entry: Entry, path: str) -> int | None:
        self._look_again(entry, path)
        return self._last(entry)

    # What is durable.

    def _keep(self, path: str) -> None:
        """Keep the inode of a file whose name another file will take."""
        if os.path.lexists(path) and not os.path.isdir(path):
            self._real["link"](path, self._free_name(), follow_symlinks=False)

    def _put_aside(self, path: str) -> None:
        self._real["rename"](path, self._free_name())

    def _free_name(self) -> str:
        return str(self._aside / str(len(os.listdir(self._aside))))

    def _sync_names(self, folder: int) -> None:
        """Make the changes in a folder durable, and all changes that they need."""
        entries: set[Entry] = set()
        emptied: set[int] = set()
        named: set[int] = set()
        kept: list[_Change] = []
        for change in reversed(self._pending):
            touched = {at for at, _ in change.entries}
            if (
                folder not in touched
                and entries.isdisjoint(change.entries)
                and emptied.isdisjoint(touched)
                and named.isdisjoint(change.entries.values())
            ):
                kept.append(change)
                continue
            entries |= change.entries.keys()
            if change.emptied is not None:
                emptied.add(change.emptied)
            # The folders to which a file is moved need their own names, or the file would be lost.
            if change.moves or not named.isdisjoint(change.entries.values()):
                named |= touched
        lost = {id(change) for change in kept}
        for change in self._pending:
            if id(change) not in lost:
                self._apply(change, self._durable)
        self._pending = kept[::-1]

    @staticmethod
    def _apply(change: _Change, names: dict[int, dict[str, int]]) -> None:
        for (folder, name), inode in change.entries.items():
            if inode is None:
                names.get(folder, {}).pop(name, None)
            else:
                names.setdefault(folder, {})[name] = inode

    def _cut(self) -> None:
        for folder, _, _ in os.walk(self.root):
            self._look_at_folder(folder)
        names = {folder: dict(inner) for folder, inner in self._durable.items()}
        share = self.random.choice((0.0, 0.5, 0.5, 1.0)) if self.keeps is None else self.keeps
        lost: set[Entry] = set()
        for change in self._pending:
            is_possible = (
                lost.isdisjoint(change.entries)
                and (change.emptied is None or not names.get(change.emptied))
                and (not change.moves or self._is_reached(change, names))
            )
            if is_possible and self.random.random() < share:
                self._apply(change, names)
            else:
                lost |= change.entries.keys()
        contents = {}
        for place in (self.root, self._aside):
            for folder, _, files in os.walk(place):
                for path in (os.path.join(folder, name) for name in files):
                    if stat.S_ISREG(os.lstat(path).st_mode):
                        contents[os.stat(path).st_ino] = self._survivor(path)
        self._state = _State(names, contents)

    def _is_reached(self, change: _Change, names: dict[int, dict[str, int]]) -> bool:
        """Whether a moved file stays reachable: the file system writes the folder's own name first."""
        reached, ahead = set[int](), [self.root.stat().st_ino]
        while ahead:
            reached.add(folder := ahead.pop())
            ahead += [inode for inode in names.get(folder, {}).values() if inode not in reached]
        return all(at in reached for (at, _), inode in change.entries.items() if inode is not None)

    def _survivor(self, path: str) -> bytes:
        fresh, synced = _content(path), self._synced.get(os.stat(path).st_ino, b"")
        if fresh == synced or self.keeps == 0:
            return synced
        how = self.random.choice(("synced", "pages", "pages", "zeros", "fresh"))
        if how == "synced":
            return synced
        padded = synced.ljust(len(fresh), b"\0")[: len(fresh)]
        if how == "zeros":
            return padded
        if how == "fresh":
            return fresh
        return b"".join(
            (fresh if self.random.random() < 0.5 else padded)[at : at + _PAGE_BYTES]
            for at in range(0, len(fresh), _PAGE_BYTES)
        )


_CALLS = (
    "rename", "replace", "link", "symlink", "mkdir", "unlink", "remove", "rmdir", "fsync", "fdatasync",
)  # fmt: skip


def _listed(folder: str | Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
