"""Accounts that attempt forbidden reads: through another topic, a hash, an offset, or a code that is not checked."""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reput.engine.stores import open_store
from reput.engine.writer.put.message import Message
from reput.errors import CorruptMessageError
from reput.format.commit_log import MessageExt, decode, encode
from reput.format.host import Host
from reput.format.index_file import index_key, key_hash
from reput.format.message_id import decode_offset_id
from reput.format.properties import INNER_MULTI_DISPATCH, NOT_ALLOWED_SEND_TOPICS
from reput.format.untrusted_json import parse_java_json
from reput.wings.serve.remoting.access import AccessList, signature
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import OF_NAME_SERVER, RequestCode
from reput.wings.serve.remoting.rights import SUB, Account, Rights
from reput.wings.serve.remoting.session import Session
from tests.remoting.client import Client, Serving, messages, serving
from tests.small import SMALL
from tests.waiting import wait_for

ACL = """
accounts:
- {accessKey: nothing, secretKey: "12345678"}
- {accessKey: reader1, secretKey: "12345678", defaultTopicPerm: SUB, defaultGroupPerm: SUB,
   topicPerms: [mine=PUB|SUB, Aa=SUB, BB=DENY, secret=DENY], groupPerms: [theirs=DENY]}
- {accessKey: master1, secretKey: abcdefgh, admin: true}
"""
SECRETS = {"nothing": b"12345678", "reader1": b"12345678", "master1": b"abcdefgh"}
DENIED = ResponseCode.NO_PERMISSION


class As(Client):
    """A client of an account."""

    def __init__(self, server: Serving, key: str) -> None:
        super().__init__(server.address)
        self._key = key

    def send(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        texts = {name: str(value) for name, value in (fields or {}).items()}
        texts["AccessKey"] = self._key
        texts["Signature"] = signature(
            Command(code, fields=texts, body=body), SECRETS[self._key]
        ).decode()
        return super().send(code, texts, body, flag)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("rights")
    (folder / "acl.yml").write_text(ACL)
    with serving(folder / "s", sends=True, access=AccessList.read(folder / "acl.yml")) as running:
        with As(running, "master1") as master:
            for topic in ("secret", "mine", "Aa", "BB"):
                assert master.put(topic, b"body of " + topic.encode(), {"KEYS": "k"}).code == 0
            place = {"consumerGroup": "theirs", "topic": "secret", "queueId": 0, "commitOffset": 1}
            assert master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, place).code == 0
            wait_for(lambda: messages(master.query("BB", "k").body))
        yield running


@pytest.fixture
def master(server: Serving) -> Iterator[As]:
    with As(server, "master1") as made:
        yield made


@pytest.fixture
def reader(server: Serving) -> Iterator[As]:
    with As(server, "reader1") as made:
        yield made


FIELDS = {
    "topic": "secret", "b": "secret", "a": "pg", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0,
    "producerGroup": "pg", "consumerGroup": "theirs", "group": "theirs", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 4, "bornTimestamp": 1, "flag": 0, "properties": "",
    "reconsumeTimes": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0, "suspendTimeoutMillis": 0,
    "subscription": "*", "subVersion": 0, "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60,
    "offset": 0, "timestamp": 0, "index": 0, "count": 9, "delayLevel": 1, "originTopic": "mine", "clientID": "c",
    "commitLogOffset": 0, "tranStateTableOffset": 0, "commitOrRollback": 8,
}  # fmt: skip
BODIES = {
    RequestCode.HEART_BEAT: {"consumerDataSet": [{"groupName": "theirs"}]},
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "theirs", "mqSet": []},
    RequestCode.UNLOCK_BATCH_MQ: {
        "consumerGroup": "g",
        "mqSet": [{"topic": "secret", "brokerName": "s", "queueId": 0}],
    },
    RequestCode.CHECK_CLIENT_CONFIG: {"subscriptionData": {"topic": "T"}},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup": "g", "topic": "secret"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "theirs"},
}
OPEN = {
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.CHECK_CLIENT_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.END_TRANSACTION,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_ALL_DELAY_OFFSET,
}  # fmt: skip
"""Requests that every account may send. The answers leave out everything that the account may not read."""


def offsets_of_clients(master: As) -> dict[str, object]:
    """Return the offsets of all groups but the broker's own, which the check of transactions commits at any time."""
    found = parse_java_json(master.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)["offsetTable"]
    return {key: offsets for key, offsets in found.items() if not key.startswith("RMQ_SYS_")}


