"""Clients that take more than their share: of groups, topics, locks, offsets and memory. The others notice nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reput import Message, open_store
from reput.broker.limits import Limits
from reput.files.disk import Disk
from reput.remoting.codes import RequestCode, ResponseCode
from tests.remoting.client import Client, Serving, serving, wait_for
from tests.small import SMALL

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


@pytest.fixture
def client(server: Serving) -> Iterator[Client]:
    with Client(server.address) as made:
        yield made


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
        assert (too_many.code, "2000 groups" in (too_many.remark or "")) == (REFUSED, True)
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
