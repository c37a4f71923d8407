"""Writing: by position, durable, renamed into place, swapped; and errors that say what to do."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from reput.errors import StoreAccessError, StoreChangedError, explained
from reput.io import writer
from reput.io.writer import (
    FileWriter,
    append_line,
    appending,
    exchange,
    link,
    make_folder,
    remove_tree,
    replacing,
    sync_file,
    sync_folder,
    sync_tree,
    write_durable,
)
from tests.crash.power import Power


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_bytes_go_where_they_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with FileWriter(path, size=20) as file:
        file.write(b"world", 6)
        file.write(memoryview(b"hello"), 0)
        file.start_writeback()
        file.sync()
    assert path.read_bytes() == b"hello\0world" + bytes(9)


def test_a_file_keeps_what_it_has_unless_its_size_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    FileWriter(path).close()
    assert path.read_bytes() == b"12345"
    FileWriter(path, size=3).close()
    assert path.read_bytes() == b"123"


def test_a_write_goes_on_until_all_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.pwrite

    def a_little(fd: int, data: Any, position: int) -> int:
        return original(fd, data[:3], position)

    monkeypatch.setattr(os, "pwrite", a_little)
    write_durable(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_synced_bytes_and_names_survive_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "tree" / "inner").mkdir(parents=True)
    (root / "appended").write_bytes(b"kept and cut off")
    power = Power(root, keeps=0)
    with power.on():
        write_durable(root / "written", b"by write_durable")
        with FileWriter(root / "by position") as file:
            file.write(b"data", 2)
            file.sync()
        with appending(root / "appended", 4, 100) as stream:
            stream.write(b", new")
        (root / "of another writer").write_bytes(b"data")
        sync_file(root / "of another writer")
        sync_folder(root)
        write_durable(root / "tree" / "inner" / "file", b"data")
        sync_tree(root / "tree")
        (root / "not synced").write_bytes(b"lost")
    power.come_back()
    assert {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    } == {
        "written": b"by write_durable",
        "by position": b"\0\0data",
        "appended": b"kept, new",
        "of another writer": b"data",
        "tree/inner/file": b"data",
    }


def test_lines_are_appended_and_no_line_creates_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    append_line(str(path), b"")
    assert path.read_bytes() == b""
    for line in (b"first", b"second"):
        append_line(str(path), line)
    assert path.read_bytes() == b"first\nsecond\n"


def test_a_line_that_a_full_disk_cuts_short_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:3]))
    with pytest.raises(StoreAccessError, match="No space left"):
        writer.append_line(str(tmp_path / "lines"), b"a line")


def test_a_file_is_closed_once_however_it_ends(tmp_path: Path) -> None:
    before = open_files()
    file = FileWriter(tmp_path / "file")
    file.close()
    other = os.open(tmp_path / "file", os.O_RDONLY)  # this file gets the number that became free
    file.close()
    os.close(other)
    with pytest.raises(StoreAccessError, match="cannot be given its size"):
        FileWriter(tmp_path / "file", size=-1)
    assert open_files() == before


def _fail_half_way(path: Path) -> None:
    path.write_bytes(b"half")
    raise KeyError


def test_replacing_shows_the_file_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replacing(path) as attempt:
        attempt.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(KeyError), replacing(path) as attempt:
        _fail_half_way(attempt)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"new"}


@pytest.mark.parametrize("at_once", [True, False])
def test_folders_are_swapped_with_and_without_the_systems_help(
    tmp_path: Path, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(writer, "exchange_at_once", lambda left, right: False)
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "was").write_text(name)
    exchange(tmp_path / "left", tmp_path / "right")
    sync_tree(tmp_path)
    assert (tmp_path / "left" / "was").read_text() == "right"
    assert (tmp_path / "right" / "was").read_text() == "left"
    assert {path.name for path in tmp_path.iterdir()} == {"left", "right"}


def test_what_is_not_there_cannot_be_swapped(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    with pytest.raises(StoreAccessError, match="cannot be swapped: No such file"):
        exchange(tmp_path / "left", tmp_path / "right")


def test_trees_files_links_and_nothing_can_be_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "folder"
    make_folder(folder / "a" / "b")
    (folder / "a" / "file").touch()
    (folder / "link").symlink_to(outside)
    (tmp_path / "link").symlink_to(outside)
    for name in ("folder", "link", "never there"):
        remove_tree(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"outside"}
    assert (outside / "kept").exists()


@pytest.mark.parametrize(
    ("number", "ending"),
    [
        (errno.ENOSPC, "No space left on device; free some space and run it again"),
        (errno.EACCES, "Permission denied; check its permissions"),
        (errno.EROFS, "Read-only file system; choose another place"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_refusal_says_what_to_do(number: int, ending: str) -> None:
    with pytest.raises(StoreAccessError) as error, explained("/store/x", "be written"):
        raise OSError(number, os.strerror(number))
    assert str(error.value) == f"/store/x: cannot be written: {ending}"


def test_a_refusal_is_explained_once() -> None:
    with pytest.raises(StoreAccessError, match=r"^inner$"), explained("/x", "be written"):
        raise StoreAccessError("inner")


def test_a_link_leads_to_the_file_that_the_caller_saw(tmp_path: Path) -> None:
    path, other, name = tmp_path / "file", tmp_path / "other", tmp_path / "name"
    path.write_bytes(b"file")
    other.write_bytes(b"other")
    link(path, name, path.stat().st_ino)
    assert name.samefile(path)
    name.unlink()
    with pytest.raises(StoreChangedError, match="replaced meanwhile"):
        link(path, name, other.stat().st_ino)
    assert not name.exists()


def test_a_file_that_is_replaced_while_it_is_linked_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, name = tmp_path / "file", tmp_path / "other", tmp_path / "name"
    path.write_bytes(b"file")
    other.write_bytes(b"other")
    linked = os.link

    def replace_first(*arguments: Any, **options: Any) -> None:
        os.replace(other, path)
        linked(*arguments, **options)

    monkeypatch.setattr(os, "link", replace_first)
    with pytest.raises(StoreChangedError, match="replaced meanwhile"):
        link(path, name)
    assert not name.exists()
