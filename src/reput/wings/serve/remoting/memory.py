"""Limit the memory of all connections together. If the limit is exceeded, choose a connection to close."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

_FREE_BYTES = 64 << 10
_MOST_AGE_S = 60.0


class Holder(Protocol):
    """A connection that occupies memory.

    Attributes:
        held_bytes: Size of its unanswered requests and unread answers.
        held_since: Last time at which the connection held no bytes, by the monotonic clock.
    """

    held_bytes: int
    held_since: float

    def drop(self, reason: str) -> None:
        """Close the connection at once, and free its memory."""


class Memory:
    """The memory of all connections together, and its limit."""

    def __init__(self, most_bytes: int, holders: Callable[[], Collection[Holder]]) -> None:
        self.held_bytes, self._most_bytes, self._holders = 0, most_bytes, holders

    def hold(self, holder: Holder, held_bytes: int) -> None:
        """Record the bytes that a connection holds now.

        While all connections together exceed the limit, close the connection with the highest `_burden`. If the
        connection that grew last were closed instead, one large client could lock out all others.
        """
        if not holder.held_bytes:
            holder.held_since = time.monotonic()
        self.held_bytes += held_bytes - holder.held_bytes
        holder.held_bytes = held_bytes
        while self.held_bytes > self._most_bytes:
            worst = max(self._holders(), key=_burden, default=None)
            # No connection holds any bytes, so closing one would free nothing.
            if worst is None or not worst.held_bytes:
                return
            worst.drop("all connections together hold too much")


def _burden(holder: Holder) -> tuple[float, float]:
    """Return a sort key of two numbers. The connection with the highest key is closed first.

    The first number is the connection's age multiplied by its bytes in excess of `_FREE_BYTES`. The second number is
    the age multiplied by all its bytes. So connections with at most `_FREE_BYTES` are closed last: a small request may
    rightly wait for a long time.
    """
    age = 1 + min(time.monotonic() - holder.held_since, _MOST_AGE_S)
    return max(holder.held_bytes - _FREE_BYTES, 0) * age, holder.held_bytes * age
