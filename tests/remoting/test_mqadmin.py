"""Every command of mqadmin that the documentation names gets what it needs, from an archive and from a live store."""

import json
from collections.abc import Iterator

import pytest

from reput import MessageExt, open_store
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, Serving, serving
from tests.remoting.mqadmin import TOOLS_GROUP, MqAdmin, MqAdminError
from tests.waiting import wait_for

GROUP = "billing"


@pytest.fixture(scope="module")
def archive(orders: GoldenStore) -> Iterator[MqAdmin]:
    with serving(orders.path) as running:
        yield MqAdmin(running.address)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Two brokers that accept messages. A group has consumed three of them, and is connected."""
    folder = tmp_path_factory.mktemp("live")
    with serving(folder / "east", folder / "west", sends=True) as running:
        for served in running.service.served:
            with Client(served.address) as client:
                for number in range(8):
                    properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all"}
                    properties["TAGS"] = f"t{number % 2}"
                    assert client.put("T", b"%d" % number, properties, e=number % 4).code == 0
        yield running


@pytest.fixture(scope="module")
def live(server: Serving) -> Iterator[MqAdmin]:
    beat = {
        "clientID": "10.0.0.1@9",
        "consumerDataSet": [
            {
                "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "subscriptionDataSet": [{"topic": "T", "subString": "*", "tagsSet": [], "subVersion": 1}],
            }
        ],
    }  # fmt: skip
    place = {"consumerGroup": GROUP, "topic": "T", "queueId": 0, "commitOffset": 2}
    east, west = (each.address for each in server.service.served)
    with Client(east) as client, Client(west) as other:
        for each in (client, other):
            each.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place)
        place |= {"queueId": 1, "commitOffset": 1}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place)
        other.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place)
        wait_for(lambda: int(_max_offset(client, 3)) == 2)
        yield MqAdmin(west)  # each server is also the name server


def _max_offset(client: Client, queue_id: int) -> str:
    asked = client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": queue_id})
    return str(asked.fields["offset"])


def test_cluster_list(live: MqAdmin, server: Serving, archive: MqAdmin) -> None:
    addresses = [str(each.address) for each in server.service.served]
    rows = live.cluster_list()
    assert sorted(row[:5] for row in rows) == [
        ["reput", "east", 0, addresses[0], "V4_9_3"],
        ["reput", "west", 0, addresses[1], "V4_9_3"],
    ]
    assert all(row[7] > 0 and 0 <= row[8] <= 1 for row in (*rows, *archive.cluster_list()))


def test_topic_list(live: MqAdmin, archive: MqAdmin, orders: GoldenStore) -> None:
    with open_store(orders.path) as store:
        listed = archive.topic_list()
        assert set(listed) - {f"%RETRY%{TOOLS_GROUP}"} == set(store.topics())
    listed = live.topic_list()
    assert listed["T"] == ("reput", [GROUP])
    assert f"%RETRY%{GROUP}" in listed


def test_topic_route(live: MqAdmin, archive: MqAdmin, server: Serving) -> None:
    east, west = (str(each.address) for each in server.service.served)
    assert sorted(live.topic_route("T")) == [
        ["reput", "east", east, 4, 4, 6],
        ["reput", "west", west, 4, 4, 6],
    ]
    assert [row[3:] for row in archive.topic_route("orders")] == [[4, 4, 4]]
    with pytest.raises(MqAdminError) as failed:
        archive.topic_route("none")
    assert failed.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_topic_status(live: MqAdmin, archive: MqAdmin, orders: GoldenStore) -> None:
    rows = live.topic_status("T")
    assert {place: row[:2] for place, row in rows.items()} == {
        ("T", broker, queue_id): [0, 2] for broker in ("east", "west") for queue_id in range(4)
    }
    with open_store(orders.path) as store:
        for (topic, _, queue_id), row in archive.topic_status("orders").items():
            end = store.max_queue_offset(topic, queue_id)
            last = store.get_by_queue(topic, queue_id, end - 1).store_timestamp
            assert row == [store.min_queue_offset(topic, queue_id), end, last]


def test_query_by_key_and_unique_key(live: MqAdmin, archive: MqAdmin, orders: GoldenStore) -> None:
    assert [one.body for one in wait_for(lambda: _found(live, "k3", 2))] == [b"3", b"3"]
    assert len(live.by_key("T", "all")) == 16
    message, track = live.by_unique_key("T", "U0")
    assert (message.body, track) == (b"0", {GROUP: "CONSUMED"})
    assert live.by_unique_key("T", "U5")[1] == {GROUP: "NOT_CONSUME_YET"}
    first = _first(orders)
    assert first in archive.by_key(first.topic, first.keys[0])
    assert archive.by_unique_key(first.topic, first.unique_key or "")[0] == first
    for ask in (archive.by_key, archive.by_unique_key):
        with pytest.raises(MqAdminError, match="no message"):
            ask(first.topic, "nothing has this key")


def _found(admin: MqAdmin, key: str, count: int) -> list[MessageExt]:
    """Return the messages with a key of both brokers; an empty list until `count` of them are indexed."""
    try:
        found = admin.by_key("T", key)
    except MqAdminError:
        return []
    return found if len(found) == count else []


def _first(orders: GoldenStore) -> MessageExt:
    with open_store(orders.path) as store:
        return store.pull("orders", 0, 0, 1).messages[0]


def test_query_by_id_and_offset(live: MqAdmin, archive: MqAdmin, orders: GoldenStore) -> None:
    found = live.by_offset("T", "west", 3, 1)
    assert found is not None
    assert found[0].body == b"7"
    assert live.by_offset("T", "west", 3, 2) is None
    assert live.by_id(found[0].message_id)[0] == found[0]  # the id has this server's address
    first = _first(orders)
    broker = archive.topic_route("orders")[0][1]
    assert archive.by_offset("orders", broker, 0, 0) == (first, {})


def test_consumer_progress(live: MqAdmin) -> None:
    rows = live.consumer_progress(GROUP)
    assert {
        queue_id: row[:2] for (_, broker, queue_id), row in rows.items() if broker == "east"
    } == {0: [2, 2], 1: [2, 1], 2: [2, 0], 3: [2, 0]}
    assert [row[2] > 0 for (_, broker, _), row in rows.items() if broker == "east"] == [
        True, True, False, False,
    ]  # fmt: skip
    assert live.all_progress()[GROUP] == (1, 5 + 7)


def test_print_messages_and_consume(live: MqAdmin, archive: MqAdmin, orders: GoldenStore) -> None:
    assert sorted(one.body for one in live.print_messages("T", "t1")) == sorted(
        [b"1", b"3", b"5", b"7"] * 2
    )
    with open_store(orders.path) as store:
        messages = [
            store.get_by_queue("orders", 1, offset)
            for offset in range(store.max_queue_offset("orders", 1))
        ]
    broker = archive.topic_route("orders")[0][1]
    assert archive.consume("orders", broker, 1) == messages
    since = messages[-5].store_timestamp
    printed = [one for one in archive.print_messages("orders", begin_ms=since) if one.queue_id == 1]
    assert printed == [one for one in messages if one.store_timestamp >= since]


EXPORTED = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
"""The fields that exportConfigs of 4.9.3 reads."""
MEASURED = (
    "putTps", "getTransferedTps", "getTransferredTps", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning", "putMessageAverageSize", "commitLogDiskRatio",
    "consumeQueueDiskRatio",
)  # fmt: skip
"""The fields that exportMetrics of 4.9.3 and 5.3.3 reads."""


def test_export_configs_and_metrics_find_what_they_read(
    server: Serving, orders: GoldenStore
) -> None:
    with serving(orders.path) as archive:
        for address in (server.address, archive.address):
            with Client(address) as client:
                body = client.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
                found = dict(line.split("=", 1) for line in body.splitlines())
                assert set(EXPORTED) <= found.keys()
                assert all(found[name] for name in EXPORTED)
                body = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body.decode()
                table = json.loads(body)["table"]
                assert all(float(table[name].split()[0]) >= 0 for name in MEASURED)
