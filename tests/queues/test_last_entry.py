"""A queue lacks exactly its last entry: reported by readers and the check, and restored by recovery and a rebuild."""

from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.base.findings import Kind
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import FormatError
from reput.format.consume_queue import ENTRY_BYTES
from tests.oracle.walk import read_log, walk
from tests.recovery.checking import check_store
from tests.small import SMALL_16K

CONFIG = replace(SMALL_16K, queue_entries=4)
FILE_BYTES = CONFIG.queue_file_bytes


# The last entry is the queue's only one, in the middle of a file, a file's last and a file's first.
@pytest.fixture(params=[1, 3, 4, 5])
def count(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def store(tmp_path: Path, count: int) -> Path:
    """Return a store as a crash may leave it: of `count` messages in queue 0, the last one has no entry.

    A later message is in queue 1, with an entry.
    """
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as writer:
        writer.put_many(reput.Message("T", b"x", ["k"], queue_id=0) for _ in range(count))
        writer.put(reput.Message("T", b"y", ["k"], queue_id=1))
    assert len(check_store(path, CONFIG).records) == count + 1
    (path / "reput.known").unlink()
    (path / "abort").touch()
    at = (count - 1) * ENTRY_BYTES
    with file_of(path, at).open("r+b") as file:
        file.seek(at % FILE_BYTES)
        assert any(file.read(ENTRY_BYTES))
        file.seek(at % FILE_BYTES)
        file.write(bytes(ENTRY_BYTES))
    return path


def file_of(store: Path, at: int) -> Path:
    return store / "consumequeue" / "T" / "0" / f"{at - at % FILE_BYTES:020d}"


@pytest.mark.every_case
def test_a_pull_at_the_end_reports_the_message(
    store: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    with reput.open_store(store) as opened:
        assert opened.max_queue_offset("T", 0) == count - 1
        with pytest.raises(FormatError, match=r"has a later message of it|the queue is lost"):
            opened.pull("T", 0, count - 1)


@pytest.mark.every_case
def test_the_check_reports_the_message(store: Path, count: int) -> None:
    (finding,) = (
        each for each in reput.check(store).findings if each.kind == Kind.MISSING_QUEUE_ENTRY
    )
    last = walk(read_log(store)).records[count - 1][0]
    assert (finding.physical_offset, finding.count) == (last, 1)


@pytest.mark.every_case
def test_recovery_restores_the_entry(store: Path, count: int) -> None:
    StoreWriter(store, CONFIG).close()
    assert len(check_store(store, CONFIG).records) == count + 1


@pytest.mark.every_case
def test_a_rebuild_restores_the_entry(store: Path, count: int) -> None:
    reput.rebuild(store, config=CONFIG, runner="serial")
    assert len(check_store(store, CONFIG).records) == count + 1
