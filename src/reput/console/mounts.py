"""The stores that the console shows, and how a request gets at one: blocking calls run in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import TypeVar

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from reput.errors import StoreNotFoundError, UsageError
from reput.query.shared_store import SharedStore

_MOST_THREADS = 16
_END = object()
Result = TypeVar("Result")


class Mounts:
    """Open stores by name. The mapping may change while the console runs: it is read by each request."""

    def __init__(self, stores: Mapping[str, SharedStore]) -> None:
        self._stores = stores
        self._threads: CapacityLimiter | None = None
        self._aside: CapacityLimiter | None = None

    @property
    def names(self) -> list[str]:
        return list(self._stores)

    def named(self, name: str | None) -> tuple[str, SharedStore]:
        """The store of that name, or the only one. Raises StoreNotFoundError, UsageError."""
        names = self.names
        if not name:
            if len(names) != 1:
                listed = ", ".join(names) or "there is none"
                raise UsageError(f"pass store: {listed}", arguments=["store"])
            name = names[0]
        store = self._stores.get(name)
        if store is None:
            raise StoreNotFoundError(f"no store {name!r}; there are {', '.join(names) or 'none'}")
        return name, store

    async def run_aside(self, call: Callable[[], Result]) -> Result:
        """The same in a thread that answers of stores do not take. Raises what it raises."""
        if self._aside is None:
            self._aside = CapacityLimiter(1)
        return await run_sync(call, limiter=self._aside)

    async def run(self, call: Callable[[], Result]) -> Result:
        """What `call` returns, in a thread of its own. Raises what it raises."""
        return await run_sync(call, limiter=self._limiter())

    async def iterate(self, pieces: Generator[Result, None, None]) -> AsyncIterator[Result]:
        """What a generator yields, each piece in a thread; it is closed when nobody wants more."""
        try:
            while True:
                piece = await run_sync(next, pieces, _END, limiter=self._limiter())
                if piece is _END:
                    return
                yield piece  # type: ignore[misc]
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(pieces.close)

    def _limiter(self) -> CapacityLimiter:
        if self._threads is None:  # it belongs to the event loop that asks first
            self._threads = CapacityLimiter(_MOST_THREADS)
        return self._threads
