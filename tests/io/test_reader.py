"""Read ranges of files: all bytes or an error. Holes are zeros that are not read."""

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from reput.errors import StoreAccessError, StoreChangedError, StoreNotFoundError
from reput.io.reader import FileReader

MIB = 1 << 20


def sparse(path: Path, size: int, parts: dict[int, bytes]) -> Path:
    with path.open("wb") as file:
        for position, data in parts.items():
            file.seek(position)
            file.write(data)
        file.truncate(size)
    return path


def last_nonzero(path: Path) -> int | None:
    with FileReader(str(path)) as reader:
        return reader.last_nonzero(path.stat().st_size)


@pytest.fixture(params=["holes are reported", "holes are not reported"])
def holes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with and without a file system that reports holes."""
    if request.param == "holes are not reported":

        def lseek(fd: int, position: int, whence: int) -> int:
            raise OSError(22, os.strerror(22))

        monkeypatch.setattr(os, "lseek", lseek)


@pytest.mark.usefixtures("holes")
@pytest.mark.parametrize(
    ("size", "parts", "last"),
    [
        (0, {}, None),
        (1, {}, None),
        (1, {0: b"x"}, 0),
        (9 * MIB, {}, None),
        (9 * MIB, {0: b"x"}, 0),
        (9 * MIB, {9 * MIB - 1: b"x"}, 9 * MIB - 1),
        (9 * MIB, {5 * MIB: b"x\0y" + bytes(9000)}, 5 * MIB + 2),
        (9 * MIB, {0: b"x", 4 * MIB: bytes(5 * MIB)}, 0),
        (4097, {4096: b"\xff"}, 4096),
    ],
)
def test_the_last_byte_that_is_not_zero(
    tmp_path: Path, size: int, parts: dict[int, bytes], last: int | None
) -> None:
    assert last_nonzero(sparse(tmp_path / "file", size, parts)) == last


@pytest.mark.usefixtures("holes")
def test_the_last_byte_that_is_not_zero_of_random_files(tmp_path: Path) -> None:
    random = Random(1)
    for number in range(50):
        size = random.randrange(1, 60_000)
        at = random.randrange(size)
        parts = {at: random.randbytes(random.randrange(size - at)) + b"\0" * random.randrange(5)}
        path = sparse(tmp_path / str(number), size, parts)
        stripped = path.read_bytes().rstrip(b"\0")
        assert last_nonzero(path) == (len(stripped) - 1 if stripped else None)


@pytest.mark.usefixtures("holes")
def test_data_is_found_before_the_end_and_nothing_behind_it(tmp_path: Path) -> None:
    path = sparse(tmp_path / "file", 3 * MIB, {MIB: b"x" * 10})
    with FileReader(str(path)) as reader:
        first = reader.next_data(0)
        assert first is not None
        assert first <= MIB
        assert reader.next_data(3 * MIB) is None
        assert reader.next_data(4 * MIB) is None


def test_reads_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    original = os.preadv

    def a_little(fd: int, buffers: list[Any], position: int) -> int:
        return original(fd, [buffers[0][:7]], position)

    monkeypatch.setattr(os, "preadv", a_little)
    with FileReader(str(path)) as reader:
        assert reader.read(5, 100) == bytes(range(5, 105))
        buffer = np.zeros(30, np.uint8)
        reader.read_into(buffer, 170)
        assert buffer.tolist() == list(range(170, 200))


def test_a_file_that_is_shorter_than_it_was_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    with FileReader(str(path)) as reader, pytest.raises(StoreChangedError) as error:
        reader.read(2, 4)
    assert str(error.value) == f"{path}: ends at 5, but was longer when the job began"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="no longer exists"):
        FileReader(str(tmp_path / "none"))


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreAccessError, match="cannot be read: not a regular file"):
        FileReader(str(tmp_path))
