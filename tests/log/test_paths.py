"""Valid paths to a store: the store, its commitlog folder, a pattern that matches one."""

import os
from pathlib import Path

import pytest

import reput
from reput.engine.stores.opening import find_stores
from reput.errors import StoreNotFoundError, UsageError
from reput.io.places import expand
from reput.io.storage import LOCAL
from reput.testing.builders import MESSAGE, write_log
from reput.wings.inspect.inspection import inspect


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    for name in ("store-a", "store-b"):
        write_log(tmp_path / name, [MESSAGE])
    # The folder of this store is itself named commitlog.
    write_log(tmp_path / "other" / "commitlog", [MESSAGE])
    return tmp_path


@pytest.mark.parametrize(
    "path",
    ["store-a", "store-a/", "store-a/commitlog", "store-[a]", "st*-a/commitlog", "other/commitlog"],
)
def test_a_store_is_found_by_each_of_its_paths(stores: Path, path: str) -> None:
    with reput.open_store(f"{stores}/{path}") as store:
        assert store.get(0).topic == "T"
    with reput.open_store(f"file://{stores}/{path}") as store:
        assert len(store.query("T", "k").messages) == 1


def test_a_pattern_of_several_stores_is_refused_where_one_is_asked_for(stores: Path) -> None:
    with pytest.raises(UsageError, match=r"matches 2 paths, .*/store-a and others; specify one"):
        reput.open_store(stores / "store-*")
    with pytest.raises(StoreNotFoundError, match="no file or folder matches this pattern"):
        inspect(stores / "none-*")


def test_several_stores_come_once_each(stores: Path) -> None:
    (stores / "link").symlink_to(stores / "store-b")
    found = find_stores([stores / "store-a/commitlog", stores / "store-*", stores / "link"])
    assert found == [f"{stores}/store-a", f"{stores}/store-b"]


def test_patterns_match_parts_as_a_shell_does(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stores)
    assert expand(LOCAL, "store-?") == ["store-a", "store-b"]
    assert expand(LOCAL, "*/commitlog/0*") == [f"store-{name}/commitlog/{0:020d}" for name in "ab"]
    with pytest.raises(StoreNotFoundError, match=r"/no such folder/\*: no file or folder matches"):
        expand(LOCAL, f"{os.sep}no such folder/*")
    assert expand(LOCAL, "plain") == ["plain"]
