"""The memory of all connections together, and which of them is closed when that is too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

_FREE_BYTES = 64 << 10
_MOST_AGE_S = 60.0


class Holder(Protocol):
    """A connection.

    Attributes:
        held_bytes: of its requests that are not answered, and of its answers that it has not read
        held_since: when it held nothing, last; by the monotonic clock
    """

    held_bytes: int
    held_since: float

    def drop(self, reason: str) -> None:
        """Close it at once; it holds nothing any more."""


class Memory:
    """The sum over all connections, and its limit."""

    def __init__(self, most_bytes: int, holders: Callable[[], Collection[Holder]]) -> None:
        self.held_bytes, self._most_bytes, self._holders = 0, most_bytes, holders

    def hold(self, holder: Holder, held_bytes: int) -> None:
        """Note the bytes that a connection holds now. If the sum is too large, close the heaviest connection.

        It need not be the last one: a client that fills the memory would shut all others out.
        """
        if not holder.held_bytes:
            holder.held_since = time.monotonic()
        self.held_bytes += held_bytes - holder.held_bytes
        holder.held_bytes = held_bytes
        while self.held_bytes > self._most_bytes:
            worst = max(self._holders(), key=_burden, default=None)
            if worst is None or not worst.held_bytes:
                return
            worst.drop("all connections together hold too much")


def _burden(holder: Holder) -> tuple[float, float]:
    """Clients with little memory are closed only if all have little: a client that waits for messages keeps it long."""
    age = 1 + min(time.monotonic() - holder.held_since, _MOST_AGE_S)
    return max(holder.held_bytes - _FREE_BYTES, 0) * age, holder.held_bytes * age
