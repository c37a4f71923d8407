"""Files that are still being copied into a store when a reader lists them: the reader follows their growth."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import reput
from reput.core.log.reader import CommitLogReader
from reput.core.log.sources import StoreLog
from reput.core.store.store_reader import StoreReader
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.small import SMALL, SMALL_16K

Golden = Callable[[str], GoldenStore]
_MESSAGES = 140
# The reader lists a folder again for two seconds after a change, so the folders of these tests are older than that.
_LONG_AGO = 1_000_000_000


def _store(path: Path, config: reput.StoreConfig = SMALL_16K) -> Path:
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(reput.Message("T", b"x" * 300, keys=[f"k{n}"]) for n in range(_MESSAGES))
    return path


def _unchanged(folder: Path) -> None:
    for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        os.utime(each, (_LONG_AGO, _LONG_AGO))


@contextmanager
def _copied_half(file: Path, folder: Path) -> Iterator[None]:
    """Shorten a file; at the end, let it grow to its full length, as `cp` does. The times of folders do not change."""
    whole = file.read_bytes()
    os.truncate(file, len(whole) // 40 * 20)
    _unchanged(folder)
    try:
        yield
    finally:
        with file.open("r+b") as growing:
            growing.write(whole)
        _unchanged(folder)


def _files(path: Path, folder: str) -> list[Path]:
    return sorted(file for file in (path / folder).rglob("*") if file.is_file())


@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_a_queue_that_was_listed_while_it_was_copied_is_complete_after_the_copy(
    tmp_path: Path, number: int
) -> None:
    path = _store(tmp_path / "store")
    file = _files(path, "consumequeue")[number]
    with reput.open_store(path) as store:
        with _copied_half(file, path / "consumequeue"):
            store.max_queue_offset("T", 0)
        assert store.max_queue_offset("T", 0) == _MESSAGES
        for offset in range(_MESSAGES):
            assert store.get_by_queue("T", 0, offset).queue_offset == offset


def test_equally_short_files_of_a_queue_are_followed_until_all_are_complete(
    tmp_path: Path,
) -> None:
    path = _store(tmp_path / "store")
    files = _files(path, "consumequeue")
    with reput.open_store(path) as store:
        with _copied_half(files[0], path), _copied_half(files[1], path):
            with _copied_half(files[2], path):
                store.max_queue_offset("T", 0)
            store.max_queue_offset("T", 0)
        assert store.max_queue_offset("T", 0) == _MESSAGES
        assert store.get_by_queue("T", 0, 49).queue_offset == 49


def test_a_log_of_one_file_is_read_after_the_copy(tmp_path: Path) -> None:
    path = _store(tmp_path / "store", SMALL)
    (path / "index").rename(tmp_path / "index")
    (log,) = _files(path, "commitlog")  # a log of one file has no longer file to compare with
    whole = log.read_bytes()
    os.truncate(log, len(whole.rstrip(b"\0")) // 2)
    _unchanged(path)
    with reput.open_store(path) as store:
        assert store.query("T", "k135").messages == ()
        log.write_bytes(whole)
        _unchanged(path)
        assert len(store.query("T", "k135").messages) == 1


@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_a_log_file_that_was_listed_while_it_was_copied_is_read_after_the_copy(
    tmp_path: Path, number: int
) -> None:
    path = _store(tmp_path / "store")
    (path / "index").rename(tmp_path / "index")
    file = _files(path, "commitlog")[number]
    with _copied_half(file, path / "commitlog"):
        store = reput.open_store(path)
        store.query("T", "k1")
    with store:
        results = [store.query("T", f"k{n}") for n in range(0, _MESSAGES, 7)]
    assert all(result.is_complete and len(result.messages) == 1 for result in results)


def test_log_files_are_followed_in_each_of_several_folders(tmp_path: Path) -> None:
    path = _store(tmp_path / "store")
    first, *others = _files(path, "commitlog")
    (path / "other").mkdir()
    moved = [file.rename(path / "other" / file.name) for file in others]
    with _copied_half(moved[0], path), _copied_half(first, path):
        log = CommitLogReader(
            StoreLog(path, folders=[str(path / "commitlog"), str(path / "other")])
        )
        log.refresh()
    with closing(log):
        assert log.refresh()
        assert {file.size for file in log.files} == {first.stat().st_size}
        assert not log.refresh()


def test_extension_files_are_followed(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("five_ext").path, tmp_path / "store")
    with StoreReader(path) as reader:
        key = max(
            (key for key in reader.queues.list() if (path / "consumequeue_ext" / key[0]).exists()),
            key=lambda key: reader.queues.queue(*key).max_queue_offset(),
        )
        wanted = list(reader.queues.queue(*key).entries(0, 1 << 20))
    file = _files(path, f"consumequeue_ext/{key[0]}/{key[1]}")[-1]
    whole = file.read_bytes()
    os.truncate(file, 32)
    _unchanged(path)
    with StoreReader(path) as reader:
        assert list(reader.queues.queue(*key).entries(0, 1 << 20)) != wanted
        file.write_bytes(whole)
        _unchanged(path)
        assert list(reader.queues.queue(*key).entries(0, 1 << 20)) == wanted


@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_an_index_file_that_was_listed_while_it_was_copied_is_used_after_the_copy(
    tmp_path: Path, number: int
) -> None:
    config = reput.StoreConfig(1 << 16, 50, 64, 60)
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=config) as store:
        store.put_many(reput.Message("T", b"x", keys=[f"k{n}"]) for n in range(_MESSAGES))
    file = _files(path, "index")[number]
    with _copied_half(file, path / "index"):
        reader = StoreReader(path)
        reader.index.current()
    with reader:
        assert str(file) in [each.path for each in reader.index.current()]
        assert reader.index.problems == []
