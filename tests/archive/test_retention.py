"""Expiry of the oldest log files of an archive. Also, `archive` copies a store with several tasks as with one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.cli.main import main
from reput.errors import UsageError
from reput.format.archive import Manifest, problem_since
from reput.io.archive import Archive
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_DAY_MS = 86_400_000


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def _manifest(place: str) -> Manifest:
    return Archive(place).manifest


def test_the_oldest_files_of_an_archive_expire(
    golden: Golden, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("orders")
    reput.archive(store.path, place)
    before = _manifest(place)
    third = before.log[2].times
    assert third is not None
    now = third.greatest + 10 * _DAY_MS
    monkeypatch.setattr("reput.wings.archive.archiver.now_ms", lambda: now)
    assert reput.archive(store.path, place, retention_days=10).expired == 2
    monkeypatch.setattr("reput.wings.archive.archiver.now_ms", lambda: now + 1)
    assert reput.archive(store.path, place, retention_days=10).expired == 1
    after = _manifest(place)
    begin = after.log[0].begin
    assert begin == before.log[3].begin
    assert after.chain == before.chain
    assert problem_since(before, after) == ""
    assert reput.verify_archive(place).is_valid
    found = {str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file()}
    assert found - {"archive.json", ".reput-lock"} == set(after.objects())
    with reput.open_store(store.path) as here, reput.open_store(place) as there:
        for asked in store.queries[:30]:
            expected = [
                one
                for one in here.query(asked.topic, asked.key).messages
                if begin <= one.physical_offset < after.end
            ]
            answer = there.query(asked.topic, asked.key)
            assert list(answer.messages) == expected
            assert answer.is_complete
        for topic, queue_id in there.list_queues():
            least = there.min_queue_offset(topic, queue_id)
            if least < there.max_queue_offset(topic, queue_id):
                message = there.get_by_queue(topic, queue_id, least)
                assert message == here.get_by_queue(topic, queue_id, least)
                assert message.physical_offset >= begin
    proof = tmp_path / "message.proof"
    reput.verify_archive(place, physical_offset=begin, proof=proof)
    assert reput.verify_archive(proof).is_valid
    assert reput.archive(store.path, place).files == 0
    restored = tmp_path / "restored"
    reput.restore(place, restored)
    assert min(map(int, os.listdir(restored / "commitlog"))) == begin
    assert reput.check(restored).is_valid


def test_the_last_file_of_an_archive_never_expires(golden: Golden, place: str) -> None:
    count = reput.archive(golden("orders").path, place).files
    assert reput.archive(golden("orders").path, place, retention_days=1).expired == count - 1
    with pytest.raises(UsageError, match="at least 1"):
        reput.archive(golden("orders").path, place, retention_days=0)


def test_the_command_expires_files(golden: Golden, place: str) -> None:
    store = str(golden("orders").path)
    assert main(["archive", store, place]) == 0
    assert main(["archive", store, place, "--retention", "1"]) == 0
    assert len(_manifest(place).log) == 1


def test_several_tasks_copy_a_store_as_one_does(golden: Golden, place: str, tmp_path: Path) -> None:
    store, one = str(golden("orders").path), str(tmp_path / "one")
    assert main(["archive", store, place, "--runner", "processes"]) == 0
    reput.archive(store, one)

    def content(manifest: Manifest) -> list[tuple[Any, ...]]:
        return [(file.begin, file.sha256, file.tree, file.messages) for file in manifest.log]

    assert content(_manifest(place)) == content(_manifest(one))
    for parts in (_manifest(place).keys, _manifest(place).queues):
        assert sum(part.files for part in parts) == len(_manifest(one).log)
    assert reput.verify_archive(place).is_valid


@pytest.mark.slow
def test_spark_copies_a_store(golden: Golden, place: str, spark: Any) -> None:
    report = reput.archive(golden("orders").path, place, runner=spark)
    assert report.files == len(_manifest(place).log)
    assert reput.verify_archive(place).is_valid
