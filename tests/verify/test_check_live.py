"""A store is checked while another process puts into it, dispatches and rolls files."""

from pathlib import Path

import pytest

import reput
from reput.files.lock import locked
from reput.files.reader import FileReader
from reput.findings import Kind
from reput.verify.check import check_store
from reput.verify.checking import queue_table
from tests.query.test_following import CONFIG, enough, opened, writing_elsewhere


@pytest.mark.parametrize("quick", [False, True])
def test_a_store_under_writes_has_no_findings(tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "store"
    checks: list[list[Kind]] = []
    with writing_elsewhere(path, {}), opened(path, CONFIG):
        for _ in enough(lambda: len(checks) >= 3):
            checks.append([found.kind for found in check_store(path, config=CONFIG, quick=quick)])
    assert checks == [[Kind.STORE_IN_USE]] * len(checks)
    assert list(check_store(path, config=CONFIG)) == []


@pytest.mark.parametrize("quick", [False, True])
def test_messages_that_expire_during_a_check_are_no_finding(tmp_path: Path, quick: bool) -> None:
    path = tmp_path / "store"
    checks: list[list[Kind]] = []
    with writing_elsewhere(path), opened(path, CONFIG):
        for _ in enough(lambda: len(checks) >= 3):
            checks.append([found.kind for found in check_store(path, config=CONFIG, quick=quick)])
            # The writer's temporary files are findings of severity `info`.
            inspected = reput.inspect(path).as_dict()["findings"]
            assert [one for one in inspected if one["severity"] != "info"] == []
    assert checks == [[Kind.STORE_IN_USE]] * len(checks)


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


def test_a_log_file_that_is_being_made_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched(timeout_s=60)
        following = path / "commitlog" / f"{CONFIG.commit_log_file_bytes:020d}"
        following.touch()
        found = [one.kind for one in check_store(path, config=CONFIG)]
        following.unlink()
    assert found == [Kind.STORE_IN_USE]


def test_a_queue_file_that_is_being_made_is_no_finding(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=CONFIG) as store:
        store.put(reput.Message("T", b"x", ["k"]))
        assert store.wait_dispatched(timeout_s=60)
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
        assert store.wait_dispatched(timeout_s=60)
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
        assert store.wait_dispatched(timeout_s=60)
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
