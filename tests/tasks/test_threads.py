"""Tasks that wait at the same time, in threads of one process."""

import errno
from threading import Barrier

import pytest

from reput.base.tasks import SERIAL, ThreadRunner, no_progress, waiting
from reput.errors import StoreAccessError


def test_tasks_wait_at_the_same_time_and_keep_their_order() -> None:
    barrier = Barrier(ThreadRunner.parallelism, timeout=60)

    def wait(task: int) -> int:
        barrier.wait()
        return -task

    numbers = list(range(ThreadRunner.parallelism))
    seen: list[tuple[int, int]] = []
    found = waiting(is_remote=True).run(
        wait, numbers, numbers, lambda done, total: seen.append((done, total))
    )
    assert found == [-number for number in numbers]
    assert seen[-1] == (sum(numbers), sum(numbers))


def test_the_first_error_is_raised_once_none_runs() -> None:
    running = []
    barrier = Barrier(3, timeout=60)

    def fail(task: int) -> None:
        barrier.wait()
        running.append(task)
        if task:
            raise StoreAccessError(f"store {task}")

    with pytest.raises(StoreAccessError, match="store 1"):
        ThreadRunner().run(fail, [0, 1, 2], [1] * 3, no_progress)
    assert sorted(running) == [0, 1, 2]


def test_a_few_local_stores_are_opened_by_one_thread() -> None:
    assert waiting(is_remote=False) is SERIAL


def test_many_local_stores_are_opened_at_the_same_time_and_again_after_a_transient_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reput.base.tasks.time.sleep", lambda seconds: None)
    failed: set[int] = set()

    def open_one(task: int) -> int:
        if task % 2 and task not in failed:
            failed.add(task)
            raise OSError(errno.ESTALE, "stale")
        return -task

    runner = waiting(is_remote=False, count=64)
    assert runner.parallelism == ThreadRunner.parallelism
    numbers = list(range(64))
    assert runner.run(open_one, numbers, numbers, no_progress) == [-n for n in numbers]
    assert len(failed) == 32
