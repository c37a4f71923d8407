"""Relay the bytes of encrypted connections between clients and another process.

A TLS connection cannot move to another process. So the process that accepted the connection keeps it, decrypts the
client's bytes, and writes them to a socket pair. The other process has the other end of the pair.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast


class Relay(asyncio.Protocol):
    """One of two joined connections.

    Bytes that are read from one connection are written to the other, as fast as the other accepts them.
    """

    def __init__(self, transport: asyncio.Transport | None = None) -> None:
        self._transport = transport
        self._other: Relay | None = None

    @classmethod
    async def between(cls, client: asyncio.Transport, own: socket.socket) -> Relay:
        """Join a client's connection with one end of a socket pair. Nothing else may read the client's connection.

        Raises OSError.
        """
        loop = asyncio.get_running_loop()
        inner = cls()
        outer = cls(client)
        inner._other, outer._other = outer, inner
        await loop.create_unix_connection(lambda: inner, sock=own)
        # The client may have left while the other connection was opened.
        if client.is_closing():
            inner.close()
            return outer
        client.set_protocol(outer)
        client.resume_reading()
        return outer

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        """Close both connections after all bytes are written."""
        transport, other = self._transport, self._other
        self._transport = self._other = None
        if transport is not None:
            transport.close()
        if other is not None:
            other.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def data_received(self, data: bytes) -> None:
        if self._other is not None and self._other._transport is not None:
            self._other._transport.write(data)

    def pause_writing(self) -> None:
        # Too many bytes wait to be written to this connection, so stop reading from the other connection.
        if self._other is not None and self._other._transport is not None:
            self._other._transport.pause_reading()

    def resume_writing(self) -> None:
        other = self._other
        if other is not None and other._transport is not None and not other._transport.is_closing():
            other._transport.resume_reading()
