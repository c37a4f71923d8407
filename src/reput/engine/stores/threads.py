"""Call a function many times in threads. More threads run while calls take long, for example to read from a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from resource import RUSAGE_SELF, getrusage
from threading import Event, Lock, Thread
from typing import TypeVar

# Interval at which `call_in_threads` decides how many threads there should be.
_TICK_S = 0.05
# `ru_inblock` counts blocks of 512 bytes.
_BLOCKS_PER_PAGE = 8

_Value = TypeVar("_Value")


def call_in_threads(
    run: Callable[[int], _Value], count: int, threads: int, at_first: int
) -> Iterator[_Value]:
    """Call `run` with 0, 1, … in threads, and yield results.

    Threads that find their files in memory wait for each other, because the interpreter has one lock. So there are
    `at_first` threads, and up to `threads` only while calls take long or files are read from a disk.

    Closing the generator cancels calls that have not begun.
    """
    waiting, found, errors = deque(range(count)), deque[_Value](), list[BaseException]()
    running, workers = list[None](), list[Thread]()
    guard, is_over = Lock(), Event()
    least = wanted = min(max(at_first, 1), threads)

    def next_place() -> int | None:
        with guard:
            if waiting and not errors and len(running) <= wanted:
                return waiting.popleft()
            running.pop()
            if not running:
                is_over.set()
            return None

    def work() -> None:
        while (place := next_place()) is not None:
            try:
                found.append(run(place))
            except BaseException as error:
                errors.append(error)

    if not count:
        return
    try:
        while True:
            with guard:
                added = [Thread(target=work) for _ in range(wanted - len(running)) if waiting]
                running += [None] * len(added)
            for worker in added:
                worker.start()
            workers += added
            before = _read_pages()
            ended = is_over.wait(_TICK_S)
            waits = len(found) <= _read_pages() - before
            wanted = min(2 * wanted, threads) if waits else max(wanted // 2, least)
            while found:
                yield found.popleft()
            if errors:
                raise errors[0]
            if ended:
                return
    finally:
        with guard:
            waiting.clear()
        for worker in workers:
            worker.join()


def _read_pages() -> int:
    """Return the number of pages that this process has read from disks."""
    return getrusage(RUSAGE_SELF).ru_inblock // _BLOCKS_PER_PAGE
