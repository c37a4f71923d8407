"""A CommitLog outside its store (storePathCommitLog): STORE,LOG is read, or refused in one line with the remedy."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FAILED, FOUND, WRONG_USE
from tests.cli.running import one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
READING = {
    "check": ["--quick"], "stats": [], "inspect": [], "prove": [], "fleet": [], "tail": [],
    "rebuild": ["--output", "OUT"],
}  # fmt: skip
REFUSING: dict[str, list[str]] = {
    "archive": ["OUT"], "export": ["OUT"], "serve": [], "repair": [], "recover": [], "expire": [],
    "put": [], "erase": ["--topic", "TopicA", "--output", "OUT"],
}  # fmt: skip


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    path = copy_store(golden("basic").path, tmp_path / "store")
    (path / "commitlog").rename(tmp_path / "log")
    return path


@pytest.mark.parametrize("command", READING)
def test_commands_that_read_take_it(command: str, store: Path, tmp_path: Path) -> None:
    options = [str(tmp_path / "out") if one == "OUT" else one for one in READING[command]]
    assert reput(command, f"{store},{tmp_path / 'log'}", *options).code == FOUND


def test_a_comparison_takes_it(store: Path, tmp_path: Path, golden: Golden) -> None:
    assert reput("diff", f"{store},{tmp_path / 'log'}", golden("basic").path).code == FOUND


@pytest.mark.parametrize("command", REFUSING)
def test_other_commands_refuse_it_and_name_the_remedy(
    command: str, store: Path, tmp_path: Path
) -> None:
    options = [str(tmp_path / "out") if one == "OUT" else one for one in REFUSING[command]]
    ran = reput(command, f"{store},{tmp_path / 'log'}", *options)
    assert ran.code == WRONG_USE
    line = one_line(ran)
    assert f"{command} needs the CommitLog in {store / 'commitlog'}" in line
    assert line.endswith(f"ln -s {tmp_path / 'log'} {store / 'commitlog'}")


def test_the_remedy_works(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").symlink_to(tmp_path / "log")
    assert reput("archive", store, tmp_path / "out").code == FOUND
    assert reput("check", store, "--quick").code == FOUND


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        *(([name, *options], False) for name, options in READING.items()),
        (["archive", "OUT"], False), (["export", "OUT"], False),
        (["expire", "--before", "2001-01-01", "--dry-run"], False),
        (["rebuild", "--only", "index"], True), (["repair"], True), (["recover"], True),
        (["put", "--topic", "T", "--body", "x"], True),
        (["erase", "--topic", "TopicA", "--output", "OUT"], True),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_link_in_its_place_is_read_and_what_writes_refuses_it_in_one_line(
    command: list[str], is_refused: bool, store: Path, tmp_path: Path
) -> None:
    (store / "commitlog").symlink_to(tmp_path / "log")
    (store / "index" / min(os.listdir(store / "index"))).unlink()  # Something to repair.
    before = contents(tmp_path)
    name, *options = (str(tmp_path / "out") if word == "OUT" else word for word in command)
    ran = reput(name, store, *options)
    if is_refused:
        assert ran.code == FAILED
        assert "is a link, but a store is written only in its own folder" in one_line(ran)
        assert contents(tmp_path) == before
    else:
        assert ran.code in (FOUND, DAMAGED)
        assert "Traceback" not in ran.err


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("command", ["check", "rebuild"])
def test_a_broker_configuration_that_names_it_gives_the_store_to_pass(
    command: str, store: Path, tmp_path: Path
) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={tmp_path / 'log'}\n")
    ran = reput(command, store, "--broker-config", config)
    assert ran.code == WRONG_USE
    assert one_line(ran).endswith(f"pass {store},{tmp_path / 'log'} as STORE")
