"""A named pipe in place of a store's file: no command waits for a writer that never comes."""

import os
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FAILED, FOUND, NOT_FOUND
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import reput

PLACES = (
    "abort", "checkpoint", "lock", "config/topics.json", "commitlog/00000000000000000000",
    "commitlog/00000000000000065536", "consumequeue/T/0/00000000000000000000",
    "index/20261120223117775",
)  # fmt: skip


@pytest.fixture(params=PLACES)
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of one message in which one file is a pipe."""
    path = write_log(tmp_path / "store", [MESSAGE]) / str(request.param)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


@pytest.mark.timeout(60)
def test_no_command_waits_for_a_pipe(pipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for command in (
        ["inspect", store], ["inspect", pipe], ["show", store, "0"], ["tail", store, "--topic", "T"],
        ["query", store, "--topic", "T", "--key", "k"],
    ):  # fmt: skip
        ran = reput(*command)
        assert ran.code in (FOUND, NOT_FOUND, FAILED, DAMAGED), ran.err
        assert "unexpected" not in ran.err


@pytest.mark.timeout(60)
def test_inspecting_a_pipe_says_what_it_is(pipe: Path) -> None:
    ran = reput("inspect", pipe)
    assert ran.code != FOUND
    assert "not a regular file" in ran.err
