"""Runners repeat tasks that failed temporarily, and no others."""

from __future__ import annotations

import errno
import pickle

import pytest

from reput.base.tasks import SerialRunner, retried
from reput.errors import (
    StoreAccessError,
    StoreChangedError,
    StoreUnreachableError,
    explained,
    is_transient,
)
from reput.io.deadlines import POLICY


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the requested pauses without waiting."""
    asked: list[float] = []
    monkeypatch.setattr("reput.base.tasks.time.sleep", asked.append)
    return asked


class _Failing:
    """Fails some times, then returns its task."""

    def __init__(self, times: int, code: int) -> None:
        self.left, self._code, self.calls = times, code, 0

    def __call__(self, task: int) -> int:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            with explained("commitlog/0", "be read"):
                raise OSError(self._code, "refused")
        return task


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_task_is_repeated_after_a_transient_error(pauses: list[float], code: int) -> None:
    failing = _Failing(3, code)
    assert SerialRunner().run(failing, [7], [1], lambda done, total: None) == [7]
    assert failing.calls == 4
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_permanent_error_is_raised_at_once(pauses: list[float], code: int) -> None:
    failing = _Failing(1, code)
    with pytest.raises(StoreAccessError):
        retried(failing, 7)
    assert failing.calls == 1
    assert pauses == []


def test_an_error_that_stays_is_raised_within_the_time_of_one_request(pauses: list[float]) -> None:
    with pytest.raises(StoreAccessError) as caught:
        retried(_Failing(1000, errno.ESTALE), 7)
    assert is_transient(caught.value)
    assert POLICY.data / 3 < sum(pauses) <= POLICY.data


def test_errors_that_say_what_else_is_wrong_are_permanent() -> None:
    assert is_transient(StoreUnreachableError("s3://b/x: no answer"))
    assert is_transient(pickle.loads(pickle.dumps(StoreUnreachableError("s3://b/x: no answer"))))
    assert not is_transient(StoreChangedError("commitlog/0: ends at 7"))
    assert not is_transient(StoreAccessError("commitlog/0: is a link"))
    assert not is_transient(FileNotFoundError(errno.ENOENT, "no such file"))
