"""Messages of inner batches: found by their own keys and returned by the table, unlike in a broker."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import reput
from reput.core.query import inner_batch as reading
from reput.core.query.inner_batch import InnerRecord, OpenBatch, inner_records, unwrap
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.tables.arrow import to_arrow
from reput.engine.tables.filters import dispatched_under, selected
from reput.engine.writer.put.message import Message
from reput.format.commit_log import MessageExt, RecordLayout, decode
from reput.spark.options import read_options
from tests.cli.running import reput as run
from tests.five import CONFIG, inner_batch, write_topics
from tests.golden.stores import GoldenStore
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with inner batches in B, ordinary messages in B and T, each with a key of k0 to k9, over many files."""
    path = tmp_path_factory.mktemp("inner") / "store"
    write_topics(path, "B")
    random, clock = Random(3), iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    writer = reput.open_store(path, mode="rw", config=replace(CONFIG, append_record_crc=False))
    writer._writer._log._clock_ms = lambda: next(clock)
    with writer as opened:
        for number in range(120):
            keys = [f"k{random.randrange(10)}" for _ in range(random.randrange(1, 6))]
            if number % 3:
                bodies = [random.randbytes(40) for _ in keys]
                opened.put(inner_batch("B", bodies, number % 2, keys))
            else:
                opened.put(Message("BT"[number % 2], random.randbytes(60), keys[:1]))
    return path


def every_message(store: Path) -> Iterator[MessageExt]:
    """Return all messages in log order, with inner batches unwrapped."""
    with reput.open_store(store) as opened:
        offset, end = opened.begin_offset(), opened.end_offset()
        while offset < end:
            try:
                message = opened.get(offset)
            except reput.ReputError:  # a blank ends this file, so continue with the next file
                size = CONFIG.commit_log_file_bytes
                offset += size - offset % size
                continue
            yield from unwrap(message)
            offset += message.size_bytes


def with_key(messages: list[MessageExt], topic: str | None, key: str) -> list[MessageExt]:
    return [one for one in messages if key in one.keys and topic in (None, one.topic)]


def place(message: MessageExt) -> tuple[int, int, bytes]:
    return message.physical_offset, message.queue_offset, message.body


@pytest.mark.parametrize("limit", [1, 10, 17, 100_000])
def test_messages_of_a_topic_have_each_batch_once(store: Path, limit: int) -> None:
    expected = sorted({one.physical_offset for one in every_message(store) if one.topic == "B"})
    with reput.open_store(store) as opened:
        found = messages_of_topic(opened, "B", limit=limit)
    places = [one.physical_offset for one in found.messages]
    assert places == expected[::-1][:limit]


