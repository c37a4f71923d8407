"""Pop checkpoints and acknowledgements: which messages nobody acknowledged."""

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.broker.popped import PoppedMessages
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.format.pop import decode_ack, decode_checkpoint, decode_record
from reput.writer.put.message import Message
from tests.cli.running import reput as run
from tests.five import CONFIG
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
REVIVE = "rmq_sys_REVIVE_LOG_c"


def checkpoint(start: int, count: int, waits: bool = False, **more: object) -> Message:
    """As the sources of 5.3.3 have it; one that waits is in the timer's topic."""
    body = {
        "bm": 0,
        "bn": "b",
        "c": "g",
        "it": 60_000,
        "n": count,
        "pt": 1000 + start,
        "q": 2,
        "so": start,
        "t": "T",
    }
    given = {"REAL_TOPIC": REVIVE} if waits else {}
    topic = "rmq_sys_wheel_timer" if waits else REVIVE
    return Message(topic, json.dumps(body | more).encode(), tags="ck", properties=given)


def ack(start: int, *offsets: int) -> Message:
    body = {"bn": "b", "c": "g", "pt": 1000 + start, "q": 2, "so": start, "t": "T"}
    own = {"ao": offsets[0]} if len(offsets) == 1 else {"ao": -1, "aol": list(offsets)}
    tags = "ack" if len(offsets) == 1 else "bAck"
    return Message(REVIVE, json.dumps(body | own).encode(), tags=tags)


def make(path: Path, *messages: Message) -> Path:
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put_many(messages)
    return path


def test_what_nobody_acknowledged(tmp_path: Path) -> None:
    store = make(
        tmp_path / "s",
        checkpoint(10, 3), ack(10, 11), ack(10, 12), ack(99, 1),
        checkpoint(20, 2, waits=True), ack(20, 20, 21),
        checkpoint(20, 2),
        checkpoint(30, 3, waits=True, d=[0, 4, 9], bm=2),
        Message("rmq_sys_wheel_timer", b"another", properties={"REAL_TOPIC": "T"}),
    )  # fmt: skip
    with reput.open_store(store) as opened:
        found = list(PoppedMessages(opened))
    assert [(one.offsets, one.unacked, one.revive_time) for one in found] == [
        ((10, 11, 12), (10,), 61_010), ((20, 21), (), 61_020), ((30, 34, 39), (30, 39), 61_030),
    ]  # fmt: skip
    rows = [json.loads(line) for line in run("popped", store, "--json").lines]
    assert [(row["group"], row["topic"], row["queue_id"], row["unacked"]) for row in rows] == [
        ("g", "T", 2, [10]), ("g", "T", 2, [30, 39]),
    ]  # fmt: skip
    assert len(run("popped", store, "--all").lines) == 4


def test_a_note_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    bad = [
        Message(REVIVE, body, tags="ck")
        for body in (b"{", b"[]", b'{"c":"g","t":"T","n":-1}', b'{"c":1,"t":"T"}', b'{"c":"g","t":"T","n":2,"d":[1]}')
    ]  # fmt: skip
    ran = run(
        "popped", make(tmp_path / "s", checkpoint(1, 1), *bad, Message(REVIVE, b"{}", tags="ack"))
    )
    assert ran.code == DAMAGED
    assert len(ran.err.splitlines()) == 6
    assert len(ran.lines) == 2


def test_records_in_rocksdb(tmp_path: Path) -> None:
    store = make(tmp_path / "s", Message("T", b"x"))
    assert run("popped", store).code == NOT_FOUND
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    made = rocksdict.Rdict(str(store / "kvStore"), options)
    family = made.create_column_family("popState", rocksdict.Options(raw_mode=True))
    value = {"popTime": 5000, "groupId": "g", "topicId": "T", "queueId": 1, "retryFlag": 0, "invisibleTime": 1000,
             "offset": 7, "attemptTimes": 1, "attemptId": "a"}  # fmt: skip
    key = struct.pack(">q", 6000) + b"g@T@" + struct.pack(">i", 1) + b"@" + struct.pack(">q", 7)
    family[key] = json.dumps(value).encode()
    family[b"bad"] = b"{"
    made.close()
    ran = run("popped", store, "--json")
    assert ran.code == DAMAGED
    assert [json.loads(line) for line in ran.lines] == [
        {"group": "g", "topic": "T", "queue_id": 1, "offsets": [7], "unacked": [7], "pop_time": 5000,
         "revive_time": 6000}
    ]  # fmt: skip


def test_acknowledgements_of_a_broker_are_read(golden: Golden) -> None:
    store = golden("five_default")
    with reput.open_store(store.path) as opened:
        notes = PoppedMessages(opened)
        found = list(notes)
    assert notes.damage == []
    rows = [row for row in store.messages if row.topic.startswith("rmq_sys_REVIVE_LOG_")]
    assert rows
    assert len(found) <= len(store.messages)
    assert run("popped", store.path, "--all").code == (FOUND if found else NOT_FOUND)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["c", "t", "q", "so", "pt", "n", "d", "bm", "ao", "aol", "it"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for decode in (decode_checkpoint, decode_ack, decode_record):
        with suppress(ValueError):
            decode(body)
