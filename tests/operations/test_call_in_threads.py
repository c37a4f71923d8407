"""How many threads search stores: one while answers are quick, more while they take long."""

import threading
from itertools import count

import pytest

from reput.engine.stores import threads
from reput.engine.stores.threads import call_in_threads

_MANY = 200


@pytest.fixture
def no_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call takes so long that a thread is added."""
    monkeypatch.setattr(threads, "_TICK_S", 3600)


def identity(place: int) -> tuple[int, int]:
    return place, threading.get_ident()


@pytest.mark.usefixtures("no_ticks")
def test_quick_calls_share_one_thread() -> None:
    found = list(call_in_threads(identity, _MANY, 32, at_first=1))
    assert [place for place, _ in found] == list(range(_MANY))
    assert len({thread for _, thread in found}) == 1


@pytest.mark.usefixtures("no_ticks")
def test_calls_over_a_network_begin_in_as_many_threads_as_are_allowed() -> None:
    meeting = threading.Barrier(8)

    def run(place: int) -> int:
        meeting.wait(60)  # passes only if eight threads wait here at the same time
        return place

    assert sorted(call_in_threads(run, 16, 8, at_first=100)) == list(range(16))


def test_threads_are_added_while_calls_take_long() -> None:
    meeting = threading.Barrier(5)

    def run(place: int) -> int:
        meeting.wait(60)
        return place

    assert sorted(call_in_threads(run, 10, 5, at_first=1)) == list(range(10))


def test_threads_are_added_while_files_are_read_from_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = count(step=_MANY)
    monkeypatch.setattr(threads, "_read_pages", lambda: next(pages))
    monkeypatch.setattr(threads, "_TICK_S", 0.001)
    others = threading.Event()
    seen = set[int]()

    def run(place: int) -> int:
        seen.add(threading.get_ident())
        if len(seen) > 1:
            others.set()
        # The first call ends only when a second thread has begun.
        assert place > 0 or others.wait(60)
        return place

    assert sorted(call_in_threads(run, _MANY, 2, at_first=1)) == list(range(_MANY))


def test_no_call_is_no_answer() -> None:
    assert list(call_in_threads(identity, 0, 4, at_first=4)) == []


@pytest.fixture
def is_ending(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when the caller waits for the end of the threads."""
    event = threading.Event()

    class Worker(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            event.set()
            super().join(timeout)

    monkeypatch.setattr(threads, "Thread", Worker)
    return event


@pytest.mark.parametrize("at_first", [1, 4])
def test_an_error_is_raised_and_cancels_the_calls_that_have_not_begun(
    at_first: int, is_ending: threading.Event
) -> None:
    called: list[int] = []

    def run(place: int) -> int:
        called.append(place)
        if place == 3:
            raise IndexError("of the call")
        assert place < 3 or is_ending.wait(60)
        return place

    with pytest.raises(IndexError, match="of the call"):
        list(call_in_threads(run, 100, 4, at_first=at_first))
    assert len(called) <= 4 + 3


def test_closing_cancels_the_calls_that_have_not_begun(is_ending: threading.Event) -> None:
    called: list[int] = []

    def run(place: int) -> int:
        called.append(place)
        assert place == 0 or is_ending.wait(60)
        return place

    results = call_in_threads(run, 100, 1, at_first=1)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert called in ([0], [0, 1])
