"""Work that is divided between forks gives the same values, also if a fork fails."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence

import pytest

from reput.engine.stores import forks
from reput.engine.stores.forks import in_forks


@pytest.fixture(autouse=True)
def _three_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "usable_cpus", lambda: 3)


def _with_process(share: Sequence[int]) -> list[tuple[int, int]]:
    return [(number, os.getpid()) for number in share]


def test_each_number_is_run_once_and_each_process_has_a_share() -> None:
    found = list(in_forks(_with_process, 100, least=10))
    assert sorted(number for number, _ in found) == list(range(100))
    assert len({process for _, process in found}) == 3
    assert found[0] == (0, os.getpid())


@pytest.mark.parametrize(("count", "processes"), [(0, 0), (19, 1), (20, 2)])
def test_few_calls_are_run_here(count: int, processes: int) -> None:
    found = list(in_forks(_with_process, count, least=10))
    assert len(found) == count
    assert len({process for _, process in found}) == processes


def test_the_share_of_a_fork_that_is_killed_is_run_here() -> None:
    parent = os.getpid()

    def run(share: Sequence[int]) -> Iterator[int]:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from share

    assert sorted(in_forks(run, 100, least=10)) == list(range(100))


def test_the_share_with_a_value_that_no_pipe_can_carry_is_run_here() -> None:
    found = list(in_forks(lambda share: [threading.Lock() for _ in share], 100, least=10))
    assert len(found) == 100


def test_an_error_of_a_fork_is_raised_here() -> None:
    def run(share: Sequence[int]) -> Iterator[int]:
        if 1 in share:
            raise ValueError("no such number")
        yield from share

    with pytest.raises(ValueError, match="no such number"):
        list(in_forks(run, 100, least=10))


def test_forks_end_with_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, fork, children = os.getpid(), os.fork, list[int]()

    def noted() -> int:
        children.append(process := fork())
        return process

    def run(share: Sequence[int]) -> Iterator[int]:
        if os.getpid() != parent:
            signal.pause()
        yield from share

    monkeypatch.setattr(os, "fork", noted)
    values = in_forks(run, 100, least=10)
    assert next(values) == 0
    values.close()
    assert len(children) == 2
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
