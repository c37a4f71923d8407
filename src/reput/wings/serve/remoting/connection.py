"""Serve one connection: read requests within limits, and send their answers."""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from reput.errors import RemotingError
from reput.format.host import Host
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.handling import Answer, InThread, Later, Peer, failed
from reput.wings.serve.remoting.requests import PLAIN_SENDS, PULLS
from reput.wings.serve.remoting.session import Session
from reput.wings.serve.remoting.threads import User

if TYPE_CHECKING:
    from reput.wings.serve.remoting.server import Server

_WRITE_BYTES = 1 << 20
"""Unsent bytes above which no more requests are read from a connection."""
_PIECE_BYTES = 256 << 10
"""Maximum number of bytes passed to the transport at once. Bytes beyond the maximum wait in the `Connection`, which
counts them, because a TLS transport does not report all bytes that it holds.
"""
_JOINED_BYTES = 64 << 10
"""Maximum size of an answer that is written together with other answers. Larger answers are written separately."""
_MOST_OPAQUE = (1 << 31) - 1
_SLICE_S = 0.001
"""Seconds for which requests of one connection are answered in a row, before other connections are served."""


_ASKED_S = 10.0
"""Seconds in which a client must answer a request of this server (`Broker2Client.callClient`)."""


class _OwnRequest(NamedTuple):
    """A request of this server that a client has not answered yet."""

    then: Callable[[Command | None], object]
    timer: asyncio.TimerHandle


class Answering(Protocol):
    """The handler of requests that arrive at one address of the server. `Port` implements it."""

    def answer(self, request: Command, peer: Peer) -> Answer: ...

    def answer_sends(self, sends: Sequence[tuple[Command, Peer]]) -> list[Answer]: ...

    def disconnected(self, peer: Peer) -> None: ...


