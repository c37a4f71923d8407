"""Readers that are kept by path: each file opened once, and never too many."""

import os
from pathlib import Path

from reput.files.open_files import OpenFiles


def test_only_so_many_files_are_open_at_a_time(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(10)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]))
    before = len(os.listdir("/proc/self/fd"))
    files = OpenFiles(limit=3)
    for _ in range(2):
        for number, path in enumerate(paths):
            assert files.get(str(path), path.stat().st_ino).read(0, 1) == bytes([number])
            assert len(os.listdir("/proc/self/fd")) <= before + 3
    newest = files.get(str(paths[-1]), paths[-1].stat().st_ino)
    assert files.get(str(paths[-1]), paths[-1].stat().st_ino) is newest
    assert files.get(str(paths[-1]), 0) is not newest  # another file of that name
    files.drop([(str(paths[-1]), 0)])
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before
