"""Messages of 5.4 and 5.5: priorities, Lite topics, and batches without properties of their own."""

import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput import open_store
from reput.base.config import StoreConfig
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.engine.check.run import check_store
from reput.format.commit_log import MessageExt
from reput.format.message_id import decode_offset_id
from reput.format.properties import decode_properties, lite_queue_name, lite_topic_of
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.cli.running import reput as run
from tests.remoting.client import Client, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for

PRIORITY, LITE = "_SYS_MSG_PRIORITY_", "__LITE_TOPIC"
FIVE_3 = replace(SMALL, store_version="5.3")
FIVE_5 = replace(SMALL, store_version="5.5", enable_lmq=True, enable_multi_dispatch=True)
LIGHT = "%LMQ%$T$device-7"


def sent(client: Client, path: Path, properties: dict[str, str], queue_id: int = 1) -> MessageExt:
    """Send a message to T, which has four queues, and return what the store has of it."""
    answer = client.put("T", b"x", properties, e=queue_id)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    with open_store(path) as store:
        message = store.get(decode_offset_id(answer.fields["msgId"]).physical_offset)
    assert str(message.queue_id) == answer.fields["queueId"]
    return message


@pytest.mark.parametrize(
    ("properties", "queue_id", "stored"),
    [
        ({PRIORITY: "3"}, 3, "3"), ({PRIORITY: "0"}, 0, "0"), ({PRIORITY: "99"}, 3, "99"),
        ({PRIORITY: "-1"}, 1, "-1"), ({PRIORITY: "x"}, 1, "x"), ({PRIORITY: "9" * 20}, 1, "9" * 20),
        ({PRIORITY: "3", "__SHARDINGKEY": "s"}, 1, None), ({PRIORITY: "3", "TRAN_MSG": "false"}, 3, "3"),
        ({PRIORITY: "2", LITE: "device-7"}, 2, "2"),
    ],
)  # fmt: skip
def test_the_priority_is_the_queue(
    tmp_path: Path, properties: dict[str, str], queue_id: int, stored: str | None
) -> None:
    with (
        serving(tmp_path / "s", sends=True, config=FIVE_5) as running,
        Client(running.address) as client,
    ):
        message = sent(client, tmp_path / "s", properties)
        assert (message.queue_id, message.properties.get(PRIORITY)) == (queue_id, stored)


