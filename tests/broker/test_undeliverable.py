"""A message that cannot be delivered is refused, and never holds up the messages of others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput import open_store
from reput.base.clock import now_ms
from reput.engine.writer.put.message import Message
from reput.errors import MessageRefusedError
from reput.format.host import Host
from reput.format.properties import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from reput.testing import Broker
from reput.wings.serve.broker import timers
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.remoting.client import Client
from tests.small import SMALL

LONG_TOPIC = "L" * 127


def client_of(broker: Broker) -> Client:
    host, _, port = broker.address.rpartition(":")
    return Client(Host(host, int(port)))


@pytest.mark.parametrize(
    ("version", "properties"),
    [
        ("4.9", {"DELAY": "1"}), ("5.3", {"DELAY": "1"}), ("5.3", {"TIMER_DELAY_SEC": "1"}),
        ("4.9", {"TRAN_MSG": "true"}),
    ],
)  # fmt: skip
def test_a_message_that_fits_only_where_it_waits_is_refused(
    version: str, properties: dict[str, str]
) -> None:
    with Broker(version=version, topics=[LONG_TOPIC, "T"]) as broker, client_of(broker) as client:
        codes = [
            client.put(LONG_TOPIC, bytes(size), properties | {"UNIQ_KEY": f"{size}"}).code
            for size in range((4 << 20) - 1000, 4 << 20, 50)
        ]
        assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}
        assert codes == sorted(codes)
        room = [
            client.put("T", b"", properties | {"UNIQ_KEY": "k", "A": "x" * size}).code
            for size in range(32_767 - 1000, 32_767, 50)
        ]
        assert set(room) == {ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL}
        if "TRAN_MSG" in properties:
            return
        broker.advance(5)
        assert len(broker.messages(LONG_TOPIC)) == codes.count(ResponseCode.SUCCESS)
        assert len(broker.messages("T")) == room.count(ResponseCode.SUCCESS)


def test_a_group_whose_retry_topic_is_too_long_sends_nothing_back() -> None:
    with Broker(topics=["T"]) as broker, client_of(broker) as client:
        message_id = client.put("T", b"x").fields["msgId"]
        offset = int(message_id[-16:], 16)
        back = {"group": "g" * 125, "offset": offset, "delayLevel": 1}
        answer = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "topic" in str(answer.remark)
        broker.send("T", "after", properties={"DELAY": "1"})
        broker.advance(5)
        assert [each.body for each in broker.messages("T")] == [b"x", b"after"]


def waiting(topic: str, **properties: str) -> Message:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return Message(topic, b"stuck", None, None, 0, text.encode())


@pytest.mark.parametrize(
    ("version", "stuck"),
    [
        ("4.9", lambda now: waiting(SCHEDULE_TOPIC, REAL_TOPIC="L" * 128, REAL_QID="0", DELAY="1")),
        ("5.3", lambda now: waiting(SCHEDULE_TOPIC, REAL_TOPIC="a/b", REAL_QID="0", DELAY="1")),
        ("5.3", lambda now: waiting(TIMER_TOPIC, REAL_TOPIC="a/b", REAL_QID="0", TIMER_OUT_MS=f"{now}")),
        ("5.3", lambda now: waiting(TIMER_TOPIC, REAL_TOPIC="T", REAL_QID=str(1 << 31), TIMER_OUT_MS=f"{now}")),
    ],
)  # fmt: skip
def test_a_waiting_message_that_cannot_be_put_does_not_stop_those_after_it(
    version: str, stuck: Callable[[int], Message], tmp_path: Path
) -> None:
    with Broker(tmp_path / "s", version=version, topics=["T"]) as broker:
        now = broker.now_ms()
    with open_store(tmp_path / "s", mode="rw") as store:
        store.put(stuck(now))
    with Broker(tmp_path / "s") as broker:
        broker.send("T", "after", properties={"DELAY": "1"})
        if version == "5.3":
            broker.send("T", "timed", properties={"TIMER_DELAY_SEC": "1"})
        broker.advance(5)
        wanted = [b"after", b"timed"] if version == "5.3" else [b"after"]
        assert sorted(each.body for each in broker.messages("T")) == wanted


def test_an_undecided_message_that_cannot_be_discarded_does_not_stop_checks_of_others(
    tmp_path: Path,
) -> None:
    now = [now_ms()]
    config = replace(SMALL, max_message_bytes=400)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        broker = ServedBroker("b", store, clock_ms=lambda: now[0])
        assert broker.written is not None
        text = b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02PGROUP\x01g\x02A\x01"
        half = len(b"".join((text, HALF_TOPIC.encode()))) + 91
        store.put(Message(HALF_TOPIC, b"", None, None, 0, text + b"x" * (400 - half)))
        checked = 0
        for _ in range(20):
            store.wait_dispatched()
            now[0] += 100_000
            checked += len(broker.written.transactions.to_check())
        assert checked == 15
        store.put(Message(HALF_TOPIC, b"", None, None, 0, text + b"y"))
        store.wait_dispatched()
        now[0] += 100_000
        assert [each.queue_offset for each in broker.written.transactions.to_check()] == [1]


def test_odd_numbers_of_clients_do_not_stop_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_MOST_REPEATED", 5)
    with Broker(version="5.3", topics=["T"]) as broker, client_of(broker) as client:
        odd = {"TIMER_DELAY_SEC": "86400", "TIMER_ROLL_TIMES": "many"}
        assert client.put("T", b"long", odd).code == ResponseCode.SUCCESS
        for number in range(12):
            broker.send("T", f"{number}", properties={"TIMER_DELAY_SEC": "1"})
        broker.advance(10)
        rolled = broker.messages(TIMER_TOPIC)[-1]
        assert (rolled.body, rolled.properties["TIMER_ROLL_TIMES"]) == (b"long", "1")


def test_a_recall_takes_back_messages_of_its_own_topic_only() -> None:
    with Broker(version="5.3", topics=["T", "U"]) as broker, client_of(broker) as client:
        due = {"TIMER_DELIVER_MS": str(broker.now_ms() // 1000 * 1000 + 60_000)}
        client.put("T", b"of others", due | {"UNIQ_KEY": "A" * 32})
        forged = due | {"UNIQ_KEY": "A" * 32, "TIMER_DEL_UNIQKEY": f"T+{'A' * 32}"}
        assert client.put("U", b"0", forged).code == ResponseCode.SUCCESS
        broker.advance(120)
        assert [each.body for each in broker.messages("T")] == [b"of others"]


def test_refusals_name_what_is_too_long() -> None:
    with (
        Broker(topics=["T"]) as broker,
        pytest.raises(MessageRefusedError, match="too large for its destination"),
    ):
        broker.send("T", bytes((4 << 20) - 200), properties={"DELAY": "1"})


def test_lost_entries_of_a_delay_level_do_not_hold_up_later_messages(tmp_path: Path) -> None:
    late = now_ms() + (1 << 20)
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        broker = ServedBroker("b", store, lambda: late)
        assert broker.written is not None
        for number in range(5):
            held = {"REAL_TOPIC": "T", "REAL_QID": "0"}
            store.put(replace(waiting(SCHEDULE_TOPIC, **held), body=b"%d" % number))
        assert store.wait_dispatched()
        queue = tmp_path / "store" / "consumequeue" / SCHEDULE_TOPIC / "0" / f"{0:020}"
        with queue.open("r+b") as file:
            file.seek(20)
            file.write(bytes(2 * 20))
        while broker.written.deliver_due() or broker.written.delays.offsets().get(1, 0) < 5:
            pass
        assert store.wait_dispatched()
        assert [each.body for each in store.pull("T", 0, 0).messages] == [b"0", b"3", b"4"]
        assert [(met.begin, met.end) for met in store.unreadable.ranges()] == [(1, 3)]
