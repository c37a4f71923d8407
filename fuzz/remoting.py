"""Receive bytes from a client. Every frame, in any pieces, is a command or a RemotingError, and is answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuzz.logs import log_seeds, write_log
from reput.engine.writer.shared_store import SharedStore
from reput.errors import RemotingError
from reput.format.host import Host
from reput.wings.serve.broker.broker import Cluster, ServedBroker
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.frames import Serialization
from reput.wings.serve.remoting.handling import InThread, Later
from reput.wings.serve.remoting.port import Port
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session

_FIELDS = {
    "topic": "T", "queueId": "0", "key": "k", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 15,
    "offset": "0", "timestamp": "1", "index": "0", "count": "2", "consumerGroup": "g", "sysFlag": "7",
    "queueOffset": "0", "maxMsgNums": "2", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
    "subscription": "*", "group": "g", "producerGroup": "g",
}  # fmt: skip
_BODY = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"T","subString":"*"}]}],'
    b'"producerDataSet":[{"groupName":"p"}],"consumerGroup":"g","clientId":"c",'
    b'"mqSet":[{"topic":"T","brokerName":"b","queueId":0}]}'
)


class Client:
    """A peer that accepts everything."""

    address, server_host = Host("127.0.0.1", 1), "127.0.0.1"

    def push(self, command: Command) -> None:
        Session().send(command)

    def ask(self, command: Command, then: Callable[[Command | None], object]) -> None:
        Session().send(command)
        then(None)

    def run(
        self, work: Callable[[], Command], request: Command, then: Callable[[Command], object]
    ) -> None:
        then(work())


class Target:
    MAX_BYTES = 1 << 12

    @staticmethod
    def seeds() -> list[bytes]:
        return [
            Session().send(Command(code, 1, 0, None, dict(_FIELDS), _BODY, serialization=how))
            for code in RequestCode
            for how in Serialization
        ]

    def __init__(self, folder: Path) -> None:
        path = write_log(folder / "store", log_seeds()[0])
        self._port = Port(Cluster())
        self._port.open(ServedBroker("b", SharedStore(path)))

    def run(self, data: bytes) -> None:
        whole, pieces = _commands(data, len(data) or 1), _commands(data, 7)
        assert whole == pieces
        client = Client()
        for command in whole:
            answer = self._port.answer(command, client)
            while isinstance(answer, InThread | Later):
                if isinstance(answer, InThread):
                    found = answer.work()
                    answer = found if answer.then is None else answer.then(found)
                else:
                    self._port.stop_waiting()
                    taken: list[Command | InThread] = []
                    answer.then(taken.append)
                    (answer,) = taken
            assert answer is None or answer.opaque == command.opaque
            if answer is not None:
                Session(Limits(frame_bytes=1 << 30)).receive(Session().send(answer))
        self._port.disconnected(client)


def _commands(data: bytes, size: int) -> list[Command]:
    """Return the commands of a session up to the first bytes that are wrong."""
    session, found = Session(Limits(frame_bytes=1 << 20)), list[Command]()
    try:
        for at in range(0, len(data), size):
            session.feed(data[at : at + size])
            while (command := session.next()) is not None:
                found.append(command)
    except RemotingError:
        pass
    return found
