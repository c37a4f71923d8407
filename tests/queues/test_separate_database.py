"""A database of queues in a folder of its own, as a broker of 5.5 may have it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import FOUND
from reput.errors import UsageError
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    """A store with queues in RocksDB, whose database was moved into the folder of 5.5."""
    path = copy_store(golden("five_rocksdb").path, tmp_path / "store")
    (path / "consumequeue").rename(path / "consumequeue_rocksdb")
    return path


def test_its_queues_are_read_and_checked(golden: Golden, store: Path) -> None:
    with reput.open_store(golden("five_rocksdb").path) as one, reput.open_store(store) as other:
        queues = one.list_queues()
        assert other.list_queues() == queues
        for topic, queue_id in queues:
            assert one.pull(topic, queue_id, 0, 3) == other.pull(topic, queue_id, 0, 3)
    assert run("check", store).out == "valid\n"
    assert run("check", store, "--quick").code == FOUND
    shown = run("inspect", store).out
    assert "consumequeue_rocksdb (queues in RocksDB)" in shown


def test_it_is_written_and_rebuilt_in_its_folder(store: Path, tmp_path: Path) -> None:
    with reput.open_store(store, mode="rw") as opened:
        queues = opened.list_queues()
        opened.put(reput.Message("TopicA", b"new", queue_id=1))
    reput.rebuild(store, output=tmp_path / "files", queues="files")
    with reput.open_store(store) as one, reput.open_store(store, index=tmp_path / "files") as other:
        assert one.list_queues() == other.list_queues() >= queues
        end = one.max_queue_offset("TopicA", 1)
        assert one.pull("TopicA", 1, end - 1, 1).messages[0].body == b"new"
    for place in (store, tmp_path / "out"):
        reput.rebuild(store, output=None if place == store else place)
        assert (place / "consumequeue_rocksdb" / "CURRENT").exists()
        assert not list((place / "consumequeue").iterdir())
    assert run("check", store).out == "valid\n"
    reput.rebuild(store, queues="files")
    assert not (store / "consumequeue_rocksdb").exists()
    # The store has a topic of the timer, but now neither its log nor a database.
    unseen = "timers, which are neither in a timer log nor in RocksDB"
    assert run("check", store).out == f"valid; not seen: {unseen}\n"


def test_it_is_repaired(store: Path) -> None:
    for path in (store / "consumequeue_rocksdb").glob("*.sst"):
        path.write_bytes(b"")
    assert run("check", store).code != FOUND
    assert run("repair", store).code == FOUND
    assert (store / "consumequeue_rocksdb" / "CURRENT").exists()
    assert run("check", store).out == "valid\n"


def test_entries_that_the_database_lacks_are_found(store: Path) -> None:
    for path in (store / "consumequeue_rocksdb").glob("MANIFEST-*"):
        path.write_bytes(b"")
    ran = run("check", store)
    assert "RocksDB cannot read the database" in ran.out
    shutil.rmtree(store / "consumequeue_rocksdb")
    assert "queues_deleted" in run("check", store).out


def test_queues_in_both_forms_are_not_replaced_unasked(store: Path, tmp_path: Path) -> None:
    (store / "consumequeue" / "TopicA" / "0").mkdir(parents=True)
    with pytest.raises(UsageError, match="in files and in RocksDB; pass queues"):
        reput.rebuild(store, output=tmp_path / "other")
