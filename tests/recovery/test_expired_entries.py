"""Damaged entries of expired messages cannot be rebuilt, and must not shift other entries."""

import logging
import os
import shutil
from pathlib import Path

import pytest

from reput.base.config import StoreConfig
from reput.base.findings import Kind
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.format.consume_queue import ENTRY_BYTES
from tests.recovery.checking import check_what_is_left

CONFIG = StoreConfig(commit_log_file_bytes=4096, queue_entries=7, hash_slots=16, index_items=30)
COUNT = 40


def expired_store(path: Path) -> int:
    """Return a store whose log has lost its first file, and the queue offset of the first remaining message."""
    writer = StoreWriter(path, CONFIG)
    puts = writer.put_many([Message("T", b"b" * 100, ["k"])] * COUNT)
    writer.dispatcher.wait(writer.end_offset, None)
    writer.close()
    (path / "commitlog" / f"{0:020d}").unlink()
    (path / "reput.known").unlink()
    return next(put.queue_offset for put in puts if put.physical_offset >= 4096)


@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_hole_before_the_first_message_left(tmp_path: Path, before: int) -> None:
    first = expired_store(tmp_path)
    position = first - before
    file = position // CONFIG.queue_entries * CONFIG.queue_file_bytes
    path = tmp_path / "consumequeue" / "T" / "0" / f"{file:020d}"
    with path.open("r+b") as queue:
        queue.seek(position * ENTRY_BYTES - file)
        queue.write(bytes(ENTRY_BYTES))
    StoreWriter(tmp_path, CONFIG).close()
    assert len(check_what_is_left(tmp_path, CONFIG).dispatched) == COUNT - first


def test_files_lost_from_among_the_expired_on(tmp_path: Path) -> None:
    first = expired_store(tmp_path)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        if int(path.name) // ENTRY_BYTES > first - 2 * CONFIG.queue_entries:
            path.unlink()
    StoreWriter(tmp_path, CONFIG).close()
    assert len(check_what_is_left(tmp_path, CONFIG).dispatched) == COUNT - first


@pytest.mark.parametrize("noted", [True, False])
def test_messages_that_expired_before_they_were_indexed_are_reported(
    tmp_path: Path, noted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, kept = tmp_path / "store", tmp_path / "kept"
    writer = StoreWriter(store, CONFIG)
    writer.put_many([Message("T", b"b" * 100, ["k"])] * 5)
    writer.close()
    shutil.copytree(store, kept, ignore=shutil.ignore_patterns("commitlog"))
    lock = (store / "lock").stat()
    writer = StoreWriter(store, CONFIG)
    reached = writer.end_offset
    writer.put_many([Message("T", b"b" * 100, ["k"])] * COUNT)
    writer.close()
    assert writer.recovery.expired_unindexed is None
    for name in ("consumequeue", "index"):
        shutil.rmtree(store / name)
    shutil.copytree(kept, store, dirs_exist_ok=True)
    os.utime(store / "lock", ns=(lock.st_atime_ns, lock.st_mtime_ns))
    if not noted:
        (store / "reput.known").unlink()
    (store / "commitlog" / f"{0:020d}").unlink()
    with caplog.at_level(logging.WARNING):
        writer = StoreWriter(store, CONFIG)
    lost = writer.recovery.expired_unindexed
    assert lost is not None
    assert (lost.kind, lost.start, lost.stop) == (Kind.EXPIRED_UNREAD, reached, 4096)
    assert str(lost) in caplog.text
    writer.put(Message("T", b"more"))
    writer.close()
    assert check_what_is_left(store, CONFIG).dispatched
    assert writer.recovery.queues_from == CONFIG.commit_log_file_bytes
    writer = StoreWriter(store, CONFIG)
    assert writer.recovery.expired_unindexed is None
    writer.close()
