"""The connections of all addresses, and the threads that answer what takes its time."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from reput.broker.limits import Limits
from reput.errors import ReputError
from reput.remoting.commands import Command
from reput.remoting.connection import Answering, Connection
from reput.remoting.handling import Later, failed
from reput.remoting.listening import Listening

_log = logging.getLogger("reput.serve")
# For clients that send a request as soon as the last one is answered.
_AWAKE_S, _IN_A_ROW_S = 0.0002, 0.001


class Server:
    """The connections of all addresses, in one event loop."""

    def __init__(self, limits: Limits | None = None, threads: int = 4) -> None:
        """`threads` run the answers that take their time."""
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.buffered_bytes = 0
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reput-serve")
        self._listening: list[Listening] = []

    def listen(
        self,
        port: Answering,
        bound: socket.socket,
        tls: ssl.SSLContext | None = None,
        hand_on: Callable[[socket.socket], bool] = lambda connection: False,
    ) -> None:
        """Accept connections at an address that is taken; those that nobody else takes are served. Raises OSError."""

        async def take(connection: socket.socket) -> None:
            if hand_on(connection):
                connection.close()
            else:
                await self.take(port, connection, tls)

        self._listening.append(Listening(bound, take))

    async def take(
        self, port: Answering, connection: socket.socket, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve a connection that was accepted."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # it may be gone already
            await loop.connect_accepted_socket(lambda: Connection(self, port), connection, ssl=tls)

    def run(self, work: Callable[[], Command], request: Command) -> Later:
        """Run work in a thread."""
        later = Later()
        loop = asyncio.get_running_loop()

        def attempt() -> None:
            try:
                answer = work()
            except Exception as error:
                answer = failed(request, error)
            loop.call_soon_threadsafe(later.resolve, answer)

        self._threads.submit(attempt)
        return later

    def prepare(self, work: Callable[[], object]) -> None:
        """Begin what the first answers would have to wait for. Where it fails, they say why."""

        def attempt() -> None:
            with suppress(ReputError):
                work()

        threading.Thread(target=attempt, name="reput-prepare", daemon=True).start()

    def close_idle(self) -> None:
        """Close what has been silent for too long; to be called every few seconds."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.close_if_idle(now)

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing more, and wait for the requests in flight."""
        for listening in self._listening:
            listening.close()
        for connection in list(self.connections):
            connection.stop_reading()
        end = time.monotonic() + timeout_s
        while any(each.is_busy for each in self.connections) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        while self.connections and time.monotonic() < end:
            await asyncio.sleep(0.01)
        self._threads.shutdown(wait=False, cancel_futures=True)
