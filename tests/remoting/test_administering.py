"""Changes by tools: topics, groups and offsets, which are saved in RocketMQ's own files, or requested from clients."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.base.config import StoreConfig
from reput.format.untrusted_json import parse_java_json
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, Serving, messages, serving
from tests.remoting.recorded import Connection, Request, as_json
from tests.small import SMALL
from tests.waiting import wait_for

FIVE = replace(SMALL, store_version="5.3")
TOPIC = {
    "topic": "T", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "s", sends=True) as running:
        yield running


def config_file(folder: Path, name: str) -> Any:
    return parse_java_json((folder / "config" / name).read_bytes())


def beat(group: str, client_id: str = "c1", topic: str = "T") -> bytes:
    wanted = {"topic": topic, "subString": "*", "subVersion": 1}
    consumer = {"groupName": group, "subscriptionDataSet": [wanted]}
    body = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(body).encode()


def member(server: Serving, group: str, client_id: str, given: dict[int, Command]) -> Connection:
    """A connected consumer that answers the server's requests."""
    connection = Connection(server.address)
    connection.given = given
    request = Request("test", 0, True, RequestCode.HEART_BEAT, {}, 0, 399, beat(group, client_id))
    answer = connection.answer(connection.send(request, {}), 20)
    assert answer is not None
    assert answer.code == 0
    return connection


def test_topics_are_created_changed_and_kept_with_what_a_broker_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "config"
    folder.mkdir(parents=True)
    others = {"attributes": {"message.type": "FIFO"}, "topicFilterType": "SINGLE_TAG", "perm": 6}
    table = {"Old": {"readQueueNums": 3, "writeQueueNums": 3, "topicName": "Old", **others}}
    version = {"counter": 41, "stateVersion": 7, "timestamp": 1}
    text = json.dumps({"dataVersion": version, "topicConfigTable": table})
    (folder / "topics.json").write_text(text)
    with serving(tmp_path / "s", sends=True) as server, Client(server.address) as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC).code == 0
        # The server must have written the file before it answered.
        kept = config_file(tmp_path / "s", "topics.json")
        assert kept["topicConfigTable"]["Old"]["attributes"] == {"message.type": "FIFO"}
        assert kept["topicConfigTable"]["T"]["writeQueueNums"] == 2
        assert (kept["dataVersion"]["counter"], kept["dataVersion"]["stateVersion"]) == (42, 7)
        changed = {**TOPIC, "perm": 4, "readQueueNums": 3, "writeQueueNums": 3}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, changed).code == 0
        answer = client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "T", "lo": "true"})
        found = as_json(answer.body)
        assert (found["perm"], found["readQueueNums"]) == (4, 3)
        assert client.put("T", b"x").code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"topic": "a b"}, "illegal characters"),
        ({"topic": "x" * 200}, "longer than topic max length"),
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "rmq_sys_wheel_timer"}, "conflict with system topic"),
        ({"topic": "reput_REPLY_TOPIC"}, "conflict with system topic"),
        ({"readQueueNums": -1}, "0 to 1024 queues"),
        ({"writeQueueNums": 65536}, "0 to 1024 queues"),
        ({"perm": 9}, "perm must be 0 to 7"),
        ({"topicFilterType": "?"}, "topicFilterType"),
        ({"readQueueNums": "many"}, "whole number"),
    ],
)
def test_topics_that_cannot_be_are_refused(
    server: Serving, change: dict[str, Any], remark: str
) -> None:
    with Client(server.address) as client:
        answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, **change})
        assert (answer.code, remark in (answer.remark or "")) == (1, True)
        assert not (Path(server.service.served[0].path) / "config" / "topics.json").exists()