@pytest.mark.parametrize("walked_bytes", [0, 5000, 8 << 20])
@pytest.mark.parametrize("topic", ["B", "T", None])
def test_a_query_finds_inner_messages(
    store: Path, monkeypatch: pytest.MonkeyPatch, topic: str | None, walked_bytes: int
) -> None:
    monkeypatch.setattr(reading, "WALKED_BYTES", walked_bytes)
    everything = list(every_message(store))
    with reput.open_store(store) as opened:
        for key in ("k0", "k7", "nothing"):
            expected = sorted(map(place, with_key(everything, topic, key)), reverse=True)
            found = opened.query(topic, key)
            assert [place(one) for one in found.messages] == expected
            assert found.is_complete
            assert (found.coverage.inner_messages is None) == (topic == "T")
            times = sorted(one.store_timestamp for one in everything)
            begin, end = times[len(times) // 4], times[len(times) // 2]
            within = opened.query(topic, key, begin=begin, end=end).messages
            assert [place(one) for one in within] == [
                place(one) for one in found.messages if begin <= one.store_timestamp <= end
            ]


def test_batches_are_unwrapped_only_where_the_key_may_be(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwrapped: list[int] = []
    original = inner_records

    def counted(record: bytes, layout: RecordLayout, batch: OpenBatch) -> list[InnerRecord]:
        unwrapped.append(batch.outer.physical_offset)
        return original(record, layout, batch)

    monkeypatch.setattr(reading, "inner_records", counted)
    with reput.open_store(store) as opened:
        everything = opened.query("B", "nothing").coverage.inner_messages
        assert unwrapped == []
        found = opened.query("B", "k3")
        assert {one.physical_offset for one in found.messages if one.sys_flag == 0} >= set(
            unwrapped
        )
        assert found.coverage.inner_messages == everything


def test_keys_that_bytes_become_in_java(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    message = inner_batch("B", [b"a", b"b"], keys=["k-XYZ", "k-\U0001f600"])
    message = replace(message, body=bytes(message.body).replace(b"k-XYZ", b"k-\xffYZ"))
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(message)
    keys = ["k-\ufffdYZ", "k-\ud83d\ude00", "k-\U0001f600", "k-\ud83d", ""]
    expected: list[list[bytes]] = [[b"a"], [b"b"], [b"b"], [], []]
    with reput.open_store(tmp_path / "s") as opened:
        for key, bodies in zip(keys, expected, strict=True):
            assert [one.body for one in opened.query("B", key).messages] == bodies
    asked = [("B", key) for key in (keys[0], keys[2])]
    found = reput.look_up(tmp_path / "s", asked, columns=["body"]).read_all()
    assert found["body"].to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_hold_each_inner_message_once(store: Path, limit: int) -> None:
    with reput.open_store(store) as opened:
        whole = list(map(place, opened.query("B", "k3").messages))
        pages: list[tuple[int, int, bytes]] = []
        cursor = None
        while True:
            page = opened.query("B", "k3", limit=limit, after=cursor)
            assert len({one.physical_offset for one in page.messages}) <= limit
            pages += map(place, page.messages)
            cursor = page.cursor
            if cursor is None:
                break
        assert pages == whole
        steps = [
            place(one) for step in opened.query_steps("B", "k3", limit=5) for one in step.messages
        ]
        shortened = [place(one) for one in opened.query("B", "k3", limit=5).messages]
        assert steps == shortened * 2  # the last step repeats all of them


def test_lines_and_records_of_inner_messages_stand_alone(store: Path, tmp_path: Path) -> None:
    lines = run("query", store, "--topic", "B", "--key", "k3", "--format", "jsonl").out
    with reput.open_store(store) as opened:
        expected = opened.query("B", "k3").messages
        records = opened.find_records("B", "k3").records
    assert [json.loads(line)["queue_offset"] for line in lines.splitlines()] == [
        one.queue_offset for one in expected
    ]
    for record, message in zip(records, expected, strict=True):
        raw = record.record()
        assert decode(raw).body == message.body
        assert len(raw) == message.size_bytes
    (tmp_path / "lines").write_text(lines)
    new = tmp_path / "new"
    options = (
        "--log-file-size",
        "64k",
        "--queue-entries",
        100,
        "--hash-slots",
        99,
        "--index-items",
        999,
    )
    assert run("put", new, tmp_path / "lines", *options).code == 0
    with reput.open_store(new) as opened:
        found = opened.query("B", "k3").messages
    assert [one.body for one in found] == [one.body for one in reversed(expected)]


def test_ids_of_inner_messages(store: Path) -> None:
    with reput.open_store(store) as opened:
        found = opened.find_by_id("inner-B-2", "B").messages
        expected = [one for one in every_message(store) if one.unique_key == "inner-B-2"]
        assert [place(one) for one in found] == sorted(map(place, expected), reverse=True)
        assert len(found) > 10


def test_the_answer_says_that_a_broker_lacks_them(store: Path) -> None:
    found = run("query", store, "--topic", "B", "--key", "k3", "--format", "text")
    assert (
        "messages inside inner batches, whose keys a broker's index lacks" in found.out + found.err
    )
    assert "inner batches" not in run("query", store, "--topic", "T", "--key", "k3").err


def test_a_batch_that_cannot_be_unwrapped_leaves_the_answer_incomplete(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(inner_batch("B", [b"a", b"b"], keys=["k", "k"]))
        bad = opened.put(replace(inner_batch("B", [b"c"], keys=["k"]), body=bytes(50)))
        opened.put(inner_batch("B", [b"d"], keys=["k"]))
    with reput.open_store(tmp_path / "s") as opened:
        found = opened.query("B", "k")
        assert [one.body for one in found.messages] == [b"d", b"b", b"a"]
        assert [lost.physical_offset for lost in found.coverage.unreadable] == [bad.physical_offset]
    table = read(tmp_path / "s", ["body", "queue_offset"], unwrap_batches=True)
    assert table["body"].to_pylist() == [b"a", b"b", bytes(50), b"d"]
    assert table["queue_offset"].to_pylist() == [0, 1, 2, 3]


@pytest.mark.parametrize("walked_bytes", [0, 8 << 20])
def test_batches_after_damage_in_a_file_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked_bytes: int
) -> None:
    monkeypatch.setattr(reading, "WALKED_BYTES", walked_bytes)
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        places = [opened.put(inner_batch("B", [b"%d" % n], keys=["k"])) for n in range(9)]
    path = tmp_path / "s" / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[places[3].physical_offset : places[3].physical_offset + 8] = bytes(8)
    path.write_bytes(data)
    with reput.open_store(tmp_path / "s") as opened:
        found = opened.query("B", "k")
    assert [one.body for one in found.messages] == [b"%d" % n for n in range(8, -1, -1) if n != 3]
    assert not found.is_complete
    answer = reput.look_up(tmp_path / "s", [("B", "k")], columns=["body"]).read_all()
    assert answer["body"].to_pylist() == [one.body for one in found.messages]
    assert not any(answer["is_complete"].to_pylist())


@pytest.mark.parametrize("batch_bytes", [pytest.param(1, marks=pytest.mark.slow), 1000, 1 << 20])
def test_the_table_unwraps_batches(store: Path, batch_bytes: int) -> None:
    everything = list(every_message(store))
    table = read(store, unwrap_batches=True, batch_bytes=batch_bytes)
    assert table["body"].to_pylist() == [one.body for one in everything]
    assert table["queue_offset"].to_pylist() == [one.queue_offset for one in everything]
    assert table["physical_offset"].to_pylist() == [one.physical_offset for one in everything]
    assert table["size"].to_pylist() == [one.size_bytes for one in everything]
    assert table["keys"].to_pylist() == [one.keys for one in everything]
    assert table["unique_key"].to_pylist() == [one.unique_key for one in everything]
    assert [dict(row) for row in table["properties"].to_pylist()] == [
        one.properties for one in everything
    ]
    assert table["sys_flag"].to_pylist() == [one.sys_flag for one in everything]
    assert table["message_id"].to_pylist() == [one.message_id for one in everything]
    assert all(table["body_crc_ok"].to_pylist())
    of_queue = read(store, ["body"], selected(topics=("B",), queue_ids=(1,)), unwrap_batches=True)
    assert of_queue["body"].to_pylist() == [
        one.body for one in everything if (one.topic, one.queue_id) == ("B", 1)
    ]
    with_keys = read(store, ["body"], dispatched_under("keys", ("k3", "k4")), unwrap_batches=True)
    assert with_keys["body"].to_pylist() == [
        one.body for one in everything if {"k3", "k4"} & {*one.keys}
    ]


def test_to_arrow_unwraps_a_brokers_batches(golden: Golden) -> None:
    store = golden("five_batch")
    columns = ["topic", "queue_id", "queue_offset", "body"]
    table = to_arrow(store.path, columns, unwrap_batches=True).read_all()
    with reput.open_store(store.path) as opened:
        expected = [
            one for row in store.messages for one in unwrap(opened.get(row.physical_offset))
        ]
    assert table.num_rows == len(expected) > len(store.messages)
    assert table["body"].to_pylist() == [one.body for one in expected]
    wrapped = to_arrow(store.path, columns).read_all()
    assert wrapped.num_rows == len(store.messages)
    for key in ("missing", expected[5].unique_key or ""):
        found = to_arrow(store.path, ["body"], unique_key=key, unwrap_batches=True).read_all()
        assert found["body"].to_pylist() == [one.body for one in expected if one.unique_key == key]


def test_the_spark_option() -> None:
    assert not read_options({"path": "store"}).unwrap_batches
    assert read_options({"path": "store", "unwrapbatches": "true"}).unwrap_batches
