"""Serve the console on a port, in an event loop shared with other tasks."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import uvicorn

from reput.core import MissingStore, SharedStore
from reput.errors import UsageError
from reput.format.host import Host
from reput.wings.console.app import LOOPBACK_HOSTS, create_app
from reput.wings.console.guard import Guard
from reput.wings.console.users import Users
from reput.wings.serve import HTTP, HttpLimits, Traffic

_PATIENCE_S = 10


class HttpServer:
    """An HTTP server, which answers from `start` to `close`. The owner of the event loop must handle signals."""

    def __init__(
        self,
        stores: Mapping[str, SharedStore],
        address: Host,
        token: str | None = None,
        limits: HttpLimits = HTTP,
        *,
        missing: Callable[[], Sequence[MissingStore]] = lambda: (),
        hosts: Sequence[str] = (),
        tls: tuple[str, str | None] | None = None,
        audit: Callable[[dict[str, object]], None] | None = None,
        traffic: Traffic | None = None,
        users: Users | None = None,
    ) -> None:
        """Prepare a server. Port 0 selects any free port.

        `hosts` contains further names of this server, and `tls` the files of a certificate chain and its key. The
        arguments `stores`, `missing`, `audit`, `traffic` and `users` are the same as for `create_app`.
        """
        self._stores, self._token, self._missing = stores, token, missing
        self._further_hosts, self._tls = hosts, tls
        self._audit, self._traffic, self._users = audit, traffic, users
        self.guard = Guard(limits)
        self._address = address
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
        self._app = app = create_app(
            self._stores, missing=self._missing, token=self._token, hosts=self._hosts(),
            audit=self._audit, traffic=self._traffic, users=self._users,
        )  # fmt: skip
        certificate, key = self._tls or (None, None)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=_PATIENCE_S,
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

    def _hosts(self) -> list[str] | None:
        """Return the host names that requests may contain; None for any name, if requests need a token.

        Without a token, requests may contain loopback names, the server's own address, and the names given as `hosts`.
        Any other name could belong to another site that lets it resolve to this machine.
        """
        if self._token is not None or self._users is not None:
            return None
        address = ipaddress.ip_address(self._address.address)
        names = [] if address.is_loopback or address.is_unspecified else [self._address.address]
        return [*LOOPBACK_HOSTS, *names, *(host.lower() for host in self._further_hosts)]

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
