"""Whether a store may still be written: not after a write or a sync that failed.

The kernel may drop the pages whose writing failed and report the next sync as a success, so no sync is tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reput.errors import StoreAccessError, StoreFailedError


class Health:
    """Shared by all who write to one open store.

    reason  why it is over, None while all is well
    """

    def __init__(self) -> None:
        self.reason: str | None = None

    def check(self) -> None:
        """Raises StoreFailedError once something has failed."""
        if self.reason is not None:
            raise StoreFailedError(
                f"{self.reason}; the store takes no more messages: "
                "close it, fix the cause, and open it again"
            )

    def fail(self, error: BaseException) -> None:
        if self.reason is None:
            self.reason = str(error) or type(error).__name__

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """A StoreAccessError of the body is the end of this open store."""
        try:
            yield
        except StoreAccessError as error:
            self.fail(error)
            raise
