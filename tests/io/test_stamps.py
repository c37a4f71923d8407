"""A stamp is settled only if a later change will show in it."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import pytest

from reput.io import stamps
from reput.io.stamps import Stamp, is_open_for_writing

REPORTING = stamps._REPORTING


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(bytes(8192))
    return str(tmp_path / "file")


def test_a_file_that_nobody_writes_is_settled(path: str) -> None:
    assert is_open_for_writing(path) is False
    assert Stamp.settled(path) == Stamp.of(path)
    with open(path, "rb"):
        assert Stamp.settled(path) == Stamp.of(path)


def test_the_kind_of_file_system_is_known(path: str) -> None:
    assert stamps._file_system(path)
    assert stamps._file_system("/proc/self/status") == "proc"
    assert not stamps._kind_of_mount("-1", 0)


def test_a_change_right_after_it_moves_the_time(path: str) -> None:
    for _ in range(20):
        stamp = Stamp.settled(path)
        assert stamp is not None
        with open(path, "r+b") as file:
            file.write(b"x")
        assert Stamp.of(path) != stamp


def test_a_file_that_is_open_for_writing_is_not(path: str) -> None:
    with open(path, "r+b"):
        assert is_open_for_writing(path) is True
        assert Stamp.settled(path) is None
    assert Stamp.settled(path) is not None


def test_a_mapped_page_changes_without_a_trace(path: str) -> None:
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    mapped[0] = 1
    assert Stamp.settled(path) is None
    mapped.close()
    assert Stamp.settled(path) is not None


@pytest.mark.parametrize(
    ("system", "age_s", "settled"),
    [("ext4", 61, False), ("ext4", 71, True), ("overlay", 3600, False), ("nfs4", 3600, False)],
)  # fmt: skip
def test_an_open_file_that_has_not_changed_for_long(
    path: str, monkeypatch: pytest.MonkeyPatch, system: str, age_s: int, settled: bool
) -> None:
    monkeypatch.setattr(stamps, "_file_system", lambda path: system)
    monkeypatch.setattr(stamps, "_longest_dirty_ns", lambda: 70e9)
    later = os.stat(path).st_ctime_ns + age_s * 1_000_000_000
    with monkeypatch.context() as patched, open(path, "r+b"):
        patched.setattr(time, "time_ns", lambda: later)
        assert (Stamp.settled(path) is not None) == settled


@pytest.mark.parametrize(
    "system", ["tmpfs", "overlay", "fuse", "fuse.bindfs", "fuse.sshfs", "9p", "virtiofs", "nfs", "nfs4", "cifs", ""]
)  # fmt: skip
def test_nothing_is_settled_where_writers_or_their_changes_are_invisible(
    path: str, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """On tmpfs, a write through a mapping to a page that it read before does not change the file's times."""
    monkeypatch.setattr(stamps, "_REPORTING", REPORTING)
    monkeypatch.setattr(stamps, "_file_system", lambda path: system)
    assert Stamp.settled(path) is None


def test_a_file_that_is_gone_has_none(tmp_path: Path) -> None:
    assert Stamp.settled(str(tmp_path / "file")) is None
