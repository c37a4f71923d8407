"""A client for tests, which sends a request and waits for its answer, and a server in this process."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from reput.base.config import StoreConfig
from reput.engine.stores import open_store
from reput.engine.writer.shared_store import SharedStore
from reput.format.commit_log import MessageExt, decode
from reput.format.host import Host
from reput.wings.serve.broker.limits import CLUSTER, MOST_FRAME_BYTES, Limits
from reput.wings.serve.remoting.access import AccessList
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.frames import Serialization
from reput.wings.serve.remoting.port import PortOptions
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.service import Service, ServiceOptions
from reput.wings.serve.remoting.session import Session
from tests.small import SMALL
from tests.waiting import wait_for

TIMEOUT_S = 600.0
MOST = 1 << 62


class Client:
    """One connection; a context manager."""

    def __init__(self, address: Host, serialization: Serialization = Serialization.JSON) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        limits = Limits(header_bytes=MOST_FRAME_BYTES, frame_bytes=4 * MOST_FRAME_BYTES)
        self._session, self._serialization, self._opaque = Session(limits), serialization, 0
        self.pushed: list[Command] = []
        self._answers: list[Command] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        """Send a request; return its number."""
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        request = Command(
            code, self._opaque, flag, None, texts, body, serialization=self._serialization
        )
        self._socket.sendall(self._session.send(request))
        return self._opaque

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Command:
        """Return the next answer."""
        while not self._answers:
            data = self._socket.recv(1 << 20)
            if not data:
                raise ConnectionError("closed")
            for command in self._session.receive(data):
                (self._answers if command.is_response else self.pushed).append(command)
        return self._answers.pop(0)

    def wait_for_push(self) -> None:
        """Receive until the server has sent a request or a notice."""
        while not self.pushed:
            for command in self._session.receive(self._socket.recv(1 << 20)):
                (self._answers if command.is_response else self.pushed).append(command)

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        """Send a request; return its answer."""
        opaque = self.send(code, fields, body)
        answer = self.receive()
        assert answer.opaque == opaque
        return answer

    def delete_topic(self, topic: str) -> Command:
        """Delete a topic, and return the answer. Repeat the request while the server still dispatches its messages."""

        def delete() -> Command | None:
            answer = self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            return None if answer.code == ResponseCode.SYSTEM_BUSY else answer

        return wait_for(delete)  # type: ignore[no-any-return]

    def pull(self, topic: str, queue_id: int, offset: int, **others: Any) -> Command:
        fields = {
            "consumerGroup": "g", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        }  # fmt: skip
        return self.ask(RequestCode.PULL_MESSAGE, {**fields, **others})

    def query(self, topic: str, key: str, **others: Any) -> Command:
        fields = {
            "topic": topic,
            "key": key,
            "maxNum": 32,
            "beginTimestamp": 0,
            "endTimestamp": MOST,
        }
        return self.ask(RequestCode.QUERY_MESSAGE, {**fields, **others})

    def put(
        self, topic: str, body: bytes, properties: dict[str, str] | None = None, **others: Any
    ) -> Command:
        fields = {
            "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1_700_000_000_000, "h": 0,
            "i": "\x02".join(f"{k}\x01{v}" for k, v in (properties or {}).items()), "j": 0,
        }  # fmt: skip
        return self.ask(RequestCode.SEND_MESSAGE_V2, {**fields, **others}, body)


def messages(body: bytes) -> list[MessageExt]:
    """Decode the records of an answer."""
    found, position = [], 0
    while position < len(body):
        found.append(decode(body, position))
        position += found[-1].size_bytes
    return found


class Serving:
    """A service in its own thread."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.service.start()
        self._started.set()
        try:
            await self.service.run(self._stop)
        finally:
            await self.service.close()

    @property
    def address(self) -> Host:
        return self.service.served[0].address

    def stop(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error


@contextmanager
def serving(
    *paths: Path,
    sends: bool = False,
    limits: Limits | None = None,
    listen: Host | None = None,
    access: AccessList | None = None,
    tls: ssl.SSLContext | None = None,
    cluster: str = CLUSTER,
    config: StoreConfig = SMALL,
    **port: Any,
) -> Iterator[Serving]:
    """Run a server of these stores."""

    def open_one(path: str, address: Host) -> SharedStore:
        if sends:
            return open_store(path, mode="rw", config=config, store_host=address)
        return SharedStore(path)

    options = ServiceOptions(
        listen or Host("127.0.0.1", 0), sends, PortOptions(**port), limits or Limits(),
        access=access, tls=tls, cluster=cluster,
    )  # fmt: skip
    running = Serving(Service([str(path) for path in paths], open_one, options))
    try:
        yield running
    finally:
        running.stop()
