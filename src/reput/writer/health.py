"""Whether a store may still be written: not after a write or a sync that failed, or a file that others displaced.

The kernel may drop the pages whose writing failed and report the next sync as a success, so no sync is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reput.errors import StoreAccessError, StoreFailedError


class Health:
    """Shared by all who write to one open store.

    reason      why it is over, None while all is well
    find_cause  called once when something fails; may raise StoreFailedError with the cause
    on_failure  called after that, when no further message is taken
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.find_cause: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise StoreFailedError once an operation has failed."""
        if self.reason is not None:
            raise StoreFailedError(
                f"{self.reason}; the store takes no more messages: "
                "close it, fix the cause, and open it again"
            )

    def fail(self, error: BaseException) -> None:
        if self.reason is not None:
            return
        try:
            self.find_cause()
        except StoreFailedError as cause:
            error = cause
        except StoreAccessError:
            pass  # the error that led here says as much
        # The first failure is the cause; later ones follow from it.
        self.reason = str(error) or type(error).__name__
        self.on_failure()

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Mark this open store as failed if the body raises StoreAccessError or StoreFailedError."""
        try:
            yield
        except (StoreAccessError, StoreFailedError) as error:
            self.fail(error)
            raise
