"""Serve the console on a port, in an event loop shared with other tasks."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import uvicorn
from starlette.applications import Starlette

from reput.errors import UsageError
from reput.format.host import Host
from reput.wings.console.app import LOOPBACK_HOSTS
from reput.wings.console.guard import Guard
from reput.wings.serve import HTTP, HttpLimits

_PATIENCE_S = 10


class HttpServer:
    """An HTTP server, which answers from `start` to `close`. The owner of the event loop must handle signals."""

    def __init__(
        self,
        app: Starlette,
        address: Host,
        limits: HttpLimits = HTTP,
        *,
        tls: tuple[str, str | None] | None = None,
    ) -> None:
        """Prepare a server of an app (see `create_app`). Port 0 selects any free port.

        `tls` names the files of a certificate chain and its key.
        """
        self._app, self._address, self._tls = app, address, tls
        self.guard = Guard(limits)
        self._server: _Server | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def address(self) -> Host:
        """Return the address of the server. It is known after the start."""
        assert self._server is not None
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return Host(host, port)

    async def start(self) -> None:
        """Bind the address, and start to answer. Raises UsageError if the address is not available."""
        bound = _bound(self._address)
        certificate, key = self._tls or (None, None)
        config = uvicorn.Config(
            self._app, log_config=None, access_log=False, timeout_graceful_shutdown=_PATIENCE_S,
            http=self.guard.protocol(), ssl_certfile=certificate, ssl_keyfile=key,
            # Ignore X-Forwarded-For, with which clients could forge their address.
            proxy_headers=False,
        )  # fmt: skip
        self._server = _Server(config)
        self._running = asyncio.create_task(self._server.serve(sockets=[bound]))
        self._guarding = asyncio.create_task(self.guard.run())
        # uvicorn has no event for its start, so poll.
        while not self._server.started:
            await asyncio.sleep(0.005)
            if self._running.done():
                await self._running

    async def close(self) -> None:
        """End searches, finish the requests in flight, for at most some seconds, and stop."""
        # Ask the task to exit, instead of cancelling it, so that it finishes the requests first.
        if self._server is not None and self._running is not None:
            self._app.state.mounts.end()
            self._server.should_exit = True
            self._guarding.cancel()
            with suppress(asyncio.CancelledError):
                await self._running


class _Server(uvicorn.Server):
    @contextmanager
    # The process already has its own signal handlers; uvicorn's would replace them.
    def capture_signals(self) -> Iterator[None]:
        yield


def host_names(address: Host, further: Sequence[str]) -> list[str]:
    """Return the host names that requests without a token may contain.

    They are loopback names, the server's own address, and `further` names of this server. Any other name could belong
    to another site that lets it resolve to this machine.
    """
    ip = ipaddress.ip_address(address.address)
    own = [] if ip.is_loopback or ip.is_unspecified else [address.address]
    return [*LOOPBACK_HOSTS, *own, *(name.lower() for name in further)]


def _bound(address: Host) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of a previous server may still be in TIME_WAIT, and would block the address for a minute.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.address, address.port))
    except OSError as error:
        bound.close()
        raise UsageError(f"http {address}: {error.strerror}", arguments=["http"]) from None
    return bound
