"""Slow, half-open, flooding and lying clients, and stores that fail under the server."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reput import Message, open_store
from reput.remoting.codes import RequestCode, ResponseCode
from reput.remoting.commands import Command
from reput.remoting.server import Limits
from reput.remoting.session import Session
from tests.remoting.client import Client, Serving, messages, serving, wait_for
from tests.small import SMALL


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "store"
    with open_store(path, mode="rw", config=SMALL) as made:
        made.put_many(Message("T", b"x" * 1000, keys=[f"k{n}"]) for n in range(500))
    return path


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Serving]:
    limits = Limits(frame_bytes=1 << 16, connections=50, in_flight=8, buffered_bytes=1 << 17)
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


def test_unfinished_requests_share_a_limit(server: Serving) -> None:
    begun = [socket.create_connection(server.address, 30) for _ in range(3)]
    for each in begun:
        each.sendall(struct.pack(">i", 60_000) + bytes(50_000))
    closed = wait_for(lambda: server.service.server.buffered_bytes <= 1 << 17)
    assert closed
    with Client(server.address) as other:
        assert other.query("T", "k1").code == ResponseCode.SUCCESS
    for each in begun:
        each.close()
    wait_for(lambda: server.service.server.buffered_bytes == 0)


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
        (connection,) = [c for c in server.service.server.connections if c.is_busy]
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 8 << 20


def test_many_requests_at_once_are_all_answered_in_order(server: Serving) -> None:
    with Client(server.address) as client:
        numbers = [
            client.send(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
            for _ in range(300)
        ]
        assert [client.receive().opaque for _ in numbers] == numbers
        one_way = client.send(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}, flag=2)
        assert client.query("T", "k1").opaque == one_way + 1


def test_silent_and_stuck_connections_are_closed(store: Path) -> None:
    with (
        serving(store, limits=Limits(idle_s=1.0)) as running,
        socket.create_connection(running.address, 60) as silent,
        socket.create_connection(running.address, 60) as stuck,
    ):
        begun = time.monotonic()
        stuck.sendall(struct.pack(">i", 100))
        assert is_closed(silent)
        assert is_closed(stuck)
        assert time.monotonic() - begun >= 1


def test_a_damaged_record_is_an_error_and_not_missing(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as made:
        offsets = [made.put(Message("T", b"x" * 100, keys=["k"])).physical_offset for _ in range(3)]
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(offsets[1] + 84)  # the length of the body
        file.write(struct.pack(">i", 1 << 30))
    with serving(tmp_path / "store") as running, Client(running.address) as client:
        view = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offsets[1]})
        assert view.code == ResponseCode.SYSTEM_ERROR
        assert "can not find" not in (view.remark or "")
        good = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offsets[0]})
        assert [each.physical_offset for each in messages(good.body)] == [offsets[0]]
