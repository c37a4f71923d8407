"""A broker that accepts messages: sends, batches, delays, retries, transactions, also across a restart."""

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import pytest

from reput import open_store
from reput.engine.writer.writable_store import WritableStore
from reput.errors import StoreFailedError
from reput.format.host import Host
from reput.format.message_id import decode_offset_id
from reput.format.properties import decode_properties
from reput.format.untrusted_json import parse_java_json
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.broker.sending import Sent
from reput.wings.serve.remoting.commands import Command, FieldError, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.sending import Sending
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, Serving, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served") / "store"


@pytest.fixture(scope="module")
def server(store: Path) -> Iterator[Serving]:
    with serving(store, sends=True, is_synced=True) as running:
        yield running


def pulled(client: Client, topic: str, queue_id: int = 0, offset: int = 0) -> Command:
    """Pull until messages are found; return the answer."""

    def pull() -> Command | None:
        answer = client.pull(topic, queue_id, offset)
        return answer if answer.code == ResponseCode.SUCCESS else None

    return wait_for(pull)  # type: ignore[no-any-return]


def test_a_message_is_stored_as_a_broker_stores_it_and_found(
    client: Client, server: Serving
) -> None:
    route = {"topic": "TBW102"}
    assert (
        json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).body)["queueDatas"][0][
            "perm"
        ]
        == 7
    )
    sent = client.put(
        "plain", b"hello", {"UNIQ_KEY": "U1", "KEYS": "k1", "TAGS": "A", "WAIT": "true"}, e=2
    )
    assert (sent.code, sent.fields["queueId"], sent.fields["queueOffset"]) == (0, "2", "0")
    (got,) = messages(pulled(client, "plain", 2).body)
    assert (got.body, got.properties) == (
        b"hello",
        {"UNIQ_KEY": "U1", "KEYS": "k1", "TAGS": "A", "CLUSTER": "reput"},
    )
    assert got.message_id == sent.fields["msgId"]
    assert decode_offset_id(sent.fields["msgId"]).store_host == server.address
    # The index is written after the queue.
    found = wait_for(lambda: messages(client.query("plain", "k1").body))
    assert found == [got]
    assert messages(client.query("plain", "U1", _UNIQUE_KEY_QUERY="true").body) == [got]
    queues = json.loads(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "plain"}).body)[
        "queueDatas"
    ]
    assert (queues[0]["writeQueueNums"], queues[0]["perm"]) == (4, 6)


def test_the_old_form_of_a_send_does_the_same(client: Client) -> None:
    fields: dict[str, Any] = {
        "producerGroup": "p", "topic": "old", "defaultTopic": "TBW102", "defaultTopicQueueNums": 1, "queueId": -1,
        "sysFlag": 0, "bornTimestamp": 1, "flag": 3, "properties": "",
    }  # fmt: skip
    assert client.ask(RequestCode.SEND_MESSAGE, fields, b"x").code == ResponseCode.SUCCESS
    (got,) = messages(pulled(client, "old").body)
    assert (got.body, got.flag, got.born_timestamp) == (b"x", 3, 1)


def test_fields_that_repeat_are_parsed_as_those_that_do_not() -> None:
    """A cached parse of one send does not affect a later send that differs in a field, or in its type."""
    plain = {
        "a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1", "h": "0", "i": "", "j": "0",
        "k": "false", "l": "3", "m": "false",
    }  # fmt: skip
    values: list[Any] = ["1", 1, True, "true", None, [1], {"x": 1}, 1.0, "1" * 1000, "", " 1", "-1"]
    changes = [
        {},
        *({name: value} for name in plain for value in values),
        {"g": "2", "i": "K\x01V"},
    ]
    host = Host("127.0.0.1", 1)

    def parsed(sending: Sending, change: dict[str, Any]) -> object:
        body = repr(change).encode()
        command = Command(RequestCode.SEND_MESSAGE_V2, fields=plain | change, body=body)
        try:
            return sending._sent(command, host)
        except FieldError as error:
            return str(error)

    remembering = new_sending()
    for change in changes * 2:
        assert parsed(remembering, change) == parsed(new_sending(), change)
        assert parsed(remembering, {"i": "A\x01B"}) == parsed(new_sending(), {"i": "A\x01B"})


def new_sending() -> Sending:
    return Sending(None, None)  # type: ignore[arg-type]  # it only parses


