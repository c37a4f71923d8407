"""Traces of known faults of brokers: found where they are, and not in stores of brokers without them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput.base import Finding, Kind, Severity
from reput.cli.main import FOUND, WARNED
from reput.engine.check.operation import check
from reput.wings.fleet import faults as module
from reput.wings.fleet.api import broker_faults
from tests.cli.running import reput
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, FIVE_LIFE, GoldenStore
from tests.inspect.stories import Story

Golden = Callable[[str], GoldenStore]
HALF, OP, TIMER = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "rmq_sys_wheel_timer",
)
REVIVE, RETRY = "rmq_sys_REVIVE_LOG_c", "%RETRY%g_T"
COMMITTED, HOUR_MS, DAY_MS = 8, 3_600_000, 86_400_000


def found_in(story: Story, path: Path) -> list[Finding]:
    return list(broker_faults(story.store(path)).findings)


@pytest.mark.parametrize("name", [*EVERY_STORE, *EVERY_FIVE, FIVE_LIFE])
def test_no_fault_is_found_in_a_store_of_a_broker_without_one(golden: Golden, name: str) -> None:
    assert broker_faults(golden(name).path).findings == ()


def committed(story: Story, key: str, halves: list[str], commits: int) -> list[int]:
    """Put a transaction: half messages with their numbers of checks, a decision about each, and its commits."""
    numbers = []
    for checks in halves:
        numbers.append(story._counts[HALF, 0])
        story.put(HALF, unique_key=key, REAL_TOPIC="T", TRANSACTION_CHECK_TIMES=checks)
    for number in numbers:
        story.put(OP, unique_key="", key="", body=str(number).encode())
    return [story.put("T", unique_key=key, sys_flag=COMMITTED) for _ in range(commits)]


def test_transactions_that_were_committed_twice(tmp_path: Path) -> None:
    story = Story()
    committed(story, "once", [""], 1)
    # The broker asked the producer once, because nothing was decided yet. Then it was committed once.
    committed(story, "checked", ["", "1"], 1)
    committed(story, "rolled back", ["", "1"], 0)
    places = committed(story, "U7", ["", "1"], 2)
    committed(story, "U8", ["", "1", "2"], 3)
    store = story.store(tmp_path / "store")
    (found,) = broker_faults(store).findings
    assert (found.kind, found.count) == (Kind.COMMITTED_TWICE, 2)
    assert f"U7 of T was committed 2 times, at {places[0]} and {places[1]}" in found.detail
    assert "before 5.4.0" in found.detail
    ran = reput("state", "faults", store)
    assert (ran.code, "committed 2 times" in ran.out) == (WARNED, True)
    (line,) = reput("state", "faults", store, "--format", "jsonl").lines
    assert Finding.from_json(json.loads(line)) == found
    report = check(store)
    assert [one for one in report.findings if one.kind is Kind.COMMITTED_TWICE] == [found]
    assert Kind.COMMITTED_TWICE not in {one.kind for one in check(store, quick=True).findings}


def test_a_check_searches_a_damaged_store_for_no_faults(tmp_path: Path) -> None:
    """A lost message would look like a trace of a fault."""
    story = Story()
    committed(story, "U7", ["", "1"], 2)
    store = story.store(tmp_path / "store")
    assert [one.kind for one in check(store).findings if one.kind is Kind.COMMITTED_TWICE]
    (log,) = (store / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[4] ^= 1
    log.write_bytes(data)
    findings = check(store).findings
    assert any(one.severity is Severity.DAMAGE for one in findings)
    assert not any(one.kind is Kind.COMMITTED_TWICE for one in findings)


def test_one_decision_that_is_written_twice_without_a_second_commit_is_no_fault(
    tmp_path: Path,
) -> None:
    story = Story()
    committed(story, "U1", [""], 1)
    story.put(OP, unique_key="", key="", body=b"0")
    assert found_in(story, tmp_path / "store") == []


def rolled(story: Story, key: str, times: list[tuple[int, int]]) -> None:
    """Put a timed message: the number of its rolls, and the store time of each copy."""
    for number, at_ms in times:
        rolls: dict[str, Any] = {"TIMER_ROLL_TIMES": str(number)} if number else {}
        story.put(TIMER, at_ms, unique_key=key, REAL_TOPIC="T", TIMER_OUT_MS="9" * 13, **rolls)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("times", "is_fault"),
    [
        ([(0, 0)], False),
        # A timer wheel rolls a message about every two days.
        ([(number, number * 2 * DAY_MS) for number in range(8)], False),
        # A producer that sends again has sent two messages. Each is rolled.
        ([(0, 0), (0, 5), (1, DAY_MS), (1, DAY_MS)], False),
        # The first copies have expired.
        ([(3, 0), (3, 5)], False),
        # Each hour.
        ([(number, number * HOUR_MS) for number in range(7)], True),
        # The same roll twice.
        ([(0, 0), (1, DAY_MS), (1, DAY_MS + 5)], True),
    ],
)
def test_timers_that_were_rolled_again(
    tmp_path: Path, times: list[tuple[int, int]], is_fault: bool
) -> None:
    story = Story()
    rolled(story, "good", [(0, 0), (1, 2 * DAY_MS)])
    rolled(story, "U7", times)
    kinds = [
        (one.kind, one.count, "message U7 of T" in one.detail)
        for one in found_in(story, tmp_path / "s")
    ]
    assert kinds == ([(Kind.TIMER_ROLLED_AGAIN, 1, True)] if is_fault else [])


def popped(story: Story, path: Path, *, copies: int, committed: int) -> list[Finding]:
    """Return the faults of a store in which a group popped three messages, and acknowledged the first of them."""
    for number in range(3):
        story.put("T", number, unique_key=f"U{number}")
    body = {"bm": 0, "bn": "b", "c": "g", "it": 60_000, "n": 3, "pt": 1, "q": 0, "so": 0, "t": "T"}
    story.put(REVIVE, unique_key="", key="", body=json.dumps(body).encode(), TAGS="ck")
    ack = {"ao": 0, "bn": "b", "c": "g", "pt": 1, "q": 0, "so": 0, "t": "T"}
    story.put(REVIVE, unique_key="", key="", body=json.dumps(ack).encode(), TAGS="ack")
    for number in range(1, 1 + copies):
        story.put(RETRY, unique_key=f"U{number}", times=1)
    store = story.store(path)
    (store / "config").mkdir(exist_ok=True)
    table = {f"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP": {"0": committed}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    return list(broker_faults(store).findings)


@pytest.mark.parametrize(("copies", "lost"), [(2, 0), (1, 1), (0, 2)])
def test_popped_messages_that_were_lost(tmp_path: Path, copies: int, lost: int) -> None:
    found = popped(Story(), tmp_path / "store", copies=copies, committed=1)
    assert [(one.kind, one.count) for one in found] == ([(Kind.POP_LOST, lost)] if lost else [])
    if found:
        assert f"queue offset {1 + copies} of T/0" in found[0].detail


def test_a_pop_that_the_broker_has_not_settled_yet_is_not_lost(tmp_path: Path) -> None:
    assert popped(Story(), tmp_path / "store", copies=0, committed=-1) == []


def test_only_the_newest_messages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    committed(story, "old", ["", "1"], 2)
    for number in range(4):
        committed(story, f"U{number}", [""], 1)
    store = story.store(tmp_path / "store")
    assert len(broker_faults(store).findings) == 1
    monkeypatch.setattr(module, "MOST_MESSAGES", 4)
    assert broker_faults(store).findings == ()
    assert reput("state", "faults", store).code == FOUND
