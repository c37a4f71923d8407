"""Simulate power cuts with a disk that remembers the synced content of its files.

After a power cut, each page and each file name that was not synced may have survived or not. A page that survived has
its last content.

Each action on a file or folder of the store (such as a sync, a deletion or a renaming) has two crash points, one before
and one after the action. The first crash point is named by the action and the kind of file or folder, as in
`sync index`, `delete abort`, `sync folder consumequeue/TOPIC`. The second crash point has the same name with `done` at
the end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import RLock
from uuid import uuid4

from reput.errors import explained
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.io import DISK, Disk, FileWriter, MappedWriter

_PAGE_BYTES = 4096
_Names = dict[str, int]


class ForgetfulDisk(Disk):
    """A `Disk` for a store in `root`, whose power can be cut at any moment.

    It remembers the synced content of each file. At first, this is the content of the existing files. A sync only
    updates the remembered content. It does not sync the real files, so tests are fast.

    Attributes:
        points: For each crash point, the number of times that the store has passed it.
        on_point: Called with the name of each crash point that is passed, in the thread that passes it.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self.points: Counter[str] = Counter()
        self.on_point: Callable[[str], None] = lambda point: None
        self._lock = RLock()
        # The synced content of each file. Files are identified by inode, because they may be renamed.
        self._synced: dict[int, bytes] = {}
        self._names: dict[Path, _Names] = {}
        self._deleted: dict[int, bytes] = {}
        for folder, _, names in os.walk(root):
            self._remember_names(Path(folder))
            for name in names:
                self.remember(Path(folder, name))

    @contextmanager
    def step(self, action: str, path: Path) -> Iterator[None]:
        """Count and report two crash points: one before the `with` block and one after it."""
        point = f"{action} {kind_of(path.relative_to(self._root))}"
        self._pass(point)
        yield
        self._pass(f"{point} done")

    def _pass(self, point: str) -> None:
        with self._lock:
            self.points[point] += 1
            self.on_point(point)

    def open(self, path: Path, size: int) -> FileWriter:
        with self.step("open", path):
            return _RememberedFile(self, path, size)

    def map(self, path: Path, size: int) -> MappedWriter:
        with self.step("map", path):
            return _RememberedMap(self, path, size)

    def create_folder(self, path: Path) -> None:
        with self.step("create folder", path):
            super().create_folder(path)

    def sync_folder(self, path: Path) -> None:
        if path == self._root or self._root in path.parents:
            with self.step("sync folder", path):
                self._remember_names(path)

    def delete(self, path: Path) -> None:
        with self.step("delete", path), self._lock:
            self._outlive(path)
            super().delete(path)

    def rename(self, path: Path, name: Path) -> None:
        with self.step("rename", path), self._lock:
            self._outlive(name)
            super().rename(path, name)

    def replace(self, path: Path, data: bytes) -> None:
        attempt = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
        with self.step("write replacement of", path):
            DISK.write_durable(attempt, data)
            self.remember(attempt)
        with self.step("replace", path), self._lock, explained(path, "be renamed into place"):
            self._outlive(path)
            os.replace(attempt, path)
        self.sync_folder(path.parent)

    def remember(self, path: Path) -> None:
        """Remember the file's current content as synced, unless the file was deleted."""
        with self._lock, suppress(FileNotFoundError):
            self._synced[path.stat().st_ino] = path.read_bytes()

    def cut_power(self, random: Random, target: Path) -> None:
        """Create in `target` a random possible state of the store after a power cut."""
        with self._lock:
            self._restore(self._root, target, random, random.random() < 0.8)

    def _remember_names(self, path: Path) -> None:
        self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def _outlive(self, path: Path) -> None:
        """Keep the remembered content of a file that is about to be deleted.

        It is kept under a negative number, because a new file may get the inode number of the deleted one.
        """
        if not path.exists():
            return
        inode, key = path.stat().st_ino, -len(self._deleted) - 1
        self._deleted[key] = path.read_bytes()
        if inode in self._synced:
            self._synced[key] = self._synced.pop(inode)
        for names in self._names.values():
            for name in [name for name, number in names.items() if number == inode]:
                names[name] = key

    def _restore(self, folder: Path, target: Path, random: Random, keeps_times: bool) -> None:
        target.mkdir()
        now = {entry.name: entry.inode() for entry in os.scandir(folder)}
        durable = self._names.get(folder, {})
        names = {inode: name for name, inode in now.items()}
        for name in sorted(now.keys() | durable.keys()):
            inode = now.get(name)
            if durable.get(name) != inode and random.random() < 0.5:
                inode = durable.get(name)
            if inode is None:
                continue
            # The file may have been renamed since its folder was synced, so look for it under its present name.
            path = folder / names.get(inode, name)
            if path.is_dir():
                self._restore(path, target / name, random, keeps_times)
                continue
            (target / name).write_bytes(self._content(path, inode, random))
            if keeps_times and path.exists():
                changed = path.stat().st_mtime_ns
                os.utime(target / name, ns=(changed, changed))

    def _content(self, path: Path, inode: int, random: Random) -> bytes:
        fresh = self._deleted[inode] if inode < 0 else path.read_bytes()
        synced = self._synced.get(inode, b"").ljust(len(fresh), b"\0")
        pages = [
            (fresh if random.random() < 0.5 else synced)[at : at + _PAGE_BYTES]
            for at in range(0, len(fresh), _PAGE_BYTES)
        ]
        return b"".join(pages)


def kind_of(path: Path) -> str:
    """Return a path within a store, with the variable parts replaced by TOPIC, QUEUE and file."""
    names = list(path.parts)
    if names[:1] == [CONSUME_QUEUE_FOLDER]:
        names[1:] = ["TOPIC", "QUEUE", "file"][: len(names) - 1]
    elif len(names) > 1:
        names[1:] = ["file"]
    return "/".join(names) or "store"


class _RememberedFile(FileWriter):
    def __init__(self, disk: ForgetfulDisk, path: Path, size: int) -> None:
        super().__init__(path, size=size)
        self._disk = disk

    def write(self, data: bytes | memoryview, position: int) -> None:
        with self._disk.step("write", self.path):
            super().write(data, position)

    def sync(self) -> None:
        with self._disk.step("sync", self.path):
            self._disk.remember(self.path)


class _RememberedMap(MappedWriter):
    def __init__(self, disk: ForgetfulDisk, path: Path, size: int) -> None:
        super().__init__(path, size)
        self._disk = disk

    def sync(self) -> None:
        with self._disk.step("sync", self.path):
            self._disk.remember(self.path)
