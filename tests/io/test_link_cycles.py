"""Paths through links that form a cycle end in an error, not in an endless loop."""

from pathlib import Path

import pytest

from reput.errors import StoreAccessError
from reput.io.anchors import real_path
from tests.cli.running import reput as run


@pytest.fixture
def cycle(tmp_path: Path) -> Path:
    for name, target in (("self", "self"), ("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize("name", ["self", "a", "self/x", "a/x/y"])
def test_a_cycle_of_links_is_refused(cycle: Path, name: str) -> None:
    with pytest.raises(StoreAccessError, match="leads through more than 40 links"):
        real_path(cycle / name)


def test_as_many_links_as_the_system_allows_lead_to_their_target(tmp_path: Path) -> None:
    target = tmp_path
    for number in range(40):
        link = tmp_path / str(number)
        link.symlink_to(target)
        target = link
    assert real_path(target) == str(tmp_path)


@pytest.mark.parametrize(
    "command", ["repair self", "repair a", "report store --output a", "export store self/x"]
)
def test_a_command_with_a_cycle_of_links_ends(
    cycle: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (cycle / "store" / "commitlog").mkdir(parents=True)
    (cycle / "store" / "commitlog" / "00000000000000000000").write_bytes(bytes(4096))
    monkeypatch.chdir(cycle)
    ran = run(*command.split())
    assert ran.code in (2, 4)
    assert "link" in ran.err
