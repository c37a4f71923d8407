"""What commands print of stores of RocketMQ 5.3.3."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.cli.main import DAMAGED, NOT_FOUND, WRONG_USE
from reput.core.query.inner_batch import unwrap
from reput.wings.inspect.commit_log_inspection import CommitLogInspection
from reput.wings.inspect.inspection import inspect
from reput.wings.inspect.queue_inspection import BatchQueueInspection
from tests.cli.running import reput as run
from tests.five import CONFIG, inner_batch, write_topics
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def test_stats_of_a_dledger_log_begin_with_its_first_message(golden: Golden) -> None:
    store = golden("five_dledger")
    found = json.loads(run("stats", store.path, "--format", "json").out)
    assert found["timeline"]["begin_ms"] == store.messages[0].store_timestamp


def test_stats_count_inner_batches(golden: Golden) -> None:
    store = golden("five_batch")
    batches = sum(bool(row.sys_flag & 128) for row in store.messages)
    assert json.loads(run("stats", store.path, "--format", "json").out)["inner_batches"] == batches
    assert f"messages ({batches} of them inner batches of several)" in run("stats", store.path).out


def test_a_rebuild_counts_batch_queues(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_batch")
    found = run("rebuild", store.path, "--output", tmp_path / "out").out
    assert f"{len(store.queues)} queues, 16 files, {len(store.queue_entries)} entries" in found


def test_no_value_of_a_table_is_cut_in_a_pipe(golden: Golden) -> None:
    store = golden("five_dledger").path
    whole = run("state", "transactions", store).out
    assert "…" not in whole
    rows = [
        json.loads(line)
        for line in run("state", "transactions", store, "--format", "jsonl").out.splitlines()
    ]
    assert all(row["unique_key"] in whole for row in rows)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("transactions", "No open transaction."),
        ("lag", "No committed offset: config/ of the store has none."),
        ("popped", "No unacknowledged message."),
    ],
)
def test_nothing_found_is_said(golden: Golden, command: str, said: str) -> None:
    found = run("state", command, golden("five_batch").path)
    assert (found.code, found.out) == (NOT_FOUND, f"{said}\n")
    assert run(command, golden("five_batch").path, "--format", "jsonl").out == ""


def test_inspect_names_the_files_of_batch_queues(golden: Golden) -> None:
    found = run("inspect", golden("five_batch").path).out
    assert "batch queues   10 files" in found
    assert "compaction (no compaction logs)" in found
    assert "compaction (compaction logs)" in run("inspect", golden("five_compaction").path).out
    assert "CommitLog      offsets" in run("inspect", golden("five_multipath").path).out


def test_tiered_says_that_the_index_alone_was_searched(golden: Golden) -> None:
    path = golden("five_tiered").path
    asked = ("state", "tiered", path, "--topic", "TopicA", "--key", "no such key")
    assert "only the index was searched" in run(*asked).err
    assert run(*asked, "--scan").err == ""


def test_files_of_batch_queues_are_inspected(golden: Golden, tmp_path: Path) -> None:
    store = golden("five_batch")
    queue = store.queues[0]
    rows = [
        r for r in store.queue_entries if (r.topic, r.queue_id) == (queue.topic, queue.queue_id)
    ]
    files = sorted((store.path / "batchconsumequeue" / queue.topic / "0").iterdir())
    found = [inspect(path) for path in files]
    assert all(isinstance(one, BatchQueueInspection) and one.findings == [] for one in found)
    parts = [one for one in found if isinstance(one, BatchQueueInspection)]
    assert sum(one.entries for one in parts) == len(rows)
    assert sum(one.messages for one in parts) == queue.max_offset == parts[-1].next_message
    assert parts[-1].end == rows[-1].physical_offset + rows[-1].size
    copy = tmp_path / "copy"
    data = bytearray(files[0].read_bytes())
    copy.write_bytes(data)
    assert inspect(copy).kind == "batch queue file"
    data[46 * 3 : 46 * 4] = bytes(46)
    copy.write_bytes(data)
    ran = run("inspect", copy)
    assert ran.code == DAMAGED
    assert "entry 3 is not written and ends the queue, but later ones are" in ran.err
    data = bytearray(files[0].read_bytes())
    data[46 * 3 + 35] ^= 1
    in_place = tmp_path / "batchconsumequeue" / "T" / "0" / files[0].name
    in_place.parent.mkdir(parents=True)
    in_place.write_bytes(data[:-3])
    ran = run("inspect", in_place)
    assert "43 bytes at the end are not a whole entry" in ran.err
    assert "entry 3 begins at queue offset" in ran.err


def test_a_renamed_checkpoint_of_5_is_known(golden: Golden, tmp_path: Path) -> None:
    shutil.copy(golden("five_batch").path / "checkpoint", tmp_path / "copy")
    assert inspect(tmp_path / "copy").kind == "checkpoint"


def test_files_of_a_dledger_log_are_inspected(golden: Golden) -> None:
    store = golden("five_dledger")
    files = sorted((store.path / "dledger-n0" / "data").iterdir())
    found = [inspect(path) for path in files]
    logs = [one for one in found if isinstance(one, CommitLogInspection)]
    assert sum(one.messages for one in logs) == len(store.messages)
    last = store.messages[-1]
    assert logs[-1].end == last.physical_offset + last.size
    assert [one.finished for one in logs] == [True] * (len(logs) - 1) + [False]
    assert all(one.findings == [] for one in logs)


@pytest.mark.parametrize(
    ("name", "pattern", "what"),
    [
        ("five_ext", "consumequeue_ext/*/*/*", "extension file"),
        ("five_timer", "timerlog/*", "reput timer"),
        ("five_timer", "timerwheel", "reput timer"),
        ("five_dledger", "dledger-n0/index/*", "DLedger"),
        ("five_rocksdb", "consumequeue/*.sst", "RocksDB"),
        ("five_compaction", "compaction/compactionCq/*/*/*", "reput compacted"),
    ],
)
def test_what_inspect_does_not_describe_is_no_damage(
    golden: Golden, name: str, pattern: str, what: str
) -> None:
    ran = run("inspect", min(golden(name).path.glob(pattern)))
    assert ran.code == WRONG_USE
    assert what in ran.err


def test_show_lists_the_messages_of_a_batch(golden: Golden) -> None:
    store = golden("five_batch")
    row = next(
        row for row in store.messages if row.sys_flag & 128 and "INNER_NUM" in row.properties
    )
    with reput.open_store(store.path) as opened:
        inner = unwrap(opened.get(row.physical_offset))
    found = run("show", store.path, row.physical_offset).out
    assert f"entries {row.queue_offset:,} to {row.queue_offset + len(inner) - 1:,}" in found
    assert f"{row.body_length} bytes, {len(inner)} messages" in found
    assert "(inner batch)" in found
    assert all(one.unique_key is not None and one.unique_key in found for one in inner)


def test_tables_show_the_bodies_of_a_batch(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(inner_batch("B", [b"first", b"\xff\xfe", b"third"]))
    found = run("tail", tmp_path / "s", "-n", 1).out
    assert "<3 messages> first | <2 bytes> | third" in found


def test_show_of_a_batch_that_cannot_be_unwrapped(tmp_path: Path) -> None:
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(replace(inner_batch("B", [b"c"], keys=["k"]), body=b"not a batch"))
    assert "not a batch" in run("show", tmp_path / "s", 0).out
