"""A look-up finds the messages of inner batches (5.x) as single queries do, and states its coverage."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import reput
from reput.core.query.inner_batch import unwrap
from reput.core.query.message_store import MessageStore
from reput.engine.lookup import scan_task
from reput.engine.lookup.coverage import CoverageForm
from reput.engine.writer.put.message import Message
from reput.format.commit_log import MessageExt
from reput.wings.inspect.trace import trace_life
from tests.cli.running import reput as run
from tests.five import CONFIG, inner_batch, write_topics
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
Place = tuple[int, int, bytes]
NAMES = ("topic", "key", "begin", "end")
COLUMNS = ["physical_offset", "queue_offset", "body", "size", "unique_key"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inner batches and ordinary messages in B, ordinary ones in T, all with keys of k0 to k6."""
    path = tmp_path_factory.mktemp("inner") / "store"
    write_topics(path, "B")
    random, clock = Random(7), iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
    writer = reput.open_store(path, mode="rw", config=replace(CONFIG, append_record_crc=False))
    writer._writer._log._clock_ms = lambda: next(clock)
    with writer as opened:
        for number in range(90):
            keys = [f"k{random.randrange(7)}" for _ in range(random.randrange(1, 6))]
            if number % 3:
                outer = inner_batch("B", [random.randbytes(40) for _ in keys], number % 2, keys)
                named = {"INNER_NUM": str(len(keys)), "KEYS": keys[0]}
                opened.put(replace(outer, properties=named))
            else:
                opened.put(Message("BT"[number % 2], random.randbytes(60), keys[:1]))
    return path


def place(message: MessageExt) -> Place:
    return message.physical_offset, message.queue_offset, message.body


def looked_up(store: Path | list[Path], rows: list[dict[str, object]]) -> list[list[Place]]:
    table = pa.Table.from_pylist([{**row, "place": n} for n, row in enumerate(rows)])
    found: list[list[Place]] = [[] for _ in rows]
    for row in reput.look_up(store, table, columns=COLUMNS).read_all().to_pylist():
        assert row["is_complete"]
        if row["physical_offset"] is not None:
            found[row["place"]].append((row["physical_offset"], row["queue_offset"], row["body"]))
    return found


@pytest.mark.parametrize("piece_bytes", [300, 4 << 20])
def test_every_key_as_a_query_finds_it(
    store: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(scan_task, "_PIECE_BYTES", piece_bytes)
    times = [1_700_000_000_000 + 1000 * n for n in (20, 60)]
    keys = [*(f"k{n}" for n in range(8)), "inner-B-0", "inner-B-4"]
    rows = [
        (topic, key, begin, end)
        for begin, end in ((None, None), (times[0], times[1]))
        for topic in "TB"
        for key in keys
    ]
    with reput.open_store(store) as opened:
        expected = [list(map(place, opened.query(*row).messages)) for row in rows]
    assert looked_up(store, [dict(zip(NAMES, row, strict=True)) for row in rows]) == expected
    assert sum(map(len, expected)) > 300


def test_without_index_files(store: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"topic": "B", "key": f"k{n}"} for n in range(7)]
    (tmp_path / "bare").mkdir()
    for name in ("commitlog", "config", "batchconsumequeue"):
        (tmp_path / "bare" / name).symlink_to(store / name)
    assert looked_up(tmp_path / "bare", rows) == looked_up(store, rows)


def test_keys_of_inner_messages_of_a_broker(golden: Golden) -> None:
    store = golden("five_batch")
    with reput.open_store(store.path) as opened:
        inner = [
            one
            for row in store.messages
            for one in unwrap(opened.get(row.physical_offset))
            if one.size_bytes and row.sys_flag & 128 and one.unique_key
        ]
    assert len(inner) > 100
    rows: list[dict[str, object]] = [{"topic": one.topic, "key": one.unique_key} for one in inner]
    for one, found in zip(inner, looked_up(store.path, rows), strict=True):
        assert place(one) in found


def test_only_keys_of_batch_topics_depend_on_batches(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(Message("T", b"t", ["k"]))
        opened.put(inner_batch("B", [b"a"], keys=["k"]))
        opened.put(replace(inner_batch("B", [b"c"], keys=["k"]), body=bytes(50)))
        (bad,) = opened.query("B", "k").coverage.unreadable
    both: list[CoverageForm] = ["summary", "rows"]
    for coverage in both:
        answer = reput.look_up(
            tmp_path / "s", [("B", "k"), ("T", "k")], columns=["body"], coverage=coverage
        ).read_all()
        assert answer["body"].to_pylist() == [b"a", b"t"]
        if coverage == "rows":
            is_complete = [row["is_complete"] for row in answer["coverage"].to_pylist()]
        else:
            is_complete = answer["is_complete"].to_pylist()
        assert is_complete == [False, True]
        (said,) = reput.reports.coverage_of(answer)
        assert said["inner_batches"] == {
            "keys": 1, "messages": 1, "unreadable_bytes": bad.length,
        }  # fmt: skip
    (said,) = reput.reports.coverage_of(reput.look_up(tmp_path / "s", [("T", "k")]))
    assert said["inner_batches"] is None
    assert said["is_complete"]


def test_damage_in_batches_of_a_topic_concerns_that_topic_alone(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B", "C")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(inner_batch("B", [b"b"], keys=["k"]))
        opened.put(inner_batch("C", [b"c"], keys=["k"]))
        opened.put(replace(inner_batch("C", [b"x"], keys=["k"]), body=bytes(50)))
        (bad,) = opened.query("C", "k").coverage.unreadable
        assert opened.query("B", "k").is_complete
        assert not opened.query(None, "k").is_complete
    both: list[CoverageForm] = ["summary", "rows"]
    for coverage in both:
        answer = reput.look_up(
            tmp_path / "s", [("B", "k"), ("C", "k")], columns=["body"], coverage=coverage
        ).read_all()
        assert answer["body"].to_pylist() == [b"b", b"c"]
        if coverage == "rows":
            rows = answer["coverage"].to_pylist()
            assert [row["unreadable_bytes"] for row in rows] == [0, bad.length]
            assert [row["is_complete"] for row in rows] == [True, False]
        else:
            assert answer["is_complete"].to_pylist() == [True, False]
        (said,) = reput.reports.coverage_of(answer)
        assert said["inner_batches"] == {"keys": 2, "messages": 2, "unreadable_bytes": bad.length}
    with MessageStore(tmp_path / "s") as store:
        assert trace_life([store], key="k", topic="B").is_complete
        assert not trace_life([store], key="k", topic="C").is_complete
        assert not trace_life([store], key="k").is_complete


def test_the_command_says_what_was_compared(store: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.csv").write_text("topic,key\nB,inner-B-1\nT,nothing\n")
    found = run("lookup", store, "--keys", tmp_path / "keys.csv", "--output", "-")
    assert found.code == 0
    assert "messages inside inner batches, whose keys a broker's index lacks" in found.err
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert len(lines) > 10
    assert all(line["is_complete"] for line in lines)
