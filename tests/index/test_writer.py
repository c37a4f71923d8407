"""IndexFiles of a writable store: entries are appended, cut off, divided into files and made durable."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from reput.core.index import set_writer, writer
from reput.core.index.reader import IndexFileReader
from reput.core.index.set_writer import IndexFileSetWriter
from reput.core.index.writer import IndexFileBuilder, IndexFileEnd, IndexFileWriter
from reput.core.log.dispatch_batch import DispatchBatch, Queue
from reput.errors import StoreFailedError
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.index_file import decode_header
from reput.io.disk import Disk
from reput.kernels.jit import new_rows
from tests.small import SMALL

CONFIG = replace(SMALL, hash_slots=7, index_items=100)
PREVIOUS = IndexFileEnd(5_000, 20)
BEGIN_MS = 10_000


def messages_of(numbers: range) -> npt.NDArray[np.void]:
    rows: Any = new_rows(len(numbers), MESSAGE_DTYPE)
    rows["physical_offset"] = [100 * number for number in numbers]
    rows["size"] = 100
    rows["store_timestamp"] = [BEGIN_MS + 1500 * number for number in numbers]
    rows["key_count"] = 1
    messages: npt.NDArray[np.void] = rows
    return messages


def hashes_of(numbers: range) -> npt.NDArray[np.int32]:
    return np.array([number * 31 % 17 for number in numbers], np.int32)


def put(file: IndexFileWriter | IndexFileBuilder, numbers: range) -> int | None:
    rows = np.arange(len(numbers), dtype=np.int32)
    if isinstance(file, IndexFileBuilder):
        file.put(hashes_of(numbers), rows, messages_of(numbers))
        return None
    return file.put(hashes_of(numbers), rows, messages_of(numbers), 0)


def built(path: Path, numbers: range) -> bytes:
    """Return the bytes of a file that is built at once."""
    with IndexFileBuilder(path, CONFIG, PREVIOUS) as builder:
        if numbers:
            put(builder, numbers)
        builder.close()
    return path.read_bytes()


@contextmanager
def opened(path: Path) -> Iterator[IndexFileWriter]:
    file = IndexFileWriter(path, CONFIG, Disk())
    try:
        yield file
    finally:
        file.close()


@pytest.mark.every_case
@pytest.mark.parametrize("part", [1, 7, 40])
def test_a_file_is_the_same_whether_built_or_appended_to(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IndexFileReader, "UNCOUNTED_ITEMS", 3)
    monkeypatch.setattr(writer, "_PREPARED_BYTES", 50)
    path = tmp_path / "file"
    with opened(path) as file:
        file.seed(PREVIOUS)
        assert (file.count, file.is_full) == (1, False)
        assert path.read_bytes() == built(tmp_path / "empty", range(0))
        for begin in range(0, 90, part):
            numbers = range(begin, min(begin + part, 90))
            assert put(file, numbers) == len(numbers)
            assert path.read_bytes() == built(tmp_path / "built", range(numbers.stop))
        assert (file.count, file.is_full) == (91, False)
        # Nine entries are left: the first item is not used.
        assert put(file, range(90, 110)) == 9
        assert (file.count, file.is_full) == (100, True)
        assert path.read_bytes() == built(tmp_path / "built", range(99))
        assert file.end == IndexFileEnd(BEGIN_MS + 98 * 1500, 9800)
    with opened(path) as file:
        assert file.is_full
        assert put(file, range(99, 101)) == 0


@pytest.mark.every_case
@pytest.mark.parametrize("kept", [1, 2, 3, 41, 98])
def test_a_cut_leaves_the_file_of_the_kept_entries(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IndexFileReader, "UNCOUNTED_ITEMS", 10)
    path = tmp_path / "file"
    built(path, range(99))
    with opened(path) as file:
        file.cut(kept + 1, BEGIN_MS + 1500 * (kept - 1))
        assert file.end == IndexFileEnd(BEGIN_MS + 1500 * (kept - 1), 100 * (kept - 1))
        assert path.read_bytes() == built(tmp_path / "built", range(kept))
        put(file, range(kept, 99))
    assert path.read_bytes() == built(tmp_path / "built", range(99))


def batch_of(numbers: range, keys: int | None = None) -> DispatchBatch:
    """Return a batch in which the first `keys` messages have a key each; all by default."""
    messages, keys = messages_of(numbers), len(numbers) if keys is None else keys
    messages["key_count"][keys:] = 0
    return DispatchBatch(
        messages, hashes_of(numbers)[:keys], new_rows(0, MULTI_DTYPE), [Queue("T", 0)]
    )


@pytest.fixture
def files(tmp_path: Path) -> Iterator[IndexFileSetWriter]:
    folder = tmp_path / "index"
    folder.mkdir()
    config = replace(CONFIG, index_items=5)
    clock = count(BEGIN_MS)
    index = IndexFileSetWriter(folder, config, Disk(), lambda: next(clock))
    yield index
    index.close(sync=False)


def test_full_files_wait_for_the_syncing_thread_up_to_a_limit(
    files: IndexFileSetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_writer, "_MOST_FULL", 3)
    rolled: list[str] = []
    files.on_roll = lambda: rolled.append(files.end[0])
    # Four entries fill a file.
    for number, first_open in enumerate([0, 0, 0, 3, 3]):
        files.put(batch_of(range(4 * number, 4 * number + 4)))
        assert len(rolled) == number + 1
        assert files.first_open == rolled[first_open]
        assert files.full_timestamp == (BEGIN_MS + 1500 * (4 * first_open - 1) if first_open else 0)
    files.sync()
    assert files.first_open == rolled[-1]
    assert files.full_timestamp == BEGIN_MS + 1500 * 15
    assert files.end == (rolled[-1], 5)


def test_a_message_without_keys_after_a_full_file_begins_the_next(
    files: IndexFileSetWriter,
) -> None:
    files.put(batch_of(range(6), keys=4))
    first, second = sorted(path.name for path in files._folder.iterdir())
    assert files.end == (second, 1)
    files.put(batch_of(range(0)))
    files.put(batch_of(range(6, 10)))
    assert files.end == (second, 5)
    files.put(batch_of(range(10, 12), keys=0))
    assert files.last is not None
    header = decode_header(files.last.path.read_bytes())
    assert (files.last.count, header.begin_timestamp) == (1, BEGIN_MS + 1500 * 9)
    assert files.first_open == first


@pytest.mark.parametrize("change", ["deleted", "created", "replaced"])
def test_files_of_other_processes_are_noticed(files: IndexFileSetWriter, change: str) -> None:
    files.put(batch_of(range(9)))
    files.check_in_place()
    assert files.last is not None
    path = files.last.path
    if change == "deleted":
        path.unlink()
    elif change == "created":
        path.with_name("20991231235959999").touch()
    else:
        path.with_name("other").write_bytes(path.read_bytes())
        path.with_name("other").replace(path)
    with pytest.raises(StoreFailedError):
        files.check_in_place()
