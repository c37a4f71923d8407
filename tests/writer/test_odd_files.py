"""Foreign files in place of a store's file are refused or skipped quickly, with one line."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.engine.check.run import check_store
from reput.errors import StoreError
from tests.check.repairing import SMALL, damaged_store


def empty(path: Path) -> None:
    path.write_bytes(b"")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.every_case
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("put", [empty, pipe])
def test_a_log_file_that_is_none_is_refused(
    tmp_path: Path, put: Callable[[Path], None], number: int
) -> None:
    store = damaged_store(tmp_path / "store")
    log = sorted((store / "commitlog").iterdir())
    put(log[number])
    before = sorted(path.lstat() for path in log)
    if put is empty and number == 2:  # a broker creates a file like this before it fills it
        reput.open_store(store, mode="rw", config=SMALL, as_broker=True).close()
        return
    with pytest.raises(StoreError, match=r"empty|bytes, but|regular file"):
        reput.open_store(store, mode="rw", config=SMALL)
    assert sorted(path.lstat() for path in log) == before


@pytest.mark.every_case
def test_a_log_of_empty_files_is_refused(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    for path in (store / "commitlog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="is empty"):
        reput.open_store(store, mode="rw", config=SMALL)


@pytest.mark.timeout(300)  # a read of the whole file would take hours, so it would fail here
def test_an_index_file_of_terabytes_is_not_read(tmp_path: Path) -> None:
    store = damaged_store(tmp_path / "store")
    path = next((store / "index").iterdir())
    os.truncate(path, 1 << 43)
    assert [one for one in check_store(store) if one.file == str(path)]
    reput.open_store(store, mode="rw", config=SMALL, as_broker=True).close()
