"""One connection: what arrives becomes requests of a port, within limits, and their answers are sent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from reput.errors import RemotingError
from reput.format.host import Host
from reput.remoting.commands import Command
from reput.remoting.handling import Answer, InThread, Later, Peer, failed
from reput.remoting.session import Session

if TYPE_CHECKING:
    from reput.remoting.server import Server

_log = logging.getLogger("reput.serve")
_IN_A_ROW_S = (
    0.001  # a client that sends a request so soon after the last one was answered will send another
)
_WRITE_BYTES = 1 << 20
"""Written together; and so much may wait to be sent before a connection is read no further."""


class Answering(Protocol):
    """What answers the requests of an address (`Port`)."""

    def answer(self, request: Command, peer: Peer) -> Answer: ...

    def disconnected(self, peer: Peer) -> None: ...


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
        self._last_seen = time.monotonic()
        try:
            requests = self._session.receive(data)
        except RemotingError as error:
            self._fail(error)
            return
        if requests or not self._buffered:
            self._frame_begun = self._last_seen
        buffered = self._session.buffered_bytes
        self._server.buffered_bytes += buffered - self._buffered
        self._buffered = buffered
        if buffered and self._server.buffered_bytes > self._server.limits.total_bytes:
            _log.warning("%s: closed: too much memory for unfinished requests", self.address)
            self.close()
            return
        self._requests.extend(each for each in requests if not each.is_response)
        self._work()
        if self._session.error is not None:  # after the requests before it
            self._fail(self._session.error)

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

    def _fail(self, error: RemotingError) -> None:
        _log.warning("%s: closed: %s", self.address, error)
        self.close()

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
