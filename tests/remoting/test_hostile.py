"""Slow, half-open, flooding and lying clients harm only themselves."""

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from reput import Message, open_store
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, Serving, serving
from tests.small import SMALL
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "store"
    with open_store(path, mode="rw", config=SMALL) as made:
        made.put_many(Message("T", b"x" * 1000, keys=[f"k{n}"]) for n in range(500))
    return path


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Serving]:
    limits = Limits(frame_bytes=1 << 16, connections=50, in_flight=8, answer_bytes=1 << 20)
    with serving(store, limits=limits) as running:
        yield running


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 1 << 17),
        struct.pack(">ii", 8, 4) + b"junk",
        b"\x16\x03\x01" + bytes(100),
    ],
)
def test_what_is_not_the_protocol_closes_its_own_connection_alone(
    server: Serving, data: bytes
) -> None:
    with Client(server.address) as other, socket.create_connection(server.address, 30) as client:
        client.sendall(data)
        assert is_closed(client)
        assert other.query("T", "k1").code == ResponseCode.SUCCESS


def test_unfinished_requests_share_a_limit_and_who_began_them_is_closed(store: Path) -> None:
    with serving(store, limits=Limits(total_bytes=1 << 17, answer_bytes=1 << 10)) as running:
        memory = running.service.server.memory
        begun = []
        for number in range(3):
            begun.append(socket.create_connection(running.address, 30))
            begun[-1].sendall(struct.pack(">i", 60_000) + bytes(50_000))
            wait_for(lambda n=number: memory.held_bytes >= min(50_000 * (n + 1), 100_000))
        wait_for(lambda: memory.held_bytes == 100_008)
        assert [is_closed(each) for each in begun[:1]] == [True]
        with Client(running.address) as other:
            assert other.query("T", "k1").code == ResponseCode.SUCCESS
        for each in begun:
            each.close()
        wait_for(lambda: memory.held_bytes == 0)


def test_more_connections_than_the_limit_are_refused_and_come_back_when_some_end(
    server: Serving,
) -> None:
    wait_for(lambda: not server.service.server.connections)
    held = [socket.create_connection(server.address, 30) for _ in range(50)]
    wait_for(lambda: len(server.service.server.connections) == 50)
    with socket.create_connection(server.address, 30) as refused:
        assert is_closed(refused)
    for each in held:
        each.close()
    wait_for(lambda: not server.service.server.connections)
    with Client(server.address) as client:
        assert client.query("T", "k1").code == ResponseCode.SUCCESS


def test_a_client_that_does_not_read_is_not_answered_without_end(server: Serving) -> None:
    pull = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "500", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    request = Session().send(Command(RequestCode.PULL_MESSAGE, 1, fields=pull))
    with socket.create_connection(server.address, 30) as deaf, Client(server.address) as other:
        deaf.setblocking(False)
        sent = 0
        try:
            while sent < 50_000:
                deaf.sendall(request)
                sent += 1
        except BlockingIOError:
            pass
        assert sent < 50_000
        assert other.query("T", "k1").code == ResponseCode.SUCCESS
        assert 0 < server.service.server.memory.held_bytes < 8 << 20
    wait_for(lambda: server.service.server.memory.held_bytes == 0)


def test_many_requests_at_once_are_all_answered_in_order(server: Serving) -> None:
    with Client(server.address) as client:
        numbers = [
            client.send(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
            for _ in range(300)
        ]
        assert [client.receive().opaque for _ in numbers] == numbers
        one_way = client.send(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}, flag=2)
        assert client.query("T", "k1").opaque == one_way + 1


def test_silent_and_stuck_connections_are_closed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.serve.remoting.service._HOUSE_S", 0.1)
    with serving(store, limits=Limits(idle_s=1.0)) as running, ExitStack() as stack:
        begun = time.monotonic()
        silent, stuck = (
            stack.enter_context(socket.create_connection(running.address, 60)) for _ in range(2)
        )
        stuck.sendall(struct.pack(">i", 100))
        assert is_closed(silent)
        assert is_closed(stuck)
        assert time.monotonic() - begun >= 1