@pytest.mark.every_case
@pytest.mark.parametrize("config", [SMALL, FIVE])
def test_a_broker_has_its_own_topics(tmp_path: Path, config: StoreConfig) -> None:
    """Queues and permissions as in the topics.json of brokers of 4.9.3 and 5.3.3 (of the trace topic: as sent to)."""
    expected = {
        "TBW102": (8, 7), "reput": (16, 7), "s": (1, 7), "BenchmarkTest": (1024, 6), "OFFSET_MOVED_EVENT": (1, 6),
        "SELF_TEST_TOPIC": (1, 6), "SCHEDULE_TOPIC_XXXX": (18, 6), "reput_REPLY_TOPIC": (1, 6),
        "RMQ_SYS_TRACE_TOPIC": (4, 6), "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6), "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
    }  # fmt: skip
    if config is FIVE:
        expected |= {
            "rmq_sys_REVIVE_LOG_reput": (8, 6), "rmq_sys_SYNC_BROKER_MEMBER_s": (1, 1),
            "rmq_sys_wheel_timer": (1, 6),
        }  # fmt: skip
    with (
        serving(tmp_path / "s", sends=True, config=config) as server,
        Client(server.address) as client,
    ):
        body = client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
        topics = json.loads(body)["topicConfigTable"]
        found = {name: (each["readQueueNums"], each["perm"]) for name, each in topics.items()}
        assert found == expected
        # Clients create a topic at the brokers of the topic that is named after the cluster.
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "reput"}).code == 0


def test_topics_of_the_broker_are_not_deleted(server: Serving) -> None:
    with Client(server.address) as client:
        for topic in ("reput_REPLY_TOPIC", "s", "reput", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC"):
            answer = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert (answer.code, "system topic" in str(answer.remark)) == (1, True), topic


def test_attributes_of_a_five_store(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s", sends=True, config=FIVE) as server,
        Client(server.address) as client,
    ):

        def change(attributes: str) -> Command:
            fields = {**TOPIC, "attributes": attributes}
            return client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

        assert change("+message.type=FIFO,+queue.type=SimpleCQ").code == 0
        assert change("+message.type=NORMAL").code == 0
        for wrong in ("+no.such=1", "message.type=FIFO", "+message.type", "+queue.type=BatchCQ",
                      "+reserve.time=x", f"+reserve.time={0:09000}", "-queue.type"):  # fmt: skip
            assert change(wrong).code == ResponseCode.SYSTEM_ERROR, wrong
        assert change("+reserve.time=0086400000,-reserve.time").code == 0
        kept = config_file(tmp_path / "s", "topics.json")["topicConfigTable"]["T"]
        assert kept["attributes"] == {"message.type": "NORMAL", "queue.type": "SimpleCQ"}


def test_a_deleted_topic_hides_its_messages_and_can_be_created_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    with serving(path, sends=True) as server, Client(server.address) as client:
        for number in range(3):
            assert client.put("T", b"old %d" % number).code == 0
        assert (
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 2}).code == 0
        )
        assert client.delete_topic("T").code == 0
        assert client.delete_topic("T").code == 0
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 17
        assert client.pull("T", 0, 0).code == 17
        assert "T@g" not in config_file(path, "topics.json").get("offsetTable", {})
    for _ in range(2):  # as this process sees it, and as a new process reads it
        with serving(path, sends=True) as server, Client(server.address) as client:
            assert client.put("T", b"new").code == 0
            wait_for(lambda client=client: client.pull("T", 0, 3).code == 0)
            answer = client.pull("T", 0, 0)
            assert (answer.code, answer.fields["nextBeginOffset"]) == (21, "3")
            assert messages(client.pull("T", 0, 3).body)[0].body == b"new"
            least = client.ask(RequestCode.GET_MIN_OFFSET, {"topic": "T", "queueId": 0})
            assert least.fields["offset"] == "3"
            first = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
            assert (first.code, first.fields["offset"]) == (0, "3")


