"""The search for the end of a log in a preallocated file reads only the written part."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput import Message, StoreConfig, open_store
from reput.core.log.files import CommitLogFile, find_record, first_nonzero
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import plan_reading
from reput.format.commit_log import encode
from reput.io.reader import FileReader
from reput.testing.builders import MESSAGE

FILE_BYTES = 256 << 20


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the length of every read of a file."""
    lengths: list[int] = []
    read = FileReader.read

    def counted(self: FileReader, position: int, length: int) -> bytes:
        lengths.append(length)
        return read(self, position, length)

    monkeypatch.setattr(FileReader, "read", counted)
    return lengths


def test_opening_a_store_does_not_read_the_space_taken_ahead(
    tmp_path: Path, bytes_read: list[int]
) -> None:
    config = StoreConfig(commit_log_file_bytes=FILE_BYTES, hash_slots=8, index_items=64)
    for _ in range(3):  # empty, with one message, with two messages
        with open_store(tmp_path / "store", mode="rw", config=config) as store:
            store.put(Message("t", b"body", keys="k"))
        with open_store(tmp_path / "store", config=config) as reader:
            assert reader.query("t", "k").is_complete
    assert sum(bytes_read) < FILE_BYTES


class ReadingAhead:
    """A preallocated file: each read also allocates the next bytes, as a kernel's read-ahead may do."""

    def __init__(self, size: int) -> None:
        self.size, self.data_end, self.bytes_read = size, 1 << 16, 0

    def next_run(self, position: int) -> tuple[int, int] | None:
        return (position, self.data_end) if position < self.data_end else None

    def read(self, position: int, length: int) -> bytes:
        self.bytes_read += length
        self.data_end = max(self.data_end, min(position + 2 * length, self.size))
        return bytes(length)


@pytest.mark.parametrize("search", ["record", "data"])
def test_what_a_search_made_data_of_is_not_searched(search: str) -> None:
    reader = ReadingAhead(FILE_BYTES)
    file = CommitLogFile(0, FILE_BYTES, "a file that is not there")
    if search == "record":
        assert find_record(reader, file, 0, FILE_BYTES) is None  # type: ignore[arg-type]
    else:
        assert first_nonzero(reader, file, 0) is None  # type: ignore[arg-type]
    assert reader.bytes_read == 1 << 16


@pytest.mark.parametrize("behind", [-1, 0, 1, 2, 3, 4, 5, 6, 7, 8])
def test_a_record_behind_megabytes_of_zeros_is_found_wherever_windows_end(
    tmp_path: Path, behind: int
) -> None:
    path = tmp_path / "0"
    # Windows of 64 KiB to 512 KiB, then of 1 MiB, each beginning 7 bytes before the last one's end.
    at = sum((64 << 10 << doubled) - 7 for doubled in range(4)) + 3 * ((1 << 20) - 7) + behind - 4
    record = encode(replace(MESSAGE, physical_offset=at))
    with path.open("wb") as writer:
        for zeros in (at, 8 << 20):  # written zeros, because a reader skips holes
            writer.write(bytes(zeros))
            writer.write(record)
    size = path.stat().st_size
    with FileReader(str(path)) as reader:
        assert find_record(reader, CommitLogFile(0, size, str(path)), 1, size) == at


def test_to_plan_reading_does_not_read_the_zeros_that_follow_the_log(
    tmp_path: Path, bytes_read: list[int]
) -> None:
    config = StoreConfig(commit_log_file_bytes=FILE_BYTES, hash_slots=8, index_items=64)
    with open_store(tmp_path / "store", mode="rw", config=config) as store:
        store.put(Message("t", b"body", keys="k"))
        end = store.end_offset()
    (log,) = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as writer:
        writer.seek(1 << 20)
        for _ in range(FILE_BYTES - (1 << 20) >> 20):
            writer.write(bytes(1 << 20))  # zeros that occupy the disk, unlike a hole
    bytes_read.clear()
    plan = plan_reading(find_logs([str(tmp_path / "store")]), split_bytes=64 << 20)
    assert [part.part.stop for part in plan.tasks] == [end]
    assert sum(bytes_read) < FILE_BYTES // 4
