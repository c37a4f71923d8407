"""Consecutive small log files are read together, and give the rows and the damage that each file gives by itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import reput
from benchmarks.generate import MESSAGE_BYTES, records, write_store
from reput.base import Finding
from reput.engine.tables import RangeBatches, ReadTask, find_logs, joined, plan_reading
from reput.format.commit_log import BLANK_BYTES
from reput.format.file_names import offset_file_name

_FILE_BYTES, _FILES = 4096, 40
_PER_FILE = (_FILE_BYTES - BLANK_BYTES) // MESSAGE_BYTES
_COLUMNS = ["physical_offset", "topic", "queue_offset", "keys", "body", "size", "corrupt_reason"]


def small_store(path: Path, file_bytes: int = _FILE_BYTES) -> list[Path]:
    """Write a store whose last file is not full. Return its log files."""
    write_store(path, (_FILES * _PER_FILE - 3) * MESSAGE_BYTES, file_bytes)
    return sorted((path / "commitlog").iterdir())


def result_of(tasks: Iterable[ReadTask]) -> tuple[pa.Table, list[Finding], list[tuple[int, int]]]:
    """Return rows, findings, and numbers of messages and rows of all ranges."""
    batches: list[pa.RecordBatch] = []
    damage: list[Finding] = []
    counts = messages = 0
    for task in tasks:
        reader = RangeBatches(task.part, _COLUMNS, on_corrupt="row", open_file=task.open_file)
        batches += reader
        damage += reader.report.damage
        counts, messages = counts + reader.report.rows, messages + reader.report.messages
    return pa.Table.from_batches(batches), damage, [(counts, messages)]


def tasks_of(store: Path) -> list[ReadTask]:
    return plan_reading(find_logs([str(store)])).tasks


def test_small_files_become_one_range_and_one_scan(tmp_path: Path) -> None:
    files = small_store(tmp_path / "store")
    tasks = tasks_of(tmp_path / "store")
    assert len(tasks) == len(files) == _FILES
    # The last file is not read to its end, so it stays a range of its own.
    together = joined(tasks)
    assert [task.part.log_bytes for task in together] == [
        39 * _FILE_BYTES,
        tasks[-1].part.log_bytes,
    ]
    rows, damage, _ = result_of(together)
    assert not damage
    assert rows.equals(result_of(tasks)[0].combine_chunks())
    assert len(rows) == _FILES * _PER_FILE - 3


def test_only_consecutive_files_of_one_size_become_one_range(tmp_path: Path) -> None:
    files = small_store(tmp_path / "store")
    files[10].unlink()
    tasks = tasks_of(tmp_path / "store")
    assert [task.part.log_bytes // _FILE_BYTES for task in joined(tasks)[:2]] == [10, 28]
    large = tmp_path / "large"
    write_store(large, 5 << 20, 2 << 20)
    assert joined(tasks_of(large)) == tasks_of(large)


def _zeros(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data))
    length = random.randrange(1, 500)
    data[start : start + length] = bytes(len(data[start : start + length]))


def _byte(random: Random, data: bytearray) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _no_blank(random: Random, data: bytearray) -> None:
    data[_PER_FILE * MESSAGE_BYTES :] = bytes(len(data) - _PER_FILE * MESSAGE_BYTES)


def _beyond_the_end(random: Random, data: bytearray) -> None:
    # The last record states that it continues in the next file.
    at = (_PER_FILE - 1) * MESSAGE_BYTES
    data[at : at + 4] = (_FILE_BYTES - at + 100).to_bytes(4, "big")


def _moved(random: Random, data: bytearray) -> None:
    data[: 2 * MESSAGE_BYTES] = data[MESSAGE_BYTES : 3 * MESSAGE_BYTES]


def _longer_topic(random: Random, data: bytearray) -> None:
    at = random.randrange(_PER_FILE) * MESSAGE_BYTES
    data[at : at + 4] = (MESSAGE_BYTES + random.choice((-1, 1, 40))).to_bytes(4, "big")


@pytest.mark.every_case
@pytest.mark.parametrize(
    "damage", [_zeros, _byte, _no_blank, _beyond_the_end, _moved, _longer_topic]
)
def test_damage_is_found_where_each_file_alone_would_show_it(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    random, findings = Random(damage.__name__), 0
    files = small_store(tmp_path / "store")
    whole = {file: file.read_bytes() for file in files}
    for _ in range(12):
        hit = random.sample(files, random.randrange(1, 4))
        for file in hit:
            data = bytearray(whole[file])
            damage(random, data)
            file.write_bytes(data)
        tasks = tasks_of(tmp_path / "store")
        rows, found, counts = result_of(joined(tasks))
        expected_rows, expected_found, expected_counts = result_of(tasks)
        assert found == expected_found
        assert counts == expected_counts
        assert rows.combine_chunks().equals(expected_rows.combine_chunks())
        findings += len(found)
        for file in hit:
            file.write_bytes(whole[file])
    assert findings > 3 or damage is _byte


def test_records_may_end_where_their_file_ends(tmp_path: Path) -> None:
    size, log = 8 * MESSAGE_BYTES, tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    for number in range(5):
        data = records(8 * number, 8, size * number, 0)
        (log / offset_file_name(size * number)).write_bytes(data)
    tasks = tasks_of(tmp_path / "store")
    assert [task.part.log_bytes for task in joined(tasks)] == [4 * size, size]
    rows, damage, _ = result_of(joined(tasks))
    assert not damage
    assert len(rows) == 40
    assert rows.combine_chunks().equals(result_of(tasks)[0].combine_chunks())


def test_a_dataset_reads_small_files_together(tmp_path: Path) -> None:
    files = small_store(tmp_path / "store")
    rows = reput.dataset(tmp_path / "store").to_table()
    assert (
        rows["physical_offset"].to_pylist()
        == [
            number * _FILE_BYTES + row * MESSAGE_BYTES
            for number in range(len(files))
            for row in range(_PER_FILE)
        ][:-3]
    )