def test_a_slow_request_is_answered_and_holds_nobody_up(server: Serving) -> None:
    fields = {"topic": "T", "queueId": "0"}
    request = Session().send(Command(RequestCode.GET_MAX_OFFSET, 7, fields=fields))
    with socket.create_connection(server.address, 30) as slow, Client(server.address) as other:
        for number, byte in enumerate(request):
            slow.sendall(bytes([byte]))
            if number % 16 == 0:
                assert other.query("T", "k1").code == ResponseCode.SUCCESS
        (answer,) = Session().receive(slow.recv(1 << 16))
        assert (answer.opaque, answer.fields["offset"]) == (7, "500")


def test_a_half_closed_connection_gets_its_answers_and_is_closed(server: Serving) -> None:
    fields = {"topic": "T", "queueId": "0"}
    requests = [
        Session().send(Command(RequestCode.GET_MAX_OFFSET, number, fields=fields))
        for number in range(3)
    ]
    with socket.create_connection(server.address, 30) as client:
        client.sendall(b"".join(requests) + b"\0\0")
        client.shutdown(socket.SHUT_WR)
        data = b""
        while part := client.recv(1 << 16):
            data += part
        assert [each.opaque for each in Session().receive(data)] == [0, 1, 2]
    wait_for(lambda: not server.service.server.connections)


def test_requests_before_bytes_that_are_no_frame_are_answered(server: Serving) -> None:
    fields = {"topic": "T", "queueId": "0"}
    request = Session().send(Command(RequestCode.GET_MAX_OFFSET, 7, fields=fields))
    with socket.create_connection(server.address, 30) as client:
        client.sendall(request + struct.pack(">i", -1))
        data = b""
        while part := client.recv(1 << 16):
            data += part
        assert [each.opaque for each in Session().receive(data)] == [7]


def test_a_connection_that_is_reset_takes_what_waits_for_it_along(server: Serving) -> None:
    waiting = {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "500", "maxMsgNums": "32", "sysFlag": "6",
        "commitOffset": "0", "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    with socket.create_connection(server.address, 30) as client:
        client.sendall(Session().send(Command(RequestCode.PULL_MESSAGE, 1, fields=waiting)))
        wait_for(lambda: any(each.is_busy for each in server.service.server.connections))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: not server.service.server.connections)
    with Client(server.address) as other:
        assert other.query("T", "k1").code == ResponseCode.SUCCESS


_PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
}  # fmt: skip
_QUERY = {"topic": "T", "key": "k1", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
_BEAT = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": []}]}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (RequestCode.PULL_MESSAGE, {**_PULL, "queueOffset": -1}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "queueOffset": (1 << 63) - 1}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "queueId": -1}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "queueId": (1 << 31) - 1}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "maxMsgNums": -(1 << 31), "queueOffset": 500}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "topic": "../../etc"}, b""),
        (RequestCode.PULL_MESSAGE, {**_PULL, "topic": "\0"}, b""),
        (RequestCode.QUERY_MESSAGE, {**_QUERY, "maxNum": 1 << 40}, b""),
        (RequestCode.QUERY_MESSAGE, {**_QUERY, "beginTimestamp": 1 << 62, "endTimestamp": 0}, b""),
        (RequestCode.QUERY_MESSAGE, {**_QUERY, "key": ""}, b""),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": -1}, b""),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": (1 << 63) - 1}, b""),
        (
            RequestCode.QUERY_CONSUME_QUEUE,
            {"topic": "/", "queueId": 0, "index": 0, "count": 9},
            b"",
        ),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T" * 60_000}, b""),
        (RequestCode.HEART_BEAT, {}, b"["),
        (RequestCode.HEART_BEAT, {}, b"[" * 60_000),
        (RequestCode.HEART_BEAT, {}, json.dumps({**_BEAT, "consumerDataSet": [1]}).encode()),
        (RequestCode.HEART_BEAT, {}, json.dumps({**_BEAT, "producerDataSet": [{}]}).encode()),
        (RequestCode.LOCK_BATCH_MQ, {}, b'{"mqSet":[{"topic":"T"}]}'),
        (RequestCode.SEND_MESSAGE_V2, {"b": "T"}, b"x"),
        (RequestCode.END_TRANSACTION, {"commitLogOffset": "x"}, b""),
    ],
)
def test_a_lie_is_refused_and_the_connection_lives(
    server: Serving, code: int, fields: dict[str, Any], body: bytes
) -> None:
    with Client(server.address) as client:
        answer = client.ask(code, fields, body)
        assert answer.code != ResponseCode.SUCCESS
        assert "unexpected" not in (answer.remark or "")
        assert client.query("T", "k1").code == ResponseCode.SUCCESS
