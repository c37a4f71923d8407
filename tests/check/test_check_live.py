"""A store is checked while another process puts into it, dispatches and rolls files."""

import os
import shutil
from pathlib import Path

import pytest

import reput
from reput.base.findings import Kind
from reput.core.index import trust
from reput.core.index.reader import IndexFileReader
from reput.core.log.reader import CommitLogReader
from reput.engine.check.checking import full_check, log_check, queue_table
from reput.engine.check.checking.listings import list_queue
from reput.engine.check.run import check_store
from reput.errors import FormatError, StoreAccessError
from reput.io.lock import locked
from reput.io.reader import FileReader
from tests.query.test_following import CONFIG, writing_elsewhere

_CHECKS, _PUTS = 12, 60


@pytest.mark.parametrize("quick", [False, True])
def test_a_store_under_writes_has_no_findings(tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "store"
    checks: list[list[Kind]] = []
    with writing_elsewhere(path, {}) as writer:
        for _ in range(_CHECKS):
            writer.proceed(_PUTS)
            checks.append([found.kind for found in check_store(path, config=CONFIG, quick=quick)])
    assert checks == [[Kind.STORE_IN_USE]] * len(checks)
    assert list(check_store(path, config=CONFIG)) == []


@pytest.mark.parametrize("quick", [False, True])
def test_messages_that_expire_during_a_check_are_no_finding(tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "store"
    checks: list[list[Kind]] = []
    with writing_elsewhere(path) as writer:
        for _ in range(_CHECKS):
            writer.proceed(_PUTS)
            checks.append([found.kind for found in check_store(path, config=CONFIG, quick=quick)])
            # The writer's temporary files are findings of severity `info`.
            inspected = reput.inspect(path).as_dict()["findings"]
            assert [one for one in inspected if one["severity"] != "info"] == []
    assert checks == [[Kind.STORE_IN_USE]] * len(checks)


def test_files_that_expire_while_they_are_listed_leave_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{start:020}" for start in (0, 200, 400)]
    for path in paths:
        path.write_bytes(bytes(200))
    lstat = Path.lstat

    def expiring(path: Path) -> os.stat_result:
        if path == paths[1]:
            for expired in paths[:2]:
                expired.unlink()
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", expiring)
    listed = list_queue(str(tmp_path), 10, is_live=True)
    assert [file[0] for file in listed.places.files] == [20]


def test_a_queue_file_that_expires_after_it_is_listed_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put_many([reput.Message("T", b"x" * 300, queue_id=0) for _ in range(500)])
    oldest = path / "commitlog" / f"{0:020d}"

    def opened_late(file: str) -> FileReader:
        # As a broker does, delete the log file first, then the queue files of its messages.
        if oldest.exists():
            oldest.unlink()
            Path(file).unlink()
        return FileReader(file)

    monkeypatch.setattr(queue_table, "FileReader", opened_late)
    with locked(path / "lock", "a broker"):
        found = [one.kind for one in check_store(path, config=CONFIG)]
    assert not oldest.exists()
    assert found == [Kind.STORE_IN_USE]


def test_a_missing_queue_is_found_although_its_first_messages_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        for topic in ("T", "U"):
            store.put_many([reput.Message(topic, b"x" * 300, queue_id=0) for _ in range(300)])
    shutil.rmtree(path / "consumequeue" / "T")
    oldest = path / "commitlog" / f"{0:020d}"

    def checked(task: log_check.LogTask) -> log_check.LogFileResult:
        found = log_check.check_log_file(task)
        if task.compared.file.start == 1 << 15:
            oldest.unlink()
        return found

    monkeypatch.setattr(full_check, "check_log_file", checked)
    with locked(path / "lock", "a broker"):
        found = list(check_store(path, config=CONFIG))
    assert not oldest.exists()
    assert [one.kind for one in found] == [Kind.STORE_IN_USE, Kind.MISSING_QUEUE]


@pytest.mark.every_case
@pytest.mark.parametrize("error", [StoreAccessError("input/output error"), FormatError("f", 0, "")])
def test_a_log_file_of_a_store_in_use_that_cannot_be_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x"))

    def unread(*_: object) -> None:
        raise error

    monkeypatch.setattr(log_check, "FileComparison", unread)
    with locked(path / "lock", "a broker"):
        found = [one.kind for one in check_store(path, config=CONFIG)]
    assert found == [Kind.STORE_IN_USE, Kind.UNREADABLE_RECORD]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("folder", "size", "kinds"),
    [
        ("commitlog", 100, {Kind.LOG_FILE_SIZE}),
        ("consumequeue/T/0", 100, {Kind.QUEUE_FILE_SIZE}),
        ("index", 100, {Kind.INDEX_FILE_SIZE}),
        ("index", 10, {Kind.INDEX_FILE_SIZE}),
    ],
)
def test_a_file_of_a_store_in_use_that_is_cut_short_is_damage(
    tmp_path: Path, folder: str, size: int, kinds: set[Kind]
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put_many([reput.Message("T", b"x" * 300, [f"k{n}"], queue_id=0) for n in range(300)])
    os.truncate(max((path / folder).iterdir()), size)
    with locked(path / "lock", "a broker"):
        checked = {one.kind for one in check_store(path, config=CONFIG)}
        inspected = {one["kind"] for one in reput.inspect(path).as_dict()["findings"]}
    assert kinds <= checked
    assert kinds <= inspected


def test_a_log_file_that_is_being_made_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched()
        following = path / "commitlog" / f"{CONFIG.commit_log_file_bytes:020d}"
        following.touch()
        found = [one.kind for one in check_store(path, config=CONFIG)]
        following.unlink()
    assert found == [Kind.STORE_IN_USE]


def test_a_queue_file_that_is_being_made_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched()
        (queue,) = (path / "consumequeue" / "T").iterdir()
        following = queue / f"{CONFIG.queue_file_bytes:020d}"
        following.touch()
        found = [one.kind for one in check_store(path, config=CONFIG)]
        following.unlink()
    assert found == [Kind.STORE_IN_USE]


def test_an_index_file_that_is_being_made_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched()
        following = path / "index" / "99990101000000000"
        following.touch()
        for config in (CONFIG, None):
            found = [one.kind for one in check_store(path, config=config)]
            assert found == [Kind.STORE_IN_USE]
        following.unlink()


def test_slots_that_a_writer_fills_before_its_header_are_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched()
        following = path / "index" / "99990101000000000"
        used = b"".join(number.to_bytes(4, "big") for number in (1, 2, 3))
        data = (bytes(40) + used).ljust(CONFIG.index_file_bytes, b"\0")
        following.write_bytes(data)
        live = [one.kind for one in check_store(path, config=CONFIG, quick=True)]
        following.unlink()
    assert live == [Kind.STORE_IN_USE]
    following.write_bytes(data)
    closed = [one.kind for one in check_store(path, config=CONFIG, quick=True)]
    assert closed == [Kind.INDEX_HEADER]


def test_inspect_names_what_is_no_index_file_or_leads_too_far(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
    (file,) = (path / "index").iterdir()
    data = bytearray(file.read_bytes())
    data[24:32] = (1 << 40).to_bytes(8, "big")  # endPhyOffset
    file.write_bytes(data)
    (path / "index" / "99990101000000000").mkdir()
    (path / "index" / "99990101000000001").symlink_to("gone")
    with locked(path / "lock", "a broker"):
        in_use = reput.inspect(path).as_dict()["findings"]
    for found in (in_use, reput.inspect(path).as_dict()["findings"]):
        assert [one["kind"] for one in found] == ["index_header", "foreign_file", "foreign_file"]


def test_a_message_that_expires_after_its_item_was_compared_ends_no_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        puts = [reput.Message("T", b"x" * 300, keys=f"k{n}", queue_id=0) for n in range(500)]
        store.put_many(puts)
    oldest = path / "commitlog" / f"{0:020d}"
    compare = trust.entry_holds

    def compared(file: IndexFileReader, log: CommitLogReader, number: int) -> bool:
        holds = compare(file, log, number)
        if oldest.exists():
            oldest.unlink()
            log.refresh()
        return holds

    monkeypatch.setattr(trust, "entry_holds", compared)
    with reput.open_store(path, config=CONFIG) as reader:
        file = reader.index.current()[0]
        ranges = trust.covered_ranges(file, reader.commit_log, file.next_item - 1)
        begin = reader.begin_offset()
    assert begin == 1 << 15
    assert all(part.start >= begin for part in ranges)