def test_a_delayed_message_loses_its_priority(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s", sends=True, config=FIVE_5) as running,
        Client(running.address) as client,
    ):
        answer = client.put("T", b"x", {PRIORITY: "3", "DELAY": "18"}, e=1)
        with open_store(tmp_path / "s") as store:
            waiting = store.get(decode_offset_id(answer.fields["msgId"]).physical_offset)
        assert (waiting.topic, waiting.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
        assert PRIORITY not in waiting.properties
        assert waiting.properties["REAL_QID"] == "1"


def test_a_store_of_5_3_knows_neither(tmp_path: Path) -> None:
    with (
        serving(tmp_path / "s", sends=True, config=FIVE_3) as running,
        Client(running.address) as client,
    ):
        message = sent(client, tmp_path / "s", {PRIORITY: "3", LITE: "device-7"})
        assert message.queue_id == 1
        assert "INNER_MULTI_DISPATCH" not in message.properties


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with messages of two Lite topics, and of their parent topic alone."""
    path = tmp_path_factory.mktemp("lite") / "s"
    with serving(path, sends=True, config=FIVE_5) as running, Client(running.address) as client:
        for n in range(30):
            properties = {"KEYS": f"k{n}", "TAGS": "t"}
            if n % 3:
                properties[LITE] = f"device-{6 + n % 3}"
            answer = client.put("T", b"%d" % n, properties, e=n % 4)
            assert answer.code == ResponseCode.SUCCESS
        wait_for(lambda: len(messages(client.pull(LIGHT, 0, 0).body)) == 10)
        pulled = messages(client.pull(LIGHT, 0, 0).body)
        assert [each.body for each in pulled] == [b"%d" % n for n in range(1, 30, 3)]
        fields = {"consumerGroup": "g", "topic": LIGHT, "queueId": 0, "commitOffset": 4}
        assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS
    return path


def bodies(path: Path, topic: str) -> list[bytes]:
    with open_store(path) as store:
        return [one.body for one in store.pull(topic, 0, 0, 100).messages]


def test_names_of_light_queues() -> None:
    assert lite_queue_name("T", "device-7") == LIGHT
    assert lite_topic_of(LIGHT) == ("T", "device-7")
    for other in ("T", "%LMQ%x", "%LMQ%$T", "%LMQ%$T$", "%LMQ%$$x", "%LMQ%$T$x$y", "%LMQ%$", ""):
        assert lite_topic_of(other) is None


def test_a_lite_topic_has_a_light_queue(lite: Path) -> None:
    assert bodies(lite, LIGHT) == [b"%d" % n for n in range(1, 30, 3)]
    with open_store(lite) as store:
        first = store.get_by_queue(LIGHT, 0, 0)
        assert (first.topic, first.properties["INNER_MULTI_DISPATCH"]) == ("T", LIGHT)
        assert {LIGHT, "%LMQ%$T$device-8"} < set(store.topics())
        assert [one.body for one in store.query("T", "k4").messages] == [b"4"]


def test_a_lite_topic_is_shown(lite: Path) -> None:
    tail = run("tail", lite, "--topic", LIGHT, "--format", "jsonl")
    assert (tail.code, len(tail.lines)) == (FOUND, 10)
    assert LIGHT in run("inspect", lite).out
    rows = [json.loads(line) for line in run("state", "lag", lite, "--format", "jsonl").lines]
    assert [(row["group"], row["topic"], row["lag"]) for row in rows] == [("g", LIGHT, 6)]


def test_a_query_by_key_names_the_parent_topic(lite: Path) -> None:
    ran = run("query", lite, "--topic", LIGHT, "--key", "k4")
    assert ran.code == NOT_FOUND
    assert f"Keys of messages in {LIGHT} are those of their own topic: query T." in ran.out
    assert run("query", lite, "--topic", "T", "--key", "k4").code == FOUND


def test_check_and_rebuild_know_lite_topics(lite: Path, tmp_path: Path) -> None:
    assert list(check_store(lite)) == []
    reput.rebuild(lite, output=tmp_path / "out", runner="serial")
    for old in (lite / "consumequeue").rglob("*"):
        if old.is_file():
            new = tmp_path / "out" / "consumequeue" / old.relative_to(lite / "consumequeue")
            assert new.read_bytes() == old.read_bytes()


@pytest.mark.parametrize("quick", [False, True])
def test_an_expired_lite_topic_is_no_damage(lite: Path, tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "s"
    shutil.copytree(lite, path)
    shutil.rmtree(path / "consumequeue" / LIGHT)
    found = {finding.kind.value for finding in check_store(path, quick=quick)}
    assert found == {"topic_deleted"}
    ran = run("tail", path, "--topic", LIGHT)
    assert ran.code == DAMAGED
    assert "which a broker deletes when the Lite topic expires" in ran.err


def batch_of(*pairs: tuple[bytes, bytes]) -> Iterator[bytes]:
    """Encode messages (`MessageDecoder.encodeMessage`): body and properties."""
    for body, properties in pairs:
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        yield struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body
        yield struct.pack(">h", len(properties)) + properties


@pytest.mark.every_case
@pytest.mark.parametrize("config", [SMALL, FIVE_3, replace(FIVE_5, store_version="5.4"), FIVE_5])
def test_messages_of_a_batch_have_its_properties_before_5_4(
    tmp_path: Path, config: StoreConfig
) -> None:
    own = b"UNIQ_KEY\x01A1\x02KEYS\x01k"
    body = b"".join(batch_of((b"a", own), (b"b", b""), (b"c", b"TAGS\x01t\x02")))
    with (
        serving(tmp_path / "s", sends=True, config=config) as running,
        Client(running.address) as client,
    ):
        properties = {"UNIQ_KEY": "B0", "of-batch": "yes"}
        answer = client.put("T", body, properties, m=True)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    with open_store(tmp_path / "s") as store:
        stored = [store.get_by_queue("T", 0, n) for n in range(3)]
    assert [one.body for one in stored] == [b"a", b"b", b"c"]
    texts = [one.properties_bytes for one in stored]
    if config.is_since_5_4:
        assert texts == [own, b"", b"TAGS\x01t\x02"]
        assert stored[0].unique_key == "A1"
    else:
        assert all(decode_properties(text.decode())["of-batch"] == "yes" for text in texts)
        assert stored[0].unique_key == "B0"
