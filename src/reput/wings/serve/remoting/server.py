"""Accept and serve the connections of all addresses, limit their memory, and run long requests in threads."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress

from reput.errors import ReputError
from reput.format.host import Host
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.connection import Answering, Connection
from reput.wings.serve.remoting.handling import Answer
from reput.wings.serve.remoting.threads import FairThreads
from reput.wings.serve.remoting.traffic import Traffic, audit_fields, is_audited

_log = logging.getLogger("reput.serve")
_BACKLOG, _PAUSE_S = 1024, 1.0
_AT_ONCE = 64
"""Connections accepted in a row, before existing ones are served again."""
_FREE_BYTES, _MOST_AGE_S = 64 << 10, 60.0
_PATIENCE_S, _WARNED_S = 5.0, 1.0
_MOST_WARNED = 1000
_MOST_TOGETHER, _LARGE_BYTES = 32, 32 << 10
"""Sends wait in a list, and one call puts them all into the store. The call is made at once when the list has
_MOST_TOGETHER sends, or a send of more than _LARGE_BYTES.
"""
_SHARED_AGAIN = 16
"""While only one connection sends, its messages are put as soon as they arrive. But once in _SHARED_AGAIN times, other
connections are read first, to notice whether they send as well.
"""
_UnputSend = tuple[Connection, Command, int]
"""A send that waits to be put: its connection, its request, and the request's size."""


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


class _Listening:
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


class Memory:
    """The memory of all connections together, and its limit."""

    def __init__(self, most_bytes: int, holders: Callable[[], Collection[Connection]]) -> None:
        self.held_bytes, self._most_bytes, self._holders = 0, most_bytes, holders

    def hold(self, holder: Connection, held_bytes: int) -> None:
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


def _burden(holder: Connection) -> tuple[float, float]:
    """Return a sort key of two numbers. The connection with the highest key is closed first.

    The first number is the connection's age multiplied by its bytes in excess of `_FREE_BYTES`. The second number is
    the age multiplied by all its bytes. So connections with at most `_FREE_BYTES` are closed last: a small request may
    rightly wait for a long time.
    """
    age = 1 + min(time.monotonic() - holder.held_since, _MOST_AGE_S)
    return max(holder.held_bytes - _FREE_BYTES, 0) * age, holder.held_bytes * age


