"""Rebuilt from its CommitLog, every golden store has the broker's bytes, for any split size."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from reput.format.checkpoint import decode_checkpoint
from reput.format.file_names import index_file_names
from reput.format.index_file import decode_header
from reput.io.writer import exchange
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore
from tests.rebuild.rebuilding import assert_golden, golden_config, rebuild
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]

ONE_RECORD = 91  # the size of the shortest record, so each split has at most one message
SPLITS = {
    "basic": (700, 30_000),
    "defaults": (1_000_003,),
    "extremes": (ONE_RECORD, 20_000),
    "git": (50_000,),
    "lmq": (ONE_RECORD, 65_536),
    "orders": (9_973, 1 << 20),
    "timed": (5_000,),
    "tricky": (333, 100_000),
}
SLOW_SPLITS = {
    "basic": (ONE_RECORD, 92, 128, 251),
    "defaults": (10_000,),
    "extremes": tuple(range(ONE_RECORD, 400, 10)),
    "git": (ONE_RECORD, 1_000),
    "lmq": tuple(range(ONE_RECORD, 400, 10)),
    "orders": (ONE_RECORD, 500),
    "timed": (ONE_RECORD, 181),
    "tricky": (ONE_RECORD, 93, 97, 101, 150, 1_000, 4_096, 32_768),
}


def check(store: GoldenStore, output: Path, split_size: int | None) -> None:
    config = golden_config(store)
    report = rebuild(store.path, output, config, split_size=split_size)
    assert_golden(output, store)
    assert report.messages == len(store.messages)
    assert report.queues == len(store.queues)
    assert report.queue_entries == sum(row.max_offset - row.min_offset for row in store.queues)
    assert report.queue_entries_dropped == 0
    assert report.index_files == len(store.index)
    assert (report.damage, report.notes, report.torn_tail) == ([], [], False)
    last = store.messages[-1]
    assert report.log_end == last.physical_offset + last.size


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_the_bytes_are_the_brokers(golden: Golden, name: str, tmp_path: Path) -> None:
    check(golden(name), tmp_path / "out", None)


@pytest.mark.parametrize(
    ("name", "split_size"), [(name, size) for name, sizes in SPLITS.items() for size in sizes]
)
def test_at_any_split_size(golden: Golden, name: str, split_size: int, tmp_path: Path) -> None:
    check(golden(name), tmp_path / "out", split_size)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "split_size"), [(name, size) for name, sizes in SLOW_SPLITS.items() for size in sizes]
)
def test_at_every_split_size(golden: Golden, name: str, split_size: int, tmp_path: Path) -> None:
    check(golden(name), tmp_path / "out", split_size)


@pytest.mark.parametrize("name", ["basic", "timed", "tricky"])
def test_index_files_are_named_by_their_first_entries(
    golden: Golden, name: str, tmp_path: Path
) -> None:
    store = golden(name)
    rebuild(store.path, tmp_path / "out", golden_config(store))
    paths = sorted((tmp_path / "out" / "index").iterdir())
    headers = [decode_header(path.read_bytes()) for path in paths]
    assert [path.name for path in paths] == index_file_names(
        [header.begin_timestamp for header in headers], time.time_ns() // 1_000_000
    )


def test_index_files_of_times_to_come_are_not_named_later_than_now(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("extremes")
    rebuild(store.path, tmp_path / "out", golden_config(store))
    now = f"{datetime.now():%Y%m%d%H%M%S%f}"[:17]
    assert all(path.name < now for path in (tmp_path / "out" / "index").iterdir())


@pytest.mark.parametrize("name", ["basic", "extremes", "lmq", "orders", "timed", "tricky"])
def test_a_broker_keeps_what_was_rebuilt(golden: Golden, name: str, tmp_path: Path) -> None:
    """After a crash a broker deletes every IndexFile whose end is later than the checkpoint."""
    store = golden(name)
    rebuild(store.path, tmp_path / "out", golden_config(store))
    checkpoint = decode_checkpoint((tmp_path / "out" / "checkpoint").read_bytes())
    for path in (tmp_path / "out" / "index").iterdir():
        assert decode_header(path.read_bytes()).end_timestamp <= checkpoint.index_msg_timestamp
    # At its next start the broker dispatches again from the file that has the earliest of these times less 3 seconds.
    last = store.messages[-1].store_timestamp
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == last


@pytest.mark.parametrize("only", ["consumequeue", "index"])
def test_only_one_of_the_two(golden: Golden, only: str, tmp_path: Path) -> None:
    store, output = golden("lmq"), tmp_path / "out"
    report = rebuild(store.path, output, golden_config(store), only=only)
    assert {path.name for path in output.iterdir()} == {only, "checkpoint"}
    assert (report.index_files > 0) == (only == "index")
    assert (report.queue_files > 0) == (only == "consumequeue")
    checkpoint = decode_checkpoint((output / "checkpoint").read_bytes())
    assert (checkpoint.index_msg_timestamp > 0) == (only == "index")
    assert (checkpoint.logics_msg_timestamp > 0) == (only == "consumequeue")
    other = {"consumequeue": "index", "index": "consumequeue"}[only]
    rebuild(store.path, output, golden_config(store), only=other)
    assert_golden(output, store)
    checkpoint = decode_checkpoint((output / "checkpoint").read_bytes())
    assert all(checkpoint[:3])


def test_each_message_has_an_entry_or_is_counted(golden: Golden, tmp_path: Path) -> None:
    """Two exchanged log files break the order of ConsumeQueues and of batch queues."""
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    log = sorted((store / "commitlog").iterdir())
    exchange(log[6], log[12])
    report = rebuild(store, tmp_path / "out", golden_config(golden("five_batch")))
    assert report.queue_entries + report.queue_entries_dropped == report.messages
    assert report.queue_entries_dropped > 0
    assert any("left out of the ConsumeQueues" in note for note in report.notes)
