"""Rebuild stores of RocketMQ 5.3.3: ConsumeQueues and IndexFiles equal the broker's, byte for byte."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

import reput
from reput.base.config import StoreConfig
from reput.base.tasks import SerialRunner
from reput.core.log.dispatch_batch import Queue
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.writer.put.message import Message
from reput.format.consume_queue import PRE_BLANK
from tests.check.checking import checked
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Key = TypeVar("Key", str, bytes)
Golden = Callable[[str], GoldenStore]
OTHERS = ("five_default", "five_crc", "five_timer", "five_compaction", "five_tiered")
STORES = [
    "five_batch",
    "five_ext",
    "five_multipath",
    "five_dledger",
    *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS),
]


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def differing(found: Mapping[Key, bytes], expected: Mapping[Key, bytes]) -> list[Key]:
    """Return the first names whose bytes differ. pytest would take minutes to explain a comparison of the bytes."""
    names = found.keys() | expected.keys()
    return sorted(name for name in names if found.get(name) != expected.get(name))[:5]


def index_bytes(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").iterdir())]


def has_same_index(store: Path, other: Path) -> bool:
    return index_bytes(store) == index_bytes(other)


@pytest.mark.every_case
@pytest.mark.parametrize("split_bytes", [None, 5000], ids=["whole", "split"])
@pytest.mark.parametrize("name", STORES)
def test_queues_and_index_are_those_of_the_broker(
    golden: Golden, name: str, split_bytes: int | None, tmp_path: Path
) -> None:
    store = golden(name)
    config = StoreConfig.from_broker_settings(store.config)
    report = rebuild_store(
        SerialRunner(), store.path, config=config, output=tmp_path, split_size=split_bytes
    )
    assert report.messages == len(store.messages)
    assert report.damage == []
    for folder in ("batchconsumequeue", "consumequeue", "consumequeue_ext"):
        assert differing(files_below(tmp_path / folder), files_below(store.path / folder)) == []
    assert has_same_index(tmp_path, store.path)


def families(folder: Path) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Return all items of a database: entries, ends."""
    database = RocksDatabase(str(folder))
    found = dict(database.items(b"")), dict(database.end_items())
    database.close()
    return found


def assert_same_database(folder: Path, other: Path) -> None:
    for found, expected in zip(families(folder), families(other), strict=True):
        assert differing(found, expected) == []


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("split_bytes", [None, 5000], ids=["whole", "split"])
def test_a_database_has_the_entries_of_the_broker(
    golden: Golden, split_bytes: int | None, parallelism: int, tmp_path: Path
) -> None:
    store = golden("five_rocksdb")
    runner = SerialRunner()
    runner.parallelism = parallelism
    config = StoreConfig.from_broker_settings(store.config)
    report = rebuild_store(
        runner, store.path, config=config, output=tmp_path, split_size=split_bytes
    )
    assert report.damage == []
    assert_same_database(tmp_path / "consumequeue", store.path / "consumequeue")
    assert report.queue_entries == len(families(tmp_path / "consumequeue")[0])
    assert report.queues == len(store.queues)
    assert has_same_index(tmp_path, store.path)
    names = {path.name for path in (tmp_path / "consumequeue").iterdir()}
    assert not {name for name in names if name.startswith(("LOG", "rocksdict"))}


