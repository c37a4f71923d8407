"""Ctrl-C, which Python raises between any two calls: a put is done or not, and nothing hangs."""

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import reput
from reput.base.config import StoreConfig
from reput.engine.writer.put.arrow import from_columns
from reput.engine.writer.writable_store import WritableStore
from reput.format.host import Host
from tests.recovery.checking import check_store

SMALL = StoreConfig(
    commit_log_file_bytes=1 << 13, queue_entries=50, hash_slots=64, index_items=300,
    enable_multi_dispatch=True,
)  # fmt: skip
Message = reput.Message
_HOST = Host("127.0.0.1", 10911)
_SOURCES = str(Path(reput.__file__).parent)


def interrupted(action: Callable[[], object], after: int) -> bool:
    """Run a function and raise KeyboardInterrupt at the event numbered `after`. Returns whether it was raised.

    Events are calls of reput's functions, and returns of built-in functions to them: there Python checks for signals.
    """
    seen = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        if event in ("call", "c_return") and _SOURCES in frame.f_code.co_filename:
            seen += 1
            if seen == after:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def check_after(store: WritableStore, path: Path, least: int, most: int) -> None:
    """The store accepts messages, dispatches them, and closes; each queue is numbered from 0 without a gap."""
    assert store.wait_dispatched()
    store.put(Message("T", b"last", ["last"]))
    assert store.wait_dispatched()
    store.close()
    assert not (path / "abort").exists()
    found = [record for _, record in check_store(path, SMALL).records]
    assert least + 1 <= len(found) <= most + 1
    numbers: dict[tuple[str, int], list[int]] = {}
    for record in found:
        numbers.setdefault((record.topic, record.queue_id), []).append(record.queue_offset)
    assert all(each == list(range(len(each))) for each in numbers.values())


def test_a_put_is_done_or_not_wherever_it_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = reput.open_store(path, mode="rw", config=SMALL)
    done = interrupts = 0
    for size in (10, 1500):  # every few messages of the larger size begin a new file
        after = 0
        while after < 150:
            after += 1
            message = Message(
                f"T{after % 3}", b"x" * size, ["k"],
                properties={"INNER_MULTI_DISPATCH": f"M{after % 2}"} if after % 5 == 0 else {},
            )  # fmt: skip
            if interrupted(lambda message=message: store.put(message), after):  # type: ignore[misc]
                interrupts += 1
            else:
                done += 1
                if after % 5:
                    break
        assert store.wait_dispatched()
    assert done >= 2
    assert interrupts > 40
    check_after(store, path, done, done + interrupts)


def test_a_run_is_put_or_not_wherever_it_is_interrupted(tmp_path: Path) -> None:
    path, small = tmp_path / "store", replace(SMALL, enable_multi_dispatch=False)
    store = reput.open_store(path, mode="rw", config=small)
    store.put_many([Message("T0", b"kernels are compiled now")])
    done, interrupts = 1, 0
    for size in (10, 700):  # every few messages of the larger size begin a new file
        after = 0
        while after < 400:
            after += 1
            run = [
                Message(f"T{n % 3}", b"x" * size, None, None, properties=b"K\x01v")
                for n in range(6)
            ]
            if interrupted(lambda run=run: store.put_run(run), after):  # type: ignore[misc]
                interrupts += 1
            else:
                done += len(run)
                break
        assert store.wait_dispatched()
    assert interrupts > 60
    check_after(store, path, done, done + 6 * interrupts)


def test_columns_are_numbered_right_wherever_they_are_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = reput.open_store(path, mode="rw", config=SMALL)
    log = store._writer._log
    rows, interrupts, after = 12, 0, 0
    # The first put is not interrupted, because it compiles kernels.
    done = len(store.put_many([Message("T", b"x")] * 10))
    while done < 2 * rows:
        after += 1
        columns = from_columns({"topic": "T", "body": [b"x" * 1500] * rows}, _HOST)
        if interrupted(lambda columns=columns: log.put_columns(columns), after):  # type: ignore[misc]
            interrupts += 1
        else:
            done, after = done + rows, 0
    assert interrupts > 10
    check_after(store, path, done, done + interrupts * rows)


def test_an_interrupt_while_another_is_cleared_up_leaves_it_to_the_next_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    store = reput.open_store(path, mode="rw", config=SMALL)
    log = store._writer._log

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(log, "_settle", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.put_many([Message("T", b"in the log, and not counted")])
    assert store.put(Message("T", b"the next")).queue_offset == 1
    check_after(store, path, 2, 2)


def test_many_puts_are_numbered_right_wherever_they_are_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = reput.open_store(path, mode="rw", config=SMALL)
    messages = [Message("T", b"x" * 300, [str(n)]) for n in range(20)]
    random = np.random.default_rng(7)
    # The first put is not interrupted, because it compiles kernels.
    interrupts, done = 0, len(store.put_many(messages))
    for after in random.integers(1, 150, 40).tolist():
        if interrupted(lambda: store.put_many(messages), after):
            interrupts += 1
        else:
            done += len(messages)
    assert interrupts > 5
    check_after(store, path, done, done + interrupts * len(messages))


def test_a_wait_that_is_interrupted_leaves_nothing_locked(tmp_path: Path) -> None:
    store = reput.open_store(tmp_path / "store", mode="rw", config=SMALL, flush="sync")
    for after in range(1, 80):
        interrupted(lambda: store.put(Message("T", b"x")), after)
        interrupted(lambda: store.wait_dispatched(timeout_s=1), after)
    ended = threading.Thread(target=lambda: store.put(Message("T", b"y")), daemon=True)
    ended.start()
    ended.join(300)
    assert not ended.is_alive()
    check_after(store, tmp_path / "store", 1, 80)


def test_a_close_that_is_interrupted_ends_what_runs_before_the_lock_goes(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for after in range(1, 60, 13):
        path = tmp_path / str(after)
        store = reput.open_store(path, mode="rw", config=SMALL)
        store.put_many([Message("T", b"x", [str(n)]) for n in range(200)])
        interrupted(store.close, after)
        store.close()
        with reput.open_store(path, mode="rw", config=SMALL) as again:
            assert again.max_queue_offset("T", 0) == 200
        assert set(threading.enumerate()) <= before
        check_store(path, SMALL)