@pytest.mark.every_case
@pytest.mark.parametrize("key", ["nothing", "reader1"])
def test_no_code_tells_or_changes_what_an_account_has_no_rights_to(
    server: Serving, master: As, key: str
) -> None:
    offsets = offsets_of_clients(master)
    port = server.service.served[0].port
    guarded = port._handlers.keys() - OF_NAME_SERVER
    assert len(guarded) > 50
    for code in sorted(guarded):
        with As(server, key) as client:
            body = json.dumps(BODIES[RequestCode(code)]).encode() if code in BODIES else b""
            answer = client.ask(code, FIELDS, body)
        told = f"{answer.fields}{answer.body!r}"
        assert answer.code == DENIED or code in OPEN, RequestCode(code)
        assert "secret" not in told, RequestCode(code)
        assert "theirs" not in told, RequestCode(code)
    assert offsets_of_clients(master) == offsets
    assert messages(master.pull("secret", 0, 0).body)[-1].body == b"body of secret"


def test_codes_that_are_checked_later_answer_whoever_may(server: Serving, master: As) -> None:
    assert b"secret" in master.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body
    assert b"secret@theirs" in master.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body
    asked = {"topic": "secret"}
    assert b"theirs" in master.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, asked).body


def stored_offset(sent: Command) -> int:
    return decode_offset_id(sent.fields["msgId"]).physical_offset


def test_a_message_is_not_had_by_sending_it_back(master: As, reader: As) -> None:
    (secret,) = messages(master.pull("secret", 0, 0).body)
    back = {
        "group": "own",
        "delayLevel": 1,
        "originTopic": "mine",
        "offset": secret.physical_offset,
    }
    assert reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == DENIED
    own = stored_offset(master.put("mine", b"x"))
    assert reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {**back, "offset": own}).code == 0
    theirs = {**back, "group": "theirs", "offset": own}
    assert reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, theirs).code == DENIED


def test_a_message_of_another_topic_with_the_same_hash_is_not_answered(
    master: As, reader: As
) -> None:
    assert key_hash(index_key("Aa", "k")) == key_hash(index_key("BB", "k"))
    topics = {each.topic for each in messages(master.query("Aa", "k").body)}
    assert topics == {"Aa", "BB"}
    assert {each.topic for each in messages(reader.query("Aa", "k").body)} == {"Aa"}


def test_boxes_of_other_topics_show_each_what_it_may_read(master: As, reader: As) -> None:
    for topic in ("mine", "secret"):
        (stored, *_) = messages(master.pull(topic, 0, 0).body)
        back = {"group": "shared", "delayLevel": -1, "offset": stored.physical_offset}
        assert master.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == 0
        assert master.put(topic, b"later", {"DELAY": "18"}).code == 0
    for box, queue_id in (("%DLQ%shared", 0), ("SCHEDULE_TOPIC_XXXX", 17)):
        both = wait_for(lambda: len(messages(master.pull(box, queue_id, 0).body)) == 2)  # noqa: B023
        assert both
        answer = reader.pull(box, queue_id, 0)
        assert (len(messages(answer.body)), answer.fields["nextBeginOffset"]) == (1, "2")


@pytest.mark.every_case
@pytest.mark.parametrize("topic", [*sorted(NOT_ALLOWED_SEND_TOPICS), "rmq_sys_wheel_timer"])
def test_nobody_sends_to_the_topics_of_the_broker_itself(master: As, topic: str) -> None:
    properties = {"REAL_TOPIC": "secret", "REAL_QID": "0", "PGROUP": "pg"}
    assert master.put(topic, b"x", properties).code == DENIED


