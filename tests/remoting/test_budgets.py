"""Clients that use more than their share: of groups, topics, locks, offsets and memory. Others are not affected."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from reput import Message, open_store
from reput.base.config import StoreConfig
from reput.engine.writer.shared_store import SharedStore
from reput.io.disk import Disk
from reput.wings.serve.broker.limits import HttpLimits, Limits
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, Serving, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for

LIMITS = Limits(
    groups=20, subscriptions=30, registered_bytes=4_000, members=50, total_registered_bytes=10_000,
    topics=100, locked_queues=10, total_locked_queues=15, offsets_bytes=1_000,
)  # fmt: skip
REFUSED = ResponseCode.SYSTEM_ERROR


def beat(groups: list[str], topics: list[str] | None = None, expression: str = "*") -> bytes:
    wanted = [{"topic": topic, "subString": expression} for topic in topics or []]
    consumers = [{"groupName": group, "subscriptionDataSet": wanted} for group in groups]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"x", queue_id=n % 8, keys=["k"]) for n in range(16))
    with serving(tmp_path / "s", sends=True, limits=LIMITS) as running:
        yield running


def test_a_heartbeat_of_many_groups_costs_one_save_and_beyond_the_budget_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Path] = []
    replace = Disk.replace

    def counted(disk: Disk, path: Path, data: bytes) -> None:
        saved.append(path)
        replace(disk, path, data)

    monkeypatch.setattr(Disk, "replace", counted)
    with serving(tmp_path / "s", sends=True) as running, Client(running.address) as client:
        names = [f"g{n}" for n in range(250)]
        assert client.ask(RequestCode.HEART_BEAT, {}, beat(names)).code == 0
        too_many = client.ask(RequestCode.HEART_BEAT, {}, beat([f"h{n}" for n in range(2_000)]))
        assert (too_many.code, "2,000 groups" in (too_many.remark or "")) == (REFUSED, True)
        topics = tmp_path / "s" / "config" / "topics.json"
        wait_for(lambda: topics.exists() and b"%RETRY%g249" in topics.read_bytes())
        assert len([path for path in saved if path.name == "topics.json"]) <= 2
        assert b"%RETRY%h" not in topics.read_bytes()


def test_the_groups_of_a_connection_are_counted_over_its_heartbeats(client: Client) -> None:
    for n in range(4):
        assert (
            client.ask(RequestCode.HEART_BEAT, {}, beat([f"g{n}-{m}" for m in range(5)])).code == 0
        )
    assert client.ask(RequestCode.HEART_BEAT, {}, beat(["one-more"])).code == REFUSED
    assert client.ask(RequestCode.HEART_BEAT, {}, beat(["g0-0"])).code == 0
    client.ask(RequestCode.UNREGISTER_CLIENT, {"consumerGroup": "g0-0", "clientID": "c"})
    assert client.ask(RequestCode.HEART_BEAT, {}, beat(["one-more"])).code == 0


@pytest.mark.every_case
@pytest.mark.parametrize(
    "body",
    [
        beat(["g"], [f"t{n}" for n in range(31)]),
        beat(["g"], ["t"], "x" * 4_000),
        beat(["../../etc"]),
        beat(["g\0"]),
        beat(["g" * 256]),
        beat(["g"], ["no topic"]),
        beat(["g"], ["t" * 128]),
    ],
)
def test_a_heartbeat_beyond_a_budget_registers_nothing(
    client: Client, server: Serving, body: bytes
) -> None:
    assert client.ask(RequestCode.HEART_BEAT, {}, body).code == REFUSED
    broker = server.service.served[0].broker
    assert broker is not None
    assert broker.groups.consumer_group("g") is None
    assert broker.topics.get("%RETRY%g") is None


def test_all_connections_share_a_budget_and_give_back_what_they_took(server: Serving) -> None:
    clients = [Client(server.address) for _ in range(3)]
    codes = [
        each.ask(RequestCode.HEART_BEAT, {}, beat([f"g{n}-{m}" for m in range(19)])).code
        for n, each in enumerate(clients)
    ]
    assert codes == [0, 0, REFUSED]
    clients[0].__exit__()
    again = beat([f"g2-{m}" for m in range(19)])
    wait_for(lambda: clients[2].ask(RequestCode.HEART_BEAT, {}, again).code == 0)
    for each in clients:
        each.__exit__()


def test_topics_are_created_up_to_a_number(client: Client) -> None:
    answers = [client.put(f"t{n}", b"x").code for n in range(110)]
    assert answers[:90] == [0] * 90
    assert set(answers[100:]) == {REFUSED}
    assert client.put("t1", b"x").code == 0


def test_queues_are_locked_up_to_a_number(client: Client) -> None:
    def lock(code: int, first: int, count: int) -> int:
        queues = [
            {"topic": "T", "brokerName": "s", "queueId": n} for n in range(first, first + count)
        ]
        body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
        return client.ask(code, {}, json.dumps(body).encode()).code

    assert lock(RequestCode.LOCK_BATCH_MQ, 0, 11) == REFUSED
    assert lock(RequestCode.LOCK_BATCH_MQ, 0, 10) == 0
    assert lock(RequestCode.LOCK_BATCH_MQ, 10, 10) == REFUSED
    assert lock(RequestCode.UNLOCK_BATCH_MQ, 0, 10) == 0
    assert lock(RequestCode.LOCK_BATCH_MQ, 10, 5) == 0


@pytest.mark.every_case
@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "unknown"},
        {"queueId": -1},
        {"queueId": 8},
        {"consumerGroup": "a@b"},
        {"consumerGroup": "g" * 256},
    ],
)
def test_offsets_of_what_is_not_there_are_not_kept(client: Client, fields: dict[str, Any]) -> None:
    place = {"topic": "T", "queueId": 0, "consumerGroup": "g", "commitOffset": 1, **fields}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code != 0
    assert client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body.count(b"1") == 0


def test_offsets_are_kept_up_to_a_length_and_known_ones_still_move(
    client: Client,
) -> None:
    def commit(group: str, offset: int) -> int:
        place = {"topic": "T", "queueId": 0, "consumerGroup": group, "commitOffset": offset}
        return client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code

    codes = [commit(f"g{n}", 1) for n in range(40)]
    kept = codes.count(0)
    assert (0 < kept < 40, codes[kept:]) == (True, [REFUSED] * (40 - kept))
    assert commit("g0", (1 << 63) - 1) == 0
    assert len(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body) <= LIMITS.offsets_bytes
    pull = client.pull("T", 0, 0, consumerGroup="other", sysFlag=5, commitOffset=1)
    assert pull.code == 0


def test_a_body_where_none_can_be_is_refused(client: Client) -> None:
    for code in (
        RequestCode.PULL_MESSAGE,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    ):
        answer = client.ask(code, {"topic": "T", "queueId": 0}, b"x")
        assert (answer.code, "body of at most 0 bytes" in (answer.remark or "")) == (REFUSED, True)
    long = client.ask(RequestCode.HEART_BEAT, {}, beat(["g"]) + b" " * LIMITS.body_bytes)
    assert (long.code, "body of at most" in (long.remark or "")) == (REFUSED, True)


PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 2, "maxMsgNums": 1, "sysFlag": 6,
    "commitOffset": 0, "suspendTimeoutMillis": 60_000, "subscription": "*", "subVersion": 0,
}  # fmt: skip


def test_what_a_client_waits_for_is_forgotten_with_it(server: Serving) -> None:
    port, memory = server.service.served[0].port, server.service.server.memory
    pulling = port._pulling
    assert pulling is not None
    with Client(server.address) as client:
        for _ in range(100):
            client.send(RequestCode.PULL_MESSAGE, PULL)
        wait_for(lambda: pulling._count == 100)
        assert memory.held_bytes > 100 * 100
    wait_for(lambda: pulling._count == 0)
    assert (pulling._waiting, pulling._by_peer, memory.held_bytes) == ({}, {}, 0)


def test_beyond_the_pulls_that_may_wait_answers_come_at_once(tmp_path: Path) -> None:
    make_store(tmp_path / "s")
    with (
        serving(tmp_path / "s", limits=Limits(waiting=3)) as running,
        Client(running.address) as client,
    ):
        for _ in range(4):
            client.send(RequestCode.PULL_MESSAGE, {**PULL, "queueOffset": 1})
        answer = client.receive()
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        pulling = running.service.served[0].port._pulling
        assert pulling is not None
        wait_for(lambda: pulling._count == 3)


def test_a_client_that_sends_and_never_reads_holds_no_more_than_its_share(tmp_path: Path) -> None:
    limits = Limits(client_bytes=1 << 20, answer_bytes=1 << 20, total_bytes=64 << 20)
    with serving(tmp_path / "s", sends=True, limits=limits) as running:
        memory, most = running.service.server.memory, 0
        with Client(running.address) as client, Client(running.address) as deaf:
            assert client.put("T", b"x" * 200_000).code == 0
            wait_for(lambda: messages(client.pull("T", 0, 0).body))
            deaf._socket.setblocking(False)
            request = deaf._session.send(
                Command(RequestCode.PULL_MESSAGE, 1, fields=texts(PULL, queueOffset=0))
            )
            try:
                while True:
                    deaf.send_bytes(request * 100)
                    most = max(most, memory.held_bytes)
            except BlockingIOError:
                pass
            for n in range(20):
                assert client.put("T", b"%d" % n).code == 0
                most = max(most, memory.held_bytes)
        assert 0 < most < 6 << 20
        wait_for(lambda: memory.held_bytes == 0)


LARGE = StoreConfig(
    commit_log_file_bytes=1 << 25, queue_entries=1000, hash_slots=100, index_items=1000
)
ANSWER_BYTES = Limits().answer_bytes


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of 1.5 MB with one key, and a small one."""
    path = tmp_path_factory.mktemp("large") / "s"
    with open_store(path, mode="rw", config=LARGE) as store:
        store.put_many(Message("T", bytes(1_500_000), keys=["k"]) for _ in range(12))
        store.put(Message("Q", b"x", keys=["q"]))
    return path


