"""Run the process of `reput serve`: event loop, signals and output."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import click

from reput.base import json_text, printable
from reput.cli import FOUND, given_config, writer_settings
from reput.engine.stores import NamedStore, open_store, replicas_of, stores_of
from reput.engine.writer import SharedStore
from reput.errors import MissingExtraError, StoreAccessError, UsageError
from reput.format.host import Host
from reput.io import DISK, OpenFiles
from reput.kernels.compile_cache import has_compiled
from reput.wings.serve import (
    AccessList,
    Limits,
    PortOptions,
    Service,
    ServiceOptions,
    is_store,
    missing_stores,
)

_KERNELS = (
    "commit_log_scan.scan_records", "index_chains.put_keys", "queue_entries.append_entries",
    "record_layout.lay_out_records",
)  # fmt: skip
"""One kernel of each module whose kernels a writable store calls.

If the listed kernel of a module is compiled, all kernels of this module are compiled.
"""
# Descriptors for files of stores, in addition to one per connection.
_FILES_BESIDE = 4096
# Time for which a computing thread may delay the event loop. CPython's default is 5 ms.
_SWITCH_S = 0.0005
# Parameters of mallopt(3) and their values. Allocations above the threshold are mapped, so their memory returns to the
# system when they are freed. Memory of smaller allocations stays in an arena, so the number of arenas is limited.
_M_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1 << 20
_M_ARENA_MAX, _ARENAS = -8, 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Audit = Callable[[dict[str, object]], None]
_log = logging.getLogger("reput.console")


def _compile_kernels() -> None:
    """Compile kernels before the first client connects. Otherwise, its request would time out and be sent again."""
    if not has_compiled(*_KERNELS):
        from reput.engine.stores.warm_up import warm_up

        warm_up()


def address_of(text: str, argument: str) -> Host:
    """Return the address to listen at, from `host:port`. Raises UsageError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise UsageError(
            f"{argument} {text!r}: write HOST:PORT, such as 127.0.0.1:9876", arguments=[argument]
        )
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"{argument} {text!r}: {error.strerror}", arguments=[argument]) from None
    return Host(str(found[0][4][0]), int(port))


