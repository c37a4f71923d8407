"""Refuse writes to a store after a failed write or sync, or after another process deleted or renamed one of its files.

After a failed sync, the kernel may drop the dirty pages and report the next sync as a success. So a failed sync is
never repeated.

In RocketMQ: getRunningFlags, isCQWriteable, makeLogicsQueueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reput.errors import StoreAccessError, StoreFailedError


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
