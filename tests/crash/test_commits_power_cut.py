"""The power is cut right after an operation's commit: everything that it has put in place is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.engine.check.repairing.places import Attempt, RepairPlaces
from reput.engine.rebuild.commit import swap_in
from reput.engine.rebuild.staging import STAGING_FOLDER, Staging
from reput.io import DISK
from reput.io.writer import write_durable
from reput.wings.archive.new_store import new_store
from tests.crash.power import Power
from tests.rebuild.rebuilding import tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@contextmanager
def cut_after(root: Path) -> Iterator[None]:
    """Cut the power after the `with` block. Nothing survives that was not synced."""
    power = Power(root, keeps=0)
    with power.on():
        yield
    power.come_back()


def test_folders_that_a_rebuild_swaps_in(root: Path) -> None:
    (root / "consumequeue" / "T").mkdir(parents=True)
    (root / "consumequeue" / "T" / "old").write_bytes(b"old")
    staging = Staging(root / STAGING_FOLDER, "fingerprint")
    with cut_after(root):
        DISK.create_folder(staging.new / "consumequeue" / "T" / "0")
        write_durable(staging.new / "consumequeue" / "T" / "0" / "file", b"new")
        swap_in(root, staging)
    assert tree(root / "consumequeue") == {"T/0/file": b"new"}


def test_the_record_of_a_repair_and_its_swap(root: Path) -> None:
    store, attempt = root / "store", Attempt(root / "store.reput-repair" / "1")
    for folder in (store, attempt.new):
        write_log(folder)
    with cut_after(root):
        record = attempt.write_record(store)
    assert attempt.record() == record
    with cut_after(root):
        RepairPlaces(store).swap(record, attempt.new, attempt.backup, lambda step: None)
    assert (store.stat().st_ino, attempt.backup.stat().st_ino) == (record.new, record.old)
    assert not attempt.new.exists()


def write_log(store: Path) -> None:
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(100))


def test_a_new_store(root: Path) -> None:
    with cut_after(root), new_store(root / "restored") as store:
        for name in ("commitlog", "consumequeue/T/0"):
            DISK.create_folder(store.folder / name)
            write_durable(store.folder / name / "file", b"data")
        store.finish(["commitlog"])
    assert tree(root / "restored") == {
        "commitlog/file": b"data",
        "consumequeue/T/0/file": b"data",
    }
