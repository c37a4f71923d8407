"""As root, archive and restore follow no link of another user: nothing outside their folders is written."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import reput
from reput.errors import StoreAccessError
from tests.small import SMALL_64K

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root follows links with more rights"
)
OTHER = 12_345


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the folder of another user, below a folder that everyone may enter."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    return home


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of root, which must stay empty."""
    outside = tmp_path / "outside"
    outside.mkdir()
    yield outside
    assert list(outside.iterdir()) == []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_64K) as opened:
        opened.put_many(reput.Message("T", bytes(900), [f"k{n}"]) for n in range(200))
    return tmp_path / "store"


def link(place: Path, target: Path) -> None:
    place.symlink_to(target)
    os.chown(place, OTHER, OTHER, follow_symlinks=False)


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["log", "keys", "queues", "snapshots"])
def test_an_archive_with_a_linked_folder(store: Path, home: Path, outside: Path, name: str) -> None:
    (home / "arc").mkdir()
    os.chown(home / "arc", OTHER, OTHER)
    link(home / "arc" / name, outside)
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{}")
    with pytest.raises(StoreAccessError):
        reput.archive(store, home / "arc")


def test_an_archive_that_is_a_link(store: Path, home: Path, outside: Path) -> None:
    link(home / "arc", outside)
    with pytest.raises(StoreAccessError):
        reput.archive(store, home / "arc")


def test_a_restore_into_a_link(tmp_path: Path, store: Path, home: Path, outside: Path) -> None:
    reput.archive(store, tmp_path / "arc")
    link(home / "new", outside)
    with pytest.raises(StoreAccessError):
        reput.restore(tmp_path / "arc", home / "new")


def test_files_get_the_owner_of_the_folder(store: Path, home: Path) -> None:
    reput.archive(store, home / "arc")
    reput.restore(home / "arc", home / "new")
    owners = {path.lstat().st_uid for path in home.rglob("*")}
    assert owners == {OTHER}
