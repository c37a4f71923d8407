"""A store that had its queues in RocksDB, and has lost them: they come back in their form, with their queue offsets."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.errors import UsageError
from reput.format.file_names import DATABASE_SIGN
from tests.five import CONFIG

pytest.importorskip("rocksdict")
COUNT = 30
FOLDERS = "consumequeue", "consumequeue_rocksdb"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of two queues, TopicA 0 and 1, that was shut down cleanly."""
    return _written(tmp_path / "store", in_rocksdb=True)


def _written(path: Path, *, in_rocksdb: bool) -> Path:
    config = replace(CONFIG, store_version="5.5", queues_in_rocksdb=in_rocksdb)
    with reput.open_store(path, mode="rw", config=config) as opened:
        for number in range(COUNT):
            opened.put(reput.Message("TopicA", b"%d" % number, queue_id=number % 2, keys=("k",)))
    return path


def _put(store: Path) -> int:
    with reput.open_store(store, mode="rw") as opened:
        return opened.put(reput.Message("TopicA", b"new", queue_id=0)).queue_offset


def _separate(store: Path) -> Path:
    """Move the database into the folder of 5.5. Let a writer state it."""
    shutil.rmtree(store / "consumequeue_rocksdb", ignore_errors=True)
    (store / "consumequeue").rename(store / "consumequeue_rocksdb")
    reput.open_store(store, mode="rw").close()
    return store / "consumequeue_rocksdb"


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_separate", [False, True])
@pytest.mark.parametrize("leaves_folder", [False, True])
def test_a_lost_database_is_written_again_where_it_was(
    store: Path, is_clean: bool, is_separate: bool, leaves_folder: bool
) -> None:
    folder = _separate(store) if is_separate else store / "consumequeue"
    if not is_clean:
        (store / "abort").touch()
    shutil.rmtree(folder)
    if leaves_folder:
        folder.mkdir()
    assert _put(store) == COUNT // 2
    assert (folder / DATABASE_SIGN).exists()
    assert [name for name in FOLDERS if list((store / name).glob("*/*/*"))] == []
    with reput.open_store(store) as opened:
        assert opened.max_queue_offset("TopicA", 0) == COUNT // 2 + 1
        assert opened.max_queue_offset("TopicA", 1) == COUNT // 2
        assert opened.pull("TopicA", 1, 0, 1).messages[0].body == b"1"
    assert not reput.check(store).findings


def test_a_point_that_does_not_tell_the_form_is_not_believed(store: Path) -> None:
    point = store / "reput.known"
    content = point.read_text()
    assert '"database": "consumequeue", ' in content
    point.write_text(content.replace('"database": "consumequeue", ', ""))
    shutil.rmtree(store / "consumequeue")
    assert _put(store) == COUNT // 2


def test_a_rebuild_writes_the_form_that_is_lost(store: Path) -> None:
    shutil.rmtree(_separate(store))
    reput.rebuild(store)
    assert (store / "consumequeue_rocksdb" / DATABASE_SIGN).exists()
    assert _put(store) == COUNT // 2


@pytest.mark.parametrize("is_separate", [False, True])
@pytest.mark.parametrize("leaves_folder", [False, True])
def test_a_repair_writes_the_form_that_is_lost(
    store: Path, is_separate: bool, leaves_folder: bool
) -> None:
    folder = _separate(store) if is_separate else store / "consumequeue"
    shutil.rmtree(folder)
    if leaves_folder:
        folder.mkdir()
    assert reput.check(store).findings
    plan = str(reput.repair(store, plan_only=True))
    assert f"rebuild  {folder.name}/: the database is lost" in plan
    reput.repair(store)
    assert (folder / DATABASE_SIGN).exists()
    assert [name for name in FOLDERS if list((store / name).glob("*/*/*"))] == []
    assert not (store / "reput.known").exists()
    assert not reput.check(store).findings
    assert _put(store) == COUNT // 2


@pytest.mark.parametrize("is_separate", [False, True])
def test_a_rebuild_writes_the_form_of_remains(store: Path, is_separate: bool) -> None:
    folder = _separate(store) if is_separate else store / "consumequeue"
    (folder / DATABASE_SIGN).unlink()
    reput.rebuild(store)
    assert (folder / DATABASE_SIGN).exists()
    assert [name for name in FOLDERS if list((store / name).glob("*/*/*"))] == []
    assert _put(store) == COUNT // 2


@pytest.mark.parametrize("is_separate", [False, True])
def test_remains_of_a_database_refuse_a_writer(store: Path, is_separate: bool) -> None:
    folder = _separate(store) if is_separate else store / "consumequeue"
    (folder / DATABASE_SIGN).unlink()
    before = sorted(store.rglob("*"))
    with pytest.raises(UsageError, match=f"{folder}: its RocksDB database lacks the file CURRENT"):
        _put(store)
    assert sorted(store.rglob("*")) == before
    assert reput.check(store).findings
    reput.repair(store)
    assert (folder / DATABASE_SIGN).exists()
    assert _put(store) == COUNT // 2


@pytest.mark.parametrize("leaves_folder", [False, True])
def test_lost_files_are_compared_after_a_clean_shutdown_too(
    tmp_path: Path, leaves_folder: bool
) -> None:
    store = _written(tmp_path / "files", in_rocksdb=False)
    shutil.rmtree(store / "consumequeue")
    if leaves_folder:
        (store / "consumequeue").mkdir()
    assert _put(store) == COUNT // 2
    assert not reput.check(store).findings
