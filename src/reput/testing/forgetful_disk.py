"""A disk that remembers, beside the files as they are, what of them was synced: what a power cut would leave.

What was not synced may be there or not, page by page and name by name. A page that is there is as it was last written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from random import Random

from reput.files.disk import Disk
from reput.files.mapped_writer import MappedWriter
from reput.files.writer import FileWriter

_PAGE_BYTES = 4096
_Names = dict[str, int]


class ForgetfulDisk(Disk):
    """Hand it to a store in `root` and cut the power at any moment; what is there at first is durable."""

    # Files are told apart by their inodes: names change.
    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced: dict[int, bytes] = {}
        self._names: dict[Path, _Names] = {}
        self._deleted: dict[int, bytes] = {}
        for folder, _, names in os.walk(root):
            self.sync_folder(Path(folder))
            for name in names:
                self.remember(Path(folder, name))

    def open(self, path: Path, size: int) -> FileWriter:
        return _RememberedFile(self, path, size)

    def map(self, path: Path, size: int) -> MappedWriter:
        return _RememberedMap(self, path, size)

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def delete(self, path: Path) -> None:
        if path.exists():
            # Its name may outlive it: keep what it held under a number that no other file gets.
            inode, gone = path.stat().st_ino, -len(self._deleted) - 1
            self._deleted[gone] = path.read_bytes()
            if inode in self._synced:
                self._synced[gone] = self._synced.pop(inode)
            for names in self._names.values():
                for name in [name for name, number in names.items() if number == inode]:
                    names[name] = gone
        super().delete(path)

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        self._synced[path.stat().st_ino] = data

    def remember(self, path: Path) -> None:
        """All that the file holds now is durable, if it was not deleted."""
        with suppress(FileNotFoundError):
            self._synced[path.stat().st_ino] = path.read_bytes()

    def cut_power(self, random: Random, target: Path) -> None:
        """Make `target` the store as it is found when the power is back."""
        self._restore(self._root, target, random)

    def _restore(self, folder: Path, target: Path, random: Random) -> None:
        target.mkdir()
        now = {entry.name: entry.inode() for entry in os.scandir(folder)}
        durable = self._names.get(folder, {})
        for name in sorted(now.keys() | durable.keys()):
            inode = now.get(name)
            if durable.get(name) != inode and random.random() < 0.5:
                inode = durable.get(name)
            if inode is None:
                continue
            if (folder / name).is_dir():
                self._restore(folder / name, target / name, random)
            else:
                (target / name).write_bytes(self._content(folder / name, inode, random))

    def _content(self, path: Path, inode: int, random: Random) -> bytes:
        fresh = self._deleted[inode] if inode < 0 else path.read_bytes()
        synced = self._synced.get(inode, b"").ljust(len(fresh), b"\0")
        pages = [
            (fresh if random.random() < 0.5 else synced)[at : at + _PAGE_BYTES]
            for at in range(0, len(fresh), _PAGE_BYTES)
        ]
        return b"".join(pages)


class _RememberedFile(FileWriter):
    def __init__(self, disk: ForgetfulDisk, path: Path, size: int) -> None:
        super().__init__(path, size=size)
        self._disk = disk

    def sync(self) -> None:
        self._disk.remember(self.path)
        super().sync()


class _RememberedMap(MappedWriter):
    def __init__(self, disk: ForgetfulDisk, path: Path, size: int) -> None:
        super().__init__(path, size)
        self._disk = disk

    def sync(self) -> None:
        self._disk.remember(self.path)
        super().sync()