class Connection(asyncio.Protocol):
    """One client's connection.

    Attributes:
        port: The object that handles the client's requests (not a TCP port).
    """

    def __init__(self, server: Server, port: Answering) -> None:
        self._server, self.port = server, port
        self._session = Session(server.limits)
        self._outgoing: list[bytes] = []
        self._unwritten: deque[memoryview] = deque()
        self._in_flight = self._asked_bytes = self._reserved_bytes = self._unput = 0
        self._user = User(self._begin)
        self._is_working = self._is_draining = self._is_ended = False
        self._is_reading = True
        self._last_active = self._frame_begun = self.held_since = self.begun = time.monotonic()
        self._choked_since: float | None = None
        self._transport: asyncio.Transport | None = None
        self._own_requests: dict[int, _OwnRequest] = {}
        self._last_opaque = 0
        self.held_bytes, self.has_request = 0, False
        self.address, self.server_host = Host("0.0.0.0", 0), "127.0.0.1"

    @property
    def is_busy(self) -> bool:
        """Whether the connection has unanswered requests, or unsent answers."""
        return bool(self._in_flight or self._unsent_bytes or self._has_command())

    @property
    def _unsent_bytes(self) -> int:
        if self._transport is None:
            return 0
        waiting = sum(map(len, self._unwritten)) if self._unwritten else 0
        return self._transport.get_write_buffer_size() + waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer, own_address = (
            transport.get_extra_info("peername"),
            transport.get_extra_info("sockname"),
        )
        if peer and own_address:
            self.address, self.server_host = Host(_plain(peer[0]), peer[1]), _plain(own_address[0])
        self._transport.set_write_buffer_limits(_WRITE_BYTES)
        self._server.handshakes.discard(self)
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()

    def drop(self, reason: str) -> None:
        """Close the connection at once, and drop its requests and answers."""
        self._server.warn(f"{self.address.address}: a connection is closed: {reason}")
        if self._transport is not None:
            self._transport.abort()
        self._forget()

    def _forget(self) -> None:
        self._transport = None
        # The session (the parser of requests) still holds received bytes. Replace the session to free their memory.
        self._session = Session(self._server.limits)
        self._user.leave()
        self._outgoing.clear()
        self._unwritten.clear()
        self._in_flight = self._asked_bytes = self._reserved_bytes = self._unput = 0
        # The client has left, so it will not answer the requests of this server.
        for opaque in list(self._own_requests):
            self._answered(opaque, None)
        self._server.memory.hold(self, 0)
        if self in self._server.connections:
            self._server.connections.discard(self)
            self.port.disconnected(self)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._last_active = now
        # The time limit for a request begins with its first byte.
        if not self._session.buffered_bytes:
            self._frame_begun = now
        self._session.feed(data)
        self._work()

    def eof_received(self) -> bool:
        """Answer the requests received so far, without waiting for messages: the client will send no more requests."""
        transport, self._is_ended = self._transport, True
        # A TLS connection cannot stay open in one direction.
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return False
        self._close_if_ended()
        # The client has closed its side of the connection. Return True, so that asyncio keeps the other side open for
        # the answers.
        return True

    def pause_writing(self) -> None:
        self._choked_since = time.monotonic()

    def resume_writing(self) -> None:
        self._choked_since = None
        self._write()
        self._server.threads.wake(self._user)
        self._work()

    def push(self, command: Command) -> None:
        """Send the client a request that needs no answer, unless the client has stopped reading."""
        if self._transport is not None and self._choked_since is None:
            self._transport.write(self._session.send(command))

    def ask(self, command: Command, then: Callable[[Command | None], object]) -> None:
        """Send the client a request that needs an answer (see Peer)."""
        is_busy = len(self._own_requests) >= self._server.limits.asked
        if self._transport is None or self._choked_since is not None or is_busy:
            then(None)
            return
        self._last_opaque = opaque = self._last_opaque % _MOST_OPAQUE + 1
        timer = asyncio.get_running_loop().call_later(_ASKED_S, self._answered, opaque, None)
        self._own_requests[opaque] = _OwnRequest(then, timer)
        command.opaque, command.flag = opaque, 0
        self._transport.write(self._session.send(command))

    def _answered(self, opaque: int, answer: Command | None) -> None:
        own_request = self._own_requests.pop(opaque, None)
        if own_request is not None:
            own_request.timer.cancel()
            own_request.then(answer)

    def run(
        self, work: Callable[[], Command], request: Command, then: Callable[[Command], object]
    ) -> None:
        """Run work for a request in a thread, when it is this client's turn (see Peer)."""
        if self._transport is None:
            return

        def attempt() -> Command:
            try:
                answer = work()
            # Answer after an unexpected error as well. Otherwise, the client would wait until its timeout.
            except Exception as error:
                return failed(request, error)
            return answer

        def done(answer: Command) -> None:
            self._reserved_bytes -= self._server.limits.answer_bytes
            then(answer)
            self._work()

        self._server.threads.submit(self._user, attempt, done)

    def stop_reading(self) -> None:
        """Accept no more requests."""
        self._is_draining = True
        self._read(False)

    def close(self) -> None:
        """Close the connection after all answers are sent."""
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self, now: float) -> None:
        """Close the connection if its client is silent, does not finish a request, or reads no answers."""
        limit = self._server.limits.idle_s
        is_idle = not self._in_flight and now - self._last_active > limit
        is_stuck = self._session.buffered_bytes > 0 and now - self._frame_begun > limit
        is_deaf = self._choked_since is not None and now - self._choked_since > limit
        # If a complete request is buffered, the client waits for this server. So do not close the connection as stuck.
        if (is_idle or (is_stuck and not self._has_command()) or is_deaf) and self._transport:
            self._transport.abort()
        self._account()

    def _begin(self) -> bool:
        """Return whether a thread may compute an answer now. If so, reserve memory for this answer."""
        limits, transport = self._server.limits, self._transport
        if transport is None or transport.is_closing() or self._choked_since is not None:
            return False
        if not self._is_reading and _is_reset(transport):
            transport.abort()
            return False
        # A client without a running job may always begin one. Without this rule, no client would get an answer if
        # `answer_bytes` were greater than `client_bytes`.
        if self._user.running and self.held_bytes + limits.answer_bytes > limits.client_bytes:
            return False
        self._reserved_bytes += limits.answer_bytes
        self._account()
        return self._transport is not None

    def _has_command(self) -> bool:
        try:
            return self._session.has_command
        # The received bytes are malformed. Return True, so that `_work` calls `next`: `next` raises this error again,
        # and `_work` then closes the connection.
        except RemotingError:
            return True

    def _may_take(self) -> bool:
        transport, limits, user = self._transport, self._server.limits, self._user
        return (
            self._in_flight < limits.in_flight
            and user.running + len(user.waiting) < limits.at_work
            and self._choked_since is None
            and self._session.error is None
            and transport is not None
            and not transport.is_closing()
        )

    def _work(self) -> None:
        """Answer received requests, as long as the client reads the answers and stays within its limits."""
        # The loop below sends answers, and each sent answer calls this method. Do not enter the loop twice.
        if self._is_working:
            return
        self._is_working = True
        session, begun = self._session, time.monotonic()
        while self._may_take():
            # Let the event loop serve other connections before this one continues.
            if time.monotonic() - begun > _SLICE_S:
                asyncio.get_running_loop().call_soon(self._work)
                break
            before = session.buffered_bytes
            try:
                request = session.next()
            except RemotingError as error:
                self._server.warn(f"{self.address}: closed: {error}")
                self._is_draining = self._is_ended = True  # Earlier requests are still answered.
                break
            if request is None:
                break
            self._frame_begun, self.has_request = begun, True
            size = before - session.buffered_bytes
            if request.code in PLAIN_SENDS and not request.is_response:
                request.begun_s = begun
                self._in_flight += 1
                self._unput += 1
                self._asked_bytes += size
                self._server.put_later(self, request, size)
                continue
            # Before this request is handled, store the messages of earlier sends: requests must take effect in the
            # order in which the client sent them.
            if self._unput:
                self._server.put_now()
            if request.is_response:
                self._answered(request.opaque, request)
            else:
                self._take(request, size)
        if self._unput:
            self._server.put_soon()
        self._flush()
        self._is_working = False
        self._account()
        # Read no further bytes while received requests wait. TCP then slows the client down.
        has_room = self.held_bytes < self._server.limits.client_bytes
        self._read(has_room and not self._is_draining and not self._has_command())
        self._close_if_ended()

    def settle_sends(self, answered: Sequence[tuple[Command, int, Answer]]) -> None:
        """Answer the requests that were passed to `Server.put_later`.

        `answered` has each request, its size and its answer.
        """
        if self._transport is None:
            return
        is_working, self._is_working = self._is_working, True
        self._unput -= len(answered)
        for request, size, answer in answered:
            self._settle(request, size, answer)
        self._is_working = is_working
        if not is_working:
            self._flush()
            self._work()

    def _take(self, request: Command, size: int) -> None:
        request.begun_s = time.monotonic()
        self._give(request, size, self.port.answer(request, self))

    def _give(self, request: Command, size: int, answer: Answer) -> None:
        """Send the answer to a request, or note that it will come later."""
        if isinstance(answer, Command):
            self._server.note(self, request, answer)
            self._add(request, answer)
        elif answer is None:
            self._server.note(self, request, None)
        else:
            self._in_flight += 1
            self._asked_bytes += size
            self._settle(request, size, answer)

    def _settle(self, request: Command, size: int, answer: Answer) -> None:
        """Send an answer, at once or later."""
        if isinstance(answer, InThread):
            then = answer.then

            def worked(result: Command) -> None:
                self._settle(request, size, result if then is None else then(result))

            self.run(answer.work, request, worked)
        elif isinstance(answer, Later):
            # Do not measure the duration of a pull that waits for messages: the wait does not show this server's speed.
            if request.code in PULLS:
                request.begun_s = 0.0
            answer.then(partial(self._settle, request, size))
        elif self._transport is not None:
            self._in_flight -= 1
            self._asked_bytes -= size
            self._last_active = time.monotonic()
            self._server.note(self, request, answer)
            if answer is not None:
                self._add(request, answer)
            if not self._is_working:
                self._flush()
                self._work()

    def _add(self, request: Command, answer: Command) -> None:
        if request.is_one_way:
            return
        try:
            # Do not join head and body, which would copy the large body.
            if len(answer.body) > _JOINED_BYTES:
                self._outgoing.append(self._session.send_head(answer))
                self._flush()
                self._unwritten.append(memoryview(answer.body))
                self._write()
                return
            data = self._session.send(answer)
        except RemotingError as error:
            data = self._session.send(failed(request, error))
        if len(data) > _JOINED_BYTES:
            self._flush()
        self._outgoing.append(data)
        if len(data) > _JOINED_BYTES or len(self._outgoing) * 1024 > _JOINED_BYTES:
            self._flush()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None:
            data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
            # The usual case: small answers need not wait for the client.
            if len(data) <= _PIECE_BYTES and not self._unwritten and self._choked_since is None:
                self._transport.write(data)
                return
            self._unwritten.append(memoryview(data))
            self._write()

    def _write(self) -> None:
        """Pass answers to the transport until the transport accepts no more.

        The other answers wait until the client has read earlier ones.
        """
        while self._unwritten and self._choked_since is None and self._transport is not None:
            data = self._unwritten.popleft()
            if len(data) > _PIECE_BYTES:
                self._unwritten.appendleft(data[_PIECE_BYTES:])
            self._transport.write(data[:_PIECE_BYTES])

    def _account(self) -> None:
        if self._transport is not None:
            request_bytes = self._session.buffered_bytes + self._asked_bytes
            total_bytes = request_bytes + self._reserved_bytes + self._unsent_bytes
            if total_bytes != self.held_bytes:
                self._server.memory.hold(self, total_bytes)

    def _close_if_ended(self) -> None:
        if not self._is_ended:
            return
        has_command = self._session.error is None and self._has_command()
        is_waiting = (
            self._unput
            or self._user.running
            or self._user.waiting
            or has_command
            or self._unwritten
        )
        if not is_waiting:
            self.close()

    def _read(self, shall_read: bool) -> None:
        if (
            shall_read == self._is_reading
            or self._transport is None
            or self._transport.is_closing()
        ):
            return
        self._is_reading = shall_read
        if shall_read:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


def _plain(address: str) -> str:
    """Return an address without its scope. An IPv4 address that is mapped to IPv6 becomes IPv4."""
    return address.removeprefix("::ffff:").partition("%")[0]


def _is_reset(transport: asyncio.Transport) -> bool:
    """Return whether the client has left.

    The event loop notices this only while it reads from the connection.
    """
    watch = select.poll()
    # Without any requested event, poll reports only hang-ups and errors.
    watch.register(transport.get_extra_info("socket").fileno(), 0)
    return bool(watch.poll(0))