def test_each_of_the_sends_that_arrive_together_needs_its_rights(
    server: Serving, master: As
) -> None:
    place = {"a": "pg", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0"}
    sent: dict[int, tuple[str, str, bool]] = {}
    frames = []
    for number in range(60):
        key, topic = ("reader1", "master1")[number % 2], ("mine", "secret")[number % 3 == 0]
        is_forged = number % 10 == 7
        fields = {**place, "b": topic, "i": "", "AccessKey": key}
        asked = Command(310, number, fields=fields, body=b"together %d" % number)
        secret = b"another" if is_forged else SECRETS[key]
        fields["Signature"] = signature(asked, secret).decode()
        sent[number] = key, topic, is_forged
        frames.append(Session().send(asked))
    end = server.service.served[0].broker.max_offset("mine", 0)  # type: ignore[union-attr]
    with Client(server.address) as client:
        client.send_bytes(b"".join(frames))
        codes = {answer.opaque: answer.code for answer in (client.receive() for _ in sent)}
    allowed = {
        number
        for number, (key, topic, is_forged) in sent.items()
        if not is_forged and (key == "master1" or topic == "mine")
    }
    assert {number for number, code in codes.items() if code == 0} == allowed
    assert {code for number, code in codes.items() if number not in allowed} == {DENIED}
    wanted = [b"together %d" % number for number in sorted(allowed) if sent[number][1] == "mine"]
    found: list[bytes] = []
    while len(found) < len(wanted):
        pull = {**FIELDS, "topic": "mine", "consumerGroup": "g", "queueOffset": end + len(found)}
        answer = master.ask(RequestCode.PULL_MESSAGE, pull)
        found += [each.body for each in messages(answer.body)]
    assert found == wanted


def test_a_light_queue_needs_the_right_to_send(reader: As) -> None:
    assert reader.put("mine", b"x", {INNER_MULTI_DISPATCH: "mine"}).code == 0
    assert reader.put("mine", b"x", {INNER_MULTI_DISPATCH: "mine,%LMQ%theirs"}).code == DENIED


def test_a_queue_shows_no_message_that_another_topic_dispatched_there(tmp_path: Path) -> None:
    (tmp_path / "acl.yml").write_text(ACL)
    config = replace(SMALL, enable_multi_dispatch=True)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        for queues in ("%LMQ%light", "mine"):
            further = {INNER_MULTI_DISPATCH: queues}
            store.put(Message("secret", b"body of secret", properties=further))
        store.put(Message("mine", b"own", properties={INNER_MULTI_DISPATCH: "%LMQ%light"}))
    with (
        serving(tmp_path / "s", access=AccessList.read(tmp_path / "acl.yml")) as running,
        As(running, "master1") as master,
        As(running, "reader1") as reader,
    ):
        for topic in ("%LMQ%light", "mine"):
            wait_for(lambda: len(messages(master.pull(topic, 0, 0).body)) == 2)  # noqa: B023
            answer = reader.pull(topic, 0, 0)
            assert [each.body for each in messages(answer.body)] == [b"own"]
            assert answer.fields["nextBeginOffset"] == "2"


def prepared(master: As, topic: str) -> dict[str, Any]:
    """Commit a message that was prepared in a topic."""
    sent = master.put(topic, b"prepared", {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u"})
    return {
        "producerGroup": "pg", "tranStateTableOffset": sent.fields["queueOffset"], "commitOrRollback": 8,
        "commitLogOffset": stored_offset(sent), "msgId": "u",
    }  # fmt: skip


def test_a_transaction_is_ended_by_who_may_send_to_its_topic(master: As, reader: As) -> None:
    assert reader.ask(RequestCode.END_TRANSACTION, prepared(master, "secret")).code == DENIED
    assert reader.ask(RequestCode.END_TRANSACTION, prepared(master, "mine")).code == 0


def test_a_prepared_message_is_shown_to_producers_that_may_send_to_its_topic(
    server: Serving, master: As, reader: As
) -> None:
    beat = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "pg"}]}).encode()
    assert reader.ask(RequestCode.HEART_BEAT, {}, beat).code == 0
    store = server.service.stores()["s"]
    halves = [store.get(prepared(master, topic)["commitLogOffset"]) for topic in ("secret", "mine")]
    assert server._loop is not None
    server._loop.call_soon_threadsafe(server.service.served[0].port.ask_producers, halves)
    wait_for(lambda: (reader.ask(RequestCode.GET_BROKER_CONFIG), reader.pushed)[1])
    assert [messages(each.body)[0].topic for each in reader.pushed] == ["mine"]


def forged(topic: str, queue_offset: int, at: int) -> bytes:
    """Return bytes that look like a record of a topic, and continue for 300 bytes into the next stored record."""
    host = Host("127.0.0.1", 1)
    message = MessageExt(
        topic=topic, queue_id=0, queue_offset=queue_offset, physical_offset=at, flag=0, sys_flag=0,
        born_timestamp=1, born_host=host, store_timestamp=1, store_host=host, reconsume_times=0,
        prepared_transaction_offset=0, body=b"", body_crc=0, properties_bytes=b"", size_bytes=0,
    )  # fmt: skip
    record = bytearray(encode(message))
    struct.pack_into(">i", record, 0, len(record) + 300)
    struct.pack_into(">h", record, len(record) - 2, 300)
    assert decode(bytes(record) + bytes(300)).topic == topic
    return bytes(record)


def test_an_offset_within_a_body_is_no_message(server: Serving, master: As, reader: As) -> None:
    while True:
        first = master.put("mine", b"x" * 100)
        (stored,) = messages(
            master.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": stored_offset(first)}).body
        )
        begin = stored_offset(first) + stored.size_bytes
        at = begin + bytes(encode(stored)).index(b"x" * 100)
        lie = forged("mine", 0, at)
        sent = reader.put("mine", lie + b"x" * (100 - len(lie)))
        # The server may have stored a message of its own in between: a check of an open transaction.
        if stored_offset(sent) == begin:
            break
    master.put("secret", b"body of secret" * 20)
    asked = {"offset": at}
    assert b"body of secret" in server.service.stores()["s"].get_record(at)
    assert reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, asked).code == DENIED
    back = {**asked, "group": "own", "delayLevel": 1}
    assert reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == DENIED
    assert reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": begin}).code == 0
    secret = messages(master.pull("secret", 0, 0).body)[0].physical_offset
    assert reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": secret}).code == DENIED