def test_a_database_is_rebuilt_in_place(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_rocksdb").path
    store = copy_store(source, tmp_path / "store")
    rebuild_store(SerialRunner(), store)
    assert_same_database(store / "consumequeue", source / "consumequeue")
    assert checked(store) == []


def test_queues_in_rocksdb_become_files_and_files_rocksdb(golden: Golden, tmp_path: Path) -> None:
    rocksdb, files = golden("five_rocksdb"), golden("five_default")
    config = StoreConfig.from_broker_settings(files.config)
    store = copy_store(rocksdb.path, tmp_path / "store")
    rebuild_store(SerialRunner(), store, config=config, queues="files")
    shape = {name: len(data) for name, data in files_below(files.path / "consumequeue").items()}
    made = files_below(store / "consumequeue")
    assert set(made) <= set(shape)
    assert {Path(name).parent for name in made} == {Path(name).parent for name in shape}
    assert checked(store, config) == []
    rebuild_store(SerialRunner(), store, config=config, queues="rocksdb")
    assert_same_database(store / "consumequeue", rocksdb.path / "consumequeue")


def test_batch_and_extended_queues_become_a_database(golden: Golden, tmp_path: Path) -> None:
    for name, gone in (("five_batch", "batchconsumequeue"), ("five_ext", "consumequeue_ext")):
        source = golden(name)
        store = copy_store(source.path, tmp_path / name)
        rebuild_store(SerialRunner(), store, queues="rocksdb")
        assert not (store / gone).exists()
        with reput.open_store(store) as opened:
            for row in source.queue_entries:
                if row.size != PRE_BLANK.size and not row.topic.startswith("%LMQ%"):
                    queue = opened.queues.queue(row.topic, row.queue_id)
                    found = next(queue.entries(row.queue_offset, row.queue_offset + 1))
                    assert found[:2] == (row.physical_offset, row.size)


def test_the_ends_of_expired_queues_are_kept(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_rocksdb").path
    store = copy_store(source, tmp_path / "store")
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    report = rebuild_store(SerialRunner(), store)
    entries, ends = families(store / "consumequeue")
    assert differing(ends, families(source / "consumequeue")[1]) == []
    assert 0 < len(entries) == report.queue_entries < 4898
    assert any("were kept" in note for note in report.notes)


def test_expired_queues_of_rocksdb_keep_their_queue_offsets_in_files(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("five_rocksdb")
    store = copy_store(source.path, tmp_path / "store")
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    config = StoreConfig.from_broker_settings(golden("five_default").config)
    report = rebuild_store(SerialRunner(), store, config=config, queues="files")
    assert any("queue offsets continue" in note for note in report.notes)
    assert not any("restart at 0" in note for note in report.notes)
    assert checked(store, config) == []
    with closing(RocksDatabase(str(source.path / "consumequeue"))) as database:
        ends = {Queue(end.topic, end.queue_id): end for end in database.ends()}
    begin = min(int(path.name) for path in (store / "commitlog").iterdir())
    expired = [queue for queue, end in ends.items() if end.physical_offset < begin]
    assert len(expired) > 2
    with reput.open_store(store) as opened:
        for queue in expired:
            next_offset = ends[queue].queue_offset + 1
            assert opened.max_queue_offset(*queue) == next_offset
            assert opened.min_queue_offset(*queue) == next_offset
    put = reput.open_store(store, mode="rw", config=config)
    with put as opened:
        for queue in expired:
            if not queue.topic.startswith("%LMQ%"):
                place = opened.put(Message(queue.topic, b"x", queue_id=queue.queue_id))
                assert place.queue_offset == ends[queue].queue_offset + 1
    assert checked(store, config) == []


def test_expired_batch_queues_keep_their_queue_offsets(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    with reput.open_store(store) as opened:
        before = {queue: opened.max_queue_offset(*queue) for queue in opened.list_queues()}
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    config = StoreConfig.from_broker_settings(golden("five_batch").config)
    report = rebuild_store(SerialRunner(), store, config=config)
    with reput.open_store(store) as opened:
        after = {queue: opened.max_queue_offset(*queue) for queue in opened.list_queues()}
    assert after == before
    assert any("kept unchanged" in note for note in report.notes)
    assert checked(store, config) == []
    rebuild_store(SerialRunner(), store, config=config, queues="rocksdb")
    with closing(RocksDatabase(str(store / "consumequeue"))) as database:
        ends = {(end.topic, end.queue_id): end.queue_offset for end in database.ends()}
    assert ends["Batch2", 0] + 1 == before["Batch2", 0]


def test_a_damaged_database_is_rebuilt(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_rocksdb").path
    store = copy_store(source, tmp_path / "store")
    for path in (store / "consumequeue").glob("*.sst"):
        path.write_bytes(b"no table")
    config = StoreConfig.from_broker_settings(golden("five_rocksdb").config)
    report = rebuild_store(SerialRunner(), store, config=config)
    assert any("are lost: " in note for note in report.notes)
    assert_same_database(store / "consumequeue", source / "consumequeue")


def test_bit_maps_come_from_the_store_and_without_them_units_are_short(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("five_ext")
    store = copy_store(source.path, tmp_path / "store")
    shutil.rmtree(store / "consumequeue_ext")
    config = StoreConfig.from_broker_settings(source.config)
    report = rebuild_store(SerialRunner(), store, config=config)
    assert any("bit maps" in note for note in report.notes)
    with reput.open_store(store) as made, reput.open_store(source.path) as known:
        for topic, queue_id in known.list_queues():
            entries = list(known.queues.queue(topic, queue_id).entries(0, 10**6))
            is_same = list(made.queues.queue(topic, queue_id).entries(0, 10**6)) == entries
            assert is_same, (topic, queue_id)
    assert checked(store, config) == []


def test_sizes_and_topics_of_batch_queues_are_those_of_the_store(
    golden: Golden, tmp_path: Path
) -> None:
    store = copy_store(golden("five_batch").path, tmp_path / "store")
    before = files_below(store / "batchconsumequeue")
    (store / "config" / "topics.json").unlink()
    rebuild_store(SerialRunner(), store)
    assert differing(files_below(store / "batchconsumequeue"), before) == []
