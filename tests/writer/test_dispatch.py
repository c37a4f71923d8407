"""What dispatch does with a log that it cannot read: like a broker, it continues with the next file, and reports it."""

import shutil
from pathlib import Path

import pytest

from reput.base.findings import Kind
from reput.engine.writer.flush import Flusher
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter, WriterSettings
from tests.oracle.walk import read_log, walk
from tests.small import SMALL_16K

FILE_BYTES = SMALL_16K.commit_log_file_bytes


def new_store(path: Path) -> list[int]:
    """Write a store of seven log files; return the physical offsets of its messages."""
    writer = StoreWriter(path, SMALL_16K)
    writer.put_many([Message("T", b"x" * 500, [str(n)]) for n in range(190)])
    writer.close()
    assert writer.dispatcher.damage == []
    offsets = [at for at, _ in walk(read_log(path)).records]
    assert offsets[-1] > 6 * FILE_BYTES
    return offsets


def test_the_rest_of_a_damaged_file_is_passed_over_and_reported(tmp_path: Path) -> None:
    offsets = new_store(tmp_path)
    for name in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "reput.known").unlink()
    damaged = next(at for at in offsets if at > FILE_BYTES + 3000)
    with (tmp_path / "commitlog" / f"{FILE_BYTES:020d}").open("r+b") as log:
        log.seek(damaged - FILE_BYTES + 4)
        log.write(b"\xff" * 4)
    writer = StoreWriter(tmp_path, SMALL_16K)
    writer.close()
    found = [(each.kind, each.start, each.stop) for each in writer.dispatcher.damage]
    assert found == [(Kind.UNREADABLE_RECORD, damaged, 2 * FILE_BYTES)]


def test_the_flushing_threads_of_an_idle_store_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[Flusher] = []
    pause = Flusher._pause

    def counted(flusher: Flusher) -> bool:
        pauses.append(flusher)
        return pause(flusher)

    monkeypatch.setattr(Flusher, "_pause", counted)
    never = 3600.0
    settings = WriterSettings(
        flush="async", flush_interval_commit_log_s=never, flush_interval_consume_queue_s=never
    )
    writer = StoreWriter(tmp_path, SMALL_16K, settings)
    for number in range(300):
        writer.put(Message("T", b"x", [str(number)]))
    assert writer.wait_dispatched(None, None)
    assert len(pauses) < 10
    writer.close()
