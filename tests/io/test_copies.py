"""Copies look like their models: owner, permissions, extended attributes and times."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from reput.errors import StoreChangedError
from reput.io.copies import copy_file, look_like, own_like, tree_entries

_NAME, _VALUE = "user.reput", b"value"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.write_bytes(b"model")
    with suppress(OSError, AttributeError):  # not every file system has extended attributes
        os.setxattr(path, _NAME, _VALUE)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
    os.chmod(path, 0o640)
    os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    return path


def look(path: Path) -> tuple[int, int, int, int, dict[str, bytes]]:
    status = path.stat()
    names = os.listxattr(path) if hasattr(os, "listxattr") else []
    return (
        status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), status.st_mtime_ns,
        {name: os.getxattr(path, name) for name in names},
    )  # fmt: skip


def test_a_file_is_made_to_look_like_another(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"file")
    look_like(path, model)
    assert look(path) == look(model)
    assert path.read_bytes() == b"file"


def test_a_copy_has_the_look_and_the_bytes(tmp_path: Path, model: Path) -> None:
    copy_file(model, tmp_path / "copy")
    assert look(tmp_path / "copy") == look(model)
    assert (tmp_path / "copy").read_bytes() == b"model"


def test_only_the_owner_is_copied(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"file")
    before = look(path)
    own_like(path, model)
    assert look(path) == (*look(model)[:2], *before[2:])


def test_without_the_rights_of_root_the_owner_stays(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "file"
    path.write_bytes(b"file")
    before = look(path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fchown", refused)
    own_like(path, model)
    assert look(path) == before
    look_like(path, model)
    assert look(path) == (*before[:2], *look(model)[2:])


def test_a_source_that_was_replaced_is_not_copied(tmp_path: Path, model: Path) -> None:
    inode = model.stat().st_ino
    copy_file(model, tmp_path / "copy", inode)
    with pytest.raises(StoreChangedError, match="was replaced meanwhile"):
        copy_file(model, tmp_path / "other", inode + 1)


def test_a_tree_is_listed_with_each_folder_before_its_content(tmp_path: Path) -> None:
    (tmp_path / "b" / "d").mkdir(parents=True)
    for name in ("a", "b/c", "b/d/e", "f"):
        (tmp_path / name).write_bytes(name.encode())
    entries = list(tree_entries(tmp_path))
    assert [(entry.name, entry.is_folder) for entry in entries] == [
        ("a", False), ("b", True), ("b/c", False), ("b/d", True), ("b/d/e", False), ("f", False),
    ]  # fmt: skip
    for entry in entries:
        status = (tmp_path / entry.name).stat()
        assert (entry.inode, entry.size) == (status.st_ino, status.st_size)
