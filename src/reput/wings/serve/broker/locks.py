"""Lock queues for one client of a group, which consumes them in order (`RebalanceLockManager`, 4.9.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from reput.base import now_ms
from reput.wings.serve.broker.limits import LimitError, Limits

LOCK_MS = 60_000
"""Time after which a lock that was not renewed is free, in ms."""


class MessageQueue(NamedTuple):
    """A queue in the form in which clients name it."""

    topic: str
    broker_name: str
    queue_id: int


class QueueLocks:
    """The locks of queues, by group."""

    def __init__(
        self, clock_ms: Callable[[], int] = now_ms, most: int = Limits().total_locked_queues
    ) -> None:
        """Allow at most `most` locked queues at a time."""
        self._clock_ms, self._most = clock_ms, most
        self._holders: dict[tuple[str, MessageQueue], tuple[str, int]] = {}

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock the free queues, and renew this client's locks. Return the given queues that the client has now locked.

        Raises LimitError if too many queues are locked.
        """
        now, locks = self._clock_ms(), []
        for queue in queues:
            lock = self._holders.get((group, queue))
            if lock is None and len(self._holders) >= self._most:
                raise LimitError(
                    f"{self._most} queues are locked, and no more locks are allowed; try again later"
                )
            holder, since = lock or (client_id, now)
            if holder == client_id or now - since > LOCK_MS:
                self._holders[group, queue] = client_id, now
                locks.append(queue)
        return locks

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the given queues that the client has locked."""
        for queue in queues:
            if self._holders.get((group, queue), ("", 0))[0] == client_id:
                del self._holders[group, queue]

    def forget_expired(self) -> None:
        """Drop locks that were not renewed."""
        now = self._clock_ms()
        for key, (_, since) in list(self._holders.items()):
            if now - since > LOCK_MS:
                del self._holders[key]
