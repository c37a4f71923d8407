"""docs/names.md: every name of reput exists, and the page says the same in both directions."""

import re
from importlib import import_module

from tests.docs.pages import CHECKOUT

PAGE = (CHECKOUT / "docs" / "names.md").read_text(encoding="utf-8")
THERE, BACK = PAGE.split("## From reput to RocketMQ")
_NAME = re.compile(r"`(reput(?:\.\w+)+)`")
_PAIR = re.compile(r"^\| `([\w.]+)` \| `(reput(?:\.\w+)+)` \|", re.MULTILINE)
_BACK = re.compile(r"^\| `(reput(?:\.\w+)+)` \| (.*) \|$", re.MULTILINE)


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one, or of a class in one."""
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


def test_the_page_says_the_same_in_both_directions() -> None:
    pairs = set(_PAIR.findall(THERE))
    back = {
        (java, name)
        for name, others in _BACK.findall(BACK)
        for java in re.findall(r"`(.+?)`", others)
    }
    assert len(pairs) > 70
    assert pairs == back


def test_the_names_that_readers_look_for_are_there() -> None:
    for name in (
        "ReputMessageService", "CommitLogDispatcherBuildIndex", "IndexFile.putKey", "timeDiff",
        "IndexFile.selectPhyOffset", "preIndexNo", "FlushConsumeQueueService", "StoreCheckpoint",
    ):  # fmt: skip
        assert f"`{name}`" in PAGE, name
