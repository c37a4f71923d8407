"""Enforce limits that uvicorn lacks: number of connections, slow requests, and unread answers."""

from __future__ import annotations

import asyncio
import time

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from reput.wings.serve import HttpLimits

_LOOK_S = 0.5


class Guard:
    """Closes slow connections of one server, and connections with large unread answers, in the server's event loop."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.connections: set[Guarded] = set()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the protocol class that uvicorn instantiates for each connection."""
        return type("GuardedProtocol", (Guarded,), {"guard": self})

    async def run(self) -> None:
        """Close slow connections periodically, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """Close slow connections. Drop the largest unread answers until the sum of all is below the limit."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.look(now)
        while (
            sum(connection.unsent_bytes for connection in self.connections)
            > self.limits.unsent_bytes
        ):
            max(self.connections, key=lambda connection: connection.unsent_bytes).drop()

    def admit(self, new: Guarded) -> None:
        """Accept a connection.

        If there are too many, close the connection that has been silent longest. If none is silent, close the new one.
        """
        self.connections.add(new)
        if len(self.connections) > self.limits.connections:
            # Browsers keep connections open for later requests. Such a connection is the cheapest to lose.
            silent = [connection for connection in self.connections if connection.is_silent]
            min(silent, key=lambda connection: connection.silent_since, default=new).drop()


class Guarded(H11Protocol):
    """One HTTP connection."""

    guard: Guard

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.silent_since = self._unread_since = time.monotonic()
        self._was_silent, self._unread = True, 0
        self.guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.connections.discard(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once, without sending the rest of the answer."""
        self.guard.connections.discard(self)
        self.transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes of answers wait until the client reads them."""
        return int(self.transport.get_write_buffer_size())

    @property
    def is_silent(self) -> bool:
        """Return whether the connection waits for a request, or for the rest of a request."""
        # `cycle` is None before the first request, although its annotation excludes None.
        cycle: RequestResponseCycle | None = self.cycle
        has_request = cycle is not None and not cycle.response_complete and not cycle.more_body
        return not has_request and not self.unsent_bytes

    def look(self, now: float) -> None:
        """Close the connection if its request does not arrive in time, or its answer is not read."""
        is_silent, unread = self.is_silent, self.unsent_bytes
        if is_silent and not self._was_silent:
            self.silent_since = now
        # Slow clients are accepted: with each byte that a client reads, the time limit begins again.
        if unread == 0 or unread < self._unread:
            self._unread_since = now
        self._was_silent, self._unread = is_silent, unread
        limits = self.guard.limits
        is_slow = is_silent and now - self.silent_since > limits.request_s
        if is_slow or now - self._unread_since > limits.idle_s:
            self.drop()
