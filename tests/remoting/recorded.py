"""Recorded traffic of stock tools and clients, replayed to the server, and fields that its answers lack.

The records are in `../shared/wire`. They were made against one broker of each version, so they are played in the order
in which they were made, to one server. Numbers that a broker chose (physical offsets) are replaced by the server's.
"""

import base64
import binascii
import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from reput.format.commit_log import MessageExt
from reput.format.host import Host
from reput.wings.serve.broker.timers import RecallHandle
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, messages

WIRE = Path(__file__).parents[3] / "shared" / "wire"
VERSIONS = ("4.9.3", "5.3.3")
_PATIENCE_S = 20.0
_HELD_S = 0.02
_HOLD_MS = "60"
_UNKNOWN_CODE = 99_998
_SENDS = {10, 310, 320}
_PULLS = {11, 361}
_OFFSET_FIELDS = {33: ("offset",), 36: ("offset",), 37: ("commitLogOffset",), 309: ()}
_BARE_NAME = re.compile(r"([{,])(-?\d+):")
_OBJECT_NAME = re.compile(r"(?<=[{,])(\{[^{}]*\})(?=:)")


@dataclass
class Request:
    """One recorded request, and the broker's answer to it.

    Attributes:
        file: name of the recording: a command or a scenario
        connection: number of the client's connection
        is_for_broker: whether the request went to the broker; otherwise it went to the name server
        code, fields, flag, version, body: contents of the request
        answer: the header of the answer; None if the broker did not answer
        answer_body: the body of the answer
    """

    file: str
    connection: int
    is_for_broker: bool
    code: int
    fields: dict[str, str]
    flag: int
    version: int
    body: bytes
    answer: dict[str, Any] | None = None
    answer_body: bytes = b""

    def __str__(self) -> str:
        return f"{self.file}: {self.code} {self.fields}"


@dataclass
class Recording:
    """One file: its requests in order, and the answers of connected clients to the broker's own requests."""

    name: str
    first_connection: int
    requests: list[Request] = field(default_factory=list)
    client_answers: dict[int, Command] = field(default_factory=dict)

    @property
    def is_extra(self) -> bool:
        """Return whether the recording was made with the second broker, which had SQL filters."""
        return self.name.startswith("extra_")


def recordings(version: str) -> list[Recording]:
    """Return all files of a version, in the order of their recording."""
    found = [_read(path) for path in sorted((WIRE / version).glob("*.jsonl"))]
    return sorted(found, key=lambda one: (one.is_extra, one.first_connection, one.name))


