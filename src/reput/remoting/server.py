"""Sockets: connections that hand what arrives to a port, within limits. The one module that has any."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from reput.errors import RemotingError, ReputError
from reput.format.host import Host
from reput.remoting.commands import Command
from reput.remoting.frames import MOST_FRAME_BYTES
from reput.remoting.handling import Answer, InThread, Later, Peer, failed
from reput.remoting.session import Session

_log = logging.getLogger("reput.serve")
_BACKLOG = 1024
_PAUSE_S = 1.0
_AWAKE_S, _IN_A_ROW_S = (
    0.0002,
    0.001,
)  # for whom sends a request as soon as the last one is answered
_WRITE_BYTES = 1 << 20
"""Written together; and so much may wait to be sent before a connection is read no further."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take of the server.

    Attributes:
        frame_bytes: longest request
        connections: at a time
        in_flight: requests of one connection that are being answered at a time
        buffered_bytes: of all requests together that have not arrived whole
        idle_s: after which a silent connection is closed, and one that does not finish a request
    """

    frame_bytes: int = MOST_FRAME_BYTES
    connections: int = 10_000
    in_flight: int = 1024
    buffered_bytes: int = 64 << 20
    idle_s: float = 120.0


class Answering(Protocol):
    """What answers the requests of an address (`Port`)."""

    def answer(self, request: Command, peer: Peer) -> Answer: ...

    def disconnected(self, peer: Peer) -> None: ...


class Server:
    """The connections of all addresses, in one event loop."""

    def __init__(self, limits: Limits | None = None, threads: int = 4) -> None:
        """`threads` run the answers that take their time."""
        self.limits = limits or Limits()
        self.connections: set[Connection] = set()
        self.buffered_bytes = 0
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="reput-serve")
        self._listening: list[Listening] = []
        self._awake_until, self._is_awake = 0.0, False

    def stay_awake(self, now: float) -> None:
        """Look for requests for a moment without sleeping: to be woken takes longer than to answer."""
        self._awake_until = now + _AWAKE_S
        if not self._is_awake:
            self._is_awake = True
            self._look_around()

    def _look_around(self) -> None:
        self._is_awake = time.monotonic() < self._awake_until
        if self._is_awake:
            asyncio.get_running_loop().call_soon(self._look_around)

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


def bind(address: Host) -> tuple[socket.socket, Host]:
    """Take an address, and refuse connections there until somebody listens; its socket, and the real port.

    Raises OSError, OverflowError.
    """
    is_v6 = ":" in address.address
    bound = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_v6:
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
        """`take` is given each connection. Raises OSError."""
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
        """Accept nothing more."""
        self._loop.remove_reader(self._bound.fileno())
        self._bound.close()

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                connection, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # there are too many open files: later there may be fewer
                _log.warning("cannot accept a connection: %s", error.strerror)
                self._loop.remove_reader(self._bound.fileno())
                self._loop.call_later(_PAUSE_S, self._begin)
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = self._loop.create_task(self._take(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, server: Server, port: Answering) -> None:
        self._server, self._port = server, port
        self._session = Session(server.limits.frame_bytes)
        self._requests: deque[Command] = deque()
        self._outgoing: list[bytes] = []
        self._in_flight = self._buffered = 0
        self._is_working = self._is_choked = self._is_draining = False
        self._is_reading = True
        self._last_seen = self._frame_begun = time.monotonic()
        self._transport: asyncio.Transport | None = None
        self.address, self.server_host = Host("0.0.0.0", 0), "127.0.0.1"

    @property
    def is_busy(self) -> bool:
        """Whether requests of it are not answered yet, or answers not sent."""
        waiting = self._transport is not None and self._transport.get_write_buffer_size()
        return bool(self._in_flight or self._requests or waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= self._server.limits.connections:
            _log.warning("refused a connection: there are %d", len(self._server.connections))
            self._transport.abort()
            self._transport = None
            return
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer and own:
            self.address, self.server_host = Host(_plain(peer[0]), peer[1]), _plain(own[0])
        self._transport.set_write_buffer_limits(_WRITE_BYTES)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._server.buffered_bytes -= self._buffered
        self._buffered = 0
        self._requests.clear()
        if self in self._server.connections:
            self._server.connections.discard(self)
            self._port.disconnected(self)

    def data_received(self, data: bytes) -> None:
        before, self._last_seen = self._last_seen, time.monotonic()
        try:
            requests = self._session.receive(data)
        except RemotingError as error:
            _log.warning("%s: closed: %s", self.address, error)
            self.close()
            return
        if requests or not self._buffered:
            self._frame_begun = self._last_seen
        buffered = self._session.buffered_bytes
        self._server.buffered_bytes += buffered - self._buffered
        self._buffered = buffered
        if buffered and self._server.buffered_bytes > self._server.limits.buffered_bytes:
            _log.warning("%s: closed: too much memory for unfinished requests", self.address)
            self.close()
            return
        self._requests.extend(each for each in requests if not each.is_response)
        self._work()
        if len(requests) == 1 and self._last_seen - before < _IN_A_ROW_S:
            self._server.stay_awake(time.monotonic())

    def pause_writing(self) -> None:
        self._is_choked = True

    def resume_writing(self) -> None:
        self._is_choked = False
        self._work()

    def push(self, command: Command) -> None:
        """Send it a request that it does not answer."""
        if self._transport is not None:
            self._transport.write(self._session.send(command))

    def stop_reading(self) -> None:
        """Take no more requests."""
        self._is_draining = True
        self._read(False)

    def close(self) -> None:
        """Close it when what was answered is sent."""
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self, now: float) -> None:
        """Close it if its client is silent, or does not finish what it began to send."""
        limit = self._server.limits.idle_s
        is_idle = not self._in_flight and now - self._last_seen > limit
        is_stuck = self._buffered > 0 and now - self._frame_begun > limit
        is_deaf = self._is_choked and now - self._last_seen > limit
        if (is_idle or is_stuck or is_deaf) and self._transport is not None:
            self._transport.abort()

    def _work(self) -> None:
        """Answer what has arrived, as far as the client takes answers and its limit goes."""
        if self._is_working:
            return
        self._is_working = True
        most, size = self._server.limits.in_flight, 0
        while self._requests and not self._is_choked and self._in_flight < most:
            request = self._requests.popleft()
            answer = self._port.answer(request, self)
            if isinstance(answer, InThread):
                answer = self._server.run(answer.work, request)
            if isinstance(answer, Later):
                self._in_flight += 1
                answer.then(lambda found, request=request: self._answered(request, found))  # type: ignore[misc]
            elif answer is not None:
                size += self._add(request, answer)
                if size > _WRITE_BYTES:
                    self._flush()
                    size = 0
        self._flush()
        self._is_working = False
        self._read(not self._requests and not self._is_draining)

    def _answered(self, request: Command, answer: Command) -> None:
        self._in_flight -= 1
        self._last_seen = time.monotonic()
        self._add(request, answer)
        if not self._is_working:
            self._flush()
            self._work()

    def _add(self, request: Command, answer: Command) -> int:
        if request.is_one_way:
            return 0
        try:
            data = self._session.send(answer)
        except RemotingError as error:
            data = self._session.send(failed(request, error))
        self._outgoing.append(data)
        return len(data)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None:
            self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _read(self, wanted: bool) -> None:
        if self._transport is None or wanted == self._is_reading or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _plain(address: str) -> str:
    """An IPv4 address, where a socket of both kinds has it as an IPv6 one; without a scope."""
    return address.removeprefix("::ffff:").partition("%")[0]
