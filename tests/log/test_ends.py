"""The ends of a log: of its readable records, of its complete records and of its data."""

from pathlib import Path

import pytest

from reput.base.findings import Kind
from reput.core.log.scan import ScanBuffers
from reput.core.log.sources import StoreLog
from reput.engine.rebuild.growing import find_log_end
from reput.engine.writer.log_ends import LogEnds
from tests.oracle.forge import RecordFields, forge_log

FILE_BYTES = 4096


def new_log(store: Path, count: int) -> int:
    """Write a log of `count` messages, and return its end."""
    (store / "commitlog").mkdir()
    log = forge_log(
        [
            RecordFields(body=b"x" * 200, properties={"TAGS": "a"}, queue_offset=n)
            for n in range(count)
        ],
        file_bytes=FILE_BYTES,
    )
    for start, data in log.files():
        (store / "commitlog" / f"{start:020d}").write_bytes(data)
    return log.end_offset


def write(store: Path, position: int, data: bytes) -> None:
    start = position - position % FILE_BYTES
    with (store / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(position - start)
        file.write(data)


@pytest.mark.every_case
@pytest.mark.parametrize("count", [1, 5, 30])
def test_all_ends_are_equal_after_complete_records(tmp_path: Path, count: int) -> None:
    end = new_log(tmp_path, count)
    ends = LogEnds.of(StoreLog(tmp_path))
    assert (ends.reader, ends.rebuild, ends.data) == (end, end, end)
    assert ends.findings() == []
    assert find_log_end(StoreLog(tmp_path).list(), ScanBuffers()) == end


def test_records_after_a_damaged_one_in_the_last_file_are_before_the_end(tmp_path: Path) -> None:
    end = new_log(tmp_path, 30)
    start = end - end % FILE_BYTES
    size = int.from_bytes((tmp_path / "commitlog" / f"{start:020d}").read_bytes()[:4], "big")
    assert end > start + 3 * size - 1
    for data in (bytes(8), b"\xff" * 8):
        write(tmp_path, start + size, data)
        ends = LogEnds.of(StoreLog(tmp_path))
        assert (ends.reader, ends.rebuild, ends.data) == (end, end, end)


@pytest.mark.every_case
@pytest.mark.parametrize("junk", [b"\x01", b"junk", b"\xff" * 40])
def test_data_after_the_last_record_is_a_torn_end(tmp_path: Path, junk: bytes) -> None:
    end = new_log(tmp_path, 30)
    write(tmp_path, end, junk)
    ends = LogEnds.of(StoreLog(tmp_path))
    assert (ends.reader, ends.rebuild, ends.data) == (end, end, end + len(junk))
    (finding,) = ends.findings()
    assert (finding.kind, finding.start, finding.stop) == (Kind.TORN_LOG_END, end, ends.data)


def test_a_log_without_data_ends_where_it_begins(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))
    ends = LogEnds.of(StoreLog(tmp_path))
    assert (ends.reader, ends.rebuild, ends.data, ends.file) == (*[FILE_BYTES] * 3, None)
