"""Restores that are killed: the destination has no store or the whole one, and the next run continues."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.errors import ReputError, StoreLockedError, StoreNotFoundError, UsageError
from reput.format.file_names import RESTORING_FOLDER
from reput.io import DISK
from reput.io.archive import Archive
from reput.io.local_disk import LocalDisk
from reput.wings.archive import new_store
from reput.wings.archive.report import RestoreReport
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_TOPIC = "Parent"
_STEPS = ("create_folder", "rename", "delete", "write_durable", "sync_folder", "remove_tree")


class Killed(BaseException):
    """Raised in place of a kill: no code handles it."""


class Steps:
    """Counts steps, and raises Killed before one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def __call__(self, *_: object) -> None:
        self.seen += 1
        if self.seen == self.at:
            raise Killed


@pytest.fixture(scope="module")
def place(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("restoring") / "archive"
    reput.archive(golden("lmq").path, place, with_last=True)
    return str(place)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Steps]:
    """Return a function that lets the next restore be killed before step `at`. Changes of the destination are steps."""

    def begin(at: int) -> Steps:
        steps = Steps(at)
        disk = LocalDisk()
        for name in _STEPS:
            function = getattr(DISK, name)

            def step(*args: Any, function: Callable[..., Any] = function) -> Any:
                steps()
                return function(*args)

            setattr(disk, name, step)
        monkeypatch.setattr(new_store, "DISK", disk)
        return steps

    return begin


def _check_whole(place: str, target: Path) -> None:
    for file in Archive(place).manifest.log:
        size = (target / file.path).stat().st_size
        assert size == file.size
        assert target.joinpath(file.path).read_bytes()[: file.data_bytes] == b"".join(
            Archive(place).frames(file, 0, file.frames)
        )
    assert reput.check(target).is_valid
    assert {one.name for one in target.iterdir()} >= {"commitlog", "consumequeue", "index"}


def _has_store(target: Path) -> bool:
    try:
        reput.open_store(target).close()
    except StoreNotFoundError:
        return False
    return True


def _killed_at_each_step(
    restore: Callable[[Callable[..., None]], RestoreReport],
    target: Path,
    steps: Callable[[int], Steps],
) -> Iterator[bool]:
    """Kill a run at each step, one after the other; yields whether the destination has a store."""
    for at in count(1):
        counter = steps(at)
        try:
            restore(counter)
        except Killed:
            yield _has_store(target)
            continue
        except UsageError:  # this run was killed after its last rename
            assert _has_store(target)
        return


def test_a_restore_killed_at_every_step_leaves_no_store_or_the_whole_one(
    place: str, tmp_path: Path, steps: Callable[[int], Steps]
) -> None:
    target, kills = tmp_path / "restored", 0
    runs = _killed_at_each_step(
        lambda progress: reput.restore(place, target, progress=progress), target, steps
    )
    for has_store in runs:
        kills += 1
        if has_store:
            _check_whole(place, target)
    assert kills > 15
    _check_whole(place, target)


def test_a_filtered_copy_killed_at_every_step_leaves_no_store_or_the_whole_one(
    place: str, tmp_path: Path, steps: Callable[[int], Steps]
) -> None:
    expected = reput.restore(place, tmp_path / "expected", topics=[_TOPIC]).messages
    assert expected
    target, kills = tmp_path / "copy", 0
    runs = _killed_at_each_step(
        lambda progress: reput.restore(place, target, topics=[_TOPIC], progress=progress),
        target,
        steps,
    )
    for has_store in runs:
        kills += 1
        if has_store:
            break
    assert kills > 8
    assert reput.check(target).is_valid
    with reput.open_store(target) as store:
        assert (
            sum(store.max_queue_offset(topic, queue) for topic, queue in store.list_queues())
            == expected
        )


_KILLED = """
import os, signal, sys
import reput

def kill(phase, done, total):
    if phase == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

reput.restore(sys.argv[1], sys.argv[2], progress=kill)
"""


@pytest.mark.parametrize(
    "phase",
    ["scan", *(pytest.param(one, marks=pytest.mark.slow) for one in ("restore", "write", "move"))],
)
def test_a_restore_whose_process_is_killed_is_continued(
    place: str, tmp_path: Path, phase: str
) -> None:
    target = tmp_path / "restored"
    killed = subprocess.run([sys.executable, "-c", _KILLED, place, str(target), phase], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.listdir(target) == [RESTORING_FOLDER]
    with pytest.raises(StoreNotFoundError, match="a restore into this folder is not finished"):
        reput.open_store(target)
    reput.restore(place, target)
    _check_whole(place, target)
    assert RESTORING_FOLDER not in os.listdir(target)


def test_log_files_of_a_killed_run_are_not_fetched_again_but_others_are(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "restored"

    def kill(phase: str, done: int, total: int) -> None:
        if phase == "scan":
            raise Killed

    with pytest.raises(Killed):
        reput.restore(place, target, progress=kill)
    log = Archive(place).manifest.log
    written = target / RESTORING_FOLDER / "store"
    damaged = written / log[0].path
    with open(damaged, "r+b") as file:
        file.seek(100)
        file.write(b"another byte")
    (written / "commitlog" / "00000000000000000000.bak").write_bytes(b"x")
    fetched = []
    original = Archive.frames

    def frames(self: Archive, file: Any, first: int, last: int) -> list[bytes]:
        fetched.append(file.begin)
        return original(self, file, first, last)

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "frames", frames)
        reput.restore(place, target)
    assert set(fetched) == {log[0].begin}
    _check_whole(place, target)
    assert not (target / "commitlog" / "00000000000000000000.bak").exists()


def test_nothing_beside_an_unfinished_restore_is_changed(place: str, tmp_path: Path) -> None:
    target = tmp_path / "restored"

    def kill(phase: str, done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        reput.restore(place, target, progress=kill)
    (target / "commitlog").mkdir()  # a broker that is started with this folder creates it
    (target / "commitlog" / "00000000000000000000").write_bytes(b"x")
    with pytest.raises(UsageError, match="not empty"):
        reput.restore(place, target)
    assert (target / "commitlog" / "00000000000000000000").read_bytes() == b"x"


def test_two_restores_do_not_write_one_destination(place: str, tmp_path: Path) -> None:
    target, refused = tmp_path / "restored", []

    def second(phase: str, done: int, total: int) -> None:
        if phase == "offsets":
            with pytest.raises(StoreLockedError, match="another restore"):
                reput.restore(place, target)
            refused.append(phase)

    reput.restore(place, target, progress=second)
    assert refused
    _check_whole(place, target)


def test_a_refused_restore_leaves_the_destination_as_it_was(place: str, tmp_path: Path) -> None:
    with pytest.raises(ReputError, match="no log file"):
        reput.restore(place, tmp_path / "restored", end=1000)
    assert not (tmp_path / "restored").exists()
