"""Read-only maps of files, and noticing changes of a folder."""

import os
from pathlib import Path

import pytest

from reput.errors import FormatError, StoreAccessError, StoreNotFoundError
from reput.io.mapped_file import MappedFile
from reput.io.storage import FolderWatch


def test_a_map_holds_the_files_bytes_and_outlives_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"bytes of a file")
    file = MappedFile(str(path))
    path.unlink()
    assert (bytes(file.data), file.size) == (b"bytes of a file", 15)
    file.close()
    with pytest.raises(ValueError, match="released"):
        file.data[0]


def test_a_map_shows_what_is_written_into_the_file_and_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    file = MappedFile(str(path))
    with path.open("r+b") as writer:
        writer.write(b"new")
    assert bytes(file.data) == b"new"
    with pytest.raises(TypeError, match="read-only"):
        file.data[0] = 0
    file.close()


def test_what_cannot_be_mapped_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, error, reason in (
        ("missing", StoreNotFoundError, "no longer exists"),
        ("empty", FormatError, "offset 0: the file is empty"),
        ("", StoreAccessError, "not a regular file"),
        ("pipe", StoreAccessError, "not a regular file"),
    ):
        path = str(tmp_path / name)
        with pytest.raises(error) as caught:
            MappedFile(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("ordinary_user")
def test_a_file_that_must_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(StoreAccessError, match="Permission denied"):
        MappedFile(str(path))


def test_a_watch_tells_of_files_that_come_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    watch = FolderWatch(str(folder))
    assert watch.changed()
    assert not watch.changed()
    folder.mkdir()
    assert watch.changed()
    assert watch.changed()  # a change within the same tick of the clock would be invisible
    os.utime(folder, (1_000_000_000, 1_000_000_000))
    assert watch.changed()
    assert not watch.changed()
    (folder / "file").touch()
    assert watch.changed()
