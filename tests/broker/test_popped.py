"""Pop checkpoints and acknowledgements: which messages nobody acknowledged."""

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.engine.writer.put.message import Message
from reput.format.pop import decode_ack, decode_checkpoint, decode_record
from reput.wings.serve.broker.popped import PoppedMessages
from tests.cli.running import reput as run
from tests.five import CONFIG
from tests.golden.stores import GoldenStore
from tests.golden.tables import read_named

Golden = Callable[[str], GoldenStore]
REVIVE = "rmq_sys_REVIVE_LOG_c"


def checkpoint(start: int, count: int, waits: bool = False, **more: object) -> Message:
    """Return a checkpoint of popped messages as 5.3.3 writes it. If it `waits`, it is still in the timer's topic."""
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
    rows = [json.loads(line) for line in run("state", "popped", store, "--format", "jsonl").lines]
    assert [(row["group"], row["topic"], row["queue_id"], row["unacked"]) for row in rows] == [
        ("g", "T", 2, [10]), ("g", "T", 2, [30, 39]),
    ]  # fmt: skip
    assert len(run("state", "popped", store, "--all").lines) == 4


def test_a_note_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    bad = [
        Message(REVIVE, body, tags="ck")
        for body in (b"{", b"[]", b'{"c":"g","t":"T","n":-1}', b'{"c":1,"t":"T"}', b'{"c":"g","t":"T","n":2,"d":[1]}')
    ]  # fmt: skip
    ran = run(
        "state",
        "popped",
        make(tmp_path / "s", checkpoint(1, 1), *bad, Message(REVIVE, b"{}", tags="ack")),
    )
    assert ran.code == DAMAGED
    assert len(ran.err.splitlines()) == 6
    assert len(ran.lines) == 2


def test_records_in_rocksdb(tmp_path: Path) -> None:
    store = make(tmp_path / "s", Message("T", b"x"))
    assert run("state", "popped", store).code == NOT_FOUND
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
    ran = run("state", "popped", store, "--format", "jsonl")
    assert ran.code == DAMAGED
    assert [json.loads(line) for line in ran.lines] == [
        {"group": "g", "topic": "T", "queue_id": 1, "offsets": [7], "unacked": [7], "pop_time": 5000,
         "revive_time": 6000, "in_order": False, "revived": []}
    ]  # fmt: skip


def test_popped_messages_are_those_of_the_table_of_a_broker(golden: Golden) -> None:
    store = golden("five_life")
    table = [row_of(row) for row in read_named(store.root / "popped.tsv")]
    # The first of two orderly pops is missing: config/ keeps only the last orderly pop of each queue.
    expected = [row for row in table if not (row[0] == "g_pop_line" and row[3] < 5)]
    assert (len(table), len(expected)) == (126, 121)
    pops = [
        json.loads(line)
        for line in run("state", "popped", store.path, "--all", "--format", "jsonl").lines
    ]
    assert sorted(row for pop in pops for row in rows_of(pop)) == sorted(expected)
    shown = [
        json.loads(line) for line in run("state", "popped", store.path, "--format", "jsonl").lines
    ]
    unacked = [row for pop in shown for row in rows_of(pop) if row[6] == "unacknowledged"]
    assert sorted(unacked) == sorted(row for row in expected if row[6] == "unacknowledged")
    assert len(unacked) == 26
    assert not any(pop["revived"] for pop in shown)  # the group has popped all copies


Row = tuple[str, str, int, int, int, int, str, str, str, str]


def row_of(row: dict[str, str]) -> Row:
    numbers = (int(row[name]) for name in ("queueId", "queueOffset", "popTime", "visibleAgainAt"))
    copy = (row[name] for name in ("retryTopic", "retryQueueOffset", "retryPhyOffset"))
    return (row["group"], row["topic"], *numbers, row["state"], *copy)  # type: ignore[return-value]


def rows_of(pop: dict[str, Any]) -> Iterator[Row]:
    """A row per message, as the table has it."""
    copies = {one["queue_offset"]: one for one in pop["revived"]}
    for offset in pop["offsets"]:
        state, copy = "acknowledged", ("", "", "")
        if offset in pop["unacked"]:
            state = "unacknowledged"
        elif offset in copies:
            names = ("retry_topic", "retry_queue_offset", "retry_physical_offset")
            state, copy = "revived", tuple(str(copies[offset][name]) for name in names)  # type: ignore[assignment]
        yield (
            pop["group"], pop["topic"], pop["queue_id"], offset, pop["pop_time"], pop["revive_time"],
            state, *copy,
        )  # fmt: skip