def _read(path: Path) -> Recording:
    recording = Recording(path.stem, 0)
    waiting: dict[tuple[int, int, str], Request] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        source, _, target = record["direction"].partition(" -> ")
        if not target:
            continue
        header, connection = record["header"], record["conn"]
        body = (record.get("body_text") or "").encode()
        if "body_base64" in record:
            text = record["body_base64"]
            body = base64.b64decode(text[: len(text) // 4 * 4])
        if source in ("mqadmin", "client") and target in ("broker", "namesrv"):
            if header["flag"] & 1:
                given = Command(header["code"], remark=header.get("remark"), body=body)
                recording.client_answers.setdefault(record["request_code"], given)
                continue
            request = Request(
                path.stem, connection, target == "broker", header["code"],
                header.get("extFields") or {}, header["flag"], header.get("version", 0), body,
            )  # fmt: skip
            recording.requests.append(request)
            waiting[connection, header["opaque"], target] = request
            recording.first_connection = recording.first_connection or connection
        elif header["flag"] & 1:
            asked = waiting.pop((connection, header["opaque"], source), None)
            if asked is not None:
                asked.answer, asked.answer_body = header, body
    return recording


def recorded_messages(found: list[Recording]) -> list[MessageExt]:
    """Return messages in the broker's answers, each once."""
    by_key = {
        (message.topic, message.unique_key, message.body): message
        for recording in found
        for request in recording.requests
        for message in _messages(request.answer_body)
    }
    return list(by_key.values())


def needed_fields(version: str) -> dict[int, set[str]]:
    """Return by request code the fields of an answer without which a tool fails or prints something else.

    A field is named by its path in the answer, as in the recordings.
    """
    needed: dict[int, set[str]] = {}
    for line in (WIRE / f"left_out_{version}.jsonl").read_text().splitlines():
        found = json.loads(line)
        names = (*found["fails"], *found["output_changes"])
        paths = {name for name in names if not name.startswith("answered")}
        needed.setdefault(found["request_code"], set()).update(paths)
    return needed


def as_json(body: bytes) -> Any:
    """Parse a body in fastjson's JSON: names may be numbers or objects, and become strings. Return None if invalid."""
    text = _BARE_NAME.sub(r'\1"\2":', body.decode(errors="replace"))
    text = _OBJECT_NAME.sub(lambda match: json.dumps(match[1]), text)
    try:
        return json.loads(text)
    except ValueError:
        return None


class Connection:
    """A client that answers the server's requests as the recorded client did."""

    def __init__(self, address: Host) -> None:
        self._socket = socket.create_connection(address, _PATIENCE_S)
        self._session, self._opaque = Session(), 0
        self._answers: dict[int, Command] = {}
        self._arrived = threading.Condition()
        self.given: dict[int, Command] = {}
        self.asked: list[int] = []
        threading.Thread(target=self._read, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> None:
        session = Session()
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except OSError:
                return
            if not data:
                return
            for command in session.receive(data):
                if command.is_response:
                    with self._arrived:
                        self._answers[command.opaque] = command
                        self._arrived.notify_all()
                    continue
                self.asked.append(command.code)
                given = self.given.get(command.code, Command(0))
                if not command.is_one_way:
                    answer = command.answer(given.code, given.remark, body=given.body)
                    self._socket.sendall(self._session.send(answer))

    def send(self, request: Request, fields: dict[str, str]) -> int:
        self._opaque += 1
        command = Command(
            request.code, self._opaque, request.flag, None, fields, request.body, version=request.version
        )  # fmt: skip
        self._socket.sendall(self._session.send(command))
        return self._opaque

    def settle(self) -> None:
        """Wait until the server has processed all requests, including one-way ones."""
        self._opaque += 1
        self._socket.sendall(self._session.send(Command(_UNKNOWN_CODE, self._opaque)))
        self.answer(self._opaque, _PATIENCE_S)

    def answer(self, opaque: int, timeout_s: float) -> Command | None:
        with self._arrived:
            self._arrived.wait_for(lambda: opaque in self._answers, timeout_s)
            return self._answers.get(opaque)


class Outcome(NamedTuple):
    """A request, and the server's answer, or None."""

    request: Request
    answer: Command | None


class Player:
    """Replays recordings to one server, one after the other. It is a context manager."""

    def __init__(self, address: Host, version: str, found: list[Recording]) -> None:
        self._address = address
        self._connections: dict[int, Connection] = {}
        self._offsets: dict[str, tuple[int, int]] = {}
        self._keys: dict[int, str] = {}
        self._handles: dict[str, str] = {}
        self._background: list[Connection] = []
        for recording in found:
            for request in recording.requests:
                for message in _messages(request.answer_body):
                    if message.unique_key:
                        self._keys[message.physical_offset] = message.unique_key
        self._given = {code: one for each in found for code, one in each.client_answers.items()}
        self._seed(version, found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._connections.values(), *self._background):
            each.close()

    def _seed(self, version: str, found: list[Recording]) -> None:
        """Put messages, and connect clients, that the broker already had when the recordings began."""
        stored: dict[str, MessageExt] = {}
        for recording in found:
            for request in recording.requests:
                for message in _messages(request.answer_body):
                    if message.topic == "BgTopic" and message.unique_key:
                        stored[message.unique_key] = message
        with Client(self._address) as client:
            for number in range(4):
                assert client.put("WireTopic", b"seed", e=number).code == 0
                assert client.put("BgTopic", b"seed", e=number).code == 0
            for message in sorted(stored.values(), key=lambda one: one.physical_offset):
                properties = {k: v for k, v in message.properties.items() if k != "CLUSTER"}
                answer = client.put("BgTopic", message.body, properties, e=message.queue_id)
                assert answer.code == 0, answer.remark
                self._sent(message.unique_key or "", answer)
        number = 399 if version == "4.9.3" else 479
        for name, topic in (("bg_consumer", "BgTopic"), ("bg_orderly", "BgTopic")):
            wanted = {
                "topic": topic,
                "subString": "*",
                "tagsSet": [],
                "codeSet": [],
                "subVersion": 1,
            }
            beat: dict[str, Any] = {
                "clientID": f"192.0.2.2@{name}",
                "consumerDataSet": [
                    {
                        "groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                        "subscriptionDataSet": [wanted, {**wanted, "topic": f"%RETRY%{name}"}],
                    }
                ],
                "producerDataSet": [],
            }  # fmt: skip
            self._stay(beat, number)
            for queue_id in range(4):
                fields = {
                    "consumerGroup": name,
                    "topic": topic,
                    "queueId": str(queue_id),
                    "commitOffset": "1",
                }
                self._tell(15, fields, number)
        producer = {
            "clientID": "192.0.2.2@bg_producer",
            "producerDataSet": [{"groupName": "bg_producer"}],
        }
        self._stay(producer, number)

    def _stay(self, beat: dict[str, Any], number: int) -> None:
        connection = Connection(self._address)
        connection.given = self._given
        request = Request("seed", 0, True, 34, {}, 0, number, json.dumps(beat).encode())
        answer = connection.answer(connection.send(request, {}), _PATIENCE_S)
        assert answer is not None
        assert answer.code == 0, answer.remark
        self._background.append(connection)

    def _tell(self, code: int, fields: dict[str, str], number: int) -> None:
        request = Request("seed", 0, True, code, fields, 0, number, b"")
        connection = self._background[-1]
        assert connection.answer(connection.send(request, fields), _PATIENCE_S) is not None

    def _sent(self, key: str, answer: Command) -> None:
        ids = str(answer.fields.get("msgId", "")).split(",")
        if ids[0]:
            place = int(ids[0][16:], 16), int(answer.fields["queueOffset"])
            self._offsets[key] = place

    def play(self, recording: Recording) -> Iterator[Outcome]:
        """Yield the outcome of each request of one file."""
        late: list[tuple[Request, Connection, int]] = []
        unsettled: Connection | None = None
        for request in recording.requests:
            connection = self._connections.get(request.connection)
            if unsettled is not None and unsettled is not connection:
                unsettled.settle()
                unsettled = None
            if connection is None:
                connection = self._connections[request.connection] = Connection(self._address)
            connection.given = recording.client_answers
            opaque = connection.send(request, self._fields(request))
            if request.flag & 2:
                unsettled = connection
                continue
            answer = connection.answer(opaque, _HELD_S if request.code in _PULLS else _PATIENCE_S)
            if answer is None and request.code in _PULLS:
                late.append((request, connection, opaque))
                continue
            self._learn(request, answer)
            yield Outcome(request, answer)
        for request, connection, opaque in late:
            yield Outcome(request, connection.answer(opaque, _PATIENCE_S))
        for number in {one.connection for one in recording.requests}:
            if recording.name != "java_shutdown":
                self._connections.pop(number).close()

    def stored(self, recorded: MessageExt) -> MessageExt | None:
        """Return the server's message with the topic, unique key and body of a recorded one."""
        with Client(self._address) as client:
            answer = client.query(recorded.topic, recorded.unique_key or "")
        wanted = recorded.topic, recorded.unique_key, recorded.body
        found = messages(answer.body)
        return next((m for m in found if (m.topic, m.unique_key, m.body) == wanted), None)

    def _learn(self, request: Request, answer: Command | None) -> None:
        if request.code not in _SENDS or answer is None or answer.code:
            return
        recorded = (request.answer or {}).get("extFields") or {}
        properties = request.fields.get("i") or request.fields.get("properties") or ""
        match = re.search("UNIQ_KEY\x01([^\x02]+)", properties)
        if match is None:
            return
        self._sent(match[1], answer)
        self._handles[match[1]] = str(answer.fields.get("recallHandle"))
        if recorded.get("msgId"):
            self._keys[int(recorded["msgId"].split(",")[0][16:], 16)] = match[1]

    def _fields(self, request: Request) -> dict[str, str]:
        fields = dict(request.fields)
        for name in _OFFSET_FIELDS.get(request.code, ()):
            key = self._keys.get(int(fields.get(name, "-1")), "")
            if key in self._offsets:
                fields[name] = str(self._offsets[key][0])
                if request.code == RequestCode.END_TRANSACTION:
                    fields["tranStateTableOffset"] = str(self._offsets[key][1])
        if request.code in _PULLS:
            fields["suspendTimeoutMillis"] = _HOLD_MS
        if request.code == RequestCode.RECALL_MESSAGE:
            key = RecallHandle.decode(fields["recallHandle"]).unique_key
            fields["recallHandle"] = self._handles.get(key, fields["recallHandle"])
        return fields


def _messages(body: bytes) -> list[MessageExt]:
    if body[4:8] != binascii.unhexlify("daa320a7"):
        return []
    try:
        return messages(body)
    except Exception:  # the recording is truncated
        return []


def lacking(request: Request, answer: Command | None, needed: set[str]) -> list[str]:
    """Return the missing parts of the broker's answer: its code, and fields without which a tool fails."""
    recorded = request.answer
    if recorded is None:
        return []
    if answer is None:
        return ["no answer"]
    if answer.code != recorded["code"]:
        is_pull = request.code in _PULLS and {answer.code, recorded["code"]} <= _PULLED
        return [] if is_pull else [f"code {answer.code}, not {recorded['code']}"]
    if answer.code != ResponseCode.SUCCESS:
        return []
    lacks = []
    for path in sorted(needed):
        if path == "whole body":
            if request.answer_body and not answer.body:
                lacks.append(path)
        elif path.startswith("header "):
            name = path.removeprefix("header ").removeprefix("field ")
            if name in (recorded.get("extFields") or {}) and name not in answer.fields:
                lacks.append(path)
        elif not _has(as_json(answer.body), as_json(request.answer_body), _steps(path)):
            lacks.append(path)
    return lacks


_PULLED = {
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.PULL_OFFSET_MOVED,
}  # fmt: skip
"""Which of these a pull gets depends on the time at which messages and heartbeats arrive."""


def _steps(path: str) -> list[str]:
    text = path.removeprefix("body ").removeprefix("field ").lstrip(".")
    return re.findall(r"\{key\}|\[\]|[^.\[\]{}]+", text)


def _has(found: Any, recorded: Any, steps: list[str]) -> bool:
    """Return whether a body has the field of a path. Steps of the path that the recorded body lacks are ignored."""
    if not steps:
        return True
    step, rest = steps[0], steps[1:]
    if step == "[]":
        if not isinstance(recorded, list) or not recorded:
            return True
        if not isinstance(found, list):
            return False
        return all(_has(each, recorded[0], rest) for each in found)
    if step == "{key}":
        names = [as_json(name.encode()) for name in found] if isinstance(found, dict) else []
        return all(name is not None and all(one in name for one in rest) for name in names)
    if step == "*":
        if not isinstance(found, dict):
            return False
        example = next(iter(recorded.values()), None) if isinstance(recorded, dict) else None
        return all(_has(each, example, rest) for each in found.values())
    if not isinstance(recorded, dict) or step not in recorded:
        return True
    return isinstance(found, dict) and step in found and _has(found[step], recorded[step], rest)
