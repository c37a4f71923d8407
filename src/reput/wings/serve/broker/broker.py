"""Serve a store as a broker, with the state that brokers keep in config/, and combine brokers into a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from reput.base import now_ms
from reput.core import UnreadableMessages, finding_of
from reput.engine.writer import SharedStore
from reput.errors import FormatError, MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.io import Location
from reput.wings.serve.broker.counters import Counters
from reput.wings.serve.broker.delays import DelayedDelivery
from reput.wings.serve.broker.groups import ClientGroups, SubscriptionGroups
from reput.wings.serve.broker.limits import CLUSTER, LimitError, Limits
from reput.wings.serve.broker.locks import QueueLocks
from reput.wings.serve.broker.offsets import (
    ConsumerOffsets,
    PulledOffsets,
    check_kept_in_files,
    committed_offsets,
    is_kept_elsewhere,
)
from reput.wings.serve.broker.sending import Sent, SentMessages
from reput.wings.serve.broker.timers import TimedDelivery
from reput.wings.serve.broker.topics import TopicTable, own_topics
from reput.wings.serve.broker.transactions import Transactions

# WritableStore imports the compiled code of reput.kernels, which loads slowly. So do not import WritableStore at
# runtime.
if TYPE_CHECKING:
    from reput.engine.writer import PutResult, WritableStore

MASTER_ID = 0
_VALUE_BYTES = 256  # Approximate memory per key-value pair, in addition to its characters.
_PATIENCE_S = 1.0


class Written:
    """The parts of a broker that only a writable store needs.

    Attributes:
        store: The store, into which messages are put.
        sending: Converts sent messages to their stored form.
        delays, timers: Deliver delayed messages and timer messages.
        transactions: Commits, rolls back and checks prepared messages.
    """

    def __init__(
        self, broker: ServedBroker, store: WritableStore, clock_ms: Callable[[], int]
    ) -> None:
        self.store = store
        self.sending = SentMessages(
            broker.topics, broker.subscriptions, broker.limits.batch_messages, broker.cluster,
            store.config, clock_ms,
        )  # fmt: skip
        self.delays = DelayedDelivery(store, Path(store.path), clock_ms)
        self.timers = TimedDelivery(store, Path(store.path), clock_ms)
        self.sending.takes_timers = not self.timers.is_kept_for_broker
        self.transactions = Transactions(store, broker.offsets, clock_ms)
        self._delivering = Lock()

    def send(self, topic: str, body: bytes, **fields: Any) -> PutResult:
        """Put a message as if a client had sent it. `fields` are those of `Sent`.

        Raises SendRefusedError, MessageRefusedError.
        """
        return self.store.put(self.sending.message(Sent(topic, body, **fields))[0])

    def deliver_due(self) -> int:
        """Deliver some due messages of each delay level. Return their number.

        Raises StoreFailedError, StoreAccessError.
        """
        with self._delivering:
            return self.delays.deliver_due() + self.timers.deliver_due()


class ServedBroker:
    """A store that is served. Only one thread may call its methods. Any thread may call the methods of `store`.

    Attributes:
        name: The broker name that clients see.
        store: The store to read.
        writable: The same store if messages may be sent to it, else None.
        is_five: Whether it is a store of RocketMQ 5. If so, requests are answered as a 5.3.3 broker answers them.
        is_quick: Whether the ends of a queue are read from local files, which is fast enough for the event loop.
        limits: Budgets of each client, and of all clients together.
        topics, groups, offsets, locks, subscriptions: State outside the store.
        counters: Counters of messages put and pulled.
        pulled: Offsets up to which groups have pulled.
        cluster, port: Name of the cluster, and the broker's port.
        has_sql_filters: Whether clients may filter by SQL92 (enablePropertyFilter).
        is_encrypted: Whether the broker's connections are encrypted.
        is_exact: Whether unreadable messages are reported to clients. Otherwise, they are skipped.
        written: The parts of the broker that only a writable store needs, or None if the store is only read.
    """

    def __init__(
        self,
        name: str,
        store: SharedStore,
        clock_ms: Callable[[], int] = now_ms,
        limits: Limits | None = None,
        cluster: str = CLUSTER,
    ) -> None:
        """Open a broker's state. Only a WritableStore accepts messages. Raises StoreAccessError, FormatError."""
        self.limits = limits = limits or Limits()
        path = Path(store.path)
        self.name, self.store = name, store
        self.is_quick = not Location.is_url(store.path)
        self.writable = cast("WritableStore", store) if store.is_writable else None
        is_writable = self.writable is not None
        self.is_five = store.config.is_five
        levels = len(store.config.delay_table_ms())
        internal_topics = own_topics(name, cluster, levels, self.is_five)
        self.topics = TopicTable(store, path, is_writable, clock_ms, limits.topics, internal_topics)
        self.offsets = ConsumerOffsets(path, is_writable, limits.offsets_bytes)
        # This server writes offsets to files. A broker that keeps them in RocksDB would not see the changes.
        if is_writable:
            check_kept_in_files(path)
        elif self.is_quick and is_kept_elsewhere(path):
            self.offsets.take_over(committed_offsets(path))
        self.offsets.drop_strangers(lambda topic: self.topics.get(topic) is not None)
        self.subscriptions = SubscriptionGroups(
            path, is_writable, clock_ms, limits.subscription_groups
        )
        # Heartbeats and locks use the machine's time, even if the caller has passed another clock as `clock_ms`.
        self.groups = ClientGroups(limits=limits)
        self.locks = QueueLocks(most=limits.total_locked_queues)
        self.counters = Counters(limits.counters)
        self.pulled = PulledOffsets(limits.counters)
        self.cluster, self.port = cluster, 0
        self.has_sql_filters = self.is_encrypted = self.is_exact = False
        self.written = Written(self, self.writable, clock_ms) if self.writable else None

    def min_offset(self, topic: str, queue_id: int, *, check: bool = True) -> int:
        """Return the queue offset of the first message, 0 for an unknown queue.

        Raises FormatError if `is_exact` and the queue lacks its first entries.
        """
        floor = self.topics.floor(topic, queue_id)
        try:
            try:
                least = self.store.min_queue_offset(topic, queue_id, check=check)
            except FormatError as error:
                if self.is_exact:
                    raise
                least = 0
                with suppress(MessageNotFoundError):  # The queue is lost.
                    least = self.store.min_queue_offset(topic, queue_id, check=False)
                lost = UnreadableMessages(topic, queue_id, least, least, finding_of(error))
                self.store.unreadable.note([lost])
        except MessageNotFoundError:
            return floor
        # Messages before `floor` belong to a deleted topic of the same name.
        return max(floor, least)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message, 0 for an unknown queue.

        Raises FormatError if `is_exact` and the queue is lost.
        """
        try:
            return self.store.max_queue_offset(topic, queue_id)
        except MessageNotFoundError:
            return 0
        except FormatError as error:
            if self.is_exact:
                raise
            self.store.unreadable.note(
                [UnreadableMessages(topic, queue_id, 0, 0, finding_of(error))]
            )
            return 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset of the first message stored at or after a time, 0 for an unknown queue.

        A broker steps over messages that it cannot read. If `is_exact`, this raises next to one, as
        `MessageStore.offset_by_time` does.
        """
        floor, store = self.topics.floor(topic, queue_id), self.store
        try:
            offset = store.offset_by_time(topic, queue_id, timestamp, check=self.is_exact)
            return max(floor, offset)
        except MessageNotFoundError:
            return floor

    def last_offset_until(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset of the last message stored at or before a time, 0 if there is none.

        In RocketMQ: getOffsetInQueueByTime with BoundaryType.UPPER (5.1.4 and later).
        """
        floor, store = self.topics.floor(topic, queue_id), self.store
        try:
            stop = store.end_offset_by_time(topic, queue_id, timestamp, check=self.is_exact)
            least = store.min_queue_offset(topic, queue_id, check=self.is_exact)
        except MessageNotFoundError:
            return floor
        return max(floor, stop - 1) if stop > least else floor

    def is_own_record(self, message: MessageExt, physical_offset: int) -> bool:
        """Return whether a message that was read at this offset is a record of its own, not a part of another message.

        The message's queue must have an entry for the offset. Without this check, a client could send a body that
        contains a record of another topic, and request the offset inside this body.
        """
        if message.physical_offset != physical_offset:
            return False
        self.wait_dispatched(message.physical_offset + message.size_bytes)
        place = message.topic, message.queue_id, message.queue_offset
        try:
            return self.store.get_by_queue(*place).physical_offset == physical_offset
        except (MessageNotFoundError, FormatError):
            return False

    def wait_dispatched(
        self, physical_offset: int | None = None, timeout_s: float = _PATIENCE_S
    ) -> bool:
        """Wait until queues and index have all messages, or all before an offset. Return False after a timeout."""
        if self.writable is None:
            return True
        end = self.writable.end_offset()
        if physical_offset is not None:
            end = min(end, physical_offset)
        return self.writable.wait_dispatched(end, timeout_s)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store timestamp of a message (ms), or -1 if the message does not exist."""
        try:
            return self.store.get_by_queue(topic, queue_id, queue_offset).store_timestamp
        except MessageNotFoundError:
            return -1

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it. The next save updates the files.

        First wait until the queues have all messages: the topic's queues continue after them if it is created again.
        """
        self.topics.delete(topic, lambda queue_id: self.max_offset(topic, queue_id))
        self.offsets.remove(lambda of, group: of == topic)

    def forget_silent(self) -> None:
        """Forget clients that have sent no heartbeat for too long. Call this every few seconds."""
        self.groups.forget_silent()
        self.counters.roll()
        self.locks.forget_expired()

    def unsaved(self) -> list[Callable[[], None]]:
        """Return one function for each changed part of the state.

        Each function saves its part, and may run in any thread. It raises StoreAccessError.
        """
        return [
            *self.offsets.unsaved(),
            *(() if self.written is None else self.written.delays.unsaved()),
            *(() if self.written is None else self.written.timers.unsaved()),
            *self.topics.unsaved(),
            *self.subscriptions.unsaved(),
        ]

    def close(self) -> None:
        """Write the changes and close the store. Raises StoreAccessError, StoreFailedError."""
        try:
            for save in self.unsaved():
                save()
        finally:
            self.store.close()


class KeyValues:
    """The values that tools keep at the name server (`KVConfigManager`). They are in memory, up to a limit."""

    def __init__(self, most_bytes: int = Limits().values_bytes) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._tables: dict[str, dict[str, str]] = {}

    def get(self, namespace: str) -> dict[str, str]:
        """Return the values of a namespace by key."""
        return self._tables.get(namespace, {})

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises LimitError."""
        previous = self._tables.get(namespace, {}).get(key)
        size = _value_bytes(namespace, key, value)
        freed = 0 if previous is None else _value_bytes(namespace, key, previous)
        if self._bytes + size - freed > self._most_bytes:
            raise LimitError(
                f"the values would take more than {self._most_bytes} bytes; delete some first"
            )
        self._bytes += size - freed
        self._tables.setdefault(namespace, {})[key] = value

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value if it exists."""
        table = self._tables.get(namespace, {})
        if (previous := table.pop(key, None)) is not None:
            self._bytes -= _value_bytes(namespace, key, previous)
            if not table:
                del self._tables[namespace]


def _value_bytes(namespace: str, key: str, value: str) -> int:
    return _VALUE_BYTES + 4 * (len(namespace) + len(key) + len(value))


class Cluster:
    """The brokers of a server by port. They appear and disappear with their stores.

    Attributes:
        values: Key-value configuration that tools keep at the name server.
    """

    def __init__(self, name: str = CLUSTER) -> None:
        self.name, self.values = name, KeyValues()
        self._by_port: dict[int, ServedBroker] = {}

    def add(self, port: int, broker: ServedBroker) -> None:
        """Register a broker that answers at this port from now on."""
        self._by_port[port] = broker

    def remove(self, port: int) -> None:
        """Remove the broker of a port, because its store is gone."""
        self._by_port.pop(port, None)

    def at(self, port: int) -> ServedBroker | None:
        """Return the broker of a port, or None while its store is missing."""
        return self._by_port.get(port)

    def brokers(self) -> Iterator[tuple[int, ServedBroker]]:
        """Yield port and broker, in the order of ports."""
        return iter(sorted(self._by_port.items()))