def revived_store(path: Path, revive: str, retry: int | None = None) -> Path:
    """Write a store in which group g popped messages 0 and 1 of T/0, acknowledged 1, and let the time for 0 pass.

    The broker has put a copy of message 0 into the retry topic. `revive` is the committed offset of the revive topic,
    `retry` that of the retry topic.
    """
    topic = "%RETRY%g_T"
    made = make(
        path,
        Message("T", b"a", properties={"UNIQ_KEY": "A"}, queue_id=0),
        Message("T", b"b", properties={"UNIQ_KEY": "B"}, queue_id=0),
        checkpoint(0, 2, q=0), Message(REVIVE, ack(0, 1).body.replace(b'"q": 2', b'"q": 0'), tags="ack"),
        Message(topic, b"a", properties={"UNIQ_KEY": "A"}, queue_id=0),
        Message(topic, b"a", properties={"UNIQ_KEY": "A", "1ST_POP_TIME": "1000"}, queue_id=0, reconsume_times=1),
    )  # fmt: skip
    table = {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": revive} if revive else {}
    if retry is not None:
        table[f"{topic}@g"] = f"{{0:{retry}}}"
    (made / "config").mkdir(exist_ok=True)
    content = ",".join(f'"{name}":{offsets}' for name, offsets in table.items())
    (made / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{{content}}}}}')
    return made


@pytest.mark.parametrize(
    ("revive", "retry", "is_revived", "is_shown"),
    [
        ("{0:0}", None, True, True),  # message 0 was revived, and its copy is not consumed yet
        ("{0:0}", 1, True, True),
        ("{0:0}", 2, True, False),
        ("{0:-1}", 2, False, True),  # the broker will revive message 0 again at its next start
        ("", 2, True, False),  # the revive offset is unknown, but the copy exists
    ],
)
def test_revived_messages(
    tmp_path: Path, revive: str, retry: int | None, is_revived: bool, is_shown: bool
) -> None:
    store = revived_store(tmp_path / "s", revive, retry)
    (pop,) = (
        json.loads(line)
        for line in run("state", "popped", store, "--all", "--format", "jsonl").lines
    )
    copies = [(one["retry_topic"], one["retry_queue_offset"]) for one in pop["revived"]]
    assert copies == ([("%RETRY%g_T", 1)] if is_revived else [])
    assert pop["unacked"] == ([] if is_revived else [0])
    assert bool(run("state", "popped", store, "--format", "jsonl").lines) == is_shown


def test_a_checkpoint_that_was_put_again_or_hides_for_longer(tmp_path: Path) -> None:
    store = make(
        tmp_path / "s",
        checkpoint(10, 3), ack(10, 12),
        # Message 11 could not be revived, so the broker put another checkpoint.
        checkpoint(11, 1, pt=1010, it=70_000, rp="1", waits=True),
        checkpoint(12, 1, pt=5000, waits=True),  # a consumer extended the time of 12
    )  # fmt: skip
    rows = [json.loads(line) for line in run("state", "popped", store, "--format", "jsonl").lines]
    assert [(row["offsets"], row["unacked"], row["revive_time"]) for row in rows] == [
        ([10], [10], 61_010), ([12], [12], 65_000), ([11], [11], 71_010),
    ]  # fmt: skip


def test_pops_in_order(tmp_path: Path) -> None:
    store = make(tmp_path / "s", Message("T", b"x"))
    path = store / "config" / "consumerOrderInfo.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        '{"table":{"T@g":{3:{"popTime":1000,"i":50,"o":[5,1,3],"cm":2,"ot":{8:9000}},'
        '4:{"popTime":2000,"i":50,"o":[7],"cm":1}}}}'
    )
    rows = [json.loads(line) for line in run("state", "popped", store, "--format", "jsonl").lines]
    assert [
        (row["queue_id"], row["offsets"], row["unacked"], row["revive_time"]) for row in rows
    ] == [(3, [5, 6], [5], 1050), (3, [8], [8], 9000)]
    assert all(row["in_order"] for row in rows)
    assert len(run("state", "popped", store, "--all").lines) == 4
    for bad in (
        '{"T@g":{3:{"o":["a"]}}}',
        '{"T":{3:{}}}',
        '{"T@g":{"x":{}}}',
        "[]",
        '{"T@g":{1:7}}',
    ):
        path.write_text(f'{{"table":{bad}}}' if bad != "[]" else bad)
        ran = run("state", "popped", store)
        assert (ran.code, len(ran.err.splitlines())) == (DAMAGED, 1)


def test_acknowledgements_of_a_broker_are_read(golden: Golden) -> None:
    store = golden("five_default")
    with reput.open_store(store.path) as opened:
        notes = PoppedMessages(opened)
        found = list(notes)
    assert notes.damage == []
    rows = [row for row in store.messages if row.topic.startswith("rmq_sys_REVIVE_LOG_")]
    assert rows
    assert len(found) <= len(store.messages)
    assert run("state", "popped", store.path, "--all").code == (FOUND if found else NOT_FOUND)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["c", "t", "q", "so", "pt", "n", "d", "bm", "ao", "aol", "it"]), inner),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for decode in (decode_checkpoint, decode_ack, decode_record):
        with suppress(ValueError):
            decode(body)
