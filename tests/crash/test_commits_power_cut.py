"""The power is cut right after an operation's commit: everything that it has put in place is there."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from reput.core import CommitLogFile
from reput.engine.check.repairing.places import Attempt, RepairPlaces
from reput.engine.rebuild.commit import FolderTarget, RebuildCommit, swap_in
from reput.engine.rebuild.staging import STAGING_FOLDER, Staging
from reput.engine.writer.expiry import ExpiryReport, carry_out
from reput.engine.writer.put.log_files import LogFiles
from reput.engine.writer.recovery.log import truncate_log
from reput.engine.writer.recovery.recovery_point import delete_recovery_point
from reput.engine.writer.recovery.report import RecoveryReport
from reput.errors import UsageError
from reput.format.checkpoint import decode_checkpoint
from reput.format.file_names import RECOVERY_POINT_FILE, RESTORING_FOLDER
from reput.io import DISK, Disk
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


def commit_of(root: Path) -> FolderTarget:
    """Return the commit of a rebuild whose `checkpoint` is to state 5 ms."""
    (root / "consumequeue").mkdir(parents=True)
    (root / "consumequeue" / "old").write_bytes(b"old")
    staging = Staging(root / STAGING_FOLDER, "fingerprint")
    (staging.new / "consumequeue").mkdir(parents=True)
    (staging.new / "consumequeue" / "file").write_bytes(b"new")
    return FolderTarget(root, staging)


def checkpoint_ms(root: Path) -> int | None:
    path = root / "checkpoint"
    return decode_checkpoint(path.read_bytes()).physic_msg_timestamp if path.exists() else None


def test_the_checkpoint_of_a_rebuild_is_written_after_its_folders(tmp_path: Path) -> None:
    commit = RebuildCommit(5, None, 100)
    number, is_cut = 0, True
    while is_cut:
        root = tmp_path / f"cut-{number}"
        target = commit_of(root)
        power = Power(root, number, keeps=1)
        with power.on():
            target.commit(commit)
        power.come_back()
        if checkpoint_ms(root) is not None:
            assert tree(root / "consumequeue") == {"file": b"new"}
        number, is_cut = number + 1, len(power.steps) == number
    assert number > 8
    target = commit_of(tmp_path / "last")
    with cut_after(tmp_path / "last"):
        target.commit(commit)
    assert checkpoint_ms(tmp_path / "last") == 5


def test_the_name_of_each_log_file(root: Path) -> None:
    with cut_after(root):
        files = LogFiles(Disk(), root, 8192, 0)
        assert len(tree(root)) == 1
        files.roll()
        files.close()
    assert sorted(tree(root)) == [f"{start:020d}" for start in (0, 8192)]


def test_files_after_the_end_of_the_log_do_not_come_back(root: Path) -> None:
    names = [f"{start:020d}" for start in (0, 100, 200)]
    for name in names:
        (root / name).write_bytes(b"x" * 100)
    files = [CommitLogFile(int(name), 100, str(root / name)) for name in names]
    report = RecoveryReport(is_clean=False)
    with cut_after(root):
        truncate_log(files, 40, Disk(), report)
    assert tree(root) == {names[0]: (b"x" * 40).ljust(100, b"\0")}
    assert report.deleted_files == [str(root / name) for name in (names[2], names[1])]
    assert (report.log_end, report.truncated_bytes) == (40, 60)


def test_a_recovery_point_that_is_deleted_does_not_come_back(root: Path) -> None:
    (root / RECOVERY_POINT_FILE).write_bytes(b"point")
    with cut_after(root):
        delete_recovery_point(root, Disk())
    assert tree(root) == {}


def test_expired_files_do_not_come_back_and_leave_no_hole(root: Path) -> None:
    paths = []
    for folder in ("commitlog", "consumequeue", "index"):
        (root / folder).mkdir()
        paths += [root / folder / name for name in ("1", "2")]
    for path in paths:
        path.write_bytes(b"data")
    log, queues, index = (tuple(map(str, paths[at : at + 2])) for at in (0, 2, 4))
    power = Power(root, keeps=0)
    with power.on():
        carry_out(ExpiryReport(0, log, queues, index), Disk())
    power.come_back()
    assert tree(root) == {}
    calls = [step.partition(" ")[0] for step in power.steps]
    assert calls == ["unlink", "sync"] * 4 + ["unlink"] * 2 + ["sync"]


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


@pytest.mark.parametrize("seed", range(4))
def test_the_log_of_a_new_store_comes_last_and_another_run_continues(
    tmp_path: Path, seed: int
) -> None:
    """Readers recognize a store by its log, so no log may be there without the queues."""
    expected = {"commitlog/file": b"data", "config/file": b"data", "consumequeue/file": b"data"}
    number, is_cut = 0, True
    while is_cut:
        target = tmp_path / str(number) / "restored"
        target.parent.mkdir()
        power = Power(target.parent, number, Random(seed))
        with power.on():
            restore(target)
        power.come_back()
        if (target / "commitlog").exists():
            assert tree_without_staging(target) == expected
        number, is_cut = number + 1, len(power.steps) == number
        if not is_complete(target):
            restore(target)
        assert tree_without_staging(target) == expected
    assert number > 12


def restore(target: Path) -> None:
    with new_store(target) as store:
        for name in ("commitlog", "config", "consumequeue"):
            DISK.create_folder(store.folder / name)
            write_durable(store.folder / name / "file", b"data")
        store.finish(["commitlog"])


def tree_without_staging(target: Path) -> dict[str, bytes]:
    files = tree(target)
    return {name: data for name, data in files.items() if not name.startswith(RESTORING_FOLDER)}


def is_complete(target: Path) -> bool:
    return (target / "commitlog").exists()


def test_only_whole_files_of_a_killed_restore_are_kept(root: Path) -> None:
    with new_store(root / "restored") as store:
        for name in ("commitlog/1", "commitlog/2", "config/file"):
            DISK.create_folder((store.folder / name).parent)
            write_durable(store.folder / name, b"data")
        store.keep_only(["commitlog/1"])
        assert tree(store.folder) == {"commitlog/1": b"data"}
        assert [path.name for path in store.folder.iterdir()] == ["commitlog"]
        store.finish(["commitlog"])


def test_a_file_of_others_in_an_unfinished_store_is_refused(root: Path) -> None:
    target = root / "restored"
    with pytest.raises(KeyError), new_store(target):
        raise KeyError
    (target / "other").write_bytes(b"data")
    with pytest.raises(UsageError, match="is not empty"):
        restore(target)
