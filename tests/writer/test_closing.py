"""A store is closed during puts, waits and callbacks of other threads, and before dispatch has ended."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, SupportsIndex, overload

import pytest

import reput
from reput.engine.writer.flush import Flusher
from reput.engine.writer.threads import Health
from reput.engine.writer.writable_store import WritableStore
from reput.errors import StoreFailedError, UsageError
from tests.recovery.checking import check_store
from tests.small import SMALL_64K

Message = reput.Message


def open_small(path: Path, **settings: Any) -> WritableStore:
    return reput.open_store(path, mode="rw", config=SMALL_64K, **settings)


class Running:
    """A thread that runs a function, and its outcome."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.result: object = None
        self._run = run
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        try:
            self.result = self._run()
        except BaseException as error:
            self.result = error

    def end(self) -> object:
        self._thread.join(300)
        assert not self._thread.is_alive()
        return self.result


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_put_of_many_ends_with_the_store(tmp_path: Path, flush: str) -> None:
    path = tmp_path / "store"
    store = open_small(path, flush=flush)
    is_put, may_continue = threading.Event(), threading.Event()

    def source() -> Iterator[Message]:
        for number in range(4096):
            yield Message("old", b"%d" % number)
        is_put.set()
        may_continue.wait(300)
        for number in range(4096):
            yield Message("late", b"%d" % number)

    putting = Running(lambda: store.put_many(source()))
    assert is_put.wait(300)
    store.close()
    with open_small(path, flush="sync") as next_owner:
        puts = next_owner.put_many([Message("new", b"%d" % n) for n in range(100)])
        may_continue.set()
        assert isinstance(putting.end(), UsageError)
        bodies = [next_owner.get(put.physical_offset).body for put in puts]
        assert bodies == [b"%d" % n for n in range(100)]
        assert "late" not in next_owner.topics()
    check_store(path, SMALL_64K)


class SlowKeys(tuple[str, ...]):
    """Keys whose iteration waits for `may_continue`."""

    reading, may_continue = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[str]:
        self.reading.set()
        self.may_continue.wait(300)
        return super().__iter__()

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


def test_a_put_whose_keys_are_slow_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_small(path)
    keys = SlowKeys(["a", "b"])
    putting = Running(lambda: store.put(Message("late", b"x", keys)))
    assert keys.reading.wait(300)
    store.put(Message("T", b"another thread puts meanwhile"))
    Running(store.close).end()
    keys.may_continue.set()
    assert isinstance(putting.end(), UsageError)
    with open_small(path) as again:
        assert again.recovery.is_clean
        assert again.topics() == ["T"]


def test_the_memory_of_the_files_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_small(path)
    store.put(Message("T", b"x", ["k"]))
    assert str(path) in Path("/proc/self/maps").read_text()
    store.close()
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("thrown", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_a_callback_raises_does_not_end_dispatch(
    tmp_path: Path, thrown: type[BaseException]
) -> None:
    path = tmp_path / "store"
    ends: list[int] = []

    def callback(topic: str, queue_id: int, end: int) -> None:
        ends.append(end)
        raise thrown

    with open_small(path) as store:
        store.subscribe(callback)
        for number in range(5):
            store.put(Message("T", b"x", [str(number)]))
            assert store.wait_dispatched()
    assert ends[-1] == 5
    assert not (path / "abort").exists()
    check_store(path, SMALL_64K)


@pytest.mark.parametrize("call", ["close", "wait_dispatched"])
def test_a_callback_that_would_wait_for_itself_is_refused(tmp_path: Path, call: str) -> None:
    path = tmp_path / "store"
    raised: list[BaseException] = []
    with open_small(path) as store:

        def callback(*_: object) -> None:
            try:
                getattr(store, call)()
            except BaseException as error:
                raised.append(error)
                raise

        store.subscribe(callback)
        store.put_many([Message("T", b"x", [str(n)]) for n in range(5000)])
        assert store.wait_dispatched()
    assert {type(error) for error in raised} == {UsageError}
    with open_small(path) as again:
        assert again.recovery.is_clean
        assert again.max_queue_offset("T", 0) == 5000


def test_a_store_whose_dispatch_died_is_not_called_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    store = open_small(path)

    def die(target: int) -> None:
        raise SystemExit

    monkeypatch.setattr(store._writer.dispatcher, "dispatch", die)
    store.put_many([Message("T", b"x", [str(n)]) for n in range(100)])
    with pytest.raises(StoreFailedError):
        store.wait_dispatched()
    with pytest.raises(StoreFailedError):
        store.close()
    assert (path / "abort").exists()
    with open_small(path) as again:
        assert again.max_queue_offset("T", 0) == 100


def test_a_dispatch_that_ends_too_soon_is_not_called_clean(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = open_small(path)
    store.put_many([Message("T", b"x", [str(n)]) for n in range(100)])
    assert store.wait_dispatched()
    store._writer.dispatcher._is_abandoned = True
    store.put(Message("T", b"x"))
    with pytest.raises(StoreFailedError, match="dispatch ended at offset"):
        store.close()
    assert (path / "abort").exists()


def test_a_wait_for_a_flush_ends_when_the_store_closes(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    store.put(Message("T", b"x"))
    waiting = Running(lambda: store._writer.flusher.wait(1 << 40))
    also = Running(lambda: store.wait_dispatched(1 << 40))
    store.close()
    assert isinstance(waiting.end(), StoreFailedError)
    assert isinstance(also.end(), StoreFailedError)


@pytest.mark.parametrize("is_started", [False, True])
def test_who_waits_for_a_flush_is_told_that_the_store_was_closed(is_started: bool) -> None:
    flusher = Flusher(lambda *_: None, lambda: None, lambda: 0, 1 << 20, Health(), 0, 60, 1, 60)
    if is_started:
        flusher.start()
    flusher.stop()
    assert flusher._thread is None or not flusher._thread.is_alive()
    with pytest.raises(StoreFailedError, match="the store was closed; messages up to offset 0"):
        flusher.wait(1)
