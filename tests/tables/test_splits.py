"""The first record of a range, and the end of a log, are found as by a walk from the beginning."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from reput.core.log import range_scan, scan
from reput.core.log.scan import ScanBuffers
from reput.core.log.sources import LogListing
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.rebuild import growing as walking
from reput.engine.rebuild.growing import find_log_end, first_record, first_record_of, walk_on
from reput.engine.tables import times as table_times
from reput.engine.tables.arrow import to_arrow
from reput.engine.tables.filters import Condition, selected
from reput.engine.tables.found_records import OpenedQueues, find_queued
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.times import CLOCK_STEP_MS, TimedRange, within
from tests.golden.stores import GoldenStore
from tests.oracle.forge import (
    LogForge,
    RecordFields,
    body_position,
    encode_record,
    forge_log,
    write_store,
)
from tests.oracle.random_logs import LogOptions, random_log
from tests.tables.reading import plan, read

BUFFERS = ScanBuffers()


def source_of(store: Path) -> LogListing:
    return find_logs([str(store)])[0]


@pytest.mark.parametrize("approach_bytes", [0, 200, 700, 1 << 20])
def test_the_first_record_of_a_range_is_the_one_that_a_walk_meets(
    approach_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first record is found from any distance before it, despite forged records in bodies."""
    monkeypatch.setattr(walking, "_APPROACH_BYTES", max(approach_bytes, 700))
    for seed in range(3):
        log = random_log(seed, LogOptions(records=60))
        source = source_of(write_store(tmp_path / str(seed), log.files))
        for file in source.files:
            begins = [at for at in log.offsets if file.start <= at < file.end]
            for start in range(file.start, file.end, 37):
                expected = min((at for at in begins if at >= start), default=None)
                found = first_record(source.open_file, file, start, file.end, BUFFERS)
                assert found >= start
                assert (found if found in begins else None) == expected


def test_a_record_forged_in_a_body_begins_no_range(tmp_path: Path) -> None:
    forge = LogForge(1 << 16)
    forge.put(RecordFields(body=b"first"))
    outer = RecordFields(body=bytes(5000))
    at = body_position(outer) + 100
    forged = encode_record(RecordFields("forged", b"x" * 50, physical_offset=forge.end_offset + at))
    body = bytes(100) + forged
    forge.put(replace(outer, body=body.ljust(5000, b"\0")))
    forge.put(RecordFields(body=b"last"))
    store = write_store(tmp_path / "store", forge.files())
    for split_bytes in range(100, 1000, 90):
        offsets = read(store, ["physical_offset"], split_bytes=split_bytes)
        assert offsets["physical_offset"].to_pylist() == forge.offsets


def growing(tmp_path: Path, count: int = 40) -> tuple[LogForge, Path]:
    fields = [
        RecordFields(topic="t", body=b"b" * n, properties={"KEYS": "k"}) for n in range(count)
    ]
    forge = forge_log(fields, file_bytes=2048)
    return forge, write_store(tmp_path / "store", forge.files())


def test_the_end_of_a_log_is_behind_its_last_record(tmp_path: Path) -> None:
    forge, store = growing(tmp_path)
    source = source_of(store)
    assert find_log_end(source, BUFFERS) == forge.end_offset
    assert source.is_at_end(forge.end_offset)
    assert not source.is_at_end(forge.offsets[-1])
    preallocated = store / "commitlog" / f"{source.files[-1].end:020d}"
    preallocated.write_bytes(bytes(2048))
    source = source_of(store)
    assert find_log_end(source, BUFFERS) == forge.end_offset
    assert source.is_at_end(source.files[-1].start)


def test_half_a_record_at_the_end_does_not_count_yet(tmp_path: Path) -> None:
    """Cut the last record after each byte: a reader may see it while the broker is still copying it."""
    forge, store = growing(tmp_path)
    path = sorted((store / "commitlog").iterdir())[-1]
    whole = path.read_bytes()
    start, begin, end = int(path.name), forge.offsets[-1], forge.end_offset
    for copied in range(begin, end + 1):
        path.write_bytes(whole[: copied - start].ljust(len(whole), b"\0"))
        assert find_log_end(source_of(store), BUFFERS) == (end if copied == end else begin)


def test_a_walk_goes_on_to_its_limit(tmp_path: Path) -> None:
    forge, store = growing(tmp_path)
    source = source_of(store)
    ends = [*forge.offsets[1:], forge.end_offset]
    for first, start in enumerate(forge.offsets):
        for count in (1, 3, 100):
            walked = walk_on(source, start, BUFFERS, max_messages=count)
            last = min(first + count, len(ends)) - 1
            assert walked.messages == last - first + 1
            assert first_record_of(source, walked.end, BUFFERS) == ends[last]
    for most in (1, 500, 3000, 50_000):
        walked = walk_on(source, 0, BUFFERS, max_bytes=most)
        behind = [at for at in forge.offsets if at >= most]
        expected = behind[0] if behind else forge.end_offset
        assert first_record_of(source, walked.end, BUFFERS) == expected


