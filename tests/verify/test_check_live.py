"""A store is checked while another process puts into it, dispatches and rolls files."""

from pathlib import Path

import pytest

import reput
from reput.findings import Kind
from reput.verify.check import check_store
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
