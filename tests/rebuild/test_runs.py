"""Runs that are killed and continued, and workers that are lost: old files stay intact."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reput.base.tasks import SerialRunner
from reput.engine.rebuild import commit, scan_split
from reput.engine.rebuild.commit import swap_in
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.staging import STAGING_FOLDER
from reput.errors import StoreError
from reput.io import DISK, writer
from tests.oracle.forge import flip_bit, write_store
from tests.rebuild.rebuilding import SMALL, tree
from tests.recovery.replaced import (
    FILES,
    SPLIT_BYTES,
    assert_new,
    assert_whole,
    copied,
    in_place,
    steps_of_a_run,
)
from tests.writer.crashing import dying


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the beginning of each split that is scanned."""
    begins: list[int] = []
    stage = scan_split._stage

    def counting(job: Any, split: Any, *rest: Any) -> None:
        begins.append(split.begin)
        stage(job, split, *rest)

    monkeypatch.setattr(scan_split, "_stage", counting)
    return begins


class KillingRunner(SerialRunner):
    """Kills its own process after it has run this number of tasks."""

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks

    def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
        def counted(task: Any) -> Any:
            if self.tasks == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.tasks -= 1
            return function(task)

        return super().run(counted, tasks, weights, progress)


def killed_after(store: Path, tasks: int) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.rebuild import test_runs as tests; "
        "from reput.io import stamps; stamps._REPORTING = {stamps._file_system(sys.argv[1])}; "
        "tests.rebuild_store(tests.KillingRunner(int(sys.argv[2])), Path(sys.argv[1]), "
        "config=tests.SMALL, split_size=tests.SPLIT_BYTES)"
    )
    run = subprocess.run([sys.executable, "-c", program, store, str(tasks)], check=False)
    assert run.returncode == -signal.SIGKILL


def test_a_killed_scan_is_taken_up_where_it_was(store: Path, scans: list[int]) -> None:
    before = tree(store)
    killed_after(store, 5)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    assert any(name.startswith(STAGING_FOLDER) for name in after.keys() - before.keys())
    report = in_place(store)
    assert len(scans) == report.splits - 5 + report.rescanned
    assert len(set(scans)) == report.splits - 5
    assert_new(store)


def test_killed_while_it_writes_it_scans_nothing_again(store: Path, scans: list[int]) -> None:
    splits = in_place(store, output=store.parent / "elsewhere").splits
    scans.clear()
    before = tree(store)
    killed_after(store, splits + 3)
    after = tree(store)
    assert {name: after[name] for name in before} == before
    in_place(store)
    assert scans == []
    assert_new(store)


def check_killed(store: Path, folder: Path, after: int, new: dict[str, bytes]) -> None:
    copy = copied(store, folder)
    old = tree(copy)
    with dying(after):
        in_place(copy)
    assert_whole(copy, old, new)
    in_place(copy)
    assert_new(copy)
    assert tree(copy)["checkpoint"] == new["checkpoint"]


@pytest.mark.parametrize("part", range(20))
def test_killed_at_any_step_old_files_are_whole_and_the_next_run_finishes(
    store: Path, tmp_path: Path, part: int
) -> None:
    steps = steps_of_a_run(store, tmp_path)
    write_store(tmp_path / "new", FILES)
    in_place(tmp_path / "new")
    # The last steps are the commit: each of them is tested, and some of the earlier ones.
    commit = range(steps - 40 + 2 * part, steps - 38 + 2 * part)
    for after in (part * (steps - 40) // 20, *commit):
        folder = tmp_path / str(after)
        check_killed(store, folder, after, tree(tmp_path / "new"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_step(store: Path, tmp_path: Path) -> None:
    steps = steps_of_a_run(store, tmp_path)
    write_store(tmp_path / "new", FILES)
    in_place(tmp_path / "new")
    for after in range(steps):
        check_killed(store, tmp_path / str(after), after, tree(tmp_path / "new"))


def test_killed_again_and_again_it_gets_there(store: Path) -> None:
    """Each run continues with the files that killed runs have staged, so one run finally completes."""
    for _ in range(200):
        with dying(40) as steps:
            in_place(store)
        if steps.made < 40:
            break
    else:
        with dying(None):
            in_place(store)
    assert_new(store)


class LosingRunner(SerialRunner):
    """Runs every task twice: the first time, its worker dies after `steps` steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.tasks: list[Callable[[], Any]] = []

    def run(self, function: Any, tasks: Any, weights: Any, progress: Any) -> Any:
        def twice(task: Any) -> Any:
            with dying(self.steps):
                function(task)
            self.tasks.append(partial(function, task))
            return function(task)

        return super().run(twice, tasks, weights, progress)


@pytest.mark.parametrize("steps", range(8))
def test_what_a_lost_worker_left_behind_is_not_in_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    runner = LosingRunner(steps)

    def swapped_in(*arguments: Any) -> None:
        for attempt in runner.tasks:
            attempt()  # a worker that was reported lost finishes nevertheless
        swap_in(*arguments)

    monkeypatch.setattr(commit, "swap_in", swapped_in)
    rebuild_store(runner, store, config=SMALL, split_size=SPLIT_BYTES)
    assert_new(store)


def test_staged_splits_of_another_log_are_not_taken(store: Path, scans: list[int]) -> None:
    killed_after(store, 9)
    # a wrong CRC: no message is lost, and no old entry is kept because of it
    changed = flip_bit(FILES, 8, 0)
    (start, data) = changed[0]
    (store / "commitlog" / f"{start:020d}").write_bytes(data)
    report = in_place(store)
    assert len(set(scans)) == report.splits
    assert_new(store, changed)


@pytest.mark.parametrize("options", [{"salvage": True}, {"config": replace(SMALL, hash_slots=5)}])
def test_staged_splits_of_other_settings_are_not_taken(
    store: Path, scans: list[int], options: dict[str, Any]
) -> None:
    killed_after(store, 9)
    report = in_place(store, **options)
    assert len(set(scans)) == report.splits


def test_a_staged_split_that_was_cut_is_scanned_again(store: Path, scans: list[int]) -> None:
    killed_after(store, 9)
    staged = sorted(path for path in (store / STAGING_FOLDER).glob("*/*") if path.is_file())
    assert len(staged) == 9
    for path, length in zip(staged, (0, 1, 15, 16, 100), strict=False):
        os.truncate(path, length)
    report = in_place(store)
    assert len(set(scans)) == report.splits - 4
    assert_new(store)


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_files_that_another_program_changes_during_the_commit_are_an_error(
    store: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    rebuild_store(SerialRunner(), store, config=SMALL)
    old = tree(store / folder)

    def exchange_and_write(fresh: Path, place: Path) -> None:
        writer.exchange(fresh, place)
        if place.name == folder:
            (place / "late").write_bytes(b"late")

    monkeypatch.setattr(DISK, "exchange", exchange_and_write)
    with pytest.raises(
        StoreError, match="changed during the commit; the old files are in"
    ) as error:
        rebuild_store(SerialRunner(), store, config=SMALL)
    kept = Path(str(error.value).rpartition("are in ")[2])
    assert tree(kept / folder) == old
