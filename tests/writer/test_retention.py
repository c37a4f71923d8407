"""Limits of age and space: the files that a writable store deletes, and when it deletes none."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.engine.writer.put.message import Message, PutResult
from reput.engine.writer.retention import RetentionLimits
from reput.engine.writer.store_writer import WriterSettings
from reput.errors import MessageNotFoundError, StoreAccessError, UsageError
from reput.io.disk import Disk
from reput.io.mapped_writer import MappedWriter
from tests.recovery.checking import check_what_is_left
from tests.small import SMALL_16K
from tests.waiting import wait_for
from tests.writer.aging import FILE_BYTES, SMALL, Made, log_begin


def limited(**limits: Any) -> WriterSettings:
    return WriterSettings(clean_resource_interval_s=3600, **limits)


def test_files_are_kept_for_so_many_hours(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(file_reserved_hours=0.05))  # three minutes
    made.put(400)
    made.dispatch()
    report = made.writer.retention.clean()
    assert report is not None
    assert log_begin(made.path) == made.log_begin_before(made.clock.now_ms - 180_000) > 0
    assert made.writer.retention.clean() is None
    made.clock.now_ms += 60_000
    assert made.writer.retention.clean() is not None
    made.close()
    check_what_is_left(made.path, SMALL)


def test_who_wants_to_know_is_told_after_files_were_deleted(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(max_commit_log_bytes=5 * FILE_BYTES))
    begins: list[int] = []
    made.writer.retention.on_expired.append(lambda: begins.append(log_begin(made.path)))
    made.put(400)
    made.dispatch()
    report = made.writer.retention.clean()
    assert report is not None
    assert begins == [report.log_begin]
    assert report.log_begin > 0
    made.close()


def test_no_more_files_than_so_many_bytes(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(max_commit_log_bytes=5 * FILE_BYTES))
    for _ in range(10):
        made.put(40)
        made.dispatch()
        made.writer.retention.clean()
        assert len(list((made.path / "commitlog").iterdir())) <= 5
    assert len(list((made.path / "commitlog").iterdir())) == 5
    made.close()
    check_what_is_left(made.path, SMALL)


class FilledDisk(Disk):
    """A file system of a hundred CommitLog files, `others` of which belong to other programs."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self.others = others

    def usage(self, path: Path) -> tuple[int, int]:
        files = self.others + len(list((path / "commitlog").iterdir()))
        return files * FILE_BYTES, (100 - files) * FILE_BYTES

    def map(self, path: Path, size: int) -> MappedWriter:
        if path.parent.name == "commitlog" and not path.exists():
            used, _ = self.usage(path.parent.parent)
            if used >= 100 * FILE_BYTES:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise StoreAccessError(f"{path}: cannot be allocated: {full.strerror}") from full
        return super().map(path, size)


def test_a_disk_is_not_used_to_more_than_so_much(tmp_path: Path) -> None:
    disk = FilledDisk(others=60)
    made = Made(tmp_path / "store", limited(disk_max_used_space_ratio=70), disk)
    made.put(600)
    made.dispatch()
    assert len(list((made.path / "commitlog").iterdir())) > 10
    made.writer.retention.clean()
    assert len(list((made.path / "commitlog").iterdir())) == 10
    disk.others = 95
    made.writer.retention.clean()
    assert len(list((made.path / "commitlog").iterdir())) == 1  # the last file is never deleted
    made.put(300)  # the disk is full after four more log files
    assert len(list((made.path / "commitlog").iterdir())) <= 5
    assert made.puts[-1].physical_offset // FILE_BYTES > 10
    made.close()
    check_what_is_left(made.path, SMALL)


def test_a_full_disk_without_a_limit_of_space_is_told(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", limited(file_reserved_hours=0), FilledDisk(others=97))
    with pytest.raises(StoreAccessError, match="No space left"):
        made.put(600)
    made.dispatch()
    assert made.writer.retention.clean() is not None
    made.put(60)
    made.close()
    check_what_is_left(made.path, SMALL)


def test_the_oldest_goes_by_itself(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "max_commit_log_bytes": 3 * FILE_BYTES,
        "clean_resource_interval_s": 0.01,
    }
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL, **settings) as store:
        first = store.put(Message("T", b"1"))
        assert store.get(first.physical_offset).body == b"1"
        while log_begin(tmp_path / "store") == 0:
            store.put_many([Message("T", b"x" * 500)] * 20)
            store.wait_dispatched()
        # Readers release a file after all files of the same expiry are gone.
        wait_for(lambda: not _is_there(store, first))
        with pytest.raises(MessageNotFoundError, match="any more"):
            store.get(first.physical_offset)
        dry = store.expire(1 << 60, dry_run=True)
        assert dry.log_begin >= log_begin(tmp_path / "store")
    check_what_is_left(tmp_path / "store", SMALL)


def _is_there(store: reput.WritableStore, put: PutResult) -> bool:
    try:
        offset: int = store.get(put.physical_offset).physical_offset
    except MessageNotFoundError:
        return False
    return offset == put.physical_offset


def test_nothing_goes_unless_it_is_asked_for(tmp_path: Path) -> None:
    made = Made(tmp_path / "store", WriterSettings(clean_resource_interval_s=0.01))
    made.put(400)
    made.clock.now_ms += 10**12
    assert not made.writer.retention.make_room()
    made.close()
    assert log_begin(made.path) == 0


@pytest.mark.parametrize(
    "limits",
    [
        {"file_reserved_hours": -1},
        {"file_reserved_hours": float("nan")},
        {"disk_max_used_space_ratio": 0},
        {"disk_max_used_space_ratio": 101},
        {"max_commit_log_bytes": 0},
        {"clean_resource_interval_s": 0},
    ],
)
def test_limits_that_cannot_be_right(tmp_path: Path, limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(limits))):
        reput.open_store(tmp_path / "store", mode="rw", **limits)
    assert not (tmp_path / "store").exists()
    assert not RetentionLimits().are_set


def test_files_are_deleted_by_time_and_up_to_an_offset(tmp_path: Path) -> None:
    size = SMALL_16K.commit_log_file_bytes
    with reput.open_store(tmp_path, mode="rw", config=SMALL_16K) as store:
        put = store.put_many([Message("T", b"x" * 500)] * 150)
        assert put[-1].physical_offset > 5 * size
        assert store.wait_dispatched()
        assert store.expire(put[0].store_timestamp - 1).log_begin == log_begin(tmp_path) == 0
        for until, begin in ((3 * size - 1, 2 * size), (3 * size, 3 * size), (None, 5 * size)):
            report = store.expire(1 << 60, until=until)
            assert report.log_begin == log_begin(tmp_path) == begin
    check_what_is_left(tmp_path, SMALL_16K)