def test_a_batch_is_stored_message_by_message(client: Client) -> None:
    def one(body: bytes, properties: bytes) -> bytes:
        size = 22 + len(body) + len(properties)
        head = struct.pack(">iiiii", size, 0, crc32(body) & 0x7FFFFFFF, 5, len(body))
        return head + body + struct.pack(">h", len(properties)) + properties

    batch = b"".join(one(b"b%d" % n, b"UNIQ_KEY\x01B%d" % n) for n in range(3))
    sent = client.put("batched", batch, m="true")
    assert sent.code == ResponseCode.SUCCESS
    assert len(sent.fields["msgId"].split(",")) == 3
    got = messages(pulled(client, "batched").body)
    assert [(each.body, each.flag, each.unique_key) for each in got] == [
        (b"b%d" % n, 5, f"B{n}") for n in range(3)
    ]
    cut = client.put("batched", batch[:-1], m="true")
    assert cut.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("no topic", {}, ResponseCode.SYSTEM_ERROR),
        ("x" * 128, {}, ResponseCode.SYSTEM_ERROR),
        ("new", {"c": "plainest"}, ResponseCode.TOPIC_NOT_EXIST),
        ("SCHEDULE_TOPIC_XXXX", {}, ResponseCode.NO_PERMISSION),
        ("refused", {"e": 99}, ResponseCode.SYSTEM_ERROR),
        ("refused", {"i": "DELAY\x01soon"}, ResponseCode.MESSAGE_ILLEGAL),
        ("refused", {"d": "many"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_a_broker_refuses_is_refused(
    client: Client, topic: str, fields: dict[str, Any], code: int
) -> None:
    answer = client.put(topic, b"x", **fields)
    assert (answer.code, bool(answer.remark)) == (code, True)
    # A broker reports these settings unless it cannot read the header of the request.
    is_read = "d" not in fields
    assert (answer.fields.get("MSG_REGION"), answer.fields.get("TRACE_ON")) == (
        ("DefaultRegion", "true") if is_read else (None, None)
    )


def test_a_delayed_message_comes_when_it_is_due(client: Client) -> None:
    begun = time.time()
    client.put("delayed", b"later", {"DELAY": "1", "UNIQ_KEY": "D1"})
    (got,) = messages(pulled(client, "delayed").body)
    assert got.body == b"later"
    assert time.time() - begun >= 0.99


def test_a_message_sent_back_is_retried_and_dies_in_the_end(client: Client) -> None:
    sent = client.put("failing", b"bad", {"UNIQ_KEY": "F1"})
    offset = decode_offset_id(sent.fields["msgId"]).physical_offset
    back = {"group": "g1", "offset": offset, "delayLevel": 1, "originTopic": "failing"}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
    (again,) = messages(pulled(client, "%RETRY%g1").body)
    assert (again.body, again.reconsume_times) == (b"bad", 1)
    assert again.properties["RETRY_TOPIC"] == "failing"
    back |= {"offset": again.physical_offset}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
    (third,) = messages(pulled(client, "%RETRY%g1", offset=1).body)
    assert third.reconsume_times == 2
    back |= {"offset": third.physical_offset, "maxReconsumeTimes": 2}
    assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUCCESS
    (dead,) = messages(pulled(client, "%DLQ%g1").body)
    assert (dead.body, dead.reconsume_times) == (b"bad", 3)


def test_a_transaction_is_seen_when_it_is_committed_and_never_when_rolled_back(
    client: Client,
) -> None:
    for name, decision in (("kept", 8), ("dropped", 12)):
        sent = client.put(
            "bank", name.encode(), {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": name}
        )
        assert client.pull("bank", 0, 0).fields.get("maxOffset", "0") in ("0", "1")
        end = {
            "producerGroup": "pg", "tranStateTableOffset": sent.fields["queueOffset"], "commitOrRollback": decision,
            "commitLogOffset": decode_offset_id(sent.fields["msgId"]).physical_offset, "msgId": name,
        }  # fmt: skip
        wrong = client.ask(RequestCode.END_TRANSACTION, {**end, "producerGroup": "other"})
        assert wrong.code == ResponseCode.SYSTEM_ERROR
        assert client.ask(RequestCode.END_TRANSACTION, end).code == ResponseCode.SUCCESS
    found = messages(pulled(client, "bank").body)
    assert [(each.body, each.transaction) for each in found] == [(b"kept", "commit")]


def test_what_was_acknowledged_and_committed_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    with serving(path, sends=True) as running, Client(running.address) as client:
        for n in range(20):
            assert client.put("T", b"%d" % n, {"UNIQ_KEY": f"{n}"}).code == 0
        client.put("T", b"later", {"DELAY": "1"})
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 7})
    table = (path / "config" / "consumerOffset.json").read_bytes()
    assert parse_java_json(table) == {"offsetTable": {"T@g": {"0": 7}}}
    with serving(path, sends=True) as running, Client(running.address) as client:
        assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"] == "7"
        got = messages(pulled(client, "T", 0, 7).body)
        assert [each.body for each in got[:13]] == [b"%d" % n for n in range(7, 20)]
        assert [each.body for each in messages(pulled(client, "T", 0, 20).body)] == [b"later"]
    with open_store(path) as store:
        assert [each.body for each in store.pull("T", 0, 20).messages] == [b"later"]


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_plain_properties_are_stored_as_by_way_of_a_map(tmp_path: Path, version: str) -> None:
    random = Random(5)
    names = [
        "UNIQ_KEY",
        "WAIT",
        "KEYS",
        "TAGS",
        "A",
        "b\x03",
        "CLUSTER",
        "MSG_REGION",
        "é",
        "\ud800",
    ]
    odd = [
        "\x01x",
        "x\x01",
        "x",
        "",
        "A\x012",
        "DELAY\x010",
        "TIMER_DELAY_MS\x01-5",
        "WAIT\x01FALSE",
    ]
    with open_store(
        tmp_path / "store", mode="rw", config=replace(SMALL, store_version=version)
    ) as store:
        broker = ServedBroker("b", store, clock_ms=lambda: 7_000)
        assert broker.written is not None
        sending = broker.written.sending
        for _ in range(400):
            parts = [name + "\x01v" + random.choice(("", "", "\x01", "é")) for name in names]
            parts = random.sample(parts, random.randrange(len(parts)))
            if random.random() < 0.5:
                parts.append("UNIQ_KEY\x01u")
            if random.random() < 0.3:
                parts.insert(random.randrange(len(parts) + 1), random.choice(odd))
            text = "\x02".join(parts) + random.choice(("", "\x02"))
            if version == "5.3" and "UNIQ_KEY" not in decode_properties(text):
                continue  # each call would add another unique key
            sent = Sent("T", b"x", properties=text)
            found = sending.message(sent)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(sending, "_plain", lambda text: None)
                assert sending.message(sent) == found


def test_senders_that_wait_share_syncs_and_learn_that_one_failed(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "i": "",
        "j": 0,
    }
    with (
        serving(tmp_path / "store", sends=True, is_synced=True) as running,
        Client(running.address) as client,
        pytest.MonkeyPatch.context() as patched,
    ):
        client.put("T", b"the topic is kept")
        (store,) = running.service.stores().values()
        assert isinstance(store, WritableStore)
        real, syncs = store.flush, []

        def flush() -> None:
            syncs.append(store.end_offset())
            real()

        patched.setattr(store, "flush", flush)
        asked = [client.send(RequestCode.SEND_MESSAGE_V2, fields, b"%d" % n) for n in range(200)]
        answers = [client.receive() for _ in asked]
        assert {each.opaque: each.code for each in answers} == dict.fromkeys(asked, 0)
        assert 0 < len(syncs) < 100
        assert store.bytes_behind()[0] == 0

        def fail() -> None:
            raise StoreFailedError("the disk is gone")

        patched.setattr(store, "flush", fail)
        lost = client.put("T", b"not durable")
        assert (lost.code, lost.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is gone")
        assert client.put("T", b"does not wait", {"WAIT": "false"}).code == ResponseCode.SUCCESS


def test_sends_that_arrive_together_keep_their_order_and_are_answered_each(client: Client) -> None:
    fields: dict[str, Any] = {
        "a": "pg",
        "b": "together",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": 1,
        "h": 0,
        "j": 0,
    }
    client.put("together", b"the topic is kept")
    odd: dict[int, dict[str, Any]] = {5: {"e": 99}, 9: {"i": "DELAY\x01soon"}, 40: {"e": "x"}}
    session = Session()
    client.send_bytes(
        b"".join(
            session.send(Command(310, n, 0, None, {**fields, "i": "", **odd.get(n, {})}, b"%d" % n))
            for n in range(100)
        )
    )
    codes = {answer.opaque: answer.code for answer in (client.receive() for _ in range(100))}
    assert {n for n, code in codes.items() if code} == set(odd)
    wanted = [b"the topic is kept"] + [b"%d" % n for n in range(100) if n not in odd]
    found: list[bytes] = []
    while len(found) < len(wanted):
        found += [each.body for each in messages(pulled(client, "together", 0, len(found)).body)]
    assert found == wanted
