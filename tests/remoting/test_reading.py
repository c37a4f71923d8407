"""A name server and a broker over stores that are only read: what mqadmin and consumers need."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reput import Message, StoreConfig, open_store
from reput.format.commit_log import MessageExt
from reput.format.untrusted_json import parse_java_json
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.frames import Serialization
from reput.wings.serve.remoting.requests import RequestCode
from tests.five import CONFIG as FIVE
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, Serving, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def server(orders: GoldenStore) -> Iterator[Serving]:
    with serving(orders.path) as running:
        yield running


@pytest.fixture(params=list(Serialization), ids=lambda kind: kind.name)
def client(server: Serving, request: pytest.FixtureRequest) -> Iterator[Client]:
    with Client(server.address, request.param) as made:
        yield made


def test_the_name_server_routes_a_topic_to_the_store(client: Client, orders: GoldenStore) -> None:
    with open_store(orders.path) as store:
        topic = store.topics()[0]
        queues = 1 + max(queue for name, queue in store.list_queues() if name == topic)
    route = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body)
    (broker,), (queue,) = route["brokerDatas"], route["queueDatas"]
    assert broker["brokerAddrs"]["0"].startswith("127.0.0.1:")
    assert queue["brokerName"] == broker["brokerName"]
    assert (queue["readQueueNums"], queue["perm"]) == (queues, 4)
    missing = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "no-such-topic"})
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST
    cluster = json.loads(client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert cluster["brokerAddrTable"][broker["brokerName"]] == broker
    listed = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)
    assert topic in listed["topicList"]


def test_a_consumer_gets_every_message_of_every_queue_in_order(
    client: Client, orders: GoldenStore
) -> None:
    with open_store(orders.path) as store:
        for topic, queue_id in store.list_queues():
            expected, offset = (
                store.max_queue_offset(topic, queue_id),
                store.min_queue_offset(topic, queue_id),
            )
            got: list[int] = []
            while offset < expected:
                answer = client.pull(topic, queue_id, offset)
                assert answer.code == ResponseCode.SUCCESS
                got += [each.queue_offset for each in messages(answer.body)]
                offset = int(answer.fields["nextBeginOffset"])
            assert got == list(range(store.min_queue_offset(topic, queue_id), expected))
            end = client.pull(topic, queue_id, expected)
            assert (end.code, end.fields["maxOffset"]) == (
                ResponseCode.PULL_NOT_FOUND,
                str(expected),
            )
            beyond = client.pull(topic, queue_id, expected + 7)
            assert beyond.code == ResponseCode.PULL_OFFSET_MOVED


def test_messages_are_found_by_key_by_offset_and_by_time_as_in_the_store(
    client: Client, orders: GoldenStore
) -> None:
    with open_store(orders.path) as store:
        seen = 0
        for topic, queue_id in store.list_queues():
            message = store.pull(
                topic, queue_id, store.min_queue_offset(topic, queue_id), 1
            ).messages[0]
            for key in message.keys[:1]:
                seen += 1
                expected = store.query_message(topic, key, 32, 0, 1 << 62)
                answer = client.query(topic, key)
                assert answer.code == ResponseCode.SUCCESS
                assert answer.body == b"".join(map(store.get_record, expected.physical_offsets))
                assert answer.fields["indexLastUpdatePhyoffset"] == str(
                    expected.index_last_update_physical_offset
                )
            view = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": message.physical_offset})
            assert messages(view.body) == [message]
            place = {"topic": topic, "queueId": queue_id}
            for code, field, value in (
                (RequestCode.GET_MAX_OFFSET, "offset", store.max_queue_offset(topic, queue_id)),
                (RequestCode.GET_MIN_OFFSET, "offset", store.min_queue_offset(topic, queue_id)),
                (RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp", message.store_timestamp),
            ):
                assert client.ask(code, place).fields[field] == str(value)
            at = client.ask(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                {**place, "timestamp": message.store_timestamp},
            )
            assert at.fields["offset"] == str(
                store.offset_by_time(topic, queue_id, message.store_timestamp)
            )
            queue = json.loads(
                client.ask(
                    RequestCode.QUERY_CONSUME_QUEUE,
                    {**place, "index": message.queue_offset, "count": 1},
                ).body
            )
            assert queue["queueData"][0]["physicOffset"] == message.physical_offset
        assert seen
    assert client.query(topic, "no such key").code == ResponseCode.QUERY_NOT_FOUND


def test_mqadmins_tables_have_the_queues_as_names(client: Client, orders: GoldenStore) -> None:
    with open_store(orders.path) as store:
        topic = store.topics()[0]
        end = store.max_queue_offset(topic, 0)
    text = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).body.decode()
    assert text.startswith('{"offsetTable":{{"brokerName":')
    assert f'"queueId":0,"topic":"{topic}"}}:{{"lastUpdateTimestamp":' in text
    assert f'"maxOffset":{end},' in text
    info = json.loads(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    assert info["brokerVersionDesc"] == "V4_9_3"
    assert float(info["putTps"].split(" ")[0]) == 0
    configs = json.loads(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    assert configs[topic]["perm"] == 4


def test_what_is_not_offered_says_so(client: Client, orders: GoldenStore) -> None:
    assert client.ask(9999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert client.put("orders", b"x").code == ResponseCode.NO_PERMISSION
    with open_store(orders.path) as store:
        topic = store.topics()[0]
    refused = client.pull(topic, 0, 0, expressionType="SQL92", subscription="a > 1")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "The broker does not support consumer to filter message by SQL92"
    assert client.pull("no-such-topic", 0, 0).code == ResponseCode.TOPIC_NOT_EXIST
    assert client.pull(topic, 99_999, 0).code == ResponseCode.SYSTEM_ERROR
    broken = client.ask(RequestCode.QUERY_MESSAGE, {"topic": topic})
    assert (broken.code, "null" in (broken.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


FIVE_5 = replace(SMALL, store_version="5.5")


def last_key(message: MessageExt, index_type: str, key: str) -> str:
    """Return the entry that mqadmin of 5.4 prints for a message, and takes as its option -l."""
    hour = message.store_timestamp // 3_600_000 * 3_600_000
    unique = message.unique_key
    return f"{hour}@{message.topic}@{index_type}@{key}@{unique}@{message.physical_offset}"


def pages(client: Client, index_type: str, key: str, most: int) -> Iterator[list[MessageExt]]:
    """Yield the pages of an answer, as a client of 5.4 requests them."""
    fields: dict[str, object] = {"indexType": index_type, "maxNum": most}
    while True:
        answer = client.query("T", key, **fields)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        page = messages(answer.body)
        yield page
        fields["lastKey"] = last_key(page[-1], index_type, key)


@pytest.mark.parametrize(
    ("most_exact", "config"), [(None, SMALL), (None, FIVE_5), (50, SMALL), (50, FIVE_5)]
)
def test_a_client_of_5_4_gets_all_messages_page_by_page(
    tmp_path: Path, most_exact: int | None, config: StoreConfig
) -> None:
    with open_store(tmp_path / "a", mode="rw", config=config) as store:
        places = [
            result.physical_offset
            for result in store.put_many(
                Message("T", b"%d" % n, keys=["k", f"k{n}"], tags="t" if n % 3 else "u")
                for n in range(300)
            )
        ]
    with serving(tmp_path / "a", most_exact=most_exact) as running, Client(running.address) as to:
        for index_type, key, expected in (
            ("K", "k", places), ("K", "k7", places[7:8]), ("K", "none", []),
            ("T", "t", [place for n, place in enumerate(places) if n % 3]),
        ):  # fmt: skip
            if index_type == "T" and config is SMALL and most_exact is None:
                refused = to.query("T", key, indexType="T")
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "the IndexFiles of this store have no tags" in str(refused.remark)
                continue
            for most in (1, 17, 64) if len(expected) < 2 else (17, 64):
                found = list(pages(to, index_type, key, most))
                assert [each.physical_offset for page in found for each in page] == expected[::-1]
                limit = most_exact or most
                assert all(len(page) <= limit for page in found)


def test_keys_in_rocksdb_are_found_in_the_log(tmp_path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    with open_store(tmp_path / "a", mode="rw", config=FIVE) as store:
        places = [store.put(Message("T", b"x", keys=["k"])).physical_offset for _ in range(100)]
    shutil.rmtree(tmp_path / "a" / "index")
    database = rocksdict.Rdict(
        str(tmp_path / "a" / "RocksDBMessageStore"), rocksdict.Options(raw_mode=True)
    )
    database[bytes(8) + b"@T@U@u@" + bytes(8)] = bytes(8)
    database.close()
    with serving(tmp_path / "a") as running, Client(running.address) as to:
        first = messages(to.query("T", "k").body)
        assert [each.physical_offset for each in first] == places[::-1][:32]
        found = list(pages(to, "K", "k", 64))
        assert [each.physical_offset for page in found for each in page] == places[::-1]
        assert [len(page) for page in found] == [64, 36]


def test_the_first_page_is_the_answer_to_other_clients(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"%d" % n, keys=["k"], tags="k") for n in range(20))
        unique = store.query("T", "k").messages[0].unique_key or ""
    with serving(tmp_path / "a") as running, Client(running.address) as to:
        whole = messages(to.query("T", "k").body)
        assert messages(to.query("T", "k", indexType="K").body) == whole[::-1]
        assert len(messages(to.query("T", unique, indexType="U").body)) == 1
        for fields in (
            {"indexType": "X"}, {"lastKey": "x"}, {"lastKey": "0@T@K@k@u@5"}, {"lastKey": "3600000@5x"},
            {"lastKey": f"3600000@{1 << 63}"}, {"lastKey": "@" * 9000},
        ):  # fmt: skip
            refused = to.query("T", "k", **fields)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "must be" in str(refused.remark)
            assert len(str(refused.remark)) < 200


def test_topics_and_groups_are_listed_page_by_page(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", mode="rw", config=FIVE_5) as store:
        for n in range(11):
            store.put(Message(f"T{n}", b"x"))
    with (
        serving(tmp_path / "a", sends=True, config=FIVE_5) as running,
        Client(running.address) as to,
    ):
        for n in range(5):
            body = json.dumps({"groupName": f"g{n}"}).encode()
            to.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        for code, first, most, total, table in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum", "topicConfigTable"),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum",
             "subscriptionGroupTable"),
        ):  # fmt: skip
            whole = to.ask(code)
            everything = json.loads(whole.body)
            assert whole.fields[total] == str(len(everything[table]))
            version, seen = "", dict[str, object]()
            while len(seen) < int(whole.fields[total]):
                fields = {first: len(seen), most: 2, "dataVersion": version}
                page = json.loads(to.ask(code, fields).body)
                assert 0 < len(page[table]) <= 2
                seen |= page[table]
                version = json.dumps(page["dataVersion"])
            assert seen == everything[table]
            end = {first: len(seen), most: 2, "dataVersion": version}
            assert json.loads(to.ask(code, end).body)[table] == {}
            # After a change, a client begins again.
            changed = {first: 1, most: 1, "dataVersion": '{"counter":-1}'}
            again = json.loads(to.ask(code, changed).body)[table]
            assert list(again) == sorted(everything[table])[:1]
            for odd in ({first: -5}, {most: 0}, {first: 1 << 30}, {"dataVersion": "{"}):
                assert to.ask(code, odd).code == ResponseCode.SUCCESS


def test_tags_are_filtered_and_an_exact_query_finds_what_a_brokers_does_not(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"%d" % n, keys=["k"], tags=f"t{n % 3}") for n in range(100))
    with serving(tmp_path / "a", most_exact=1000) as running, Client(running.address) as client:
        some = client.pull("T", 0, 0, subscription="t1 || t2")
        assert {each.tags for each in messages(some.body)} == {"t1", "t2"}
        assert len(messages(client.query("T", "k").body)) == 100


def test_offsets_and_locks_of_an_archive_live_as_long_as_the_server(tmp_path: Path) -> None:
    with open_store(tmp_path / "a", mode="rw", config=SMALL) as store:
        store.put(Message("T", b"x"))
    before = sorted(tmp_path.rglob("*"))
    place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    beat = {
        "clientID": "c1",
        "consumerDataSet": [
            {
                "groupName": "g",
                "subscriptionDataSet": [{"topic": "T", "subString": "t9", "subVersion": 1}],
            }
        ],
    }
    queues = [{"topic": "T", "brokerName": "a", "queueId": 0}]
    with (
        serving(tmp_path / "a") as running,
        Client(running.address) as client,
        Client(running.address) as other,
    ):
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"] == "0"
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 1})
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"] == "1"
        table = parse_java_json(client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)
        assert table == {"offsetTable": {"T@g": {"0": 1}}}
        client.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode())
        assert client.pull("T", 0, 0, sysFlag=0).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        other.ask(RequestCode.HEART_BEAT, {}, json.dumps({**beat, "clientID": "c2"}).encode())
        members = json.loads(
            client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).body
        )
        assert members["consumerIdList"] == ["c1", "c2"]
        wait_for(lambda: (client.pull("T", 0, 0, sysFlag=0), client.pushed)[1])
        assert client.pushed[-1].code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        for which, name, held in ((client, "c1", queues), (other, "c2", [])):
            body = {"consumerGroup": "g", "clientId": name, "mqSet": queues}
            answer = which.ask(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
            assert json.loads(answer.body)["lockOKMQSet"] == held
        other.__exit__()
        wait_for(
            lambda: (
                json.loads(
                    client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}).body
                )["consumerIdList"]
                == ["c1"]
            )
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_stores_come_grow_and_go_while_the_server_runs(tmp_path: Path) -> None:
    with serving(tmp_path) as running, Client(running.address) as client:
        assert client.query("T", "k").code == ResponseCode.SERVICE_NOT_AVAILABLE
        with open_store(tmp_path / "a", mode="rw", config=SMALL) as store:
            store.put(Message("T", b"1", keys=["k"]))
            store.wait_dispatched()
            wait_for(lambda: client.pull("T", 0, 0).code == ResponseCode.SUCCESS)
            client.send(
                RequestCode.PULL_MESSAGE,
                {
                    "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 1, "maxMsgNums": 32, "sysFlag": 6,
                    "commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0,
                },
            )  # fmt: skip
            store.put(Message("T", b"2"))
            assert [each.body for each in messages(client.receive().body)] == [b"2"]
        shutil.rmtree(tmp_path / "a")
        wait_for(lambda: client.query("T", "k").code == ResponseCode.SERVICE_NOT_AVAILABLE)


@pytest.mark.parametrize("expression", ["a > 3", "a BETWEEN 4 AND 20 AND b IS NULL"])
def test_pulls_filter_by_sql_and_move_on(tmp_path: Path, expression: str) -> None:
    with (
        serving(tmp_path / "s", sends=True, has_sql_filters=True) as running,
        Client(running.address) as client,
    ):
        for number in range(12):
            assert client.put("T", b"%d" % number, {"a": f"{number}"}).code == 0
        wait_for(lambda: client.pull("T", 0, 11).code == 0)
        wanted = {"subscription": expression, "expressionType": "SQL92"}
        answer = client.pull("T", 0, 0, **wanted)
        assert [one.body for one in messages(answer.body)] == [b"%d" % n for n in range(4, 12)]
        assert answer.fields["nextBeginOffset"] == "12"
        answer = client.pull("T", 0, 0, **wanted, maxMsgNums=3)
        assert [one.body for one in messages(answer.body)] == [b"4", b"5", b"6"]
        answer = client.pull("T", 0, 0, **{**wanted, "subscription": "a = 99"})
        assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "12")
        answer = client.pull("T", 0, 0, **{**wanted, "subscription": "a = "})
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        for text, code in (("a = 5", 0), ("a =", ResponseCode.SUBSCRIPTION_PARSE_FAILED)):
            data = {"topic": "T", "subString": text, "expressionType": "SQL92"}
            body = json.dumps({"subscriptionData": data}).encode()
            assert client.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, body).code == code


@pytest.mark.parametrize("is_five", [True, False])
def test_the_upper_boundary_of_a_time_is_the_last_message_until_then(
    is_five: bool, tmp_path: Path
) -> None:
    config = FIVE if is_five else SMALL
    with open_store(tmp_path, "rw", config=config) as store:
        for number in range(40):
            store.put(Message("T", b"%d" % number, queue_id=0))
    with open_store(tmp_path) as store:
        pulled = store.pull("T", 0, 0, 32).messages
        times = [message.store_timestamp for message in pulled]
        times += [message.store_timestamp for message in store.pull("T", 0, 32, 32).messages]
    assert len(times) == 40
    with (
        serving(tmp_path, sends=True, config=config) as running,
        Client(running.address) as client,
    ):
        for at in {times[0] - 1, times[0], times[20] - 1, times[20], times[-1], times[-1] + 1}:
            until = max((n for n, time in enumerate(times) if time <= at), default=0)
            since = next((n for n, time in enumerate(times) if time >= at), 40)
            for boundary, expected in {"UPPER": until, "lower": since, "x": since}.items():
                fields = {"topic": "T", "queueId": 0, "timestamp": at, "boundaryType": boundary}
                answer = client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
                # A broker of 4.9 does not know the field.
                assert answer.fields["offset"] == str(expected if is_five else since)