@dataclass
class Serving:
    """The options of `reput serve`."""

    stores: Sequence[str]
    listed: Sequence[NamedStore]
    address: Host | None
    http: Host | None
    http_token_file: str | None
    http_users_file: str | None
    http_hosts: Sequence[str]
    audit_log: str | None
    advertised: str | None
    cluster: str
    store_version: str | None
    has_sql_filters: bool
    accepts_sends: bool
    flush: Literal["async", "sync"] | None
    acl: str | None
    tls_cert: str | None
    tls_key: str | None
    exact: bool
    max_results: int
    max_connections: int
    frame_bytes: int
    idle_s: float
    broker_config: str | None
    hash_slots: int | None
    index_items: int | None
    _named: dict[str, tuple[NamedStore, dict[str, Any]]] = field(default_factory=dict)

    def run(self) -> int:
        """Serve until a signal arrives; return the exit code."""
        self._list()
        self._warn()
        _return_memory()
        OpenFiles.allow(self.max_connections + _FILES_BESIDE)
        if self.accepts_sends:
            _compile_kernels()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve())
        return FOUND

    def _list(self) -> None:
        """Add the stores of the fleet file. Of several replicas, add only the master. Raises UsageError, StoreError."""
        listed = stores_of(self.listed) if self.listed else []
        first = replicas_of(listed)
        for store in listed:
            if (master := first.get(store.name)) is not None:
                click.echo(
                    f"reput: {printable(store.name)}: a replica of {printable(master)}: not served",
                    err=True,
                )
                continue
            path, settings = store.arguments(joined=not self.accepts_sends)
            self.stores = [*self.stores, path]
            self._named[path] = store, settings

    async def _serve(self) -> None:
        service = Service(self.stores, self._open, self._options())
        shown = None
        audit = service.server.audit = _audit_to(self.audit_log)
        if self.http is not None:
            try:
                from reput.wings.console.api import console
            except ImportError:
                raise MissingExtraError(
                    "--http needs starlette: pip install 'reput[serve]'"
                ) from None
            tls = None if self.tls_cert is None else (self.tls_cert, self.tls_key)
            shown = console(
                service.stores, service.missing, self.http, self.http_token_file,
                self.http_hosts, tls, audit, service.server.traffic, self.http_users_file,
            )  # fmt: skip
        # Set the handlers before readiness is announced, so that no signal ends the process uncleanly.
        stop = _stopped()
        await service.start()
        _spare_the_loop()
        try:
            if shown is not None:
                await shown.start()
            self._tell(service, None if shown is None else shown.address)
            _notify("READY=1")
            await service.run(stop)
            _notify("STOPPING=1")
        finally:
            if shown is not None:
                await shown.close()
            await service.close()

    def _options(self) -> ServiceOptions:
        return ServiceOptions(
            listen=self.address,
            accepts_sends=self.accepts_sends,
            port=PortOptions(
                self.advertised,
                self.max_results if self.exact else None,
                self.flush == "sync",
                self.has_sql_filters,
            ),
            limits=Limits(
                frame_bytes=self.frame_bytes, connections=self.max_connections, idle_s=self.idle_s
            ),
            tls=self._tls(),
            access=None if self.acl is None else AccessList.read(self.acl),
            cluster=self.cluster,
            names={
                path: store.name
                for path, (store, _) in self._named.items()
                if store.name != store.path
            },
        )

    def _tls(self) -> ssl.SSLContext | None:
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise UsageError("tls_key needs tls_cert", arguments=["tls_key", "tls_cert"])
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"tls_cert {self.tls_cert}: {error.strerror or error}", arguments=["tls_cert"]
            ) from None
        return context

    def _open(self, path: str, address: Host) -> SharedStore:
        if self.accepts_sends:
            return self._own(path, address)
        _, settings = self._named.get(path, (None, {}))
        return SharedStore(
            path,
            broker_config=None if "config" in settings else self.broker_config,
            hash_slots=self.hash_slots,
            index_items=self.index_items,
            **settings,
        )

    def _own(self, path: str, address: Host) -> SharedStore:
        """Open a store for writing.

        With synchronous flushing, the server, not the store, waits for a flush: one flush serves all waiting senders
        (group commit). So the store is always opened with asynchronous flushing.
        """
        store_of, _ = self._named.get(path, (None, {}))
        broker_config = (store_of and store_of.config) or self.broker_config
        settings = writer_settings(broker_config)
        if self.flush is None and settings.get("flush") == "sync":
            self.flush = "sync"
        host = Host(_numeric(self.advertised) or address.address, address.port)
        given: dict[str, Any] = {"hash_slots": self.hash_slots, "index_items": self.index_items}
        # An existing store keeps its version, because another version would change the format of its files.
        if self.store_version is not None and not is_store(path):
            given["store_version"] = self.store_version
        config = given_config(path, broker_config, given, writes=True)
        settings |= {"flush": "async", "store_host": host}
        store = open_store(path, mode="rw", config=config, **settings)
        if not store.recovery.is_clean:
            click.echo(f"reput: {printable(path)}: recovered: {store.recovery}", err=True)
        return store

    def _warn(self) -> None:
        is_open = self.http_token_file is None and self.http_users_file is None
        if self.http and not _is_loopback(self.http) and is_open:
            click.echo(
                f"reput: {self.http}: without --http-token-file or --http-users, anyone who reaches this address "
                f"can read messages",
                err=True,
            )
        is_guarded = self.acl is not None and self.tls_cert is not None
        if self.address is not None and not _is_loopback(self.address) and not is_guarded:
            lacks = " and ".join(
                name
                for name, given in (("--acl", self.acl), ("--tls-cert", self.tls_cert))
                if not given
            )
            does = "can read and send" if self.accepts_sends else "can read"
            click.echo(
                f"reput: {self.address}: without {lacks}, anyone who reaches or overhears this address {does} messages",
                err=True,
            )

    def _tell(self, service: Service, http: Host | None) -> None:
        """Print the addresses, and three mqadmin commands to try."""
        missing = {} if self.accepts_sends else missing_stores(self.stores)
        for each in service.served:
            what = each.name if each.store else "waiting for the store"
            if each.store is None and (reason := missing.pop(each.path, None)):
                what = f"{what}: {reason}"
            place = "" if self.address is None else f"{each.address}  "
            click.echo(f"{place}{printable(each.path)}  ({printable(what)})")
        for path, reason in missing.items():
            click.echo(f"reput: {printable(path)}: not served yet: {reason}", err=True)
        if http is not None:
            scheme = "http" if self.tls_cert is None else "https"
            click.echo(f"{scheme}://{http}/  in a browser")
        if self.address is None:
            return
        first = service.served[0]
        topics = first.broker.topics.view().configs() if first.broker else []
        # Suggest a topic that users have created, not one of the broker's own topics.
        names = [
            each.name
            for each in topics
            if not each.name.startswith("%")
            and not (first.broker and first.broker.topics.is_internal(each.name))
        ]
        topic = printable(names[0]) if names else "TOPIC"
        click.echo("Try:")
        click.echo(f"  mqadmin topicList -n {first.address}")
        click.echo(f"  mqadmin queryMsgByKey -n {first.address} -t {topic} -k KEY")
        click.echo(f"  mqadmin consumeMessage -n {first.address} -t {topic}")


def _audit_to(path: str | None) -> Audit | None:
    """Return a function that appends a line to a file. Raises StoreAccessError.

    Each call opens the file, so that logrotate can rename it at any time.
    """
    if path is None:
        return None
    DISK.append_line(
        path, b""
    )  # Fail now, not at the first request, if the file cannot be written.

    def write(fields: dict[str, object]) -> None:
        try:
            DISK.append_line(path, json_text(fields).encode("utf-8", "backslashreplace"))
        # The request must succeed even if its line cannot be appended to the audit file, for example on a full disk.
        except StoreAccessError as error:
            _log.error("%s", error)

    return write


def _notify(state: str) -> None:
    """Notify systemd of a state, as sd_notify(3) does. Does nothing if systemd does not wait for this process."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    address = f"\0{place[1:]}" if place.startswith("@") else place  # @ denotes an abstract socket.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(state.encode(), address)


def _is_loopback(address: Host) -> bool:
    return ipaddress.ip_address(address.address).is_loopback


def _numeric(host: str | None) -> str | None:
    """Return the numeric address of a host, because message ids contain addresses, not names."""
    if host is None:
        return None
    with contextlib.suppress(OSError):
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if it is installed: the server then answers 1.5 times as many requests."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _spare_the_loop() -> None:
    """Make sure that threads and garbage collection delay the event loop by less than a millisecond at a time."""
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    # Exempt all present objects, such as modules and tables of topics, from later garbage collections: they live as
    # long as the process.
    gc.freeze()


def _return_memory() -> None:
    """Make glibc return the memory of large answers to the system at once. Otherwise its arenas keep gigabytes."""
    # Some C libraries, such as musl, lack mallopt.
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)
    # Searches load Arrow later. Let it use the system's allocator, because its own allocator keeps memory for each
    # thread.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _stopped() -> asyncio.Event:
    """Return an event that SIGINT, SIGTERM or SIGHUP sets."""
    stop = asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
