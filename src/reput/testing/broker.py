"""Run a RocketMQ broker and name server in the test process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar

from reput.base import StoreConfig, did_you_mean, now_ms
from reput.engine.messages import queue_messages
from reput.engine.writer import PutResult, SharedStore, StoreWriter, WritableStore, WriterSettings
from reput.errors import MessageNotFoundError, UsageError
from reput.format.commit_log import MessageExt
from reput.format.file_names import COMMIT_LOG_FOLDER, LOCK_FILE
from reput.format.host import Host
from reput.format.java_string import decode_utf8
from reput.format.properties import DELAY, KEYS, TAGS, encode_properties
from reput.wings.serve import PortOptions, QueueLag, ServedBroker, Service, ServiceOptions

Result = TypeVar("Result")
_START_S, _STOP_S, _PAUSE_S = 60.0, 30.0, 0.005
# Use small files: tests start many stores, and files of default size would take gigabytes of address space.
_SMALL = StoreConfig(
    commit_log_file_bytes=64 << 20, queue_entries=20_000, hash_slots=10_000, index_items=40_000
)


class Broker:
    """A broker on a free port, with a name server at the same address. A context manager.

    Unmodified RocketMQ clients of any language can connect to it. The test can inspect the messages that they sent, and
    the offsets up to which they have consumed.

        with Broker(topics=["orders"]) as broker:
            application = start_application(name_server=broker.address)
            application.place_order(17)
            (message,) = broker.wait_for("orders")
            assert message.body == b"17"

    Attributes:
        address: The address of the name server and the broker, such as `127.0.0.1:49152`.
        cluster: The name of the cluster.
        name: The name of the broker.
        path: The folder of the store.
    """

    def __init__(
        self,
        store: str | PathLike[str] | None = None,
        *,
        copy_of: str | PathLike[str] | None = None,
        topics: Iterable[str] | Mapping[str, int] = (),
        address: str = "127.0.0.1:0",
        cluster: str = "DefaultCluster",
        name: str = "broker-a",
        version: str = "4.9",
    ) -> None:
        """Prepare a broker. `start`, or entering the context, starts it.

        Args:
            store: Folder of the store, which is created if it does not exist, and kept. By default a temporary folder,
            which is deleted when the broker stops.
            copy_of: Folder of a prepared store. The broker starts with a copy of it.
            topics: Topics to create, with 4 queues each, or a mapping of names to numbers of queues.
            address: Host and port; port 0 chooses a free one.
            cluster, name: Names of the cluster and of the broker.
            version: RocketMQ version that the broker imitates: "4.9" or "5.3".

        Raises:
            UsageError: `store` and `copy_of` are both given, or the version is unknown.
        """
        if store is not None and copy_of is not None:
            raise UsageError("pass store or copy_of, not both", arguments=["store", "copy_of"])
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(
                f"address {address!r}: write HOST:PORT, such as 127.0.0.1:0", arguments=["address"]
            )
        self._listen = Host(host, int(port))
        self._store, self._copy_of = store, copy_of
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 4)
        self.cluster, self.name = cluster, name
        self._config = replace(_SMALL, store_version=version)
        self._offset_ms = 0
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.path = Path()
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker, and wait until clients can connect. Raises ReputError, e.g. if the address is in use."""
        if self._thread is not None:
            raise UsageError("the broker was started already")
        self.path = self._folder()
        options = ServiceOptions(
            self._listen, accepts_sends=True, cluster=self.cluster, clock_ms=self.now_ms,
            port=PortOptions(has_sql_filters=True),
        )  # fmt: skip
        self._service = Service([str(self.path)], self._open, options)
        self._thread = threading.Thread(target=self._run, name="reput-test-broker", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S):
            raise TimeoutError(f"the broker did not start within {_START_S:.0f} s")
        if self._error is not None:
            self._forget()
            raise self._error
        self.address = str(self._service.served[0].address)
        for topic, queues in self._topics.items():
            self.create_topic(topic, queues)

    def stop(self) -> None:
        """Finish the requests in flight, and shut the store down cleanly. Does nothing if the broker is not running."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_S)
        self._thread = None
        self._forget()
        if self._error is not None:
            raise self._error

    def _folder(self) -> Path:
        if self._store is not None:
            return Path(self._store)
        self._temporary = tempfile.TemporaryDirectory(prefix="reput-broker-")
        folder = Path(self._temporary.name) / self.name
        if self._copy_of is not None:
            shutil.copytree(self._copy_of, folder, ignore=shutil.ignore_patterns(LOCK_FILE))
        return folder

    def _forget(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def _open(self, path: str, address: Host) -> SharedStore:
        settings = WriterSettings().changed({"store_host": address})

        def open_with(config: StoreConfig | None) -> WritableStore:
            return WritableStore(StoreWriter(Path(path), config, settings, clock_ms=self.now_ms))

        if not (Path(path) / COMMIT_LOG_FOLDER).is_dir():
            return open_with(self._config)
        try:
            return open_with(None)
        except UsageError:
            # After a kill, the configured file sizes may not be recognizable from the files. So pass the sizes with
            # which the files were created. The version is not passed, because it is derived from the store.
            return open_with(replace(self._config, store_version=None))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._service.start()
            self._started.set()
            await self._service.run(self._stop)
        finally:
            await self._service.close()

    @property
    def _broker(self) -> ServedBroker:
        broker = self._service.served[0].broker if self._thread is not None else None
        if broker is None:
            raise UsageError("the broker is not running")
        return broker

    @property
    def store(self) -> WritableStore:
        """Return the broker's open store, for queries and puts. Raises UsageError if the broker is not running."""
        store = self._broker.writable
        assert store is not None
        return store

    def now_ms(self) -> int:
        """Return the broker's time in ms: the machine's time plus the time added by `advance`."""
        return now_ms() + self._offset_ms

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock, so that delayed messages are delivered and open transactions are checked.

        When this returns, messages that are due by the new time are in their topics.
        """
        if seconds < 0:
            raise UsageError("seconds must not be negative", arguments=["seconds"])
        self.store.wait_dispatched()
        self._offset_ms += round(seconds * 1000)
        written = self._broker.written
        assert written is not None
        while written.deliver_due():
            self.store.wait_dispatched()
        self.store.wait_dispatched()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic if it does not exist."""
        self._broker.topics.create(topic, queues)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and the offsets that groups have committed for it."""
        self.store.wait_dispatched()
        self._broker.delete_topic(topic)

    def topics(self) -> list[str]:
        """Return the names of all topics, including the broker's internal ones."""
        return self._broker.topics.view().names()

    def send(
        self,
        topic: str,
        body: bytes | str,
        *,
        tags: str | None = None,
        keys: Iterable[str] = (),
        queue_id: int = -1,
        delay_level: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> PutResult:
        """Send a message as a client would. A missing topic is created.

        Raises SendRefusedError, MessageRefusedError.
        """
        all_properties = dict(properties or {})
        if tags is not None:
            all_properties[TAGS] = tags
        if joined := " ".join(keys):
            all_properties[KEYS] = joined
        if delay_level:
            all_properties[DELAY] = str(delay_level)
        data = body.encode() if isinstance(body, str) else body
        written = self._broker.written
        assert written is not None
        return written.send(
            topic, data, queue_id=queue_id, properties=encode_properties(all_properties),
            born_timestamp=self.now_ms(), born_host=self._listen,
        )  # fmt: skip

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic in the order in which they were stored; an empty list for an unknown topic."""
        self.store.wait_dispatched()
        messages: list[MessageExt] = []
        with self.store.reader() as reader:
            for of, queue_id in reader.list_queues():
                if of == topic:
                    start = self._broker.topics.floor(topic, queue_id)
                    messages += queue_messages(reader, topic, queue_id, start)
        return sorted(messages, key=lambda message: message.physical_offset)

    def wait_for(
        self,
        topic: str,
        count: int = 1,
        *,
        where: Callable[[MessageExt], bool] = lambda message: True,
        timeout_s: float = 30.0,
    ) -> list[MessageExt]:
        """Wait until a topic has at least `count` matching messages, and return all matching messages.

        Args:
            topic: Name of the topic.
            count: Number of messages to wait for.
            where: Returns whether a message matches.
            timeout_s: Maximum time to wait, in seconds.

        Raises TimeoutError, which lists the topic's messages.
        """
        messages = _wait(lambda: self._enough(topic, count, where), timeout_s)
        if messages is None:
            raise TimeoutError(self._lacking(topic, count, where, timeout_s))
        return messages

    def _lacking(
        self, topic: str, count: int, where: Callable[[MessageExt], bool], timeout_s: float
    ) -> str:
        """Return the error message of `wait_for` for messages that did not arrive."""
        messages, topics = self.messages(topic), self.topics()
        matches = sum(map(where, messages))
        text = f"{topic}: {matches} of {count} messages after {timeout_s:g} s"
        if messages:
            excluded = len(messages) - matches
            exclusion = f", `where` excludes {excluded}" if excluded else ""
            descriptions = ", ".join(_describe(message) for message in messages[:_MOST_DESCRIBED])
            return f"{text}; there are {len(messages)}{exclusion}: {descriptions}"
        if topic in topics:
            return f"{text}: the topic is empty"
        return f"{text}: there is no such topic{did_you_mean(topic, topics)}"

    def _enough(
        self, topic: str, count: int, where: Callable[[MessageExt], bool]
    ) -> list[MessageExt] | None:
        messages = [message for message in self.messages(topic) if where(message)]
        return messages if len(messages) >= count else None

    def lag(self, group: str) -> list[QueueLag]:
        """Return a group's lag in each queue for which it has committed an offset."""
        broker, rows = self._broker, list[QueueLag]()
        for of, topic, queue_id, committed in sorted(broker.offsets.entries()):
            if of == group:
                least = broker.min_offset(topic, queue_id)
                most = broker.max_offset(topic, queue_id)
                rows.append(QueueLag(group, topic, queue_id, committed, least, most))
        return rows

    def wait_consumed(self, group: str, topic: str, *, timeout_s: float = 30.0) -> None:
        """Wait until a group has committed the offsets of all messages of a topic.

        Clients commit every 5 seconds by default, and on shutdown. Raises TimeoutError.
        """
        if _wait(lambda: self._is_consumed(group, topic) or None, timeout_s) is None:
            rows = [row for row in self.lag(group) if row.topic == topic]
            description = ", ".join(f"queue {row.queue_id}: {row.lag} left" for row in rows)
            raise TimeoutError(
                f"{group} has not consumed {topic} after {timeout_s:g} s: {description or 'it committed nothing'}"
            )

    def _is_consumed(self, group: str, topic: str) -> bool:
        broker = self._broker
        self.store.wait_dispatched()
        with self.store.reader() as reader:
            queues = [queue_id for of, queue_id in reader.list_queues() if of == topic]
            for queue_id in queues:
                try:
                    end = reader.max_queue_offset(topic, queue_id)
                except MessageNotFoundError:
                    continue
                floor = broker.topics.floor(topic, queue_id)
                if (broker.offsets.committed(group, topic, queue_id) or 0) < end > floor:
                    return False
        return bool(queues)


_MOST_DESCRIBED = 10
_MOST_BODY = 60


def _wait(look: Callable[[], Result | None], timeout_s: float) -> Result | None:
    """Call `look` until it returns something other than None; return None after the timeout."""
    end = time.monotonic() + timeout_s
    while (result := look()) is None and time.monotonic() < end:
        time.sleep(_PAUSE_S)
    return result


def _describe(message: MessageExt) -> str:
    body = decode_utf8(message.body[:_MOST_BODY])
    more = "..." if len(message.body) > _MOST_BODY else ""
    place = f"queue {message.queue_id}, offset {message.queue_offset}"
    for name in TAGS, KEYS:
        if value := message.properties.get(name):
            place += f", {name} {value}"
    return f"{body!r}{more} ({place})"
