"""A repair that is killed leaves the old or the planned store. The next repair or an undo continues from there."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.check.repairing.driver import (
    plan_repair,
    repair_store,
    settle_repair,
    undo_repair,
)
from reput.engine.check.repairing.places import RepairPlaces
from reput.io import DISK
from tests.check.repairing import damaged_store, full_plan, held, repaired
from tests.golden.sparse import copy_store

STEPS = (
    "begun", "linked", "log changed", "rebuilt", "checkpoint written", "checked", "durable", "recorded",
    "swapped", "named",
)  # fmt: skip
FIRST_PLANNED = STEPS.index("swapped")


def killed(work: Callable[[Callable[[str], None]], object], step: str) -> None:
    """Run in a child that is killed after the step."""

    def at(done: str) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            work(at)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, step


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A damaged store, and the store that its repair produces."""
    root = tmp_path_factory.mktemp("states")
    store = damaged_store(root / "store")
    copy = copy_store(store, root / "copy")
    repaired(copy)
    return store, held(copy)


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system that cannot exchange two names."""
    monkeypatch.setattr(DISK, "exchange_at_once", lambda left, right: False)


@pytest.mark.every_case
@pytest.mark.parametrize("step", STEPS)
def test_a_repair_that_is_killed_at_a_step(
    states: tuple[Path, dict[str, bytes]], tmp_path: Path, step: str
) -> None:
    before, planned = held(states[0]), states[1]
    store = copy_store(states[0], tmp_path / "store")
    plan = full_plan(store)
    killed(lambda at: repair_store(plan, at=at), step)
    is_swapped = STEPS.index(step) >= FIRST_PLANNED
    assert held(store) == (planned if is_swapped else before)
    if is_swapped:
        undo_repair(store)
        assert held(store) == before
    settle_repair(store)
    repair_store(full_plan(store))
    assert held(store) == planned
    undo_repair(store)
    assert held(store) == before
    folders = {path.name for path in (tmp_path / "store.reput-repair").rglob("*") if path.is_dir()}
    assert not folders & {"new", "backup"}


def test_every_step_is_killed(states: tuple[Path, dict[str, bytes]], tmp_path: Path) -> None:
    store = copy_store(states[0], tmp_path / "store")
    steps: list[str] = []
    repair_store(full_plan(store), at=steps.append)
    assert tuple(steps) == STEPS


@pytest.mark.usefixtures("without_exchange")
@pytest.mark.every_case
@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("step", ["half swapped", "named"])
def test_two_renames_are_finished(
    states: tuple[Path, dict[str, bytes]], tmp_path: Path, step: str, undone: bool
) -> None:
    before, planned = held(states[0]), states[1]
    store = copy_store(states[0], tmp_path / "store")
    if undone:
        repair_store(full_plan(store))
        killed(lambda at: undo_repair(store, at=at), step)
    else:
        plan = full_plan(store)
        killed(lambda at: repair_store(plan, at=at), step)
    if step == "half swapped":
        assert not store.exists()
        with pytest.raises(FileNotFoundError, match="a repair was killed while it swapped"):
            plan_repair(store)
        settle_repair(store)
    assert held(store) == (before if undone else planned)
    settle_repair(store)
    if not undone:
        undo_repair(store)
    assert held(store) == before


@pytest.mark.parametrize("step", ["swapped", "named"])
def test_an_undo_that_is_killed(
    states: tuple[Path, dict[str, bytes]], tmp_path: Path, step: str
) -> None:
    before, planned = held(states[0]), states[1]
    store = copy_store(states[0], tmp_path / "store")
    repair_store(full_plan(store))
    killed(lambda at: undo_repair(store, at=at), step)
    assert held(store) == before
    repair_store(full_plan(store))
    assert held(store) == planned
    undo_repair(store)
    assert held(store) == before


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_repair_that_is_killed_inside_its_rebuild(
    states: tuple[Path, dict[str, bytes]], tmp_path: Path, number: int
) -> None:
    store = copy_store(states[0], tmp_path / "store")
    plan = full_plan(store)
    calls = iter(range(1, 100))

    def run(at: Callable[[str], None]) -> None:
        repair_store(plan, progress=lambda *_: at(str(next(calls))))

    killed(run, str(number))
    assert held(store) == held(states[0])
    repair_store(full_plan(store))
    assert held(store) == states[1]


def test_attempts_are_the_folders_whose_names_are_numbers(tmp_path: Path) -> None:
    places = RepairPlaces(tmp_path / "store")
    for name in ("10", "2", "x", "1x", "\N{SUPERSCRIPT TWO}"):
        (places.root / name).mkdir(parents=True)
    (places.root / "3").write_bytes(b"a file")
    assert [attempt.number for attempt in places.attempts()] == [2, 10]
