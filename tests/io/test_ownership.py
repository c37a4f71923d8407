"""Folders that another user could replace while root uses them."""

import os
from pathlib import Path

import pytest

from reput.base.machine import is_out_of_reach
from reput.errors import StoreAccessError
from reput.io.scratch import new_private_folder
from reput.io.user_cache import OwnCache
from reput.wings.lakes.tables.opening import open_table

USER = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root works in folders of others")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of another user, in one of root's."""
    folder = tmp_path / "home"
    (folder / "below").mkdir(parents=True)
    os.chown(folder, USER, USER)
    return folder


def test_what_lies_in_root_s_folders_is_out_of_reach(tmp_path: Path, home: Path) -> None:
    assert is_out_of_reach(tmp_path)
    assert is_out_of_reach(tmp_path / "not" / "there")
    for path in (home, home / "below", home / "below" / "file"):
        assert not is_out_of_reach(path)


def test_a_link_leads_where_it_leads(tmp_path: Path, home: Path) -> None:
    (tmp_path / "to").symlink_to(home)
    assert not is_out_of_reach(tmp_path / "to" / "x")
    (tmp_path / "away").symlink_to(tmp_path / "elsewhere")
    assert is_out_of_reach(tmp_path / "away" / "x")
    os.chown(tmp_path / "away", USER, USER, follow_symlinks=False)
    assert not is_out_of_reach(tmp_path / "away" / "x")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert not is_out_of_reach(tmp_path / "circle" / "x")


@pytest.mark.parametrize(("mode", "is_closed"), [(0o777, False), (0o1777, True), (0o775, True)])
def test_a_folder_that_all_may_write_must_be_sticky(
    tmp_path: Path, mode: int, is_closed: bool
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    assert is_out_of_reach(tmp_path / "open" / "x") == is_closed
    os.chown(tmp_path / "open", 0, USER)
    assert is_out_of_reach(tmp_path / "open" / "x") == (mode == 0o1777)


def test_no_cache_and_no_staging_lie_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "below"))
    with pytest.raises(StoreAccessError, match="another user can replace"):
        OwnCache("proofs").write("name", b"")
    assert OwnCache("proofs").read("name", 10) is None
    with pytest.raises(StoreAccessError, match="belongs to another user"):
        new_private_folder("x", home / "below")
    assert list((home / "below").iterdir()) == []


@pytest.mark.parametrize("layout", ["iceberg", "delta"])
def test_tables_whose_libraries_follow_links_are_refused(home: Path, layout: str) -> None:
    with pytest.raises(StoreAccessError, match="as root"):
        open_table(str(home / "table"), layout)
    assert open_table(str(home / "table"), "parquet") is not None
