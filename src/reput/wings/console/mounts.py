"""Give requests access to the stores of the console, run blocking calls in threads, and check stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock
from typing import TypeVar
from weakref import WeakSet

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request

from reput.base import Finding
from reput.engine import check as engine_check
from reput.engine.writer import MissingStore, SharedStore
from reput.errors import StoreNotFoundError, StoreUnreachableError, UsageError
from reput.io import Location
from reput.wings.serve import HTTP, HttpLimits, LimitError

_MOST_THREADS = 16
_END = object()
Result = TypeVar("Result")


class BusyError(LimitError):
    """Raised if the maximum number of searches is already running."""


class StoppedError(LimitError):
    """Raised in a search that was stopped, by the user or because the server stops."""

    def __init__(self) -> None:
        super().__init__("the search was stopped before its end, so messages may be missing")


class UnknownStoreError(StoreNotFoundError):
    """Raised for a request that names a store which this server has never had."""


class Until:
    """Decides when a search must end: at a deadline, or when the user or the server stops it."""

    def __init__(self, deadline: float | None = None) -> None:
        """Set the deadline, by `time.monotonic`. The default is the present time plus `HTTP.search_s`."""
        self._deadline = time.monotonic() + HTTP.search_s if deadline is None else deadline
        self._stopped = Event()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def is_over(self) -> bool:
        return self._stopped.is_set() or time.monotonic() > self._deadline

    @property
    def left_s(self) -> float:
        """Return the seconds until the deadline; negative after it."""
        return self._deadline - time.monotonic()

    def check(self) -> None:
        """Raise StoppedError if the search was stopped."""
        if self.is_stopped:
            raise StoppedError


class Mounts:
    """The open stores by name. The mapping may change while the console runs, so each request reads it again."""

    def __init__(
        self,
        stores: Mapping[str, SharedStore],
        missing: Callable[[], Sequence[MissingStore]] = lambda: (),
        limits: HttpLimits = HTTP,
    ) -> None:
        """Wrap a mapping of stores. `missing` returns configured stores that do not exist."""
        self._stores, self._missing, self._limits = stores, missing, limits
        self._threads: CapacityLimiter | None = None
        self._searching: CapacityLimiter | None = None
        self._waiting: CapacityLimiter | None = None
        self._aside: CapacityLimiter | None = None
        self._searches = 0
        self._untils = WeakSet[Until]()
        self._is_ending = False
        self._full_check = Lock()

    def until(self) -> Until:
        """Return the end of a new search, which `end` stops."""
        until = Until()
        self._untils.add(until)
        if self._is_ending:
            until.stop()
        return until

    def end(self) -> None:
        """Stop all searches, because the server stops. Their answers state that they are incomplete."""
        self._is_ending = True
        for until in list(self._untils):
            until.stop()

    @property
    def missing(self) -> dict[str, MissingStore]:
        """Return the missing stores by name."""
        return {store.name: store for store in self._missing()}

    def unread(self, name: str | None) -> list[str]:
        """Return a line per missing store that a request concerns: none if it names a store.

        An answer over all stores is incomplete if a store is missing.
        """
        return [] if name else list(map(str, self.missing.values()))

    @property
    def searches(self) -> int:
        """Return the number of searches that are running or waiting for a thread."""
        return self._searches

    @property
    def names(self) -> list[str]:
        return list(self._stores)

    def named(self, name: str | None) -> tuple[str, SharedStore]:
        """Return the store with this name. For None, return the only store.

        A missing store counts: if it is one of two, a request without a name does not concern the other one alone.

        Raises StoreNotFoundError for an unknown name, StoreUnreachableError for a missing store, and UsageError if a
        name is needed.
        """
        # Look at the open stores first, because `self.missing` may take long: it checks the paths of all configured
        # stores.
        if name and (store := self._stores.get(name)) is not None:
            return name, store
        names, missing = self.names, self.missing
        if not name:
            if not names and missing:
                raise StoreUnreachableError("; ".join(map(str, missing.values())))
            if len(names) + len(missing) != 1:
                every = [*names, *(f"{missing_name} (missing)" for missing_name in missing)]
                choice = f"set the parameter store to one of: {', '.join(every)}"
                raise UsageError(choice if names else "no store is open", arguments=["store"])
            name = names[0]
        if (absent := missing.get(name)) is not None and name not in names:
            raise StoreUnreachableError(str(absent))
        store = self._stores.get(name)
        if store is None:
            raise UnknownStoreError(
                f"no store {name!r}; the stores are {', '.join(names) or 'none'}"
            )
        return name, store

    def select(self, name: str | None) -> list[tuple[str, SharedStore]]:
        """Return the store with this name, or all open stores for None (see `unread`).

        Raises StoreNotFoundError, StoreUnreachableError.
        """
        if not (name or self.names):
            self.named(None)
        return [self.named(store_name) for store_name in ([name] if name else self.names)]

    async def run_aside(self, call: Callable[[], Result], seconds: float) -> Result | None:
        """Run a call in a thread that is reserved for health checks and metrics; return None after a timeout.

        Raises the errors of the call.
        """
        # Use a single thread. If a call hangs, later calls time out, but they do not block further threads.
        if self._aside is None:
            self._aside = CapacityLimiter(1)
        with anyio.move_on_after(seconds):
            # A thread that hangs in a file system cannot be stopped. Leave it, so that the request gets its answer.
            return await run_sync(call, limiter=self._aside, abandon_on_cancel=True)
        return None

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a short call in a thread. Raises the errors of the call."""
        return await run_sync(call, limiter=self._limiter())

    async def search(
        self,
        call: Callable[[], Result],
        request: Request | None = None,
        until: Until | None = None,
        *,
        in_child: bool = False,
    ) -> Result:
        """Run a search in one of the threads for searches. Raises BusyError, and the errors of the call.

        With a request and the end of its search, the search is stopped when the client leaves. A search that runs
        `in_child` gets a thread that only waits.
        """
        watching = None
        if request is not None and until is not None:
            watching = asyncio.create_task(_stop_without_client(request, until))
        try:
            with self._search_slot():
                return await run_sync(call, limiter=self._search_limiter(in_child))
        finally:
            if watching is not None:
                watching.cancel()

    async def iterate(
        self, pieces: Generator[Result, None, None], *, in_child: bool = False
    ) -> AsyncIterator[Result]:
        """Yield the pieces of a generator. It is closed when the client leaves.

        The generator runs in the threads that `search` uses. Its empty pieces give the client an opportunity to leave,
        and are not yielded. Raises BusyError.
        """
        try:
            with self._search_slot():
                while True:
                    limiter = self._search_limiter(in_child)
                    piece = await run_sync(next, pieces, _END, limiter=limiter)
                    if piece is _END:
                        return
                    if piece:
                        yield piece  # type: ignore[misc]
        finally:
            # When the client has left, this task is already cancelled. Without the shield, it would not wait until the
            # generator is closed.
            with anyio.CancelScope(shield=True):
                await run_sync(pieces.close)

    def findings(
        self, store: SharedStore, is_full: bool, until: Until
    ) -> Generator[Finding, None, None]:
        """Check a store, and yield findings as they are found. Only one full check runs at a time.

        Raises StoreAccessError, StoppedError, and UsageError if the store is not on a local disk, or if a full check
        is requested while another one is running.
        """
        # If the store is read together with an archive of older files, check only the store itself.
        parts = Location.split(store.path)
        path = store.path if parts is None else parts[1]
        if Location.is_url(path):
            raise UsageError(f"{path}: only a store on a local disk can be checked")
        if not is_full:
            yield from engine_check.check_store(path, config=store.told_config, quick=True)
            return
        if not self._full_check.acquire(blocking=False):
            raise UsageError("a full check is running; try again when it has finished")
        try:
            yield from engine_check.check_store(
                path, config=store.told_config, progress=lambda *done: until.check()
            )
        finally:
            self._full_check.release()

    def check_room(self) -> None:
        """Raise BusyError if the maximum number of searches is running."""
        if self._searches >= self._limits.searches:
            raise BusyError(f"{self._searches:,} searches are running; try again in some seconds")

    @contextmanager
    def _search_slot(self) -> Iterator[None]:
        self.check_room()
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    def _search_limiter(self, in_child: bool) -> CapacityLimiter:
        if self._searching is None or self._waiting is None:
            self._searching = CapacityLimiter(self._limits.search_threads)
            self._waiting = CapacityLimiter(self._limits.searches)
        return self._waiting if in_child else self._searching

    def _limiter(self) -> CapacityLimiter:
        # A limiter belongs to the event loop in which it is created. This loop may not run yet when `__init__` is
        # called, so create the limiter at its first use.
        if self._threads is None:
            self._threads = CapacityLimiter(_MOST_THREADS)
        return self._threads


async def _stop_without_client(request: Request, until: Until) -> None:
    """Stop a search when the client leaves."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    until.stop()
