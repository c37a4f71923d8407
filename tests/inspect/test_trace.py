"""A trace finds exactly the records of the oracle's life of a message, and reports the searched ranges."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.engine.stores import open_store
from reput.errors import UsageError
from reput.wings.inspect.trace import trace_life
from reput.wings.inspect.tracing.life import FoundBy, Role
from tests.golden.stores import GoldenStore, TornCase
from tests.inspect.stories import KEY, Story, offsets, traced
from tests.oracle.life import offset_id, offsets_of_life
from tests.oracle.walk import read_log, walk

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("tricky", ["retry", "half0", "half1", "later", "direct", "K27", "no such key"]),
        ("orders", ["pay-a4f912f0", "order-100205", "customer-48"]),
    ],
)  # fmt: skip
def test_a_key_finds_what_the_oracle_finds(golden: Golden, name: str, keys: list[str]) -> None:
    store = golden(name).path
    records = walk(read_log(store)).records
    with open_store(store) as opened:
        for key in keys:
            life = trace_life([opened], key=key, most_messages=10_000)
            assert set(offsets(life)) == offsets_of_life(records, key), key
            assert life.is_complete
            times = [event.stored_ms for event in life.events]
            assert times == sorted(times)
            gaps = [event.gap_ms for event in life.events[1:]]
            assert gaps == [after - before for before, after in pairwise(times)]


def test_an_id_finds_what_the_oracle_finds(golden: Golden) -> None:
    store = golden("tricky").path
    records = walk(read_log(store)).records
    halves = [(o, r) for o, r in records if "HALF" in r.topic or r.topic[0] == "%"]
    with open_store(store) as opened:
        for offset, record in [records[0], *halves[::3], *records[700:1600:300]]:
            asked = [offset_id(offset, record)]
            if record.uniq_key and record.topic != "RMQ_SYS_TRANS_OP_HALF_TOPIC":
                asked.append(record.uniq_key)
            for message_id in asked:
                life = trace_life([opened], message_id=message_id)
                expected = offsets_of_life(records, message_id=message_id)
                assert set(offsets(life)) == expected, (offset, record.topic)


def test_a_topic_bounds_the_key_and_not_what_follows(golden: Golden) -> None:
    store = golden("tricky").path
    records = walk(read_log(store)).records
    life = traced(store, key="later", topic="DelayTopic")
    assert set(offsets(life)) == offsets_of_life(records, "later", topic="DelayTopic")
    assert Role.SCHEDULED in {event.role for event in life.events}


def test_roles_of_a_golden_transaction_and_retry(golden: Golden) -> None:
    store = golden("tricky").path
    half, op, committed = traced(store, key="half1").events
    assert (half.role, op.role, committed.role) == (Role.HALF, Role.OP, Role.COMMITTED)
    assert (half.found_by, op.found_by) == (FoundBy.KEY, FoundBy.OP_QUEUE)
    assert len({half.life, op.life, committed.life}) == 1
    origin, retry, dead = traced(store, key="retry").events
    assert (origin.role, retry.role, dead.role) == (Role.MESSAGE, Role.RETRY, Role.DEAD_LETTER)
    assert origin.found_by is FoundBy.ORIGIN
    assert retry.message.properties["ORIGIN_MESSAGE_ID"] == origin.message.message_id
    backwards = traced(store, message_id=origin.message.message_id)
    assert [event.found_by for event in backwards.events] == [
        FoundBy.MESSAGE_ID,
        FoundBy.ORIGIN_MESSAGE_ID,
    ]


def test_a_scheduled_record_is_due_when_its_queue_says(golden: Golden) -> None:
    (scheduled, _) = traced(golden("tricky").path, key="delay4").events
    assert scheduled.due_ms == scheduled.stored_ms + 1_000


def test_several_stores_are_one(tmp_path: Path) -> None:
    """A retry is on another broker than the message that it names as its origin."""
    first, second = Story(), Story()
    offset = first.put("orders", unique_key="U1")
    origin = first.id_of(offset)
    second.put("orders", unique_key="X", key="other", body=b"the same offset, another host")
    second.put("%RETRY%g", 20_000, unique_key="U2", key="", times=1, ORIGIN_MESSAGE_ID=origin)
    second.put("%DLQ%g", 30_000, unique_key="U2", key="", times=1)
    stores = first.store(tmp_path / "a"), second.store(tmp_path / "b")
    life = traced(*stores)
    # The forged brokers have one address, so an offset id matches a place in both logs.
    roles = [(event.store, event.role) for event in life.events]
    assert (str(stores[1]), Role.DEAD_LETTER) in roles
    assert [one.store for one in life.searched] == [str(store) for store in stores]


def test_an_expired_origin_is_asked_for_by_its_id(tmp_path: Path) -> None:
    story = Story()
    story.put("other", unique_key="X", key="x")
    retry = story.put("%RETRY%g", 1_000, times=1, ORIGIN_MESSAGE_ID="0A" * 16)
    assert offsets(traced(story.store(tmp_path / "s"), message_id="0A" * 16)) == [retry]


def test_an_origin_may_be_a_unique_key(tmp_path: Path) -> None:
    """If a client sends the retry itself, instead of asking the broker, the origin is the message's unique key."""
    story = Story()
    sent = story.put("orders")
    retry = story.put("%RETRY%g", 1_000, unique_key="U2", key="", times=1, ORIGIN_MESSAGE_ID="U1")
    store = story.store(tmp_path / "s")
    assert offsets(traced(store)) == [sent, retry]
    assert offsets(traced(store, message_id="U2")) == [sent, retry]


