"""The timer log: every unit belongs to a waiting message, and states when it is due."""

import json
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
from reput.base.findings import Kind
from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.engine.check.run import check_store
from reput.engine.five.timer import TimerLog, Timers
from reput.errors import StoreNotFoundError
from reput.format.java_string import hash_code
from reput.format.timer_log import TIMER_UNIT_BYTES, TimerUnit, decode_timer_unit, encode_timer_unit
from reput.testing.strategies import int32, int64
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.golden.tables import read_named
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]


@given(int64, st.sampled_from([1, 3, 5, 7]), int64, int32, st.integers(0, 1 << 60), int32)
def test_units_come_back(
    previous: int, magic: int, write_time: int, delay: int, at: int, topic_hash: int
) -> None:
    unit = TimerUnit(previous, magic, write_time, delay, at, 100, topic_hash)
    data = encode_timer_unit(unit)
    assert len(data) == TIMER_UNIT_BYTES == 52
    assert decode_timer_unit(b"x" + data, 1) == unit
    assert decode_timer_unit(data, 1) is None


def test_every_unit_is_of_a_message_that_waits(golden: Golden) -> None:
    store = golden("five_timer")
    rows = {row.physical_offset: row for row in store.messages}
    with reput.open_store(store.path) as opened:
        log = TimerLog(opened)
        found = list(log)
    assert (len(found), log.damage) == (334, [])
    data = b"".join(path.read_bytes() for path in sorted((store.path / "timerlog").iterdir()))
    count = 0
    for one in found:
        row = rows[one.unit.physical_offset]
        assert isinstance(one.unit, TimerUnit)
        assert (row.topic, row.size) == ("rmq_sys_wheel_timer", one.unit.size)
        assert one.message is not None
        assert one.unit.topic_hash == hash_code(str(one.real_topic))
        assert encode_timer_unit(one.unit) in data
        if not one.unit.is_rolled:
            count += 1
            assert one.unit.due == int(one.message.properties["TIMER_OUT_MS"])
    assert count == 304
    assert {one.state for one in found} == {"waiting", "rolled", "recall", "delivered"}


