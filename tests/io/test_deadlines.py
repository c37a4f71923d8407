"""A call has a deadline: results and errors within it count, later ones do not."""

import threading

import pytest

from reput.errors import StoreUnreachableError
from reput.io.deadlines import Deadlines, within


def test_what_a_call_returns_or_raises_is_passed_on() -> None:
    assert within(60, "s3://b", lambda: 5) == 5
    with pytest.raises(KeyError, match="why"):
        within(60, "s3://b", lambda: dict[str, int]()["why"])


def test_a_call_that_never_ends_is_given_up() -> None:
    end = threading.Event()
    try:
        with pytest.raises(StoreUnreachableError, match="s3://b/x: no answer within 0 s") as error:
            within(0.01, "s3://b/x", end.wait)
        assert "\n" not in str(error.value)
    finally:
        end.set()


def test_a_call_that_gets_on_has_more_time() -> None:
    end, steps = threading.Event(), iter(range(5))

    def progress() -> int:
        step = next(steps)
        if step == 4:
            end.set()
        return step

    assert within(0.01, "s3://b", end.wait, progress)
    assert next(steps, None) is None


def test_large_reads_have_more_time() -> None:
    assert Deadlines().for_bytes(0) == 30
    assert Deadlines().for_bytes(60 << 20) == 90
