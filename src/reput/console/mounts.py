"""Give requests access to the stores of the console; blocking calls run in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from reput.broker.limits import HTTP, HttpLimits, LimitError
from reput.errors import StoreNotFoundError, StoreUnreachableError, UsageError
from reput.query.shared_store import MissingStore, SharedStore

_MOST_THREADS = 16
_END = object()
Result = TypeVar("Result")


class BusyError(LimitError):
    """The maximum number of searches is running."""


class Mounts:
    """Open stores by name. The mapping may change while the console runs; each request reads it."""

    def __init__(
        self,
        stores: Mapping[str, SharedStore],
        missing: Callable[[], Sequence[MissingStore]] = lambda: (),
        limits: HttpLimits = HTTP,
    ) -> None:
        """Prepare; `missing` returns the stores that should be served but are missing."""
        self._stores, self._missing, self._limits = stores, missing, limits
        self._threads: CapacityLimiter | None = None
        self._searching: CapacityLimiter | None = None
        self._aside: CapacityLimiter | None = None
        self._searches = 0

    @property
    def missing(self) -> dict[str, MissingStore]:
        """Return the missing stores by name."""
        return {one.name: one for one in self._missing()}

    @property
    def searches(self) -> int:
        """Number of searches that are running or wait for a thread."""
        return self._searches

    @property
    def names(self) -> list[str]:
        return list(self._stores)

    def named(self, name: str | None) -> tuple[str, SharedStore]:
        """Return the store of a name, or the only store.

        Raises StoreNotFoundError, UsageError, and StoreUnreachableError for a store that is missing.
        """
        # With very many stores, listing the missing ones takes time: skip it for an open store.
        if name and (store := self._stores.get(name)) is not None:
            return name, store
        names, missing = self.names, self.missing
        if (
            gone := missing.get(name or (next(iter(missing), "") if not names else ""))
        ) is not None:
            raise StoreUnreachableError(str(gone))
        if not name:
            if len(names) != 1:
                listed = ", ".join(names) or "no store is open"
                raise UsageError(f"pass store: {listed}", arguments=["store"])
            name = names[0]
        store = self._stores.get(name)
        if store is None:
            raise StoreNotFoundError(f"no store {name!r}; there are {', '.join(names) or 'none'}")
        return name, store

    async def run_aside(self, call: Callable[[], Result], seconds: float) -> Result | None:
        """Call `call` in a thread that searches and pages do not use; return None after a timeout.

        Raises what it raises.
        """
        if self._aside is None:
            self._aside = CapacityLimiter(1)
        with anyio.move_on_after(seconds):
            return await run_sync(call, limiter=self._aside, abandon_on_cancel=True)
        return None

    async def run(self, call: Callable[[], Result]) -> Result:
        """Call `call` in a thread of its own; return its result and raise its errors."""
        return await run_sync(call, limiter=self._limiter())

    async def search(self, call: Callable[[], Result]) -> Result:
        """Call `call` in a thread for searches; return its result. Raises BusyError, and the errors of the call."""
        with self._search_counted():
            return await run_sync(call, limiter=self._search_limiter())

    async def iterate(self, pieces: Generator[Result, None, None]) -> AsyncIterator[Result]:
        """Yield a generator's pieces, each produced in a thread for searches; close it if the client leaves.

        Raises BusyError.
        """
        try:
            with self._search_counted():
                while True:
                    piece = await run_sync(next, pieces, _END, limiter=self._search_limiter())
                    if piece is _END:
                        return
                    yield piece  # type: ignore[misc]
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(pieces.close)

    def check_room(self) -> None:
        """Raise BusyError if the maximum number of searches is running."""
        if self._searches >= self._limits.searches:
            raise BusyError(f"{self._searches:,} searches are running; try again in some seconds")

    @contextmanager
    def _search_counted(self) -> Iterator[None]:
        self.check_room()
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    def _search_limiter(self) -> CapacityLimiter:
        if self._searching is None:
            self._searching = CapacityLimiter(self._limits.search_threads)
        return self._searching

    def _limiter(self) -> CapacityLimiter:
        if self._threads is None:  # created by the first event loop that needs it
            self._threads = CapacityLimiter(_MOST_THREADS)
        return self._threads
