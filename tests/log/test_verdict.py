"""Brokers, readers of a growing log and rebuilds may end a log at different places; one walk finds all of these."""

from dataclasses import replace
from pathlib import Path

import pytest

from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.scan import FileScan
from reput.core.log.verdict import ScanMode, WalkVerdict, end_for_reader
from reput.io.reader import FileReader
from tests.oracle.forge import RecordFields, flip_bit, forge_log, write_store

_FILE = CommitLogFile(1000, 500, "log")


def _ends(verdict: WalkVerdict) -> tuple[int, int, int]:
    return (
        verdict.end_for_broker(),
        end_for_reader(verdict, None, _FILE, FileReader),
        verdict.end_for_rebuild(),
    )


def test_a_log_without_damage_ends_where_the_walk_did() -> None:
    assert _ends(WalkVerdict(1200, [])) == (1200, 1200, 1200)


def test_only_a_broker_ends_its_log_at_damage_that_records_follow() -> None:
    damage = [_FILE.lost(1100, 1150, ""), _FILE.lost(1300, 1500, "")]
    assert _ends(WalkVerdict(1500, damage, is_unreadable=True)) == (1100, 1300, 1300)


def test_what_cannot_be_read_at_the_end_is_one_tail_whatever_was_passed_over_in_it() -> None:
    damage = [_FILE.lost(1250, 1300, ""), _FILE.lost(1300, 1500, "")]
    assert _ends(WalkVerdict(1500, damage, is_unreadable=True)) == (1250, 1250, 1250)


def test_for_a_rebuild_the_log_went_on_to_the_last_damage_that_a_record_follows() -> None:
    damage = [_FILE.lost(1250, 1300, ""), _FILE.lost(1300, 1500, "")]
    assert _ends(WalkVerdict(1500, damage, True, followed=[1250])) == (1250, 1250, 1300)
    assert _ends(WalkVerdict(1500, damage, True, followed=[1250, 1300])) == (1250, 1250, 1500)


def test_for_a_reader_what_was_passed_over_before_the_end_of_a_range_is_no_tail() -> None:
    damage = [_FILE.lost(1250, 1300, "")]
    assert _ends(WalkVerdict(1300, damage)) == (1250, 1300, 1250)


def test_a_scan_s_verdict_names_the_damage_that_a_record_follows(tmp_path: Path) -> None:
    log = forge_log([RecordFields(body=b"x" * 50) for _ in range(10)], file_bytes=4096)
    hit = log.offsets[4]
    store = write_store(tmp_path / "store", flip_bit(log.files(), hit + 5, 0))
    path = next((store / "commitlog").iterdir())
    file = CommitLogFile(0, 4096, str(path))
    scan = FileScan(file, 0, file.end, ScanMode.BROKER)
    assert sum(len(batch) for batch in scan.batches()) == 4
    verdict = scan.verdict()
    assert (verdict.position, verdict.is_unreadable) == (file.end, True)
    assert [(lost.start, lost.stop) for lost in verdict.damage] == [(hit, file.end)]
    assert list(verdict.followed) == [hit]
    # Without the scan's knowledge, the file shows that a record follows the damage.
    blind = replace(verdict, followed=())
    assert list(blind.before_torn_end(file, FileReader)) == list(verdict.damage)
    assert verdict.end_for_broker() == hit
    assert verdict.end_for_rebuild() == file.end


@pytest.mark.parametrize("torn", [0, 20])
def test_a_last_record_that_is_not_copied_whole_is_not_read(tmp_path: Path, torn: int) -> None:
    fields = [RecordFields(body=b"x" * 50, properties={"KEYS": "k"}) for _ in range(3)]
    log = forge_log(fields, file_bytes=4096)
    start, end = log.offsets[-1], log.end_offset
    ((_, data),) = log.files()
    written = bytearray(data)
    written[end - torn : end] = bytes(torn)
    store = write_store(tmp_path / "store", [(0, bytes(written))])
    path = str(next((store / "commitlog").iterdir()))
    file = CommitLogFile(0, 4096, path)
    verdict = WalkVerdict(4096, [file.lost(end, 4096, "")], is_unreadable=True)
    newest = OffsetRange(start, end)
    assert end_for_reader(verdict, newest, file, FileReader) == (start if torn else end)


def test_a_walk_that_salvages_has_passed_over_what_records_follow(tmp_path: Path) -> None:
    log = forge_log([RecordFields(body=b"x" * 50) for _ in range(10)], file_bytes=4096)
    store = write_store(tmp_path / "store", flip_bit(log.files(), log.offsets[4] + 5, 0))
    file = CommitLogFile(0, 4096, str(next((store / "commitlog").iterdir())))
    scan = FileScan(file, 0, file.end, ScanMode.SALVAGE)
    assert sum(len(batch) for batch in scan.batches()) == 9
    assert scan.verdict().end_for_rebuild() == log.end_offset
    assert scan.verdict().end_for_broker() == log.offsets[4]
