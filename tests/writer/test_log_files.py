"""The files of a fast-growing log: prepared ahead, and never over existing records."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from reput.base.config import StoreConfig
from reput.engine.writer.put.arrow import from_columns
from reput.engine.writer.put.log_files import LogFiles
from reput.engine.writer.put.message import Message
from reput.errors import StoreAccessError
from reput.format.host import Host
from reput.io.disk import Disk
from reput.io.mapped_writer import MappedWriter
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.oracle.records import Blank, Record, decode
from tests.writer.golden_puts import new_writer

FILE_BYTES = 24 << 20
LARGE = StoreConfig(commit_log_file_bytes=FILE_BYTES)


def records(folder: Path) -> list[Record]:
    """Read every record of the log, slowly."""
    found = []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data) and data[at : at + 8] != bytes(8):
            record = decode(data, at)
            if isinstance(record, Blank):
                break
            assert isinstance(record, Record)
            assert record.physical_offset == int(path.name) + at
            found.append(record)
            at += record.total_size
    return found


def test_a_table_larger_than_what_is_prepared_at_a_time(tmp_path: Path) -> None:
    bodies = [bytes([n % 251 + 1]) * (n % 1500) for n in range(40_000)]
    bodies[777] = b"x" * (3 << 20)
    writer = new_writer(tmp_path / "log", LARGE, lambda: 7_000)
    ends: list[int] = []
    writer._on_append = ends.append
    columns = from_columns({"topic": "T", "body": bodies}, Host("127.0.0.1", 1))
    result = writer.put_columns(columns)
    found = records(tmp_path / "log")
    assert [record.body for record in found] == bodies
    assert [record.physical_offset for record in found] == result.physical_offset.tolist()
    assert [record.queue_offset for record in found] == list(range(len(bodies)))
    assert len(ends) > 3  # the dispatcher was notified several times while the log grew
    assert ends == sorted(set(ends))
    writer._files.close()


def test_what_is_prepared_meanwhile_is_not_what_was_written(tmp_path: Path) -> None:
    writer = new_writer(tmp_path / "log", LARGE, lambda: 7_000)
    body = np.random.default_rng(1).bytes(200_000)
    for size in range(1, 400):
        writer.put(Message("T", body[: size * 500], properties="p\x01q"))
    assert [record.body for record in records(tmp_path / "log")] == [
        body[: size * 500] for size in range(1, 400)
    ]
    assert writer._files.mark <= writer._files.ready <= writer._files.end
    writer._files.close()


def test_who_is_in_no_hurry_has_nothing_prepared_ahead(tmp_path: Path) -> None:
    writer = new_writer(tmp_path / "log", LARGE, lambda: 7_000)
    writer.put(Message("T"))
    assert writer._files._preparer._thread is None
    assert writer._files.ready == 4 << 20
    writer._files.close()


def test_memory_that_cannot_be_had_is_told_to_the_writer(tmp_path: Path) -> None:
    class Full(MappedWriter):
        def prepare_empty(self, begin: int, end: int) -> None:
            if end > 12 << 20:
                raise StoreAccessError(f"{self.path}: no memory")
            super().prepare_empty(begin, end)

    class FullDisk(Disk):
        def map(self, path: Path, size: int) -> MappedWriter:
            return Full(path, size)

    files = LogFiles(FullDisk(), tmp_path, FILE_BYTES, 0)
    for end in (1, 5 << 20, 9 << 20):
        files.prepare(end)
    with pytest.raises(StoreAccessError, match="no memory"):
        files.prepare(13 << 20)
    assert files.ready == 12 << 20
    files.close()


def test_synced_bytes_of_each_file_survive_a_power_cut(tmp_path: Path) -> None:
    size, folder = 1 << 14, tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    disk = ForgetfulDisk(tmp_path / "store")
    files = LogFiles(disk, folder, size, 0)
    files.file.write(b"last", size - 4)
    files.roll()
    files.file.write(b"first", 0)
    files.sync(size - 4, size + 5)
    for seed in range(8):
        left = tmp_path / str(seed)
        disk.cut_power(Random(seed), left)
        first, second = (path.read_bytes() for path in sorted((left / "commitlog").iterdir()))
        assert (first[-4:], second[:5]) == (b"last", b"first")
    files.close()


def test_a_file_is_closed_once_its_last_byte_is_synced(tmp_path: Path) -> None:
    size = 1 << 16
    files = LogFiles(Disk(), tmp_path, size, 0)
    files.roll()
    assert files.syncs == 0
    for begin, until, is_open in ((0, 100, True), (100, size - 1, True), (size - 1, size, False)):
        syncs = files.syncs
        files.sync(begin, until)
        assert files.syncs == syncs + 1
        assert (0 in files._open) == is_open
    # The last file stays open, even if it is full.
    files.sync(size, 2 * size)
    assert list(files._open) == [size]
    files.close()
