"""Descriptors of a pool: never too many, never of another file, from any thread."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reput.errors import StoreAccessError, StoreFailedError, StoreNotFoundError
from reput.io import open_files
from reput.io.disk import Disk
from reput.io.open_files import OpenFiles, PooledReader, allow_files
from reput.io.reader import FileReader

MOST = 8


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_POOL", open_files._Pool())
    monkeypatch.setattr(open_files, "_most_pooled", lambda: MOST)


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[list[Path]]:
    made = [tmp_path / str(number) for number in range(40)]
    for number, path in enumerate(made):
        path.write_bytes(bytes([number]) * 100)
    before = descriptors()
    yield made
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def inode_of(path: Path) -> int:
    return path.stat().st_ino


def test_only_so_many_files_are_open_at_a_time(paths: list[Path]) -> None:
    before = descriptors()
    with closing(OpenFiles()) as files:
        for _ in range(3):
            for number, path in enumerate(paths):
                assert files.get(str(path), inode_of(path)).read(0, 1) == bytes([number])
                assert descriptors() <= before + MOST
        newest = files.get(str(paths[-1]), inode_of(paths[-1]))
        assert files.get(str(paths[-1]), inode_of(paths[-1])) is newest
        assert files.get(str(paths[-1]), 0) is not newest, "another file of that name"
        files.drop([(str(paths[-1]), 0)])


def test_the_pool_closes_no_more_files_than_it_must(paths: list[Path]) -> None:
    before = descriptors()
    readers = [PooledReader(str(path)) for path in paths]
    for number, reader in enumerate(readers, 1):
        reader.read(0, 1)
        assert descriptors() == before + min(number, MOST)
    for reader in readers:
        reader.close()


def test_files_that_are_used_often_stay_open(paths: list[Path]) -> None:
    readers = [PooledReader(str(path)) for path in paths]
    for reader in readers:
        readers[0].read(0, 1)
        reader.read(0, 1)
    assert readers[0]._file is not None
    for reader in readers:
        reader.close()


def test_threads_read_the_right_file(paths: list[Path]) -> None:
    """A reader that used a closed descriptor would read another file, because the system reuses the number."""
    before = descriptors()
    readers = [PooledReader(str(path)) for path in paths]

    def read(first: int) -> int:
        wrong = 0
        for at in range(first, first + 3000):
            number = at * 7 % len(readers)
            wrong += readers[number].read(5, 90) != bytes([number]) * 90
        return wrong

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(read, range(16))) == 0
    assert descriptors() <= before + MOST
    for reader in readers:
        reader.close()


def test_more_files_than_places_may_be_used_at_once(paths: list[Path]) -> None:
    readers = [PooledReader(str(path)) for path in paths]
    for reader in readers:
        reader._pins.append(None)  # as while a call reads: the pool must not close this file
        reader.read(0, 1)
    for number, reader in enumerate(readers):
        assert reader.read(0, 1) == bytes([number])
        reader._pins.pop()
    readers[0].close()
    assert readers[0].read(0, 1) == b"\0"
    assert sum(reader._file is not None for reader in readers) <= MOST
    for reader in readers:
        reader.close()


@pytest.mark.every_case
@pytest.mark.parametrize("count", [1, 2, 5])
def test_half_of_the_files_are_closed_if_the_system_allows_no_more(
    paths: list[Path], count: int
) -> None:
    readers = [PooledReader(str(path)) for path in paths[:count]]
    for reader in readers:
        reader.read(0, 1)
    most = descriptors() - (count + 1) // 2

    def scarce(path: str) -> FileReader:
        if descriptors() > most:
            cause = OSError(errno.EMFILE, "Too many open files")
            raise StoreAccessError(f"{path}: cannot be opened") from cause
        return FileReader(path)

    with PooledReader(str(paths[-1]), scarce) as another:
        assert another.read(0, 1) == bytes([len(paths) - 1])
    assert sum(reader._file is not None for reader in readers) == count // 2
    for reader in readers:
        reader.close()


CALLS: dict[str, tuple[Callable[[PooledReader], object], object]] = {
    "size": (lambda reader: reader.size, 100),
    "read": (lambda reader: reader.read(5, 2), b"\1\1"),
    "read_into": (lambda reader: reader.read_into(np.empty(9, np.uint8), 0), None),
    "read_each": (lambda reader: reader.read_each([1, 9], [2, 1]), [b"\1\1", b"\1"]),
    "announce": (lambda reader: reader.announce([1], 2), None),
    "fileno": (lambda reader: reader.use_descriptor(lambda fd: os.fstat(fd).st_size), 100),
    "next_run": (lambda reader: reader.next_run(0), (0, 100)),
    "last_nonzero": (lambda reader: reader.last_nonzero(100), 99),
    "has_data": (lambda reader: reader.has_data(0, 100), True),
    "stop_read_ahead": (lambda reader: reader.stop_read_ahead(), None),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", CALLS)
def test_a_file_stays_open_during_a_call_and_may_be_closed_after_it(
    paths: list[Path], name: str
) -> None:
    reader, others = PooledReader(str(paths[1])), [PooledReader(str(path)) for path in paths[2:]]
    reader.read(0, 1)
    call, expected = CALLS[name]

    class Busy(FileReader):
        """A file during whose call the pool needs all its places for others."""

        def __getattribute__(self, attribute: str) -> Any:
            if attribute == name and reader._file is self and not is_asking:
                is_asking.append(True)
                for other in others:
                    other.read(0, 1)
                assert reader._file is self
            return super().__getattribute__(attribute)

    is_asking: list[bool] = []
    reader.close()
    reader._open_file = Busy
    assert call(reader) == expected
    assert is_asking
    for other in others * 2:
        other.read(0, 1)
    assert reader._file is None
    for other in others:
        other.close()


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_file_that_took_the_name_is_not_read(paths: list[Path], change: str) -> None:
    with PooledReader(str(paths[0]), inode=inode_of(paths[0])) as reader:
        assert reader.read(0, 1) == b"\0"
        if change == "deleted":
            paths[0].unlink()
        else:
            os.replace(paths[1], paths[0])
        assert reader.read(0, 1) == b"\0", "it is still open"
        reader.close()
        with pytest.raises(StoreNotFoundError, match="no longer exists"):
            reader.read(0, 1)


def test_a_writer_is_opened_again(tmp_path: Path, paths: list[Path]) -> None:
    disk = Disk()
    writers = [disk.open_pooled(tmp_path / f"new {number}", 100) for number in range(3 * MOST)]
    for number, writer in enumerate(writers):
        writer.write(bytes([number]), 50)
    for writer in writers:
        writer.start_writeback()
        writer.sync()
        writer.close()
    for number in range(len(writers)):
        assert (tmp_path / f"new {number}").read_bytes()[50] == number


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_writer_does_not_write_into_another_file(
    tmp_path: Path, paths: list[Path], change: str
) -> None:
    writer = Disk().open_pooled(tmp_path / "new", 100)
    writer.close()
    if change == "deleted":
        (tmp_path / "new").unlink()
    else:
        os.replace(paths[0], tmp_path / "new")
    with pytest.raises(StoreFailedError, match="another process"):
        writer.write(b"x", 0)
    assert change == "replaced" or not (tmp_path / "new").exists()


def test_a_writer_notices_a_file_that_goes_after_it_was_checked(tmp_path: Path) -> None:
    class Late(Disk):
        """Another process deletes the file after its name was checked, before it is opened."""

        def check_in_place(self, path: Path, identity: tuple[int, int]) -> None:
            super().check_in_place(path, identity)
            # A renamed file keeps its inode in use. After a deletion, the new file could get the same inode.
            path.rename(path.with_name("other"))

    writer = Late().open_pooled(tmp_path / "new", 100)
    writer.close()
    with pytest.raises(StoreFailedError, match="another process deleted or renamed"):
        writer.write(b"lost", 0)


def test_the_limit_is_raised_as_far_as_it_may() -> None:
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(least, 200), most))
        allow_files(100)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(least, 200), "never lowered"
        allow_files(201)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(201, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))
