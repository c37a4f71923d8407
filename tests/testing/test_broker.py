"""`reput.testing.Broker`: clients find topics and messages there, and tests control the time."""

import json
import re
import shutil
from pathlib import Path

import pytest

from reput import open_store
from reput.errors import UsageError
from reput.format.host import Host
from reput.testing import Broker
from reput.testing.fixtures import rocketmq, shared_rocketmq
from reput.wings.serve.remoting.requests import RequestCode
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, messages

__all__ = ["rocketmq", "shared_rocketmq"]
PAGE = CHECKOUT / "docs" / "how-to" / "test-with-a-broker.md"


def client_of(broker: Broker) -> Client:
    host, _, port = broker.address.rpartition(":")
    return Client(Host(host, int(port)))


def test_a_client_sends_and_the_test_sees_the_message(rocketmq: Broker) -> None:
    rocketmq.create_topic("orders", 2)
    with client_of(rocketmq) as client:
        route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        found = json.loads(route.body)
        assert found["brokerDatas"][0]["cluster"] == rocketmq.cluster == "DefaultCluster"
        assert found["queueDatas"][0]["writeQueueNums"] == 2
        assert client.put("orders", b"17", {"KEYS": "o-17"}).code == 0
    (message,) = rocketmq.wait_for("orders")
    assert (message.body, message.keys, message.queue_id) == (b"17", ["o-17"], 0)
    assert rocketmq.messages("none") == []


def test_what_the_test_sends_reaches_a_client(shared_rocketmq: Broker) -> None:
    for number in range(3):
        shared_rocketmq.send("jobs", f"{number}", tags="t", keys=["a", "b"], queue_id=0)
    shared_rocketmq.wait_for("jobs", 3)
    with client_of(shared_rocketmq) as client:
        found = messages(client.pull("jobs", 0, 0).body)
        assert [(one.body, one.tags, one.keys) for one in found] == [
            (b"%d" % number, "t", ["a", "b"]) for number in range(3)
        ]


def test_delayed_messages_are_delivered_when_time_has_passed() -> None:
    with Broker(topics=["later"]) as broker, client_of(broker) as client:
        assert client.put("later", b"in 10 s", {"DELAY": "3"}).code == 0
        broker.send("later", "in 1 h", delay_level=17)
        assert broker.messages("later") == []
        broker.advance(9)
        assert broker.messages("later") == []
        broker.advance(2)
        assert [one.body for one in broker.messages("later")] == [b"in 10 s"]
        broker.send("later", "in 10 s more", delay_level=3)
        broker.advance(9)
        assert len(broker.messages("later")) == 1
        broker.advance(3600)
        assert [one.body for one in broker.wait_for("later", 3)][1:] == [b"in 10 s more", b"in 1 h"]


def test_what_a_group_has_consumed(rocketmq: Broker) -> None:
    for number in range(4):
        rocketmq.send("orders", f"{number}", queue_id=number % 2)
    with client_of(rocketmq) as client:
        place = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 2}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place)
        (row,) = rocketmq.lag("g")
        assert (row.topic, row.queue_id, row.lag) == ("orders", 0, 0)
        with pytest.raises(TimeoutError, match="g has not consumed orders"):
            rocketmq.wait_consumed("g", "orders", timeout_s=0.01)
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "queueId": 1})
        rocketmq.wait_consumed("g", "orders")
        with pytest.raises(TimeoutError, match="it committed nothing"):
            rocketmq.wait_consumed("h", "orders", timeout_s=0.01)


def test_a_message_that_does_not_come_is_reported_with_those_that_came(rocketmq: Broker) -> None:
    rocketmq.send("orders", "17", queue_id=1)
    with pytest.raises(TimeoutError) as failed:
        rocketmq.wait_for("orders", 2, timeout_s=0.01)
    assert "orders: 1 of 2 messages after 0.01 s" in str(failed.value)
    assert "'17' (queue 1, offset 0)" in str(failed.value)
    rocketmq.send("orders", "18", queue_id=0, tags="paid", keys=["a", "b"])
    with pytest.raises(TimeoutError) as failed:
        rocketmq.wait_for("orders", where=lambda message: message.body == b"19", timeout_s=0.01)
    assert "there are 2, `where` excludes 2: '17'" in str(failed.value)
    assert "'18' (queue 0, offset 0, TAGS paid, KEYS a b)" in str(failed.value)
    with pytest.raises(TimeoutError, match="no such topic; did you mean orders"):
        rocketmq.wait_for("ordres", timeout_s=0.01)
    rocketmq.create_topic("new")
    with pytest.raises(TimeoutError, match="the topic is empty"):
        rocketmq.wait_for("new", timeout_s=0.01)


def test_a_topic_that_is_deleted_begins_anew(rocketmq: Broker) -> None:
    rocketmq.send("orders", "old")
    rocketmq.delete_topic("orders")
    assert "orders" not in rocketmq.topics()
    rocketmq.send("orders", "new")
    assert [one.body for one in rocketmq.messages("orders")] == [b"new"]


def test_a_prepared_store_is_copied_and_stays_as_it_is(orders_copy: Path) -> None:
    before = sorted((one, one.stat().st_mtime_ns) for one in orders_copy.rglob("*"))
    with Broker(copy_of=orders_copy) as broker:
        with open_store(orders_copy) as store:
            expected = sum(1 for _ in broker.messages("orders"))
            assert expected == sum(
                store.max_queue_offset("orders", queue_id)
                for topic, queue_id in store.list_queues()
                if topic == "orders"
            )
        broker.send("orders", "one more")
        assert len(broker.messages("orders")) == expected + 1
    assert sorted((one, one.stat().st_mtime_ns) for one in orders_copy.rglob("*")) == before


@pytest.fixture
def orders_copy(golden: object, tmp_path: Path) -> Path:
    store: GoldenStore = golden("orders")  # type: ignore[operator]
    return Path(shutil.copytree(store.path, tmp_path / "orders"))


def test_a_store_that_is_named_is_kept(tmp_path: Path) -> None:
    with Broker(tmp_path / "kept", version="5.3") as broker:
        broker.send("orders", "17")
    with Broker(tmp_path / "kept") as broker:
        assert [one.body for one in broker.messages("orders")] == [b"17"]
        assert broker.store.config.is_five


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        Broker(tmp_path, copy_of=tmp_path)
    with pytest.raises(UsageError, match="store_version"):
        Broker(version="3.2")
    with pytest.raises(UsageError, match="write HOST:PORT"):
        Broker(address="localhost")
    with pytest.raises(UsageError, match="not running"):
        Broker().messages("T")
    with Broker() as broker:
        with pytest.raises(UsageError, match="must not be negative"):
            broker.advance(-1)
        with pytest.raises(UsageError, match="started already"):
            broker.start()
        with pytest.raises(Exception, match="cannot listen there"):
            Broker(address=broker.address).start()


def test_the_examples_of_the_page_run() -> None:
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        if "def test" not in block and "pytest_plugins" not in block:
            exec(compile(block, str(PAGE), "exec"), {})
