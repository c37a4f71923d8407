"""Properties of messages that a broker copies, in the order of the broker's own maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reput import open_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.put.record_form import FORM_OF_FIVE, FORM_OF_FOUR
from reput.engine.writer.put.routing import with_offsets
from reput.format.java_string import hash_code
from reput.format.properties import HALF_TOPIC, OP_TOPIC, decode_properties
from reput.wings.serve.broker.broker import ServedBroker
from reput.wings.serve.broker.delays import due_message
from reput.wings.serve.broker.offsets import ConsumerOffsets
from reput.wings.serve.broker.sending import Sent, copied
from reput.wings.serve.broker.transactions import Transactions
from tests.small import SMALL


class JavaMap:
    """A `HashMap` of strings that puts, removes and grows as Java's does (without trees)."""

    def __init__(self, capacity: int = 16) -> None:
        self._buckets: list[list[str]] = [[] for _ in range(capacity)]
        self._count = 0

    def put(self, name: str) -> None:
        bucket = self._bucket(name)
        if name in bucket:
            return
        bucket.append(name)
        self._count += 1
        if self._count > len(self._buckets) * 3 // 4:
            names = self.names()
            self._buckets = [[] for _ in range(2 * len(self._buckets))]
            for each in names:
                self._bucket(each).append(each)

    def remove(self, name: str) -> None:
        if name in self._bucket(name):
            self._bucket(name).remove(name)
            self._count -= 1

    def names(self) -> list[str]:
        return [name for bucket in self._buckets for name in bucket]

    def _bucket(self, name: str) -> list[str]:
        value = hash_code(name) & 0xFFFFFFFF
        return self._buckets[(value ^ value >> 16) & (len(self._buckets) - 1)]


def decoded(names: Sequence[str], is_five: bool) -> JavaMap:
    """Return the map that a broker decodes from a properties string."""
    found = JavaMap(128 if is_five else 16)
    for name in names:
        found.put(name)
    return found


def _names(random: Random, *more: str) -> list[str]:
    count = random.choice([2, 8, 9, 10, 11, 12, 13, 20, 23, 24, 25])
    own = {f"{random.choice('abcxyz')}{random.randrange(100)}" for _ in range(count)}
    names = [*sorted(own), *more]
    random.shuffle(names)
    return names


def _text(names: Sequence[str]) -> str:
    return "".join(f"{name}\x01v\x02" for name in names)


@pytest.mark.parametrize("is_five", [False, True])
@pytest.mark.parametrize("has_wait", [False, True])
def test_a_message_of_several_queues_counts_wait(is_five: bool, has_wait: bool) -> None:
    """4.9.3 `MultiDispatch.wrapMultiDispatch`, 5.3.3 `LmqDispatch.wrapLmqDispatch` and `CommitLog.doAppend`."""
    random, differing = Random(1), 0
    for _ in range(300):
        names = _names(random, "INNER_MULTI_DISPATCH", *(["WAIT"] if has_wait else []))
        message = Message(
            "T",
            b"x",
            properties=_text(names).replace("DISPATCH\x01v", "DISPATCH\x01%LMQ%a").encode(),
        )
        stored = with_offsets(message, [0], FORM_OF_FIVE if is_five else FORM_OF_FOUR)
        assert isinstance(stored.properties, str)
        expected = decoded(names, is_five)
        expected.put("INNER_MULTI_QUEUE_OFFSET")
        expected.remove("WAIT")
        if has_wait and is_five:
            expected.put("WAIT")
        differing += expected.names() != decoded(expected.names(), False).names()
        assert list(decode_properties(stored.properties)) == expected.names()
    # The size of the map makes a difference in this many cases.
    assert not (is_five or has_wait) or differing


def test_a_served_message_of_several_queues_counts_wait(tmp_path: Path) -> None:
    config, random = replace(SMALL, enable_multi_dispatch=True), Random(2)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        broker = ServedBroker("s", store)
        assert broker.written is not None
        for number in range(60):
            names = _names(random, "INNER_MULTI_DISPATCH", "WAIT")
            text = _text(names).replace("DISPATCH\x01v", f"DISPATCH\x01q{number}")
            message, _ = broker.written.sending.message(Sent("T", b"x", properties=text))
            stored = store.get(store.put(message).physical_offset)
            expected = decoded(names, False)
            for name in ("CLUSTER", "INNER_MULTI_QUEUE_OFFSET"):
                expected.put(name)
            expected.remove("WAIT")
            assert list(decode_properties(stored.properties_bytes.decode())) == expected.names()


@pytest.mark.parametrize(("version", "ending"), [("4.9", ""), ("5.3", "\x02")])
def test_a_decision_has_wait_before_tags(tmp_path: Path, version: str, ending: str) -> None:
    """As brokers of both versions stored it. In 5.x the map also has 16 buckets."""
    config = replace(SMALL, store_version=version)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        half = Message(HALF_TOPIC, b"x", properties=b"REAL_TOPIC\x01T\x02REAL_QID\x010")
        prepared = store.get(store.put(half).physical_offset)
        Transactions(store, ConsumerOffsets(tmp_path, False)).end(prepared, 0)
        stored = store.get(prepared.physical_offset + prepared.size_bytes)
    assert stored.topic == OP_TOPIC
    assert stored.properties_bytes.decode() == f"WAIT\x01true\x02TAGS\x01d{ending}"


@pytest.mark.parametrize("is_five", [False, True])
def test_a_copy_is_encoded_again(tmp_path: Path, is_five: bool) -> None:
    """A broker decodes the properties of delayed and prepared messages, and encodes them again."""
    config, random = replace(SMALL, store_version="5.3" if is_five else "4.9"), Random(3)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        for _ in range(50):
            # The stored order is that of another version.
            names = decoded(_names(random, "WAIT", "KEYS"), not is_five).names()
            text = _text([*names, "REAL_TOPIC", "REAL_QID"]).replace(
                "REAL_QID\x01v", "REAL_QID\x013"
            )
            place = store.put(Message("SCHEDULE_TOPIC_XXXX", b"x", properties=text.encode()))
            stored = store.get(place.physical_offset)
            expected = decoded(list(stored.properties), is_five).names()
            for message in (copied(stored, is_five), due_message(stored, is_five)):
                assert message is not None
                assert isinstance(message.properties, bytes)
                assert list(decode_properties(message.properties.decode())) == expected
                assert message.properties.endswith(b"\x02") is is_five
                assert store.put(message).queue_offset >= 0


_REPLY = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01c\x02UNIQ_KEY\x01F1\x02TTL\x018000\x02CORRELATION_ID\x01a"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("4.9", _REPLY),
        # MSG_REGION and TRACE_ON are ordered as in a broker's answer.
        ("5.3", "MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01F1\x02CORRELATION_ID\x01a\x02MSG_TYPE\x01reply\x02"
         "TTL\x018000\x02REPLY_TO_CLIENT\x01c\x02TRACE_ON\x01true\x02"),
    ],
)  # fmt: skip
def test_a_reply_has_the_properties_that_were_sent(
    tmp_path: Path, version: str, expected: str
) -> None:
    config = replace(SMALL, store_version=version)
    with open_store(tmp_path / "s", mode="rw", config=config) as store:
        broker = ServedBroker("s", store)
        assert broker.written is not None
        broker.topics.create("Answers", 1)
        message, _ = broker.written.sending.reply(Sent("Answers", b"x", properties=_REPLY))
        stored = store.get(store.put(message).physical_offset)
    assert stored.properties_bytes.decode() == expected
