"""Connections that one process accepts and several serve. Two services of one loop represent two processes."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reput.core.query.shared_store import SharedStore
from reput.engine.stores.open_store import open_store
from reput.engine.writer.put.message import Message
from reput.format.host import Host
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.connection import Connection
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.service import Service, ServiceOptions
from reput.wings.serve.remoting.session import Session
from reput.wings.serve.remoting.workers import Worker, Workers, channel
from tests.remoting.client import Client
from tests.small import SMALL
from tests.waiting import wait_for, wait_in_loop

ANYWHERE = Host("127.0.0.1", 0)
REPUT = Path(sys.executable).with_name("reput")


def make_store(path: Path) -> Path:
    with open_store(path, mode="rw", config=SMALL) as store:
        store.put(Message("orders", b"x", keys="k"))
    return path


@pytest.fixture
def channels() -> Iterator[tuple[socket.socket, socket.socket]]:
    first, second = channel()
    with first, second:
        yield first, second


def asked(address: Host) -> int:
    with Client(address) as client:
        return client.query("orders", "k").code


def test_connections_are_served_in_turn_and_stores_that_come_and_go_by_both(
    tmp_path: Path, channels: tuple[socket.socket, socket.socket]
) -> None:
    make_store(tmp_path / "folder" / "b")

    async def serve() -> None:
        options = ServiceOptions(ANYWHERE)
        first = Service([str(tmp_path / "folder")], _open, options, Workers(channels[:1]))
        second, ended = Service([], _open, options), asyncio.Event()
        worker = Worker(channels[1], second, ended.set)
        worker.start()
        stop = asyncio.Event()
        running = asyncio.create_task(first.run(stop))
        await first.start()
        await wait_in_loop(lambda: bool(second.stores()))
        assert first.stores().keys() == second.stores().keys() == {"b"}
        address = first.served[0].address
        clients = [await asyncio.to_thread(Client, address) for _ in range(4)]
        try:
            answers = [await asyncio.to_thread(each.query, "orders", "k") for each in clients]
            assert [answer.code for answer in answers] == [0] * 4
            assert (len(first.server.connections), len(second.server.connections)) == (2, 2)
        finally:
            for each in clients:
                each.__exit__()
        # sorts before the other store
        await asyncio.to_thread(make_store, tmp_path / "folder" / "a")
        await wait_in_loop(lambda: len(second.stores()) == 2)
        places = [(each.path, each.address) for each in first.served]
        assert places == [(each.path, each.address) for each in second.served]
        os.rename(tmp_path / "folder" / "b", tmp_path / "gone")
        await wait_in_loop(lambda: second.stores().keys() == {"a"})
        channels[0].close()
        await ended.wait()
        worker.close()
        assert [await asyncio.to_thread(asked, places[1][1]) for _ in range(3)] == [0] * 3
        stop.set()
        await running
        await first.close()
        await second.close()

    asyncio.run(serve())


def _open(path: str, address: Host) -> SharedStore:
    return SharedStore(path)


def test_a_worker_that_ended_is_passed_over(
    channels: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    workers = Workers(channels[:1])
    channels[1].close()
    with socket.socket() as connection:
        assert [workers.hand_on(connection, 1) for _ in range(4)] == [False] * 4
    workers.tell("store", Host("127.0.0.1", 1), True)
    assert caplog.messages == ["a worker has ended; 1 are left"]


def test_a_worker_that_is_busy_is_not_waited_for(
    channels: tuple[socket.socket, socket.socket],
) -> None:
    workers = Workers(channels[:1])
    with socket.socket() as connection:
        taken = [workers.hand_on(connection, 1) for _ in range(4000)]
    assert any(taken)
    assert not any(taken[-100:])


@pytest.mark.slow
def test_workers_end_with_the_first_process_even_where_that_is_killed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    first = subprocess.Popen(
        [REPUT, "serve", store, "--listen", "127.0.0.1:0", "--workers", "3"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert first.stdout is not None
    host, _, number = first.stdout.readline().split()[0].rpartition(":")
    (nursery,) = children_of(first.pid)
    listed = [nursery, *children_of(nursery)]
    assert len(listed) == 3
    assert [asked(Host(host, int(number))) for _ in range(6)] == [0] * 6
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stdout.close()
    wait_for(lambda: all(map(_is_over, listed)))


def _is_over(child: str) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{child}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def three_workers(folder: Path, *options: str) -> tuple[subprocess.Popen[str], Host]:
    """Start a server with three processes; return the first of them and the address."""
    listening = ("--listen", "127.0.0.1:0", "--workers", "3", *options)
    first = subprocess.Popen(
        [REPUT, "serve", make_store(folder / "store"), *listening],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert first.stdout is not None
    host, _, number = first.stdout.readline().split()[0].rpartition(":")
    return first, Host(host, int(number))


def members(client: Client) -> list[str]:
    answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    return list(json.loads(answer.body)["consumerIdList"])


def children_of(process: int | str) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_worker_is_reaped_and_replaced(tmp_path: Path) -> None:
    first, address = three_workers(tmp_path)
    assert first.stdout is not None
    (nursery,) = children_of(first.pid)
    killed = children_of(nursery)
    assert len(killed) == 2
    for worker in killed:
        os.kill(int(worker), signal.SIGKILL)
    wait_for(lambda: len(set(children_of(nursery)) - set(killed)) == 2)
    assert not set(children_of(nursery)) & set(killed)
    assert [asked(address) for _ in range(9)] == [0] * 9
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    first.stdout.close()
    assert not Path(f"/proc/{nursery}").exists()


class SecureClient(Client):
    """A client with TLS that accepts any certificate."""

    def __init__(self, address: Host) -> None:
        super().__init__(address)
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        self._socket = trusting.wrap_socket(self._socket)


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [Client, SecureClient])
def test_groups_work_whichever_process_a_connection_is_handed_to(
    tmp_path: Path, kind: type[Client], certificate: Path
) -> None:
    secret = "--tls-cert", str(certificate / "cert.pem"), "--tls-key", str(certificate / "key.pem")
    first, address = three_workers(tmp_path, *(secret if kind is SecureClient else ()))
    assert first.stdout is not None
    clients = [kind(address) for _ in range(6)]
    try:
        for count, client in enumerate(clients):
            subscription = {"topic": "orders", "subString": "*", "more": "x" * 100_000}
            group = {"groupName": "g", "subscriptionDataSet": [subscription]}
            beat = {"clientID": f"c{count}", "consumerDataSet": [group]}
            route = client.send(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
            beaten = client.send(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
            # As in a broker, requests of one connection run in parallel and are answered in any order.
            codes = {one.opaque: one.code for one in (client.receive(), client.receive())}
            assert codes == {route: 0, beaten: 0}
        for client in clients:
            answer = client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
            assert sorted(json.loads(answer.body)["consumerIdList"]) == [f"c{n}" for n in range(6)]
        place = {"consumerGroup": "g", "topic": "orders", "queueId": 0}
        with kind(address) as other:
            other.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1})
        for client in clients:
            assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"] == "1"
            pulled = {**place, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 2, "commitOffset": 0}
            answer = client.ask(
                RequestCode.PULL_MESSAGE, {**pulled, "suspendTimeoutMillis": 0, "subVersion": 0}
            )
            assert (answer.code, len(answer.body) > 0) == (0, True)
        found = clients[0].ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        seen = {each["clientAddr"] for each in json.loads(found.body)["connectionSet"]}
        assert seen == {"{}:{}".format(*each._socket.getsockname()) for each in clients}
        # Every process notices a member that leaves.
        clients.pop().__exit__()
        wait_for(lambda: len(members(clients[0])) == 5)
    finally:
        for client in clients:
            client.__exit__()
        first.send_signal(signal.SIGTERM)
        assert first.wait() == 0
        first.stdout.close()


def test_a_client_that_reads_nothing_is_tried_less_and_less_often() -> None:
    """A connection goes to another worker only after its answers are sent, and thousands of clients may never read."""

    async def pauses() -> list[float]:
        loop = asyncio.get_running_loop()
        planned: list[tuple[Any, ...]] = []
        server, transport = SimpleNamespace(limits=Limits()), SimpleNamespace()
        connection = Connection(server, SimpleNamespace())  # type: ignore[arg-type]  # only its limits are used
        transport.get_write_buffer_size = lambda: 1
        connection._transport = transport  # type: ignore[assignment]
        connection._handing = Command(RequestCode.HEART_BEAT, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "call_later", lambda *plan: planned.append(plan))
            for _ in range(12):
                for _ in range(3):  # called again after each answer to an earlier request
                    connection._hand_back()
                _, repeat, *arguments = planned[-1]
                repeat(*arguments)
        return [plan[0] for plan in planned]

    found = asyncio.run(pauses())
    assert len(found) == 13
    assert found[0] < 0.01
    assert found[-1] >= 1
    assert found == sorted(found)


def test_bytes_that_are_handed_on_are_read_as_others(tmp_path: Path) -> None:
    first, address = three_workers(tmp_path)
    assert first.stdout is not None
    beat = Session().send(Command(RequestCode.HEART_BEAT, 1, body=b'{"clientID":"c"}'))
    hostile = (
        *(b"\x7f\xff\xff\xff", b"\xff" * 50, b"\0\0\0\x64\0\xff\xff\xff"),
        b"GET / HTTP/1.1\r\n\r\n",
    )
    try:
        for rest in (beat[:20], *hostile):
            for _ in range(3):  # one connection for each process
                with Client(address) as client:
                    for begin in range(0, len(beat) - 1, 37):
                        client.send_bytes(beat[begin : begin + 37])
                    assert client.receive().code == 0
                    client.send_bytes(beat + rest)
                    assert client.receive().code == 0
                    if rest in hostile:
                        with suppress(ConnectionResetError):
                            assert client._socket.recv(1) == b""  # the connection is closed
                    else:
                        client.send_bytes(beat[20:])
                        assert client.receive().code == 0
        assert asked(address) == 0
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait() == 0
        first.stdout.close()