def test_groups_are_changed_deleted_and_kept(server: Serving) -> None:
    path = Path(server.service.served[0].path)
    body = {
        "groupName": "g", "retryMaxTimes": 5, "retryQueueNums": 2, "consumeEnable": True,
        "consumeBroadcastEnable": False, "groupRetryPolicy": {"type": "CUSTOMIZED"}, "brokerId": 0,
    }  # fmt: skip
    with Client(server.address) as client:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert client.ask(code, {}, json.dumps(body).encode()).code == 0
        kept = config_file(path, "subscriptionGroup.json")["subscriptionGroupTable"]["g"]
        assert body.items() <= kept.items()
        assert client.put("T", b"x").code == 0
        place = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0
        deep = b'{"groupName":"g","groupRetryPolicy":' + b'{"a":' * 60 + b"1" + b"}" * 61
        for wrong in (
            b"{}", b"[1]", b'{"groupName":"a b"}', b'{"groupName":"g","retryQueueNums":"x"}', deep,
            b'{"groupName":"g","retryMaxTimes":99999999999}', b'{"groupName":"g","brokerId":"x"}',
            b'{"groupName":"g","attributes":{"a":"' + b"x" * 2000 + b'"}}',
        ):  # fmt: skip
            assert client.ask(code, {}, wrong).code == ResponseCode.SYSTEM_ERROR
        for flag in ("removeOffset", "cleanOffset"):
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0
            fields = {"groupName": "g", flag: "true"}
            assert client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields).code == 0
            assert client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body.find(b"T@g") < 0
        assert config_file(path, "subscriptionGroup.json")["subscriptionGroupTable"] == {}


def test_a_four_store_has_members_reset_their_offsets(server: Serving) -> None:
    fields = {"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"}
    with Client(server.address) as client:
        assert client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == 1
        for number in range(4):
            assert client.put("T", b"x", e=number).code == 0
        answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        assert "THe consumer group <g> not exist" in (answer.remark or "")
        for number in range(4):
            place = {"consumerGroup": "g", "topic": "T", "queueId": number, "commitOffset": 0}
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0
        answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        one = member(server, "g", "c1", {})
        wait_for(lambda: client.ask(30, {"topic": "T", "queueId": 3}).fields["offset"] == "1")
        answer = client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        table = as_json(answer.body)["offsetTable"]
        assert (answer.code, sorted(table.values())) == (0, [1, 1, 1, 1])
        wait_for(lambda: RequestCode.RESET_CONSUMER_CLIENT_OFFSET in one.asked)
        one.close()


def test_a_five_store_resets_offsets_and_members_learn_it_with_their_next_pull(
    tmp_path: Path,
) -> None:
    reset = {
        "topic": "T",
        "group": "g",
        "timestamp": 0,
        "isForce": "true",
        "queueId": -1,
        "offset": -1,
    }
    with (
        serving(tmp_path / "s", sends=True, config=FIVE) as server,
        Client(server.address) as client,
        Client(server.address) as other,
    ):
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        assert client.ask(code, reset).code == ResponseCode.TOPIC_NOT_EXIST
        assert client.put("T", b"x").code == 0
        assert client.ask(code, reset).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert client.ask(RequestCode.HEART_BEAT, {}, beat("g")).code == 0
        place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        assert (
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1}).code == 0
        )
        wait_for(lambda: client.pull("T", 0, 1).code == ResponseCode.PULL_NOT_FOUND)
        fields = {
            **place, "queueOffset": 1, "maxMsgNums": 32, "sysFlag": 2, "commitOffset": 1,
            "suspendTimeoutMillis": 60_000, "subVersion": 0,
        }  # fmt: skip
        held = client.send(RequestCode.PULL_MESSAGE, fields)
        wait_for(lambda: server.service.served[0].port.is_awaited("T", 0))
        assert other.ask(code, reset).code == 0
        answer = client.receive()
        assert (answer.opaque, answer.code, answer.remark) == (held, 21, "OFFSET_RESET")
        assert answer.fields["nextBeginOffset"] == "0"
        assert other.ask(code, reset).code == 0
        committed = client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1})
        assert committed.remark == "Offset has been previously reset"
        asked = client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        assert asked.fields["offset"] == "0"
        too_far = {**reset, "queueId": 0, "offset": 9}
        assert other.ask(code, too_far).code == ResponseCode.SYSTEM_ERROR
        assert other.ask(code, {**reset, "queueId": 99, "offset": 0}).code == 1


