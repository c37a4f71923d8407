"""Checks of queues in RocksDB and of batch queues, and conditions that prevent their replacement."""

import shutil
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.cli.main import DAMAGED, FOUND
from reput.engine.check.run import check_store
from reput.engine.rebuild.driver import rebuild_store
from reput.errors import UsageError
from tests.check.checking import checked, kinds
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
BATCH = "batchconsumequeue/BatchTopic/0/00000000000000000000"


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["five_batch", "five_rocksdb"])
def test_a_store_as_the_broker_left_it_is_valid(golden: Golden, name: str) -> None:
    checked = run("check", str(golden(name).path))
    assert (checked.code, checked.out) == (FOUND, "valid\n")


def test_entries_that_a_batch_queue_lacks_or_has_otherwise_are_found(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    path = store / BATCH
    data = bytearray(path.read_bytes())
    data[3 * 46 + 12 + 7] ^= 1  # the tags code of the fourth entry
    path.write_bytes(data)
    checked = run("check", str(store))
    assert checked.code == DAMAGED
    assert f"wrong_queue_entry: {path.parent}" in checked.out
    for file in path.parent.iterdir():
        file.unlink()
    checked = run("check", str(store))
    assert f"missing_queue_entry: {path.parent}" in checked.out


@pytest.mark.parametrize("field", [20 + 7, 36 + 1])  # the store time, the number of messages
def test_a_changed_entry_before_the_next_file_of_the_log_is_found(
    golden: Golden, tmp_path: Path, field: int
) -> None:
    """The check compares each log file with its entries. A batch's count shows only in the entry after the batch."""
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    queues = {path.parent for path in (store / "batchconsumequeue").glob("*/*/*")}
    found = 0
    for folder in sorted(queues)[:2]:
        path = min(folder.iterdir())
        whole = path.read_bytes()
        offsets = [int.from_bytes(whole[at : at + 8]) for at in range(0, len(whole) - 45, 46)]
        starts = sorted(int(one.name) for one in (store / "commitlog").iterdir())
        for number, (one, other) in enumerate(pairwise(offsets)):
            if other and bisect_right(starts, one) < bisect_right(starts, other):
                data = bytearray(whole)
                data[number * 46 + field] ^= 2
                path.write_bytes(data)
                kinds = {str(finding.kind) for finding in check_store(store)}
                assert kinds & {"wrong_queue_entry", "missing_queue_entry", "queue_gap"}
                found += 1
        path.write_bytes(whole)
    assert found


def test_a_database_that_cannot_be_read_is_one_finding(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    next((store / "consumequeue").glob("MANIFEST-*")).unlink()
    checked = run("check", str(store))
    assert checked.code == DAMAGED
    assert checked.out.count("RocksDB cannot read the database") == 1
    assert "missing_queue" not in checked.out


def test_queues_in_both_are_not_replaced_by_one_of_them_unasked(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    (store / "consumequeue" / "TopicA" / "0").mkdir(parents=True)
    with pytest.raises(UsageError, match="in files and in RocksDB; pass queues"):
        rebuild_store(SerialRunner(), store)
    with pytest.raises(UsageError, match="in files and in RocksDB; pass queues"):
        rebuild_store(SerialRunner(), store, output=tmp_path / "other")
    shutil.rmtree(store / "consumequeue" / "TopicA")
    before = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    rebuild_store(SerialRunner(), store, only="index")
    assert [path.read_bytes() for path in sorted((store / "index").iterdir())] == before
    assert run("check", str(store)).out == "valid\n"


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["five_multipath"])
def test_such_stores_are_not_written(golden: Golden, name: str, tmp_path: Path) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    before = sorted((str(path), path.stat().st_mtime_ns) for path in store.rglob("*"))
    with pytest.raises(
        UsageError, match="commitlog1, commitlog2, and reput writes only commitlog/"
    ):
        reput.open_store(store, mode="rw")
    assert sorted((str(path), path.stat().st_mtime_ns) for path in store.rglob("*")) == before


def newest_entry(store: GoldenStore) -> tuple[Path, int]:
    """Return the log file with the newest message of a queue, and the message's position in it."""
    at = max(row.physical_offset for row in store.queue_entries)
    name = max(p.name for p in (store.path / "commitlog").iterdir() if int(p.name) <= at)
    return Path("commitlog") / name, at - int(name)


@pytest.mark.parametrize("name", ["five_batch", "five_rocksdb"])
def test_a_quick_check_looks_at_the_last_entries(golden: Golden, tmp_path: Path, name: str) -> None:
    store = copy_store(golden(name).path, tmp_path / "store")
    assert kinds(checked(store, quick=True)) == set()
    file, at = newest_entry(golden(name))
    data = bytearray((store / file).read_bytes())
    data[at:] = bytes(len(data) - at)
    (store / file).write_bytes(data)
    assert "foreign_queue_entry" in kinds(checked(store, quick=True))
    assert "lost_log_end" in kinds(checked(store))


def test_a_quick_check_opens_the_database(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    manifest = next((store / "consumequeue").glob("MANIFEST-*"))
    manifest.unlink()
    (found,) = checked(store, quick=True)
    assert "RocksDB cannot read the database" in str(found)


def test_an_entry_of_no_message_of_its_queue_is_found(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_rocksdb")
    store = copy_store(source.path, tmp_path / "store")
    row = next(row for row in source.messages if row.queue_id == 0 and row.topic != "SCHEDULE")
    file = max(p for p in (store / "commitlog").iterdir() if int(p.name) <= row.physical_offset)
    data = bytearray(file.read_bytes())
    data[row.physical_offset - int(file.name) + 15] = 9  # a byte of its queue id
    file.write_bytes(data)
    found = {str(one.kind): one for one in checked(store)}
    assert found["foreign_queue_entry"].count == 1
    assert found["foreign_queue_entry"].file.endswith(f"{row.topic}/0")


@pytest.mark.parametrize("name", ["five_batch", "five_rocksdb"])
def test_entries_of_messages_that_cannot_be_read_are_no_finding_of_their_own(
    golden: Golden, tmp_path: Path, name: str
) -> None:
    source = golden(name)
    store = copy_store(source.path, tmp_path / "store")
    for row in source.messages[10:30]:
        file = max(p for p in (store / "commitlog").iterdir() if int(p.name) <= row.physical_offset)
        data = bytearray(file.read_bytes())
        data[row.physical_offset - int(file.name) + 4] ^= 1  # a byte of the magic code
        file.write_bytes(data)
    found = kinds(checked(store))
    assert "unreadable_record" in found
    assert "foreign_queue_entry" not in found
