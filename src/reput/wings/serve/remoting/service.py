"""Run the service: open and watch stores, serve their ports, and run periodic tasks."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from reput.base import format_time, now_ms
from reput.engine.writer import MissingStore, SharedStore
from reput.errors import ReputError, StoreAccessError
from reput.format.host import Host
from reput.wings.serve.broker.broker import Cluster, ServedBroker
from reput.wings.serve.broker.limits import CLUSTER, Limits
from reput.wings.serve.remoting.access import AccessList
from reput.wings.serve.remoting.port import Port, PortOptions
from reput.wings.serve.remoting.server import Server, bind
from reput.wings.serve.remoting.stores import broker_name, find_stores, is_store, missing_stores

_log = logging.getLogger("reput.serve")
_LOOK_S, _WATCH_S, _HOUSE_S = 0.1, 1.0, 5.0
# Number of queues whose waiting pulls are answered in a row, before other requests are answered.
_MOST_GROWN = 500

# Each of these tasks pauses for 9 times its duration, so it takes at most a tenth of the time.
_SAVE_PAUSES = _LIST_PAUSES = 9
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """The stores to serve, and their addresses.

    Attributes:
        listen: Address of the first store; other stores get the following ports. None to serve no RocketMQ clients.
        accepts_sends: Whether stores are written, and created if missing.
        port: Options of each port.
        limits: Limits of clients.
        tls: TLS settings of connections; None for no encryption.
        access: Permissions; None allows everything.
        cluster: Name of the cluster of all stores.
        clock_ms: Clock for the delivery of delayed messages and for checks of transactions.
        names: Names of brokers by path of the store. Other brokers are named by their folders.
    """

    listen: Host | None
    accepts_sends: bool = False
    port: PortOptions = field(default_factory=PortOptions)
    limits: Limits = field(default_factory=Limits)
    tls: ssl.SSLContext | None = None
    access: AccessList | None = None
    cluster: str = CLUSTER
    clock_ms: Callable[[], int] = now_ms
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Served:
    """A store and its address.

    Attributes:
        name: Name of its broker; empty until the store was opened.
        store: The open store; None while it is missing. `missing` then has the reason.
        broker: The broker that answers clients; None without a store, or if no RocketMQ clients are served.
    """

    path: str
    address: Host
    port: Port
    name: str = ""
    store: SharedStore | None = None
    broker: ServedBroker | None = None
    missing: MissingStore | None = None


class Service:
    """Stores and their ports, in one event loop.

    Attributes:
        served: All stores that were ever seen, in the order of their ports.
    """

    def __init__(
        self,
        paths: Sequence[str],
        open_store: Callable[[str, Host], SharedStore],
        options: ServiceOptions,
    ) -> None:
        """Prepare the service.

        `open_store` opens the store at a path. Its second argument is the address at which the store is served.
        """
        self._paths, self._open_store, self._options = paths, open_store, options
        self._cluster = Cluster(options.cluster)
        self.server = Server(options.limits)
        self.served: list[Served] = []
        self._at_work: set[asyncio.Future[Any]] = set()
        self._since_ms: dict[str, int] = {}

    async def start(self) -> None:
        """Open the stores and accept connections.

        Raises StoreAccessError if an address is in use, and ReputError if a store cannot be opened.
        """
        # With `accepts_sends`, each path is one store, which is created if missing. Otherwise, a path may also be a
        # folder that contains stores, so search the paths for stores.
        stores = list(self._paths) if self._options.accepts_sends else find_stores(self._paths)
        for path in stores:
            await self._serve(path, waits=len(stores) > 1 and not self._options.accepts_sends)
        # No store exists yet. Listen all the same, so that clients can connect before it is created.
        if not self.served:
            await self._serve(self._paths[0], exists=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        async with asyncio.TaskGroup() as tasks:
            work: list[tuple[float, Callable[[], object]]] = [
                (_LOOK_S, self._look), (_LOOK_S, self._follow_growth), (_LOOK_S, self._deliver), (_LOOK_S, self._save),
                (_WATCH_S, self._list_topics), (_WATCH_S, self._check_transactions),
                (_HOUSE_S, self._keep_house), (_WATCH_S, self._watch),
            ]  # fmt: skip
            running = [tasks.create_task(_every(*task_work)) for task_work in work]
            await stop.wait()
            for task in running:
                task.cancel()

    async def close(self, timeout_s: float = 10.0) -> None:
        """Finish the requests in flight and close the stores. Raises ReputError if a store cannot be closed cleanly."""
        # Answer waiting pulls first. Otherwise, `drain` would wait for them until its timeout.
        for served in self.served:
            served.port.stop_waiting()
        await self.server.drain(timeout_s)
        # Wait until the threads have finished their work. Ignore errors here: the callers of `_in_thread` got them.
        await asyncio.gather(*self._at_work, return_exceptions=True)
        errors: list[ReputError] = []
        for served in self.served:
            try:
                self._drop(served)
            except ReputError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def missing(self) -> list[MissingStore]:
        """Return the stores that should be served but are gone, do not exist yet, or cannot be opened."""
        missing = [
            served.missing for served in self.served if served.store is None and served.missing
        ]
        if self._options.accepts_sends:
            return missing
        reasons = missing_stores(self._paths)
        for path in [path for path in self._since_ms if path not in reasons]:
            del self._since_ms[path]
        # A store that disappeared a moment ago is still open. Requests for it fail until `_watch` drops it.
        served_paths = {store.path for store in missing}
        served_paths |= {served.path for served in self.served if served.store}
        for path, reason in reasons.items():
            since_ms = self._since_ms.setdefault(path, now_ms())
            # `path` is a store or a folder that contained stores. If `missing` already has the store, or stores of the
            # folder, do not add `path` as well.
            inside = f"{path.rstrip('/')}/"
            if not any(name == path or name.startswith(inside) for name in served_paths):
                missing.append(MissingStore(self._name_of(path), path, since_ms, reason))
        return missing

    @property
    def is_encrypted(self) -> bool:
        """Return whether connections are encrypted."""
        return self._options.tls is not None

    def stores(self) -> dict[str, SharedStore]:
        """Return the open stores by the names of their brokers."""
        return {served.name: served.store for served in self.served if served.store}

    def _name_of(self, path: str) -> str:
        return broker_name(path, self.stores(), self._options.names.get(path))

    async def _serve(self, path: str, exists: bool = True, waits: bool = False) -> None:
        """Listen at the next address for the store at `path`, and open the store if it `exists`.

        With `waits`, retry later if the store cannot be opened.
        """
        port = Port(self._cluster, self._options.port, self._options.access, self._options.limits)
        first, bound = self._options.listen, None
        if first is None:
            # No RocketMQ clients are served, so nothing listens at this address. It only identifies the store.
            address = Host("127.0.0.1", len(self.served) + 1)
        else:
            port_number = first.port + len(self.served) if first.port else 0
            with _listening_at(Host(first.address, port_number)) as place:
                bound, address = bind(place)
        served = Served(path, address, port)
        self.served.append(served)
        try:
            if exists and waits:
                self._try_to_open(served)
            elif exists:
                # Accept connections only after the store is open. If requests had to wait, clients would send them
                # again.
                self._open(served)
        finally:
            if bound is not None:
                with _listening_at(address):
                    self.server.listen(port, bound, self._options.tls)

    def _try_to_open(self, served: Served) -> None:
        """Open a store. If this fails, for example because the store has no message yet, record the reason."""
        try:
            self._open(served)
        except ReputError as error:
            before, reason = served.missing, str(error)
            since_ms = before.since_ms if before else now_ms()
            name = before.name if before else self._name_of(served.path)
            served.missing = MissingStore(name, served.path, since_ms, reason)
            if before is None or before.reason != reason:
                _log.warning("%s: not served yet: %s", served.path, reason)

    def _open(self, served: Served) -> None:
        name, missing = self._name_of(served.path), served.missing
        store = self._open_store(served.path, served.address)
        # Create a broker only if clients are served, because listing its topics takes long.
        if self._options.listen is not None:
            try:
                served.broker = self._broker_of(served, name, store)
            except BaseException:
                store.close()
                raise
        served.name, served.store, served.missing = name, store, None
        _log.info("%s: served as %s at %s", served.path, name, served.address)
        if missing is not None:
            since = format_time(missing.since_ms)
            _log.warning("%s: served as %s; it was missing since %s", served.path, name, since)

    def _broker_of(self, served: Served, name: str, store: SharedStore) -> ServedBroker:
        broker = ServedBroker(
            name, store, self._options.clock_ms, self._options.limits, self._options.cluster
        )
        broker.port = served.address.port
        broker.has_sql_filters = self._options.port.has_sql_filters
        broker.is_encrypted = self.is_encrypted
        broker.is_exact = self._options.port.most_exact is not None
        served.port.open(broker)
        self._cluster.add(served.address.port, broker)
        if broker.writable is not None:
            loop = asyncio.get_running_loop()
            broker.writable.subscribe(partial(_arrived, loop, served.port))
        self.server.prepare(broker.store.broker_end)
        return broker

    def _drop(self, served: Served) -> None:
        broker, store, served.broker, served.store = served.broker, served.store, None, None
        served.port.close()
        self._cluster.remove(served.address.port)
        if broker is not None:
            broker.close()
        elif store is not None:
            store.close()

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Return the result of `work`. If the caller is cancelled, the work continues, and `close` waits for it."""
        running = asyncio.create_task(asyncio.to_thread(work))
        self._at_work.add(running)
        running.add_done_callback(self._at_work.discard)
        return await asyncio.shield(running)

    def _brokers(self) -> list[ServedBroker]:
        return [served.broker for served in self.served if served.broker is not None]

    def _look(self) -> None:
        for served in self.served:
            served.port.look()

    async def _follow_growth(self) -> None:
        """Find awaited queues that have grown, and answer their waiting pulls. Then pause as long as this took."""
        begun = time.monotonic()
        for served in self.served:
            if (growth := served.port.growth()) is not None:
                for number, queue in enumerate(await self._in_thread(growth)):
                    served.port.wake_up(*queue)
                    if number % _MOST_GROWN == 0:
                        await asyncio.sleep(0)  # Let other tasks run: there may be 100,000 queues.
        await asyncio.sleep(time.monotonic() - begun)

    async def _deliver(self) -> None:
        for broker in self._brokers():
            if broker.written is not None:
                await self._in_thread(broker.written.deliver_due)

    async def _check_transactions(self) -> None:
        for served in self.served:
            if served.broker is not None and served.broker.written is not None:
                due = await self._in_thread(served.broker.written.transactions.to_check)
                served.port.ask_producers(due)

    async def _save(self) -> None:
        """Save the changes of all brokers. Then pause for several times as long as this took."""
        begun = time.monotonic()
        for broker in self._brokers():
            for save in broker.unsaved():
                await self._in_thread(save)
        await asyncio.sleep(_SAVE_PAUSES * (time.monotonic() - begun))

    async def _list_topics(self) -> None:
        """Count each topic's queues again. Then pause for several times as long as this took."""
        begun = time.monotonic()
        for broker in self._brokers():
            if broker.topics.is_stale:
                broker.topics.take_over(await self._in_thread(broker.topics.find))
        await asyncio.sleep(_LIST_PAUSES * (time.monotonic() - begun))

    async def _keep_house(self) -> None:
        self.server.close_idle()
        for broker in self._brokers():
            broker.forget_silent()

    async def _watch(self) -> None:
        """Serve stores that appeared, and stop serving stores that are gone."""
        if self._options.accepts_sends:
            return
        stores = find_stores(self._paths)
        by_path = {entry.path: entry for entry in self.served}
        for entry in self.served:
            if entry.store is not None and entry.path not in stores:
                _log.warning("%s: the store is gone", entry.path)
                entry.missing = MissingStore(entry.name, entry.path, now_ms(), "the store is gone")
                self._drop(entry)
        for path in stores:
            served = by_path.get(path) or next((s for s in self.served if self._is_spare(s)), None)
            if served is None:
                await self._serve(path, waits=True)
            elif served.store is None:
                served.path = path
                self._try_to_open(served)

    def _is_spare(self, served: Served) -> bool:
        """Return whether the address was opened before any store existed. If so, the next new store gets it."""
        return served.store is None and served.path == self._paths[0] and not is_store(served.path)


def _arrived(
    loop: asyncio.AbstractEventLoop, port: Port, topic: str, queue_id: int, end: int
) -> None:
    """Report that a queue has grown. The thread of dispatch calls this."""
    if port.is_awaited(topic, queue_id):
        loop.call_soon_threadsafe(port.wake_up, topic, queue_id, end)


async def _every(seconds: float, work: Callable[[], object]) -> None:
    """Repeat a task. Failures are logged, and the task is repeated all the same."""
    while True:
        await asyncio.sleep(seconds)
        try:
            result = work()
            if asyncio.iscoroutine(result):
                await result
        except ReputError as error:
            _log.warning("%s", error)
        except Exception:
            _log.exception("housekeeping failed")


@contextmanager
def _listening_at(address: Host) -> Iterator[Host]:
    """Convert errors of binding or listening: raise StoreAccessError if the address is not available."""
    try:
        yield address
    except (OSError, OverflowError) as error:
        raise StoreAccessError(
            f"{address}: cannot listen there: {_reason(error)}; choose another address"
        ) from error


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
