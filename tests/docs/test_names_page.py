"""docs/names.md: the names of reput on this page exist, and the page has the names that RocketMQ's store uses."""

import re
from importlib import import_module

import pytest

from tests.docs.pages import CHECKOUT

PAGE = (CHECKOUT / "docs" / "names.md").read_text(encoding="utf-8")
_NAME = re.compile(r"`(reput(?:\.\w+)+)`")
SEEDS = CHECKOUT.parent / "shared" / "seed-names.txt"


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of a module or of a class in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_every_name_of_reput_exists() -> None:
    names = set(_NAME.findall(PAGE))
    assert len(names) > 60
    assert [name for name in sorted(names) if not exists(name)] == []


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert exists("reput.format.index_file.IndexItem.previous")
    assert not exists("reput.format.index_file.IndexItem.pre_index_no")
    assert not exists("reput.no_such_room")


def test_the_names_that_readers_look_for_are_there() -> None:
    for name in (
        "ReputMessageService", "CommitLogDispatcherBuildIndex", "IndexFile.putKey", "timeDiff",
        "IndexFile.selectPhyOffset", "preIndexNo", "FlushConsumeQueueService", "StoreCheckpoint",
    ):  # fmt: skip
        assert f"`{name}`" in PAGE, name


def test_every_name_of_the_store_that_a_reader_may_know_leads_somewhere() -> None:
    if not SEEDS.exists():
        pytest.skip("the list of names is not here")
    names = [name for name in SEEDS.read_text().split("\n") if name and not name.startswith("#")]
    words = set(re.findall(r"\w+", PAGE))
    assert len(names) > 100
    assert [name for name in names if name not in words] == []
