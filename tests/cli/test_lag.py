"""`reput lag`: committed offsets against the ends of queues."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.cli.main import DAMAGED, FOUND, WARNED
from reput.core.store.topics_file import batch_topics
from reput.engine.stores import open_store
from reput.format.rocksdb_config import (
    GROUPS_PREFIX_V2,
    OFFSETS_PREFIX_V2,
    TOPICS_PREFIX_V2,
    decode_offset_v2,
    decode_offsets_v1,
    decode_settings,
)
from tests.cli.running import one_line
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    """A store with batch queues and the offsets of two groups. As in a broker's file, queue ids have no quotes."""
    copy = copy_store(golden("five_batch").path, tmp_path / "store")
    (copy / "config" / "consumerOffset.json").write_text(
        '{\n\t"offsetTable":{\n\t\t"Batch2@billing":{0:1373,1:1000\n\t\t},'
        '"Gone@billing":{0:7\n\t\t},"Batch2@audit":{0:0\n\t\t}\n\t}\n}'
    )
    return copy


def test_every_committed_queue_is_compared_with_its_end(store: Path) -> None:
    ran = run("state", "lag", store, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert ran.code == FOUND
    assert [(r["group"], r["topic"], r["queue_id"], r["max_offset"], r["lag"]) for r in rows] == [
        ("audit", "Batch2", 0, 1373, 1373),
        ("billing", "Batch2", 0, 1373, 0),
        ("billing", "Batch2", 1, 1274, 274),
        ("billing", "Gone", 0, None, None),
    ]
    assert all(row["expired"] == 0 for row in rows)
    printed = run("state", "lag", store, "--group", "billing", "--topic", "Batch2").lines
    behind, read = rows[2], rows[1]
    with open_store(store) as opened:
        assert behind["oldest_ms"] == opened.get_by_queue("Batch2", 1, 1000).store_timestamp
    assert (read["oldest_ms"], read["lag_seconds"]) == (None, 0)
    assert behind["lag_seconds"] > 0
    assert printed[1].split() == ["billing", "Batch2", "0", "1,373", "1,373", "0", "0"]
    assert printed[2].split()[:6] == ["billing", "Batch2", "1", "1,000", "1,274", "274"]
    assert printed[2].split()[7:9:2] == ["d"]


def test_a_damaged_file_of_offsets_is_one_line(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text("{")
    ran = run("state", "lag", store)
    assert ran.code == DAMAGED
    assert "consumerOffset.json" in one_line(ran)


ROWS = [
    ("audit", "Batch2", 0, 1373, 1373),
    ("billing", "Batch2", 0, 1373, 0),
    ("billing", "Batch2", 1, 1274, 274),
    ("billing", "Gone", 0, None, None),
]


def database(folder: Path, items: dict[bytes, bytes], family: str = "default") -> None:
    """A broker's database that was not closed: its newest items are only in the write-ahead log."""
    rocksdict = pytest.importorskip("rocksdict")
    made = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    target = made
    if family != "default":
        target = made.create_column_family(family, rocksdict.Options(raw_mode=True))
    for number, (key, value) in enumerate(items.items()):
        target[key] = value
        if number == 0:
            target.flush()
    left = folder.with_name("left")
    shutil.copytree(folder, left)
    made.close()
    shutil.rmtree(folder)
    left.rename(folder)
    (folder / "rocksdict-config.json").unlink(missing_ok=True)


def short(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def version_2(offsets: dict[tuple[str, str, int], int]) -> dict[bytes, bytes]:
    """Return RocksDB items of consumer offsets as 5.3.3 writes them (version 2), among items of other tables."""
    items = {
        b"\x01" + struct.pack(">h", 1) + b"\x02" + short(group) + b"\x01" + short(topic) + b"\x01"
        + struct.pack(">i", queue_id): struct.pack(">q", offset)
        for (group, topic, queue_id), offset in offsets.items()
    }  # fmt: skip
    topic = b'\x01{"attributes":{"queue.type":"BatchCQ"},"topicName":"New"}'
    return items | {
        b"\x01\x00\x01\x01data_version": bytes(24),
        b"\x01\x00\x02\x02" + short("g") + b"\x01" + short("t") + b"\x01" + bytes(4): bytes(8),
        b"\x01\x00\x03\x02" + short("New"): topic,
        b"\x01\x00\x03\x02" + short("Bad"): b"\x01{",
        b"\x01\x00\x01\x02" + short("torn"): b"",
        b"": b"",
    }


@pytest.mark.parametrize("version", ["1", "2", "single"])
def test_offsets_in_rocksdb(golden: Golden, tmp_path: Path, version: str) -> None:
    copy = copy_store(golden("five_batch").path, tmp_path / "store")
    (copy / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Old@old":{0:1}}}')
    if version != "2":
        items = {
            b"Batch2@billing": b'{"offsetTable":{0:1373,1:1000}}', b"Gone@billing": b'{"offsetTable":{0:7}}',
            b"Batch2@audit": b'{"offsetTable":{0:0}}', b"bad@json": b"{", b"no pair": b'{"offsetTable":{0:1}}',
            b"not@numbers": b'{"offsetTable":{"a":{}}}',
        }  # fmt: skip
        folder = copy / "config" / ("consumerOffsets" if version == "1" else "metadata")
    else:
        items = version_2(
            {("billing", "Batch2", 0): 1373, ("billing", "Batch2", 1): 1000, ("billing", "Gone", 0): 7,
             ("audit", "Batch2", 0): 0}
        )  # fmt: skip
        folder = copy / "config" / "rdb"
    database(folder, items, "consumerOffset" if version == "single" else "default")
    if version == "single":
        # A broker leaves its earlier databases behind when it changes to a single one.
        database(copy / "config" / "consumerOffsets", {b"Old@old": b'{"offsetTable":{0:1}}'})
    before = {path: path.read_bytes() for path in folder.iterdir()}
    ran = run("state", "lag", copy, "--format", "jsonl")
    rows = [json.loads(line) for line in ran.lines]
    assert ran.code == FOUND
    found = [(r["group"], r["topic"], r["queue_id"], r["max_offset"], r["lag"]) for r in rows]
    assert found == ROWS
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    if version == "2":
        assert "New" in batch_topics(str(copy))
    for path in folder.glob("*.log"):
        path.write_bytes(path.read_bytes()[:-9])
    for path in folder.glob("MANIFEST*"):
        path.write_bytes(b"")
    ran = run("state", "lag", copy)
    assert ran.code == DAMAGED
    assert "RocksDB cannot read the database" in one_line(ran)


def test_offsets_of_light_queues(golden: Golden, tmp_path: Path) -> None:
    copy = copy_store(golden("five_batch").path, tmp_path / "store")
    offsets = copy / "config" / "lmqConsumerOffset.json"
    offsets.write_text('{"lmqOffsetTable":{"%LMQ%a@g":5},"offsetTable":{"Batch2@g":{1:1270}}}')
    rows = [json.loads(line) for line in run("state", "lag", copy, "--format", "jsonl").lines]
    assert [(r["group"], r["topic"], r["committed"], r["lag"]) for r in rows] == [
        ("g", "%LMQ%a", 5, None), ("g", "Batch2", 1270, 4),
    ]  # fmt: skip
    offsets.write_text('{"lmqOffsetTable":{"%LMQ%a@g":"x"}}')
    assert run("state", "lag", copy).code == DAMAGED


@given(st.binary(max_size=60), st.binary(max_size=40))
def test_items_of_rocksdb_are_read_or_not(key: bytes, value: bytes) -> None:
    offset = decode_offset_v2(key, value)
    assert offset is None or key.startswith(OFFSETS_PREFIX_V2)
    list(decode_offsets_v1(key, value))
    for prefix in (b"", TOPICS_PREFIX_V2, GROUPS_PREFIX_V2):
        decode_settings(key, value, prefix)
        decode_settings(prefix + key, value, prefix)
    prefixed = decode_offset_v2(OFFSETS_PREFIX_V2 + key, value)
    assert prefixed is None or len(value) == 8


def test_offsets_outside_a_queue_have_no_wrong_lag(golden: Golden, tmp_path: Path) -> None:
    copy = copy_store(golden("basic").path, tmp_path / "store")
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"TopicA@late":{0:5000},"TopicA@never":{0:-1}}}'
    )
    ran = run("state", "lag", copy, "--format", "jsonl")
    late, never = map(json.loads, ran.lines)
    assert ran.code == DAMAGED
    assert (late["lag"], never["lag"], never["expired"]) == (None, 757, 0)
    assert (late["lag_seconds"], late["outside"]) == (None, "after the end")
    assert never["outside"] == "before the begin"
    assert never["lag_seconds"] > 0
    assert "the committed offset 5000 is 4243 after the queue's end 757" in ran.err
    assert "unknown" in run("state", "lag", copy, copy).out
    surveyed = run("fleet", copy)
    assert surveyed.code == WARNED
    assert "offset_outside_queue" in surveyed.lines[1]
    assert "lag, oldest unknown: TopicA/0: the committed offset" in surveyed.out
    (finding,) = json.loads(run("fleet", copy, "--format", "jsonl").lines[0])["findings"]
    assert (finding["kind"], finding["count"]) == ("offset_outside_queue", 1)


def test_the_lag_in_a_queue_that_lost_its_last_entries_is_unknown(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    copy = copy_store(golden("basic").path, tmp_path / "store")
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"TopicA@billing":{0:7,1:7}}}'
    )
    last = max((copy / "consumequeue" / "TopicA" / "0").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    ran = run("state", "lag", copy, "--format", "jsonl")
    lost, whole = map(json.loads, ran.lines)
    assert ran.code == DAMAGED
    assert lost["lag"] is None
    assert "the queue ends before queue offset" in lost["problem"]
    assert whole["lag"] > 0


def test_the_lag_in_a_lost_queue_is_unknown(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "batchconsumequeue", ignore_errors=True)
    ran = run("state", "lag", store, "--format", "jsonl")
    assert ran.code == DAMAGED
    rows = {(r["topic"], r["queue_id"]): r for r in map(json.loads, ran.lines)}
    assert "the queue is lost" in rows["Batch2", 0]["problem"]
    assert rows["Gone", 0]["problem"] is None


def test_the_age_of_a_message_that_cannot_be_read_is_unknown_and_its_count_is_not(
    golden: Golden, tmp_path: Path
) -> None:
    copy = copy_store(golden("basic").path, tmp_path / "store")
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "consumerOffset.json").write_text('{"offsetTable":{"TopicA@g":{0:7,1:7}}}')
    with open_store(copy) as opened:
        at = opened.get_by_queue("TopicA", 0, 7).physical_offset
        (file,) = [one for one in opened.commit_log.files if one.start <= at < one.end]
    with open(file.path, "r+b") as log:
        log.seek(at - file.start)
        log.write(bytes(40))
    ran = run("state", "lag", copy, "--format", "jsonl")
    lost, whole = map(json.loads, ran.lines)
    assert ran.code == DAMAGED
    assert (lost["lag"], lost["lag_seconds"]) == (750, None)
    assert "the age of the oldest message is unknown" in lost["age_problem"]
    assert whole["lag_seconds"] > 0
    assert "unknown" in run("state", "lag", copy).lines[1]
    lines = run("fleet", copy, "--format", "prometheus").lines
    assert f'reput_group_lag_messages{{store="{copy}",group="g"}} {750 + whole["lag"]}' in lines
    assert not [line for line in lines if line.startswith("reput_group_lag_seconds")]


def test_groups_have_the_same_figures_on_every_face(golden: Golden, tmp_path: Path) -> None:
    copy = copy_store(golden("basic").path, tmp_path / "store")
    (copy / "config").mkdir(exist_ok=True)
    (copy / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"TopicA@slow":{0:0},"TopicA@done":{0:757}}}'
    )
    report = json.loads(run("fleet", copy, "--format", "jsonl").lines[0])
    slow, done = report["groups"]
    assert (slow["group"], slow["lag_messages"], done["lag_seconds"]) == ("slow", 757, 0)
    assert report["metrics"]["group_lag_seconds"] == slow["lag_seconds"]
    lines = run("fleet", copy, "--format", "prometheus").lines
    assert f'reput_group_lag_seconds{{store="{copy}",group="done"}} 0' in lines
    assert [one.startswith("reput_group_lag_seconds{") for one in lines].count(True) == 2


def test_topics_of_a_single_database(tmp_path: Path) -> None:
    config = b'{"attributes":{"queue.type":"BatchCQ"},"topicName":"New"}'
    database(tmp_path / "config" / "metadata", {b"New": config, b"Bad": b"{"}, "topic")
    assert batch_topics(str(tmp_path)) == {"New"}
