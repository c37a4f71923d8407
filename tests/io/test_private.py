"""Folders for message bodies: other users can neither open nor replace them."""

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from reput.errors import StoreAccessError, UsageError
from reput.io.arrow_file import write_arrow
from reput.io.scratch import Access, new_private_folder

SCHEMA = pa.schema([("n", pa.int64())])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("access", "folder_mode", "file_mode"), [("private", 0o700, 0o600), ("group", 0o2770, 0o660)]
)
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes_do_not_depend_on_the_umask(
    tmp_path: Path, access: Access, folder_mode: int, file_mode: int, umask: int
) -> None:
    before = os.umask(umask)
    try:
        folder = new_private_folder("p-", tmp_path / "parent", access)
        write_arrow(folder / "rows", SCHEMA, [])
    finally:
        os.umask(before)
        (tmp_path / "parent").chmod(0o755)
    assert mode_of(folder) == folder_mode
    assert mode_of(folder / "rows") == file_mode


@pytest.mark.parametrize(
    ("mode", "access"), [(0o777, "private"), (0o770, "private"), (0o777, "group")]
)
def test_a_parent_that_others_can_write_is_refused(
    tmp_path: Path, mode: int, access: Access
) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(StoreAccessError, match=f"mode {mode:04o} lets other users write"):
        new_private_folder("p-", tmp_path, access)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("mode", "access"), [(0o1777, "private"), (0o770, "group"), (0o755, "private")]
)
def test_a_parent_where_nobody_else_renames_will_do(
    tmp_path: Path, mode: int, access: Access
) -> None:
    tmp_path.chmod(mode)
    assert new_private_folder("p-", tmp_path, access).parent == tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_parent_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(StoreAccessError, match="belongs to another user"):
        new_private_folder("p-", tmp_path)


def test_an_unknown_access_is_refused() -> None:
    with pytest.raises(UsageError, match="access must be private or group"):
        new_private_folder("p-", None, "everyone")  # type: ignore[arg-type]
