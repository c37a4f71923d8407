"""Let threads wait for a condition, and wake them.

`Waiters` replaces `threading.Condition`, which may keep its lock for ever after a KeyboardInterrupt in the main thread.
`Waiters` stays usable after an exception at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread


class Waiters:
    """A condition variable. To wake waiting threads, first change the awaited state, then call `notify_all`."""

    def __init__(self) -> None:
        self._tickets: list[Lock] = []

    def notify_all(self) -> None:
        """Let all waiting callers check their conditions again."""
        for ticket in self._tickets.copy():
            with suppress(RuntimeError):  # The waiting thread was already woken.
                ticket.release()

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `is_so` returns True, or for at most `timeout_s`. Return the last result of `is_so`."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        # A ticket is a lock that this thread acquires twice. The second call waits until another thread releases it.
        ticket = Lock()
        ticket.acquire()
        self._tickets.append(ticket)
        try:
            # Call `is_so` only after the ticket is in the list. If the state changes after this call, `notify_all`
            # finds the ticket and wakes this thread.
            while not is_so():
                left_s = -1 if end is None else end - time.monotonic()
                if end is not None and left_s <= 0:
                    return False
                ticket.acquire(timeout=left_s)
            return True
        finally:
            self._tickets.remove(ticket)


def join_thread(thread: Thread) -> None:
    """Wait until a thread that was asked to end has ended. An interrupt is raised only afterwards."""
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