def test_clients_are_asked_for_others(server: Serving) -> None:
    running = Command(0, body=b'{"properties":{},"mqTable":{}}')
    queue = '{"brokerName":"s","queueId":0,"topic":"T"}'
    status = Command(0, body=f'{{"consumerTable":{{}},"messageQueueTable":{{{queue}:3}}}}'.encode())
    directly = Command(0, body=b'{"consumeResult":"CR_SUCCESS"}')
    given = {307: running, 221: status, 309: directly}
    ask = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false", "Signature": "secret"}
    with Client(server.address) as client:
        stored = client.put("T", b"x")
        answer = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ask)
        assert (answer.code, answer.remark) == (1, "The Consumer <g> <c1> not online")
        one, two = member(server, "g", "c1", given), member(server, "g", "c2", {221: Command(1)})
        answer = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ask)
        assert (answer.code, answer.body) == (0, running.body)
        answer = client.ask(309, {**ask, "msgId": stored.fields["msgId"], "brokerName": "x"})
        assert (answer.code, answer.body) == (0, directly.body)
        fields = {"topic": "T", "group": "g", "clientAddr": ""}
        answer = client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
        assert as_json(answer.body)["consumerTable"] == {"c1": {queue: 3}}
        one.close()
        two.close()


def test_one_who_does_not_answer_or_goes_is_reported(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.serve.remoting.connection._ASKED_S", 0.05)
    ask = {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "false"}
    with Client(server.address) as silent, Client(server.address) as client:
        assert silent.ask(RequestCode.HEART_BEAT, {}, beat("g")).code == 0
        answer = client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, ask)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT


def test_a_reply_reaches_the_client_that_asked_and_is_stored(server: Serving) -> None:
    body = json.dumps({"clientID": "asker", "producerDataSet": [{"groupName": "p"}]}).encode()
    fields = {
        "a": "replier", "b": "reput_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 3, "f": 0,
        "g": 1_700_000_000_000, "h": 0, "j": 0,
        "i": "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x017",
    }  # fmt: skip
    with Client(server.address) as client:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
        answer = client.ask(code, fields, b"pong")
        assert "channel of <asker> not found" in (answer.remark or "")
        asker = Connection(server.address)
        request = Request("test", 0, True, RequestCode.HEART_BEAT, {}, 0, 399, body)
        assert asker.answer(asker.send(request, {}), 20) is not None
        answer = client.ask(code, fields, b"pong")
        assert (answer.code, answer.fields["queueId"]) == (0, "0")
        assert asker.asked.count(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT) == 1
        wait_for(lambda: client.pull("reput_REPLY_TOPIC", 0, 0).code == 0)
        assert messages(client.pull("reput_REPLY_TOPIC", 0, 0).body)[0].body == b"pong"
        answer = client.ask(code, {**fields, "i": "KEYS\x01k"}, b"pong")
        assert "REPLY_TO_CLIENT] is null" in (answer.remark or "")
        asker.close()


def test_queues_are_shared_among_members(server: Serving) -> None:
    body = {"topic": "T", "consumerGroup": "g", "strategyName": "AVG", "messageModel": "CLUSTERING"}
    with Client(server.address) as client:
        assert client.put("T", b"x").code == 0
        members = [member(server, "g", f"c{number}", {}) for number in range(3)]
        shares = []
        for number in range(3):
            text = json.dumps({**body, "clientId": f"c{number}"}).encode()
            answer = client.ask(RequestCode.QUERY_ASSIGNMENT, {}, text)
            rows = as_json(answer.body)["messageQueueAssignments"]
            shares.append([row["messageQueue"]["queueId"] for row in rows])
        assert shares == [[0, 1], [2], [3]]
        text = json.dumps({**body, "clientId": "c0", "strategyName": "?"}).encode()
        assert client.ask(RequestCode.QUERY_ASSIGNMENT, {}, text).code == 1
        for each in members:
            each.close()


