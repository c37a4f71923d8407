"""Each step that the system can refuse is refused, once or for good: a clear error, nothing acknowledged is lost."""

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import pytest

from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from reput.errors import StoreAccessError, StoreFailedError
from tests.crash.test_power_cut import AS_BROKER, CONFIG, Bodies, check_found, damaged_store, some

pytestmark = pytest.mark.usefixtures("free_syncs")
STEPS = (
    "fdatasync", "fsync", "ftruncate", "mkdir", "posix_fallocate", "pwrite", "replace", "unlink",
)  # fmt: skip
SYNC = WriterSettings(
    "sync",
    flush_interval_commit_log_s=60,
    flush_consume_queue_thorough_interval_s=60,
    flush_interval_consume_queue_s=60,
    append_retry_pause_s=0.001,
)
Life = Callable[[Path, Bodies], None]


class Failing:
    """Counts the steps, and refuses step number `first`. Unless `once`, it also refuses all later steps."""

    def __init__(self, first: int, once: bool, number: int) -> None:
        self.first, self.once, self.number, self.made = first, once, number, 0
        self._lock = Lock()

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self.made += 1
                refused = self.made == self.first if self.once else self.made >= self.first
            if refused:
                raise OSError(self.number, os.strerror(self.number))
            return call(*arguments, **options)

        return step


@contextmanager
def failing(first: int, once: bool, number: int) -> Iterator[Failing]:
    steps = Failing(first, once, number)
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, steps.wrap(getattr(os, name)))
        patch.setattr(mmap, "mmap", steps.wrap(mmap.mmap))
        yield steps


def ordinary_life(store: Path, acknowledged: Bodies, as_broker: bool = False) -> None:
    writer = StoreWriter(store, CONFIG, replace(SYNC, as_broker=as_broker))
    try:
        for count in (1, 60, 1, 40):
            messages = some(Random(count), count)
            results = writer.put_many(messages)
            acknowledged |= {
                r.physical_offset: m.body for r, m in zip(results, messages, strict=True)
            }
            writer.dispatcher.wait(writer.end_offset, None)
            writer._index_sync.run()
    finally:
        writer.close()


def empty_store(store: Path) -> Bodies:
    return {}


LIVES: dict[str, Callable[[Path], Bodies]] = {"new": empty_store, "damaged": damaged_store}


def check_refusals(folder: Path, name: str, once: bool, number: int, every: int) -> None:
    begin, source = LIVES[name], folder / "begin"
    source.mkdir()
    before = begin(source)
    store = folder / "store"
    first = 1 + number % every
    while True:
        acknowledged = dict(before)
        shutil.copytree(source, store)
        with failing(first, once, number) as steps:
            error = None
            try:
                ordinary_life(store, acknowledged, name == "damaged")
            except (StoreAccessError, StoreFailedError) as refused:
                error = refused
        if steps.made < first:
            assert error is None
            return
        if error is not None:
            assert os.strerror(number) in str(error)
            assert str(folder) in str(error)
        check_found(store, acknowledged, AS_BROKER if name == "damaged" else None)
        shutil.rmtree(store)
        first += every


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
@pytest.mark.parametrize("name", LIVES)
def test_some_steps_are_refused(tmp_path: Path, name: str, once: bool, number: int) -> None:
    check_refusals(tmp_path, name, once, number, 17)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("once", [True, False], ids=["once", "for good"])
@pytest.mark.parametrize("name", LIVES)
def test_each_step_is_refused(tmp_path: Path, name: str, once: bool) -> None:
    check_refusals(tmp_path, name, once, errno.EIO, 1)


def test_a_folder_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can write to any folder, so the system's error is simulated."""
    store = tmp_path / "store"
    acknowledged: Bodies = {}
    ordinary_life(store, acknowledged)
    looks = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    real = os.open

    def refuse(path: str | Path, flags: int, *rest: Any, **more: Any) -> int:
        is_there = "dir_fd" in more or str(path).startswith(str(store))
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT) and is_there:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for _ in range(2):  # twice, because the first attempt must not keep the lock
            with pytest.raises(StoreAccessError, match="Read-only file system"):
                StoreWriter(store, CONFIG)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == looks
    check_found(store, acknowledged)


def test_what_was_refused_is_not_there_twice(tmp_path: Path) -> None:
    """A put that failed may have stored its message, but not twice."""
    store = tmp_path / "store"
    writer = StoreWriter(store, CONFIG, SYNC)
    offset = writer.put(Message("T", b"there", ["k"])).physical_offset
    with failing(1, False, errno.EIO), suppress(StoreFailedError):
        writer.put(Message("T", b"perhaps", ["k"]))
    with pytest.raises(StoreFailedError, match="accepts no more messages"):
        writer.put(Message("T", b"never", ["k"]))
    with pytest.raises(StoreFailedError):
        writer.close()
    check_found(store, {offset: b"there"})