class Server:
    """The connections of all addresses, in one event loop.

    Attributes:
        limits: Limits of clients.
        connections: Open connections.
        handshakes: Encrypted connections during their handshake.
        memory: Bytes held by connections.
        threads: Threads for slow answers.
        traffic: Counts of requests.
        audit: Called with the audit record of each request that reads or changes something.
    """

    def __init__(self, limits: Limits | None = None, threads: int = 4) -> None:
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.memory = Memory(self.limits.total_bytes, lambda: self.connections)
        self.threads = FairThreads(threads)
        self.handshakes: set[Connection] = set()
        self.audit: Callable[[dict[str, object]], None] | None = None
        self.traffic = Traffic(
            {
                "connections": ("Connections of clients", lambda: len(self.connections)),
                "held_bytes": (
                    "Bytes of requests in flight and of answers that clients have not read",
                    lambda: self.memory.held_bytes,
                ),
            },
        )
        self._warned: dict[str, float] = {}
        self._unput: list[_UnputSend] = []
        self._puts, self._is_shared, self._is_put_due = 0, False, False
        self._listening: list[_Listening] = []

    def listen(
        self,
        port: Answering,
        bound: socket.socket,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Accept connections at a bound address, and serve them. Raises OSError."""

        async def take(connection: socket.socket) -> None:
            await self._take(port, connection, tls)

        self._listening.append(_Listening(bound, take))

    async def _take(
        self, port: Answering, connection: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        """Serve an accepted connection, if the limits allow it."""
        if not self._has_room():
            self.warn(f"refused a connection: there are {self.limits.connections}")
            connection.close()
            return
        limits = {} if tls is None else {"ssl_handshake_timeout": self.limits.handshake_s}
        loop = asyncio.get_running_loop()
        client = Connection(self, port)
        # Handshakes count as connections. Otherwise, clients could begin any number of them.
        self.handshakes.add(client)
        try:
            await loop.connect_accepted_socket(lambda: client, connection, ssl=tls, **limits)
        except OSError:  # The client has left, or its handshake failed.
            connection.close()
        finally:
            self.handshakes.discard(client)

    def put_later(self, connection: Connection, request: Command, size: int) -> None:
        """Queue a send request. Call `put_soon` next: it puts the messages of all queued requests in one call."""
        self._unput.append((connection, request, size))
        if len(self._unput) >= _MOST_TOGETHER or size > _LARGE_BYTES:
            self.put_now()

    def put_soon(self) -> None:
        """Put the messages of queued sends.

        If several connections send, first let the event loop read all connections with data.
        """
        self._puts += 1
        if not (self._is_shared or self._puts % _SHARED_AGAIN == 0):
            self.put_now()
        elif not self._is_put_due:
            self._is_put_due = True
            asyncio.get_running_loop().call_soon(self.put_now)

    def put_now(self) -> None:
        """Put the queued sends, and answer them."""
        # Empty `_unput` before answering: a connection that gets an answer may add its next send request to `_unput`.
        batch, self._unput, self._is_put_due = self._unput, [], False
        if not batch:
            return
        self._is_shared = any(send[0] is not batch[0][0] for send in batch)
        by_port: dict[Answering, list[_UnputSend]] = {}
        for send in batch:
            by_port.setdefault(send[0].port, []).append(send)
        for port, sends in by_port.items():
            answers = port.answer_sends([(request, connection) for connection, request, _ in sends])
            by_connection: dict[Connection, list[tuple[Command, int, Answer]]] = {}
            for (connection, request, size), answer in zip(sends, answers, strict=True):
                by_connection.setdefault(connection, []).append((request, size, answer))
            for connection, answered in by_connection.items():
                connection.settle_sends(answered)

    def _has_room(self) -> bool:
        """Return whether there is room for another connection.

        If there is no room, close the oldest connection that has not sent any request yet, unless it is new.
        """
        if len(self.connections) + len(self.handshakes) < self.limits.connections:
            return True
        # Close only a client that has sent no request yet, because it loses the least.
        silent = (client for client in self.connections if not client.has_request)
        oldest = min(silent, key=lambda client: client.begun, default=None)
        # Do not close a new client, which may still be sending its first request.
        if oldest is None or time.monotonic() - oldest.begun < _PATIENCE_S:
            return False
        oldest.drop("it was silent, and there are too many connections")
        return True

    def note(self, connection: Connection, request: Command, answer: Command | None) -> None:
        """Count an answered request, and write its audit record if it needs one."""
        seconds = time.monotonic() - request.begun_s if request.begun_s else None
        self.traffic.note(request.code, None if answer is None else answer.code, seconds)
        if self.audit is not None and is_audited(request, answer):
            self.audit(audit_fields(request, answer, connection.address, seconds))

    def warn(self, text: str) -> None:
        """Log a warning at a limited rate, because clients can cause many."""
        # Limit how often each reason is logged. The reason is the text after the last colon. The text before it cannot
        # be compared, because it contains the client's address.
        now, kind = time.monotonic(), text.rpartition(": ")[2]
        if now - self._warned.get(kind, -_WARNED_S) >= _WARNED_S:
            if len(self._warned) >= _MOST_WARNED:
                self._warned.clear()
            self._warned[kind] = now
            _log.warning("%s", text)

    def prepare(self, work: Callable[[], object]) -> None:
        """Start slow preparations for the first answers. If these fail, the first answers report the error."""

        def attempt() -> None:
            with suppress(ReputError):
                work()

        threading.Thread(target=attempt, name="reput-prepare", daemon=True).start()

    def close_idle(self) -> None:
        """Close connections that were silent for too long. Call this every few seconds."""
        now = time.monotonic()
        for connection in list(self.connections):
            connection.close_if_idle(now)

    async def drain(self, timeout_s: float) -> None:
        """Accept no more connections, and wait for the requests in flight."""
        for listening in self._listening:
            listening.close()
        for connection in list(self.connections):
            connection.stop_reading()
        end = time.monotonic() + timeout_s
        while any(client.is_busy for client in self.connections) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.close()
        while self.connections and time.monotonic() < end:
            await asyncio.sleep(0.01)
        self.threads.shutdown()
