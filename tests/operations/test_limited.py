"""Stores that hang or cannot be read do not keep the others waiting, and the exit code says which kind of trouble."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

import reput
from reput.base.findings import Severity
from reput.cli.main import DAMAGED, FOUND, UNREAD, WARNED, command_of
from reput.engine.check.operation import CheckReport
from reput.engine.stores import StoreState, over_stores, stores_of
from reput.engine.stores.limited import limited
from reput.io import LOCAL
from tests.cli.running import reput as command
from tests.small import SMALL_16K

_RELEASE = Event()


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Let the tasks that hang end with the test."""
    _RELEASE.clear()
    yield
    _RELEASE.set()


def test_tasks_that_hang_are_given_up_and_all_others_answered() -> None:
    hanging, count = {0, 1, 2, 7, 40}, 100
    ready: list[int] = []

    def task(place: int) -> Callable[[], int]:
        def run() -> int:
            if place in hanging:
                _RELEASE.wait()
            ready.append(place)
            return place * place

        return run

    # The time stands still until all others are ready, so that a slow machine does not decide the result.
    def clock() -> float:
        return 0.0 if len(ready) < count - len(hanging) else 100.0

    answers = dict(limited([task(place) for place in range(count)], 8, 0.05, clock))
    assert {place for place, answer in answers.items() if answer is None} == hanging
    assert all(answers[n] == n * n for n in range(count) if n not in hanging)


def test_more_tasks_may_hang_than_run_at_the_same_time() -> None:
    begun: list[int] = []

    def hang() -> int:
        begun.append(1)
        _RELEASE.wait()
        return 0

    tasks = [hang] * 6
    answers = dict(limited(tasks, 2, 0.01, lambda: 10.0 * len(begun)))
    assert answers == dict.fromkeys(range(6))


def test_the_error_of_a_task_is_raised() -> None:
    def fail() -> int:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        list(limited([fail], 1, 60))


def quick(store: str) -> CheckReport:
    """Check a store, or hang if it has this name."""
    if store.endswith("hangs"):
        _RELEASE.wait()
    return reput.check(store, quick=True)


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    for number in range(3):
        with reput.open_store(tmp_path / f"s{number}", "rw", config=SMALL_16K) as store:
            store.put(reput.Message("T", b"x"))
    return tmp_path


def test_a_fleet_with_stores_that_hang_and_that_are_gone(stores: Path) -> None:
    paths = [str(stores / name) for name in ("hangs", "s0", "gone", "s1", "s2")]
    seen: list[str] = []
    report = over_stores(
        quick, paths, limit_s=3, on_answer=lambda answer: seen.append(Path(answer.path).name)
    )
    assert seen[-1] == "hangs"
    states = {Path(one.path).name: one.state for one in report}
    assert states == {
        "hangs": StoreState.NOT_READ, "gone": StoreState.NOT_READ, "s0": StoreState.OK,
        "s1": StoreState.OK, "s2": StoreState.OK,
    }  # fmt: skip
    assert str(report.answers[0].error) == f"{paths[0]}: no answer within 3 s"


@pytest.mark.parametrize("pattern", ["*", "*/store"])
def test_a_pattern_may_lead_to_a_store_that_hangs(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, wanted = type(LOCAL).entry, list[str]()
    for name in ("a", "hangs", "z"):
        path = tmp_path / name / Path(pattern).relative_to("*")
        wanted.append(str(path))
        with reput.open_store(path, "rw", config=SMALL_16K) as store:
            store.put(reput.Message("T", b"x"))

    def entry(self: Any, path: str) -> Any:
        if "hangs" in path:
            _RELEASE.wait()
        return read(self, path)

    monkeypatch.setattr(type(LOCAL), "entry", entry)
    stores = stores_of([str(tmp_path / pattern)], limit_s=3)
    assert [store.path for store in stores] == wanted


@pytest.mark.parametrize("name", ["check", "fleet", "query"])
def test_no_store_is_touched_while_arguments_are_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store on a dead mount would keep a command waiting before any limit of time holds."""
    chosen, store = command_of(name), str(tmp_path / "hangs")
    read, touched = os.stat, list[Any]()

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        touched.append(path)
        return read(path, *args, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert chosen.make_context(name, [store]).params["stores"] == (store,)
    assert store not in touched


def test_the_exit_code_says_which_kind_of_trouble(stores: Path) -> None:
    def code(*names: str) -> int:
        paths = [stores / name for name in names]
        codes = {
            command("check", "--quick", *paths, *limit).code
            for limit in ([], ["--store-timeout", "600"])
        }
        assert len(codes) == 1
        return codes.pop()

    assert code("s0", "s1") == FOUND
    assert code("s0", "gone") == UNREAD
    (stores / "s1" / "abort").touch()
    assert code("s0", "s1") == WARNED
    assert code("s0", "s1", "gone") == UNREAD
    max((stores / "s2" / "commitlog").iterdir()).write_bytes(b"x")
    assert code("s0", "s1", "s2", "gone") == DAMAGED
    assert reput.check([stores / "s2", stores / "s0"], quick=True).severity is Severity.DAMAGE


def test_a_command_ends_although_a_store_still_hangs() -> None:
    """At exit, Arrow waits for requests that are in flight, here for ever."""
    program = (
        "import atexit, sys, threading\n"
        "from reput.cli.main import start\n"
        "from reput.engine.stores.limited import limited\n"
        "for_ever = threading.Event().wait\n"
        "atexit.register(for_ever)\n"
        "assert list(limited([for_ever], 1, 0.001)) == [(0, None)]\n"
        "sys.argv = ['reput', '--version']\n"
        "start()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("reput")