def test_of_keys_only_the_one_asked_for(tmp_path: Path) -> None:
    story = Story()
    sent = story.put("orders", key=f"{KEY} customer-7")
    story.put("orders", unique_key="U2", key="order-2 customer-7")
    assert offsets(traced(story.store(tmp_path / "s"))) == [sent]


def test_an_op_message_of_a_later_broker_decides_several(tmp_path: Path) -> None:
    story = Story()
    first = story.put("RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="orders", REAL_QID="0")
    second = story.put(
        "RMQ_SYS_TRANS_HALF_TOPIC", unique_key="U2", REAL_TOPIC="orders", REAL_QID="0"
    )
    story.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", unique_key="", key="", body=b"7,8,")
    op = story.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", unique_key="", key="", body=b"0,1,")
    assert offsets(traced(story.store(tmp_path / "s"))) == [first, second, op]


def test_limits_shorten_and_say_so(tmp_path: Path) -> None:
    story = Story()
    for number in range(8):
        story.put("orders", unique_key=f"U{number}")
        story.put("%RETRY%g", unique_key=f"R{number}", key="", ORIGIN_MESSAGE_ID=f"U{number}")
    store = story.store(tmp_path / "s")
    whole = traced(store)
    assert (len(whole.events), whole.is_complete) == (16, True)
    shortened = traced(store, key=KEY, most_messages=3)
    assert [event.role for event in shortened.events] == [Role.MESSAGE, Role.RETRY] * 3
    assert (shortened.is_complete, shortened.searched[0].is_shortened) == (False, True)
    few = traced(store, key=KEY, most_entries=5)
    assert (few.searched[0].unread, few.is_complete, few.is_damaged) == (3, False, False)
    assert len(few.events) == 13


def test_what_cannot_be_read_is_reported(torn: Torn, tmp_path: Path) -> None:
    life = traced(torn("tail_noabort").before, key="no such key")
    assert life.searched[0].coverage.unreadable
    assert (life.is_complete, life.is_damaged) == (False, True)
    story = Story()
    story.put("orders")
    broken = story.put("%RETRY%g", unique_key="U2", key="", ORIGIN_MESSAGE_ID="U1")
    kept = story.put("%RETRY%g", unique_key="U3", key="", ORIGIN_MESSAGE_ID="U1")
    store = story.store(tmp_path / "s")
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    # its magic code stays, its length is damaged
    data[broken + 4 : broken + 8] = b"\xda\xa3\x20\xa7"
    data[broken : broken + 4] = (2**31 - 1).to_bytes(4, "big")
    log.write_bytes(data)
    life = traced(store)
    assert [one.physical_offset for one in life.searched[0].problems] == [broken]
    assert kept in offsets(life)


@pytest.mark.slow
def test_a_store_that_was_written_here(tmp_path: Path) -> None:
    config = StoreConfig(commit_log_file_bytes=1 << 15, hash_slots=16, index_items=100)
    with reput.open_store(tmp_path / "s", mode="rw", config=config) as store:
        store.put(reput.Message("orders", b"b", ["k1"], properties={"DELAY": "5"}))
        store.put(reput.Message("orders", b"b", ["k1"]))
        assert store.wait_dispatched()
        with open_store(tmp_path / "s") as reader:
            scheduled, sent = trace_life([reader], key="k1").events
    assert (scheduled.role, sent.role) == (Role.SCHEDULED, Role.MESSAGE)
    assert scheduled.due_ms == scheduled.stored_ms + 60_000
    assert sent.is_queued


@pytest.mark.parametrize(
    "asked",
    [{}, {"key": "k", "message_id": "m"}, {"message_id": "m", "topic": "t"}, {"key": "k", "most_entries": 0}],
)  # fmt: skip
def test_wrong_use(asked: dict[str, object], tmp_path: Path) -> None:
    story = Story()
    story.put("orders")
    with open_store(story.store(tmp_path / "s")) as store, pytest.raises(UsageError):
        trace_life([store], **asked)  # type: ignore[arg-type]


def test_sampled_topics_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story()
    story.put("orders")
    store = story.store(tmp_path / "s")
    (store / "consumequeue").rename(tmp_path / "away")
    assert traced(store).searched[0].coverage.notes == ()
    with reput.open_store(store) as opened:
        monkeypatch.setattr(opened.log_topics, "find", lambda: frozenset({"orders"}))
        opened.log_topics.are_all = False
        (searched,) = trace_life([opened], key=KEY).searched
    assert "spot-checked" in searched.coverage.notes[-1]


def test_without_queues_the_topics_are_those_of_the_log(golden: Golden, tmp_path: Path) -> None:
    story = Story()
    sent = story.put("orders")
    store = story.store(tmp_path / "s")
    (store / "consumequeue").rename(tmp_path / "away")
    assert offsets(traced(store)) == [sent]
    life = traced(store, key=KEY, topic="orders")
    assert offsets(life) == [sent]