def test_what_waits_is_listed_by_time(golden: Golden) -> None:
    store = golden("five_timer").path
    ran = run("state", "timer", store, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert ran.code == FOUND
    assert [row["due"] for row in rows] == sorted(row["due"] for row in rows)
    assert {row["state"] for row in rows} == {"waiting", "rolled"}
    assert len(run("state", "timer", store, "--all", "--format", "jsonl").lines) == 334
    assert len(run("state", "timer", store).lines) == len(rows) + 1


def test_states_are_those_of_the_table_of_a_broker(golden: Golden) -> None:
    store = golden("five_life")
    table = read_named(store.root / "waiting.tsv")
    expected = {
        int(row["phyOffset"]): (row["realTopic"], int(row["dueTime"]), row["keys"], state_of(row))
        for row in table
        if row["topic"] == "rmq_sys_wheel_timer"
    }
    rows = [
        json.loads(line)
        for line in run("state", "timer", store.path, "--all", "--format", "jsonl").lines
    ]
    assert len(rows) == len(expected) == 234
    for row in rows:
        keys = " ".join(row["keys"]) or "\\N"
        found = row["topic"], row["due"], keys, row["state"]
        assert found == expected[row["physical_offset"]]
    shown = [
        json.loads(line)["physical_offset"]
        for line in run("state", "timer", store.path, "--format", "jsonl").lines
    ]
    assert sorted(shown) == [at for at, (*_, state) in expected.items() if state == "waiting"]


def state_of(row: dict[str, str]) -> str:
    is_waiting_recall = (row["kind"], row["state"]) == ("recall", "waiting")
    return "recall" if is_waiting_recall else row["state"]


def test_once_it_is_due_a_rolled_message_or_a_recall_is_done(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    path = store / "config" / "timercheck"
    path.write_bytes(struct.pack(">q", 1 << 60) + path.read_bytes()[8:])
    rows = [
        json.loads(line)
        for line in run("state", "timer", store, "--all", "--format", "jsonl").lines
    ]
    assert Counter(row["state"] for row in rows) == {"delivered": 284, "done": 50}
    assert run("state", "timer", store).out == "No message waits.\n"


def test_a_damaged_timer_log_is_reported(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    path = min((store / "timerlog").iterdir())
    data = bytearray(path.read_bytes())
    data[10 * 52 : 10 * 52 + 4] = b"junk"
    path.write_bytes(data)
    ran = run("state", "timer", store, "--all", "--format", "jsonl")
    assert ran.code == DAMAGED
    assert f"{path}: offset 520" in ran.err
    assert 0 < len(ran.lines) < 334


def test_a_store_without_a_timer_says_so(golden: Golden) -> None:
    with (
        reput.open_store(golden("basic").path) as opened,
        pytest.raises(StoreNotFoundError, match="has no timerlog/"),
    ):
        TimerLog(opened)


def test_a_store_without_a_timer_has_no_message_that_waits(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders").path
    ran = run("state", "timer", store)
    assert (ran.code, ran.err) == (NOT_FOUND, "")
    assert ran.lines[0].startswith(f"No message: {store} has no timer log (timerlog/), and no")
    assert run("state", "timer", store, "--format", "jsonl").out == ""
    levels = "Messages with a delay level are in SCHEDULE_TOPIC_XXXX."
    assert levels not in ran.out
    with reput.open_store(tmp_path / "levels", mode="rw", config=SMALL_16K) as opened:
        opened.put(reput.Message("SCHEDULE_TOPIC_XXXX", b"body"))
    assert levels in run("state", "timer", tmp_path / "levels").out


@pytest.mark.parametrize("name", ["five_default", "five_timer"])
def test_messages_of_a_timer_that_is_not_there_are_counted(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    shutil.rmtree(store / "timerlog", ignore_errors=True)
    topics = [row.topic for row in golden(name).messages]
    ran = run("state", "timer", store)
    assert ran.code == DAMAGED
    count = topics.count("rmq_sys_wheel_timer")
    assert (ran.out, f"{count} messages are in rmq_sys_wheel_timer" in ran.err) == ("", True)


def test_messages_that_the_log_has_lost_are_lost_and_a_finding(
    golden: Golden, tmp_path: Path
) -> None:
    """The timer has read messages of the last log file, which a cut of the log removed (or other messages replaced)."""
    store = copy_store(golden("five_timer").path, tmp_path / "store")
    assert [one.kind for one in check_store(store) if one.kind is Kind.TIMER_MESSAGE_LOST] == []
    lost = max((store / "commitlog").iterdir())
    whole = lost.read_bytes()
    lost.unlink()
    for is_replaced in (False, True):
        if is_replaced:
            lost.write_bytes(whole.replace(b"rmq_sys_wheel_timer", b"another_topic_of_19"))
        with reput.open_store(store) as opened:
            timers = Timers(opened)
            states = Counter(timed.state for timed in timers)
            (finding,) = (one for one in timers.damage if one.kind is Kind.TIMER_MESSAGE_LOST)
        assert states["lost"] == finding.count == 46
        checked = [one for one in check_store(store) if one.kind is Kind.TIMER_MESSAGE_LOST]
        assert checked == [finding]


def test_a_message_of_the_timer_is_found_by_its_key(golden: Golden) -> None:
    store = golden("five_life").path
    rows = [
        json.loads(line)
        for line in run("state", "timer", store, "--all", "--format", "jsonl").lines
    ]
    for state in ("waiting", "delivered", "recalled"):
        row = next(row for row in rows if (row["state"], row["topic"]) == (state, "Alarms"))
        for key in (*row["keys"], row["unique_key"], row["unique_key"].lower()):
            ran = run("state", "timer", store, "--key", key, "--format", "jsonl")
            found = [json.loads(line) for line in ran.lines]
            assert ran.code == FOUND
            assert row in found
            # The recall of a message names its unique key.
            recalls = {one["state"] for one in found if one != row}
            assert recalls <= {"recall", "done"} or key not in (row["unique_key"],)
            if state == "recalled" and key == row["unique_key"]:
                assert recalls & {"recall", "done"}
    ran = run("state", "timer", store, "--key", "nothing")
    assert (ran.code, ran.out) == (NOT_FOUND, "No message in the timer has this key.\n")
