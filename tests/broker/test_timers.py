"""Timed messages are delivered at their time, once, also across restarts, and can be recalled."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.engine.writer.put.message import Message
from reput.errors import MessageRefusedError
from reput.format.host import Host
from reput.format.properties import TIMER_TOPIC, encode_properties
from reput.testing import Broker
from reput.wings.serve.broker import timers
from reput.wings.serve.broker.timers import RecallHandle
from reput.wings.serve.remoting.commands import ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client


def bodies(broker: Broker, topic: str = "T") -> list[bytes]:
    return [message.body for message in broker.messages(topic)]


@pytest.mark.parametrize(
    ("name", "value"), [("TIMER_DELAY_MS", "60000"), ("TIMER_DELAY_SEC", "60"), ("TIMER_DELIVER_MS", "")]
)  # fmt: skip
def test_a_message_is_delivered_when_its_time_has_come(name: str, value: str) -> None:
    with Broker(version="5.3") as broker:
        due = broker.now_ms() + 60_000
        broker.send("T", "x", properties={name: value or str(due)})
        broker.advance(50)
        assert bodies(broker) == []
        (waiting,) = broker.messages(TIMER_TOPIC)
        out = int(waiting.properties["TIMER_OUT_MS"])
        assert out % 1000 == 0
        assert due - 2000 < out <= due + 1000
        broker.advance(12)
        (message,) = broker.messages("T")
        assert message.store_timestamp >= due
        assert message.properties["REAL_TOPIC"] == "T"
        assert {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"} <= message.properties.keys()


def test_a_time_that_is_over_or_too_far_or_none(tmp_path: Path) -> None:
    with Broker(version="5.3") as broker:
        broker.send("T", "late", properties={"TIMER_DELIVER_MS": "1"})
        assert bodies(broker) == [b"late"]
        for value in ("x", str(4 * 24 * 3_600_000)):
            with pytest.raises(MessageRefusedError):
                broker.send("T", "far", properties={"TIMER_DELAY_MS": value})
    with Broker() as broker:  # 4.9 has no timer messages
        broker.send("T", "now", properties={"TIMER_DELAY_MS": "60000"})
        assert bodies(broker) == [b"now"]


def test_each_is_delivered_once_through_restarts(tmp_path: Path) -> None:
    for start in range(3):
        with Broker(tmp_path / "s", version="5.3") as broker:
            broker._offset_ms = start * 3_600_000
            for number in range(4):
                delay = {"TIMER_DELAY_SEC": str(60 * (number + 1))}
                broker.send("T", f"{start}-{number}", properties=delay)
            broker.advance(130 if start == 0 else 3_500)
    with Broker(tmp_path / "s") as broker:
        broker._offset_ms = 10 * 3_600_000
        broker.advance(1)
        found = bodies(broker)
        assert sorted(found) == sorted({*found})
        assert len(found) == 12


def test_a_forged_time_in_the_store_holds_up_no_other_message(tmp_path: Path) -> None:
    with Broker(tmp_path / "s", version="5.3") as broker:
        queue = {"REAL_TOPIC": "T", "REAL_QID": "0"}
        for text in ("9" * 5_000, "-1", "x", ""):
            forged = {**queue, "TIMER_OUT_MS": text}
            broker.store.put(
                Message(TIMER_TOPIC, b"forged", properties=encode_properties(forged).encode())
            )
        broker.send("T", "x", properties={"TIMER_DELAY_SEC": "60"})
        broker.advance(62)
        assert b"x" in bodies(broker)


def test_messages_that_wait_long_are_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_MOST_REPEATED", 5)
    with Broker(version="5.3") as broker:
        broker.send("T", "long", properties={"TIMER_DELAY_SEC": "86400"})
        for number in range(12):
            broker.send("T", f"{number}", properties={"TIMER_DELAY_SEC": "1"})
        broker.advance(10)
        assert len(bodies(broker)) == 12
        rolled = broker.messages(TIMER_TOPIC)[-1]
        assert (rolled.body, rolled.properties["TIMER_ROLL_TIMES"]) == (b"long", "1")
        broker.advance(86_400)
        assert bodies(broker).count(b"long") == 1


def test_a_message_is_taken_back() -> None:
    with Broker(version="5.3", topics=["T"]) as broker:
        host, _, port = broker.address.rpartition(":")
        with Client(Host(host, int(port))) as client:
            properties = {"TIMER_DELAY_SEC": "60", "UNIQ_KEY": "A" * 32}
            sent = client.put("T", b"x", properties)
            handle = RecallHandle.decode(sent.fields["recallHandle"])
            assert (handle.topic, handle.unique_key) == ("T", "A" * 32)
            fields = {"topic": "T", "producerGroup": "pg", "recallHandle": handle.encode()}
            answer = client.ask(RequestCode.RECALL_MESSAGE, fields)
            assert (answer.code, answer.fields["msgId"]) == (0, "A" * 32)
            wrong = [
                {"recallHandle": "x"}, {"recallHandle": handle._replace(topic="U").encode()},
                {"recallHandle": handle._replace(broker_name="b").encode()},
                {"recallHandle": handle._replace(due_ms=1).encode()},
            ]  # fmt: skip
            for each in wrong:
                answer = client.ask(RequestCode.RECALL_MESSAGE, {**fields, **each})
                assert answer.code == ResponseCode.ILLEGAL_OPERATION
            client.put("T", b"y", {"TIMER_DELAY_SEC": "60"})
        broker.advance(70)
        assert bodies(broker) == [b"y"]


def test_the_timer_log_of_a_broker_is_left_to_it(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(golden("five_timer").path, tmp_path / "s"))
    check = (path / "config" / "timercheck").read_bytes()
    with Broker(path) as broker:
        with pytest.raises(MessageRefusedError, match="so only a broker may accept them"):
            broker.send("T", "x", properties={"TIMER_DELAY_SEC": "1"})
        broker.advance(10)
    assert (path / "config" / "timercheck").read_bytes() == check


def test_what_a_broker_reads_of_the_check_file(tmp_path: Path) -> None:
    with Broker(tmp_path / "s", version="5.3") as broker:
        broker.send("T", "x", properties={"TIMER_DELAY_SEC": "1"})
        broker.send("T", "y", properties={"TIMER_DELAY_SEC": "600"})
        broker.advance(5)
    data = (tmp_path / "s" / "config" / "timercheck").read_bytes()
    _, flushed, first, of_master = struct.unpack_from(">qqqq", data)
    assert (len(data), flushed, first, of_master) == (4096, 0, 1, 1)