def test_a_record_within_a_body_is_no_message_whichever_offset_it_claims(
    server: Serving, master: As, reader: As
) -> None:
    master.put("mine", b"first")
    wait_for(lambda: messages(master.pull("mine", 0, 0).body))
    (real, *_) = messages(master.pull("mine", 0, 0).body)
    lie = forged("mine", real.queue_offset, real.physical_offset)
    begin = stored_offset(reader.put("mine", lie + b"x" * (100 - len(lie))))
    master.put("secret", b"body of secret" * 20)
    (own,) = messages(reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": begin}).body)
    at = begin + bytes(encode(own)).index(lie)
    # The inner record states the offset of another message, so the store does not read it here.
    with pytest.raises(CorruptMessageError, match="states physical offset"):
        server.service.stores()["s"].get_record(at)
    assert (
        reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": at}).code == ResponseCode.SYSTEM_ERROR
    )
    back = {"offset": at, "group": "own", "delayLevel": 1}
    assert reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SYSTEM_ERROR


def test_a_decision_about_a_record_within_a_body_is_refused(
    server: Serving, master: As, reader: As
) -> None:
    decision = prepared(master, "mine")
    store = server.service.stores()["s"]
    wait_for(lambda: store.get(int(decision["commitLogOffset"])))
    half = store.get(int(decision["commitLogOffset"]))
    begin = stored_offset(reader.put("mine", store.get_record(half.physical_offset)))
    (own,) = messages(reader.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": begin}).body)
    at = begin + bytes(encode(own)).index(bytes(encode(half)))
    with pytest.raises(CorruptMessageError, match="states physical offset"):
        store.get(at)
    inner = {**decision, "commitLogOffset": at}
    assert reader.ask(RequestCode.END_TRANSACTION, inner).code == ResponseCode.SYSTEM_ERROR
    assert reader.ask(RequestCode.END_TRANSACTION, decision).code == 0


@pytest.mark.parametrize(
    ("topic", "properties", "may"),
    [
        ("%RETRY%g+secret", {}, False),
        ("%RETRY%g+mine", {}, True),
        ("%RETRY%g_secret", {"1ST_POP_TIME": "1"}, False),
        ("%RETRY%my_g_mine", {"1ST_POP_TIME": "1"}, True),
        ("%RETRY%g_secret", {}, True),
        ("%DLQ%g", {"RETRY_TOPIC": "%RETRY%g+secret"}, False),
        ("SCHEDULE_TOPIC_XXXX", {"REAL_TOPIC": "%RETRY%g_secret", "1ST_POP_TIME": "1"}, False),
    ],
)
def test_a_retry_of_a_popped_message_needs_the_right_to_its_topic(
    topic: str, properties: dict[str, str], may: bool
) -> None:
    account = Account("reader1", b"", default_topic=SUB, default_group=SUB, topics={"secret": 0})
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode()
    message = replace(decode(forged("mine", 0, 0) + bytes(300)), topic=topic, properties_bytes=text)
    assert Rights(account).may_read(message) is may


def test_replies_go_to_the_account_that_asked(server: Serving, reader: As) -> None:
    beat = {"clientID": "asker", "producerDataSet": [{"groupName": "pg"}]}
    assert reader.ask(RequestCode.HEART_BEAT, None, json.dumps(beat).encode()).code == 0
    with As(server, "nothing") as thief:
        refused = thief.ask(RequestCode.HEART_BEAT, None, json.dumps(beat).encode())
        assert (refused.code, "another account" in str(refused.remark)) == (
            ResponseCode.SYSTEM_ERROR,
            True,
        )
    reply = {
        "a": "pg", "b": "reput_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "j": 0,
        "i": "REPLY_TO_CLIENT\x01asker\x02CORRELATION_ID\x01c",
    }  # fmt: skip
    with As(server, "master1") as master:
        asked = master.send(RequestCode.SEND_REPLY_MESSAGE_V2, reply, b"answer")
        reader.wait_for_push()
        (pushed,) = [
            each for each in reader.pushed if each.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        ]
        assert pushed.body == b"answer"
        reader.send_bytes(Session().send(pushed.answer()))
        answer = master.receive()
        assert (answer.opaque, answer.code) == (asked, ResponseCode.SUCCESS)
    with As(server, "reader1") as again:  # the same account may connect again
        assert again.ask(RequestCode.HEART_BEAT, None, json.dumps(beat).encode()).code == 0
