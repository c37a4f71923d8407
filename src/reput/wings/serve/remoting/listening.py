"""Bind addresses and accept connections. Each connection is passed to a callback."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine

from reput.format.host import Host

_log = logging.getLogger("reput.serve")
_BACKLOG = 1024
_PAUSE_S = 1.0
_AT_ONCE = 64
"""Connections accepted in a row, before existing ones are served again."""


def bind(address: Host) -> tuple[socket.socket, Host]:
    """Bind an address. Return the socket and its actual address. Connections are refused until `listen` is called.

    Raises OSError, OverflowError.
    """
    is_v6 = ":" in address.address
    bound = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
    try:
        # Without this, a restarted server could not bind while old connections are in TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_v6:
            # Without this, an IPv6 socket would also take the IPv4 address of the same port.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    name = bound.getsockname()
    return bound, Host(name[0], name[1])


class Listening:
    """An address at which connections are accepted, in one event loop."""

    def __init__(
        self, bound: socket.socket, take: Callable[[socket.socket], Coroutine[None, None, None]]
    ) -> None:
        """Begin to listen. `take` receives each connection. Raises OSError."""
        self._bound, self._take = bound, take
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        bound.setblocking(False)
        bound.listen(_BACKLOG)
        self._begin()

    def _begin(self) -> None:
        if self._bound.fileno() >= 0:
            self._loop.add_reader(self._bound.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._bound.fileno())
        self._bound.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            # Accepting fails, for example, if the process has too many open files. Without a pause, the event loop
            # would report the waiting connection again and again.
            except OSError as error:
                _log.warning("cannot accept a connection: %s", error.strerror)
                self._loop.remove_reader(self._bound.fileno())
                self._loop.call_later(_PAUSE_S, self._begin)
                return
            connection.setblocking(False)
            # Answers are small and written at once. Waiting for more data to send with them would only delay them.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._take(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