def test_offsets_are_moved_to_where_a_record_begins(tmp_path: Path) -> None:
    forge, store = growing(tmp_path)
    source = source_of(store)
    for position in range(0, forge.end_offset + 100, 13):
        behind = [at for at in [*forge.offsets, forge.end_offset] if at >= position]
        found = first_record_of(source, position, BUFFERS)
        assert found == (behind[0] if behind else forge.end_offset)


def test_ranges_are_left_out_by_their_times_and_those_behind_them(tmp_path: Path) -> None:
    file = source_of(growing(tmp_path)[1]).files[0]

    def kept(stamps: list[int | None], low: int | None, high: int | None) -> list[int]:
        hours = [None if stamp is None else stamp * CLOCK_STEP_MS for stamp in stamps]
        ranges = [TimedRange(file, n, n + 1, stamp) for n, stamp in enumerate(hours)]
        low, high = low and low * CLOCK_STEP_MS, high and high * CLOCK_STEP_MS
        return [part.start for part in within(ranges, low, high)]

    assert kept([10, 20, 30, 40], 24, 26) == [1]
    assert kept([10, 20, 30, 40], 31, 31) == [1, 2]  # a clock may step back by an hour
    assert kept([10, 20, 30, 40], 50, None) == [3]  # the store time of the last message is unknown
    assert kept([10, 20, 30, 40], None, 5) == []
    assert kept([10, 50, 20, 60], 24, 26) == [0, 1, 2]  # the clock was set back by thirty
    assert kept([10, None, 30, 40], 24, 26) == [0, 1]
    assert kept([None, None], 24, 26) == [0, 1]
    assert kept([10, 20], None, None) == [0, 1]


def test_queues_that_lack_a_message_are_not_believed(golden_copy: Path) -> None:
    source = source_of(golden_copy)
    condition = Condition("topic", "=", "payments")
    file = source.files[1]
    queued = find_queued(
        OpenedQueues(),
        str(golden_copy),
        file,
        [Condition("topic", "=", "%RETRY%billing")],
        file.start,
        file.end,
    )
    assert queued is not None
    assert len(queued.size) > 0
    expected = read(golden_copy, None, [condition], use_indexes=False)
    entry = next((golden_copy / "consumequeue" / "orders" / "0").iterdir())
    data = bytearray(entry.read_bytes())
    for place in range(0, len(data), 20):  # damage all entries of another topic's queue
        if any(data[place : place + 12]):
            data[place + 11] ^= 1
    entry.write_bytes(data)
    for file in source.files[:3]:
        assert (
            find_queued(OpenedQueues(), str(golden_copy), file, [condition], file.start, file.end)
            is None
        )
    assert read(golden_copy, None, [condition]) == expected


def test_a_queue_that_is_lost_costs_no_message(golden_copy: Path) -> None:
    condition = Condition("topic", "=", "%RETRY%billing")
    expected = read(golden_copy, None, [condition], use_indexes=False)
    planned = plan(golden_copy, [condition])
    assert planned.tasks[0].part.by_queue
    assert read(golden_copy, None, [condition]) == expected
    lost = next((golden_copy / "consumequeue" / "%RETRY%billing" / "0").iterdir())
    lost.unlink()
    assert read(golden_copy, None, [condition]) == expected


def test_a_database_is_opened_once_for_all_files_of_a_task(
    golden: Callable[[str], GoldenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rocksdict")
    opened: list[str] = []
    open_database = RocksDatabase.__init__

    def counted(self: RocksDatabase, folder: str) -> None:
        opened.append(folder)
        open_database(self, folder)

    monkeypatch.setattr(RocksDatabase, "__init__", counted)
    store = golden("five_rocksdb")
    found = to_arrow(store.path, topic="TopicB").read_all()
    assert len(found) == sum(row.topic == "TopicB" for row in store.messages)
    assert len(opened) < len(list((store.path / "commitlog").iterdir())) == 24
    assert len(opened) <= 4  # to plan, for topic names, for the newest entries, to read


@pytest.mark.parametrize("most_scanned_bytes", [0, 9000, 1 << 30])
def test_a_window_of_the_table_has_all_messages_whatever_the_clock_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_scanned_bytes: int
) -> None:
    monkeypatch.setattr(table_times, "_MOST_SCANNED_BYTES", most_scanned_bytes)
    monkeypatch.setattr(scan, "_READ_BYTES", 1000)
    monkeypatch.setattr(range_scan, "_LEAST_PIECE_BYTES", 1000)
    random, now, times = Random(5), 1_700_000_000_000, []
    for _ in range(400):
        now += -random.randrange(3 * CLOCK_STEP_MS) if random.random() < 0.05 else 60_000
        times.append(now)
    records = [RecordFields(store_timestamp=time, body=b"%d" % time) for time in times]
    log = forge_log(records, file_bytes=4096)
    store = write_store(tmp_path / "store", log.files())
    for begin in times[::23]:
        for end in (begin, begin + 600_000, times[-1] + 10 * CLOCK_STEP_MS):
            window = selected(begin_ms=begin, end_ms=end)
            bodies = read(store, ["body"], window)["body"].to_pylist()
            assert bodies == [b"%d" % time for time in times if begin <= time <= end]
    if most_scanned_bytes > 9000:
        planned = plan(store, selected(begin_ms=times[0], end_ms=times[0]))
        assert any("files skipped, excluded by store_timestamp" in note for note in planned.notes)