@pytest.mark.every_case
@pytest.mark.parametrize("exact", [None, 1000])
def test_a_query_answers_the_newest_messages_that_fit_and_says_that_there_are_more(
    large: Path, exact: int | None
) -> None:
    with serving(large, most_exact=exact) as running, Client(running.address) as client:
        answer = client.query("T", "k", maxNum=64)
        assert ANSWER_BYTES - 1_600_000 < len(answer.body) <= ANSWER_BYTES
        found = {each.queue_offset for each in messages(answer.body)}
        assert (found, "older" in (answer.remark or "")) == ({7, 8, 9, 10, 11}, True)
        small = client.query("Q", "q")
        assert (len(messages(small.body)), small.remark) == (1, None)


def test_many_large_answers_do_not_delay_a_client_that_asks_little(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    query = SharedStore.query_records

    def counted(store: SharedStore, topic: str, *others: Any) -> Any:
        asked.append(topic)
        return query(store, topic, *others)

    monkeypatch.setattr(SharedStore, "query_records", counted)
    with serving(large) as running, Client(running.address) as quiet:
        assert quiet.query("Q", "q").code == 0
        server = running.service.server
        memory, threads = server.memory, server.threads
        (connection,) = server.connections
        connection._user.rank -= 6  # as if the request had arrived a minute ago
        greedy = [Client(running.address) for _ in range(30)]
        for each in greedy:
            for _ in range(4):
                each.send(RequestCode.QUERY_MESSAGE, {**QUERY, "topic": "T", "key": "k"})
        wait_for(lambda: len(threads._queue) > 20)
        before = len(asked)
        assert quiet.query("Q", "q").code == 0
        assert len(asked) - before <= 10
        assert memory.held_bytes <= Limits().total_bytes
        for each in greedy:
            each.__exit__()
        wait_for(lambda: not (memory.held_bytes or threads._busy))
        assert len(asked) < 120  # requests of disconnected clients are not answered


QUERY = {"key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}


def texts(fields: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {name: str(value) for name, value in {**fields, **others}.items()}


@pytest.fixture(scope="module")
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_tls_handshakes_are_connections_and_come_to_an_end(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    make_store(tmp_path / "s")
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    limits = Limits(connections=3, handshake_s=2)
    with serving(tmp_path / "s", limits=limits, tls=tls) as running:
        server = running.service.server
        silent = [socket.create_connection(running.address, 30) for _ in range(3)]
        wait_for(lambda: len(server.handshakes) == 3)
        with socket.create_connection(running.address, 30) as refused:
            assert refused.recv(1) == b""
        assert [each.recv(1) for each in silent] == [b""] * 3
        wait_for(lambda: not server.handshakes)
        with trusting.wrap_socket(socket.create_connection(running.address, 30)) as secured:
            request = Command(RequestCode.GET_MAX_OFFSET, 7, fields={"topic": "T", "queueId": "0"})
            secured.sendall(Session().send(request))
            (answer,) = Session().receive(secured.recv(1 << 16))
            assert (answer.opaque, answer.fields["offset"]) == (7, "1")
        for each in silent:
            each.close()


@pytest.mark.every_case
@pytest.mark.parametrize("encrypted", [False, True])
def test_answers_that_are_not_read_are_counted(
    large: Path, tls: ssl.SSLContext, encrypted: bool
) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with serving(large, tls=tls if encrypted else None) as running:
        server = running.service.server
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect(running.address)
            deaf = trusting.wrap_socket(plain) if encrypted else plain
            asked = texts({**QUERY, "topic": "T"})
            deaf.sendall(Session().send(Command(RequestCode.QUERY_MESSAGE, 1, fields=asked)))
            # All data beyond the system's buffers, which hold at most 4 MB here, is held by the process.
            answered = Future[int]()

            def look() -> None:
                if any(each.has_request and not each._in_flight for each in server.connections):
                    answered.set_result(server.memory.held_bytes)
                else:
                    asyncio.get_running_loop().call_later(0.01, look)

            assert running._loop is not None
            running._loop.call_soon_threadsafe(look)
            assert answered.result(60) > 1 << 20
            received = bytearray()
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                received += deaf.recv(1 << 16)
            (answer,) = Session(Limits(frame_bytes=1 << 25)).receive(bytes(received))
            assert len(messages(answer.body)) == 5
            deaf.close()
        wait_for(lambda: server.memory.held_bytes == 0)


def test_who_never_asks_makes_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "s")
    monkeypatch.setattr("reput.wings.serve.remoting.server._PATIENCE_S", 0.0)
    with serving(tmp_path / "s", limits=Limits(connections=3)) as running:
        silent = [socket.create_connection(running.address, 30) for _ in range(3)]
        wait_for(lambda: len(running.service.server.connections) == 3)
        with Client(running.address) as first, Client(running.address) as second:
            for client in (first, second, first):
                assert client.query("T", "k").code == 0
            assert len(running.service.server.connections) == 3
        for each in silent:
            each.close()


def make_store(path: Path) -> None:
    with open_store(path, mode="rw", config=SMALL) as store:
        store.put(Message("T", b"x", keys=["k"]))


def test_the_budgets_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text()
    for limits, heading in (
        (Limits(), "| over RocketMQ's protocol"),
        (HttpLimits(), "| over HTTP"),
    ):
        rows = page[page.index(heading) :].split("\n\n")[0].splitlines()[2:]
        stated: dict[str, str] = {}
        for row in rows:
            names, values = (cell.strip() for cell in row.split("|")[1:3])
            stated |= zip(names.replace("`", "").split(", "), values.split(", "), strict=True)
        assert stated == {name: str(value) for name, value in asdict(limits).items()}
