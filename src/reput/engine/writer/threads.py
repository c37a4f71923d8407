"""Let the threads of one store wait for each other, and stop together after a failed write.

`Waiters` replaces `threading.Condition`, which may keep its lock for ever after a KeyboardInterrupt in the main thread.
`Waiters` stays usable after an exception at any moment.

`Health` refuses writes after a failed write or sync, or after another process deleted or renamed a file of the store.
After a failed sync, the kernel may drop the dirty pages and report the next sync as a success. So a failed sync is
never repeated.

In RocketMQ: getRunningFlags, isCQWriteable, makeLogicsQueueError.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread

from reput.errors import StoreAccessError, StoreFailedError


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


class Health:
    """The state of one open store, shared by all its writers.

    reason      the first failure, or None if no operation failed
    find_cause  called once after the first failure; may raise StoreFailedError with the cause
    on_failure  called after `find_cause`, when the store accepts no more messages
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.find_cause: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise StoreFailedError if an earlier operation failed."""
        if self.reason is not None:
            raise StoreFailedError(
                f"{self.reason}; the store accepts no more messages; "
                "close it, fix the cause, and open it again"
            )

    def fail(self, error: BaseException) -> None:
        # The first failure is the cause of later ones, so keep its reason.
        if self.reason is not None:
            return
        try:
            self.find_cause()
        except StoreFailedError as cause:
            error = cause
        except StoreAccessError:
            pass  # The files cannot be checked, so the cause stays unknown. Report `error` itself.
        self.reason = str(error) or type(error).__name__
        self.on_failure()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Mark the store as failed if the `with` block raises StoreAccessError or StoreFailedError."""
        try:
            yield
        except (StoreAccessError, StoreFailedError) as error:
            self.fail(error)
            raise
