"""Distribute connections among processes. The main process accepts them, and serves each or gives it to a worker.

The main process has the state of groups. If a request needs this state, the worker gives the connection back, with the
bytes that were received. A TLS connection is relayed instead: the worker continues to decrypt it.

Only the main process decides at which address a store is served, and informs the workers. Messages between processes
are JSON, one per packet of a Unix socket. If a message hands over a connection, its packet contains the connection's
file descriptor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections.abc import Callable, Sequence

import msgspec

from reput.errors import ReputError
from reput.format.host import Host
from reput.io.passed_bytes import passed_bytes, received_bytes
from reput.wings.serve.remoting.connection import RelayedPeer
from reput.wings.serve.remoting.service import Service

_log = logging.getLogger("reput.serve")
# Maximum size of a message between the processes (`_Message`). Its longest part is a path, of at most 4 KiB.
_MESSAGE_BYTES = 1 << 16
_PATIENCE_S = 10.0


class _Message(msgspec.Struct):
    """A message between the processes. It reports the state of a store at a port, or hands over a connection.

    Attributes:
        port: Port of the store.
        host: Host of the store's address; None if the message has a connection.
        path: Folder of the store.
        is_there: Whether the store is there and can be opened.
        peer: Addresses of the client, if a worker relays the client's data over the connection. None if the client
            itself has opened the connection.
    """

    port: int
    host: str | None = None
    path: str = ""
    is_there: bool = True
    peer: RelayedPeer | None = None


def channel() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a channel between processes."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # macOS has no SOCK_SEQPACKET. With datagrams, a worker does not notice that the main process was killed.
    except OSError:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)


class Workers:
    """Gives connections to worker processes, and takes back connections that they return.

    Only the main process uses this class.
    """

    def __init__(self, channels: Sequence[socket.socket]) -> None:
        """Each channel connects the main process with one worker."""
        # The channel to each process, in the order in which the processes get connections. None stands for the main
        # process itself.
        self._channels: list[socket.socket | None] = [None, *channels]
        self._turn = 0
        self._service: Service | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        for channel in channels:
            channel.setblocking(False)

    def listen(self, service: Service) -> None:
        """Serve the connections that workers give back, in this event loop.

        A worker gives a connection back if a request needs state that only the main process has.
        """
        self._service = service
        for channel in self._channels:
            if channel is not None:
                self._listen(channel)

    def _listen(self, channel: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(channel.fileno(), self._receive, channel)

    def _receive(self, channel: socket.socket) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:  # The worker has ended. It is removed when the next message to it fails.
            asyncio.get_running_loop().remove_reader(channel.fileno())
            return
        # A worker hands over two descriptors: the connection, and a file with the bytes received from it.
        if len(descriptors) != 2 or self._service is None:
            for descriptor in descriptors:
                os.close(descriptor)
            return
        message = msgspec.json.decode(data, type=_Message)
        connection = socket.socket(fileno=descriptors[0])
        received = received_bytes(descriptors[1])
        connection.setblocking(False)
        take = self._service.take(connection, message.port, received, message.peer)
        task = asyncio.get_running_loop().create_task(take)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def add(self, channel: socket.socket) -> None:
        """Add a worker in place of one that has ended."""
        channel.setblocking(False)
        self._channels.append(channel)
        if self._service is not None:
            self._listen(channel)
        _log.warning("a worker has begun; there are %d", len(self._channels))

    def tell(self, path: str, address: Host, is_there: bool) -> None:
        """Inform the workers that a store is served at an address from now on, or no longer."""
        message = _Message(address.port, address.address, path, is_there)
        for channel in list(self._channels):
            if channel is None or self._send(channel, message):
                continue
            # The worker is busy. Wait for it, because it must not miss a change of the stores.
            if channel in self._channels:
                watch = select.poll()
                watch.register(channel, select.POLLOUT)
                watch.poll(_PATIENCE_S * 1000)
                if channel in self._channels and not self._send(channel, message):
                    self._drop(channel)

    def hand_on(self, connection: socket.socket, port: int) -> bool:
        """Give a connection to a worker.

        Return whether a worker has taken it. If so, the caller closes its own copy.
        """
        self._turn = (self._turn + 1) % len(self._channels)
        channel = self._channels[self._turn]
        return channel is not None and self._send(channel, _Message(port), [connection.fileno()])

    def _send(
        self, channel: socket.socket, message: _Message, descriptors: Sequence[int] = ()
    ) -> bool:
        try:
            socket.send_fds(channel, [msgspec.json.encode(message)], list(descriptors))
        except BlockingIOError:  # The worker is busy. The caller decides whether to wait.
            return False
        except OSError:  # The worker has ended.
            self._drop(channel)
            return False
        return True

    def _drop(self, channel: socket.socket) -> None:
        self._channels.remove(channel)
        self._turn = 0
        if self._service is not None:
            asyncio.get_running_loop().remove_reader(channel.fileno())
        channel.close()
        _log.warning("a worker has ended; %d are left", len(self._channels))


class Worker:
    """The part of a worker process that receives stores and connections from the main process, and serves them."""

    def __init__(
        self, channel: socket.socket, service: Service, gone: Callable[[], object]
    ) -> None:
        """`channel` connects this worker with the main process. `gone` is called when the main process has ended."""
        self._channel, self._service, self._gone = channel, service, gone
        self._tasks: set[asyncio.Task[None]] = set()
        service.server.hand_back = self._hand_back

    def _hand_back(
        self, connection: socket.socket, port: int, received: bytes, peer: RelayedPeer | None
    ) -> bool:
        """Give a connection back to the main process. Return whether the main process has taken it."""
        try:
            # Pass the received bytes in a file, because a large request does not fit into a message of the channel.
            with passed_bytes(received) as descriptor:
                descriptors = [connection.fileno(), descriptor]
                message = msgspec.json.encode(_Message(port, peer=peer))
                socket.send_fds(self._channel, [message], descriptors)
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Begin to receive messages of the main process, in this event loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel.fileno(), self._receive)

    def close(self) -> None:
        """Stop receiving messages of the main process."""
        asyncio.get_running_loop().remove_reader(self._channel.fileno())
        self._channel.close()

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._gone()
            return
        message = msgspec.json.decode(data, type=_Message)
        for descriptor in descriptors:
            self._take(descriptor, message.port)
        if message.host is not None:
            self._follow(message, message.host)

    def _take(self, descriptor: int, port: int) -> None:
        try:
            connection = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            return
        task = asyncio.get_running_loop().create_task(self._service.take(connection, port))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _follow(self, message: _Message, host: str) -> None:
        try:
            self._service.follow(message.path, Host(host, message.port), message.is_there)
        except ReputError as error:
            _log.warning("%s: %s", message.path, error)
