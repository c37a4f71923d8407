"""The operations of a store's disk: files are cleared and replaced, and folders created, durably."""

from pathlib import Path

import pytest

from reput.io.disk import Disk
from reput.io.writer import FileWriter
from tests.crash.power import Power


class CountingDisk(Disk):
    """Counts the files that are opened for writing."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    def open(self, path: Path, size: int) -> FileWriter:
        self.opened += 1
        return super().open(path, size)


@pytest.mark.every_case
@pytest.mark.parametrize("size", [8, 10, 13])
@pytest.mark.parametrize("keep", [0, 5, 6, 7, 8])
def test_a_file_is_cleared_from_a_byte_on_only_if_that_changes_it(
    tmp_path: Path, keep: int, size: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc\0efg" + bytes(3))
    disk = CountingDisk()
    assert disk.clear(path, keep, size) == 7
    assert path.read_bytes() == b"abc\0efg"[:keep].ljust(size, b"\0")
    assert disk.opened == (keep < 7 or size != 10)
    assert disk.clear(path, keep, size) == min(keep, 7)
    assert disk.opened == (keep < 7 or size != 10)


def test_a_file_of_zeros_ends_at_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    assert CountingDisk().clear(path, 3, 10) == 0
    path.write_bytes(b"0123456789")
    assert CountingDisk().clear(path, 10, 10) == 10
    assert path.read_bytes() == b"0123456789"


def test_cleared_files_and_new_folders_survive_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (root / "cleared").write_bytes(b"x" * 10)
    power = Power(root, keeps=0)
    with power.on():
        disk = Disk()
        disk.clear(root / "cleared", 4, 10)
        disk.make_folder(root / "a" / "b" / "c")
    power.come_back()
    assert (root / "cleared").read_bytes() == b"xxxx".ljust(10, b"\0")
    assert (root / "a" / "b" / "c").is_dir()


def test_a_replaced_file_survives_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (root / "replaced").write_bytes(b"old")
    power = Power(root, keeps=0)
    with power.on():
        Disk().replace(root / "replaced", b"new")
    power.come_back()
    assert (root / "replaced").read_bytes() == b"new"
