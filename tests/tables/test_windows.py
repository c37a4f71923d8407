"""Reading a time window reads little of the log outside the window, once the store times of parts of files are saved.

The messages have no keys, and the clock steps back by two hours in the middle of the log.
"""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import reput
from reput.core.log import scan
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.tables import times
from reput.io.file_systems import RemoteReader
from reput.wings.lakes.request import ExportRequest
from tests.oracle.forge import BLANK_BYTES, LogForge, RecordFields, encode_record, write_store
from tests.remote.s3_server import upload

BODY_BYTES = 32 << 10
# An answer from queues reads the end of the log, in any log the same amount, to show that the log has not lost its end.
END_BYTES = 2 << 20
BEGIN = 1_700_000_000_000
STEP_MS = 1_000
BACK_MS = 2 * 3_600_000


class Log(NamedTuple):
    path: Path
    times: list[int]
    size: int


def write_log(path: Path, files: int, file_bytes: int) -> Log:
    """Write a log that ends early in its last file."""
    record = bytearray(encode_record(RecordFields(body=bytes(BODY_BYTES))))
    count = (files - 1) * ((file_bytes - BLANK_BYTES) // len(record)) + 3
    now, stored, forge = BEGIN, list[int](), LogForge(file_bytes, 0)
    for number in range(count):
        now += STEP_MS - (BACK_MS if number == count // 2 else 0)
        stored.append(now)
        struct.pack_into(">qq", record, 20, number, forge.make_room(len(record)))
        struct.pack_into(">q", record, 56, now)
        forge.put_bytes(bytes(record))
    data = forge.files()
    return Log(write_store(path, data), stored, sum(len(each) for _, each in data))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """A log of 360 MB."""
    return write_log(tmp_path_factory.mktemp("windows") / "store", 15, 24 << 20)


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the length of every read of a log file, in this process or another."""
    lengths: list[int] = []

    def count(descriptor: int, length: int) -> None:
        if "commitlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            lengths.append(length)

    pread, preadv, read_at = os.pread, os.preadv, RemoteReader._read_at

    def counted(descriptor: int, length: int, position: int) -> bytes:
        count(descriptor, length)
        return pread(descriptor, length, position)

    def counted_into(descriptor: int, buffers: list[memoryview], position: int) -> int:
        count(descriptor, sum(map(len, buffers)))
        return preadv(descriptor, buffers, position)

    def counted_there(reader: RemoteReader, length: int, position: int) -> bytes:
        lengths.append(length)
        return read_at(reader, length, position)

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr(os, "preadv", counted_into)
    monkeypatch.setattr(RemoteReader, "_read_at", counted_there)
    return lengths


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep store times in a folder of the test, and scan in blocks that suit a small log."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(scan, "_READ_BYTES", 256 << 10)


Ask = Callable[[str, int, int, Path], list[int]]
"""A function of (store, begin, end, folder) that reads a window, and returns the store times (ms) of its messages."""


def _by_reader(store: str, begin: int, end: int, folder: Path) -> list[int]:
    table = reput.dataset(store, begin=begin, end=end).to_table(columns=["store_timestamp"])
    return _ms(table)


def _by_filter(store: str, begin: int, end: int, folder: Path) -> list[int]:
    field, kind = ds.field("store_timestamp"), pa.timestamp("us", "UTC")
    wanted = (field >= pa.scalar(begin * 1000, pa.int64()).cast(kind)) & (
        field <= pa.scalar(end * 1000, pa.int64()).cast(kind)
    )
    return _ms(reput.dataset(store).to_table(columns=["store_timestamp"], filter=wanted))


def _by_export(store: str, begin: int, end: int, folder: Path) -> list[int]:
    place = folder / f"table-{begin}-{end}-{len(list(folder.iterdir()))}"
    request = ExportRequest(begin_ms=begin, end_ms=end)
    if not reput.export(store, place, request=request, runner="serial").rows:
        return []
    return _ms(ds.dataset(place, partitioning="hive").to_table(columns=["store_timestamp"]))


def _by_topic(store: str, begin: int, end: int, folder: Path) -> list[int]:
    with reput.open_store(store) as opened:
        found = messages_of_topic(opened, "T", begin, end, limit=10_000)
    assert not found.problems
    return sorted(message.store_timestamp for message in found.messages)


def _ms(table: pa.Table) -> list[int]:
    stamps_us = table.column("store_timestamp").cast(pa.int64()).to_pylist()
    return sorted(stamp // 1000 for stamp in stamps_us)


@pytest.mark.parametrize("ask", [_by_reader, _by_filter, _by_export, _by_topic])
@pytest.mark.every_case
def test_a_known_window_reads_little_beyond_it(
    log: Log, ask: Ask, bytes_read: list[int], tmp_path: Path
) -> None:
    if ask is _by_topic:
        reput.rebuild(log.path, runner="serial")
    # Windows long before the clock's step back, just before it, and after it; at the end of the log, and after the log.
    middle = len(log.times) // 2
    windows = [
        (log.times[100], log.times[130]),
        (log.times[middle - 20], log.times[middle - 1]),
        (log.times[middle], log.times[middle + 15]),
        (log.times[-1] - 5_000, log.times[-1]),
        (max(log.times) + 1, max(log.times) + 1_000),
    ]
    ask(str(log.path), *windows[0], tmp_path)
    for begin, end in windows:
        bytes_read.clear()
        expected = sorted(time for time in log.times if begin <= time <= end)
        assert ask(str(log.path), begin, end, tmp_path) == expected
        beyond = sum(bytes_read) - len(expected) * BODY_BYTES
        most = log.size // 50 + (END_BYTES if ask is _by_topic else 0)
        assert beyond < most, (beyond, log.size)


def test_a_window_of_a_log_elsewhere_scans_the_files_at_its_edges_once(
    tmp_path: Path, s3: dict[str, str], bytes_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "CLOCK_STEP_MS", 200_000)
    log = write_log(tmp_path / "store", 12, 4 << 20)
    url = "s3://windows/b1/store"
    upload(log.path, "windows", s3)

    def ask(begin: int, end: int) -> list[int]:
        return _ms(
            reput.dataset(url, begin=begin, end=end, storage_options=s3).to_table(
                columns=["store_timestamp"]
            )
        )

    middle = len(log.times) // 2
    for begin, end in (
        (log.times[100], log.times[130]),
        (log.times[middle], log.times[middle + 9]),
    ):
        expected = sorted(time for time in log.times if begin <= time <= end)
        assert ask(begin, end) == expected
        bytes_read.clear()
        assert ask(begin, end) == expected
        # The limit includes the bytes that are read to find the end of the log and to compare each file's last message.
        assert sum(bytes_read) - len(expected) * BODY_BYTES < log.size // 20