def test_counters_count(server: Serving) -> None:
    def rate(client: Client, name: str, key: str) -> Any:
        answer = client.ask(
            RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}
        )
        return as_json(answer.body)["statsMinute"] if answer.code == 0 else answer.remark

    with Client(server.address) as client:
        assert rate(client, "TOPIC_PUT_NUMS", "T") == "The stats <TOPIC_PUT_NUMS> <T> not exist"
        for _ in range(6):
            assert client.put("T", b"xy").code == 0
        wait_for(lambda: client.pull("T", 0, 5).code == 0)
        client.pull("T", 0, 0)
        assert rate(client, "TOPIC_PUT_NUMS", "T") == {"sum": 6, "tps": 0.1, "avgpt": 1.0}
        assert rate(client, "GROUP_GET_NUMS", "T@g")["sum"] >= 6
        table = as_json(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
        assert table["msgPutTotalTodayNow"] == "6"
        assert table["putTps"].split() == ["0.6", "0.1", "0.01"]
        found = as_json(client.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body)
        assert found["consumeStatsList"] == []


CHANGES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.CONSUME_MESSAGE_DIRECTLY, RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
)  # fmt: skip


@pytest.mark.parametrize("code", CHANGES)
def test_nothing_is_changed_where_a_store_is_only_read(code: int, orders: GoldenStore) -> None:
    with serving(orders.path) as server, Client(server.address) as client:
        answer = client.ask(code, TOPIC, b"{}" if code == 200 else b"")
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_too_many_groups_and_values_are_refused(tmp_path: Path) -> None:
    limits = Limits(subscription_groups=2, topics=12)
    with (
        serving(tmp_path / "s", sends=True, limits=limits) as server,
        Client(server.address) as client,
    ):
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        codes = [client.ask(code, {}, b'{"groupName":"g%d"}' % n).code for n in range(3)]
        assert codes == [0, 0, 1]
        codes = [client.ask(17, {**TOPIC, "topic": f"T{n}"}).code for n in range(12)]
        assert codes[0] == 0
        assert codes[-1] == 1
        value = "v" * 100_000
        fields = [{"namespace": "n", "key": f"k{n}", "value": value} for n in range(4)]
        assert [client.ask(RequestCode.PUT_KV_CONFIG, each).code for each in fields] == [0, 0, 1, 1]


def test_brokers_of_both_versions_say_how_far_delays_and_pulls_are(tmp_path: Path) -> None:
    for version in ("4.9", "5.3"):
        path = tmp_path / version
        config = replace(SMALL, store_version=version)
        with (
            serving(path, sends=True, config=config) as running,
            Client(running.address) as client,
        ):
            assert client.put("T", b"now").code == 0
            assert client.put("T", b"later", {"DELAY": "18"}).code == 0
            assert client.put("T", b"soon", {"DELAY": "1"}).code == 0
            wait_for(lambda: len(messages(client.pull("T", 0, 0).body)) == 2)
            place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1})
            table = as_json(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
            assert table["scheduleMessageOffset_1"] == "1,1"
            assert table[f"commitLogDiskRatio_{path}/commitlog"] == table["commitLogDiskRatio"]
            assert table["commitLogDirCapacity"].startswith("Total : ")
            answer = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
            (lag,) = [
                each
                for name, each in as_json(answer.body)["offsetTable"].items()
                if as_json(name.encode())["queueId"] == 0
            ]
            assert lag["consumerOffset"] == 1
            assert lag.get("pullOffset") == (2 if version == "5.3" else None)
