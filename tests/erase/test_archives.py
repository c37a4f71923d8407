"""Messages erased from archives: by new objects and one new manifest."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.cli.main import main
from reput.core.query.inner_batch import unwrap
from reput.errors import UsageError
from reput.format.commit_log import MessageExt, decode
from reput.format.erasure import decode_stored
from reput.io.archive import Archive
from tests.erase.search import places_of
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
_STORES = [
    "orders", "five_batch",
    *(name for name in (*EVERY_STORE, *EVERY_FIVE) if name not in ("orders", "five_batch", "five_dledger", "defaults")),
]  # fmt: skip
_STEPS = ("choose", "copies", "rewrite", "record", "keys", "queues", "commit", "delete")


class Killed(BaseException):
    """The end of a process that is killed."""


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def _messages(store: str | Path) -> dict[tuple[int, int], MessageExt]:
    places = reput.dataset(store, ["physical_offset"], on_corrupt="skip").to_reader().read_all()
    with reput.open_store(store) as opened:
        return {
            (message.physical_offset, message.queue_offset): message
            for offset in places.column(0).to_pylist()
            for message in unwrap(decode(opened.get_record(offset)))
        }


def _chosen(messages: dict[tuple[int, int], MessageExt]) -> str:
    ids = [one.unique_keys[0] for one in messages.values() if one.unique_keys]
    return ids[len(ids) // 3]


def _objects(place: str) -> set[str]:
    found = {str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file()}
    return found - {".reput-lock"}


def _check(place: str, before: dict[tuple[int, int], MessageExt], report: Any) -> None:
    """Check that no object has bytes of the erased messages, everything else is unchanged, and the archive is valid."""
    after = _messages(place)
    assert after.keys() == before.keys()
    gone = [before[name] for name in before if after[name] != before[name]]
    kept = b"".join(
        one.body + one.properties_bytes
        for name, one in before.items()
        if after[name] == before[name]
    )
    patterns = {one.body for one in gone} | {
        one.unique_keys[0].encode() for one in gone if one.unique_keys
    }
    patterns = {one for one in patterns if len(one) >= 8 and one not in kept}
    assert len(gone) == sum(one.messages for one in report.messages)
    assert patterns
    assert not places_of(patterns, Path(place))
    archive = Archive(place)
    left = _objects(place) - {*archive.manifest.objects(), "archive.json"}
    # Indexes that another process has replaced may remain.
    assert not [name for name in left if name.startswith("log/")]
    verified = reput.verify_archive(place)
    assert verified.is_valid, verified


@pytest.mark.parametrize("name", slow_from(2, _STORES))
def test_an_erased_archive_has_nothing_of_the_messages(
    golden: Golden, name: str, place: str, tmp_path: Path
) -> None:
    reput.archive(golden(name).path, place, with_last=True)
    before = _messages(place)
    key = _chosen(before)
    report = reput.erase(place, keys=[key], reason="request 17")
    assert report.is_done
    assert report.records
    _check(place, before, report)
    erasure, _, _ = decode_stored((Path(report.audit)).read_bytes())
    assert erasure.reason == "request 17"
    assert len(erasure.records) == report.records
    with reput.open_store(place) as archive:
        for topic in {one.topic for one in before.values()}:
            assert not archive.query(topic, key).messages
    reput.restore(place, tmp_path / "restored")
    assert reput.check(tmp_path / "restored").is_valid
    assert reput.erase(place, keys=[key]).records == 0


@pytest.mark.parametrize("step", _STEPS)
def test_an_erasure_that_was_killed_at_any_step_is_completed_by_the_next(
    golden: Golden, place: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 3)
    reput.archive(golden("orders").path, place)
    before = _messages(place)
    generation = Archive(place).manifest.generation

    def kill(phase: str, done: int, total: int) -> None:
        if phase == step:
            raise Killed

    with pytest.raises(Killed):
        reput.erase(place, topics=["orders"], keys=["customer-48"], progress=kill)
    is_committed = Archive(place).manifest.generation > generation
    assert is_committed == (step == "delete")
    assert reput.verify_archive(place).is_valid
    plan = reput.erase(place, topics=["orders"], keys=["customer-48"], plan_only=True)
    assert bool(plan.records) != is_committed
    report = reput.erase(place, topics=["orders"], keys=["customer-48"])
    if not is_committed:
        _check(place, before, report)
    assert not places_of({b"customer-48\x02"}, Path(place))


def test_a_plan_of_an_archive_changes_nothing(golden: Golden, place: str) -> None:
    reput.archive(golden("orders").path, place)
    before = {name: (Path(place) / name).read_bytes() for name in _objects(place)}
    report = reput.erase(place, keys=["customer-48"], plan_only=True)
    assert report.records
    assert not report.is_done
    assert {name: (Path(place) / name).read_bytes() for name in _objects(place)} == before


def test_an_erased_archive_is_continued_from_its_store(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    copy_store(golden("orders").path, store)
    logs = sorted((store / "commitlog").iterdir())
    late = [(path, path.read_bytes()) for path in logs[-2:]]
    for path, _ in late:
        os.unlink(path)
    reput.archive(store, place)
    erased = reput.erase(place, topics=["orders"], keys=["customer-48"])
    assert erased.records
    for path, data in late:
        path.write_bytes(data)
    assert reput.archive(store, place).files == 2
    assert Archive(place).manifest.erasures
    plan = reput.erase(place, topics=["orders"], keys=["customer-48"], plan_only=True)
    with reput.open_store(store) as opened:
        begin = int(logs[-3].name)
        messages = opened.query("orders", "customer-48").messages
    assert plan.records == sum(one.physical_offset >= begin for one in messages)


def test_another_archiver_that_merges_meanwhile_is_waited_for(
    golden: Golden, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("orders").path
    reput.archive(store, place)
    before = _messages(place)
    done: list[str] = []

    def merge(phase: str, done_now: int, total: int) -> None:
        if phase == "commit" and not done:
            done.append(phase)
            monkeypatch.setattr("reput.wings.archive.changes._FAN", 2)
            reput.archive(store, place)

    report = reput.erase(place, topics=["orders"], keys=["customer-48"], progress=merge)
    assert len(Archive(place).manifest.keys) < len(Archive(place).manifest.log)
    _check(place, before, report)


def test_what_an_archive_does_not_take_is_refused(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    reput.archive(golden("orders").path, place)
    with pytest.raises(UsageError, match="output: cannot be used with an archive"):
        reput.erase(place, tmp_path / "out", keys=["k"])
    assert main(["erase", place, "--key", "customer-48", "--plan"]) in (0, 5)
    assert main(["erase", place, "--key", "customer-48"]) in (0, 5)
    assert main(["erase", place, "--key", "customer-48"]) == 1


@pytest.mark.parametrize("step", ["commit", "delete"])
def test_indexes_that_are_merged_during_an_erasure_stay(
    golden: Golden, place: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merge indexes just before the erasure replaces the manifest, or later, while the erasure deletes old objects."""
    store = golden("orders").path
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 100)
    monkeypatch.setattr("reput.wings.archive.changes._MOST_DAY_FILES", 0)
    reput.archive(store, place)
    before = _messages(place)
    seen: list[str] = []

    def merge(phase: str, done: int, total: int) -> None:
        seen.append(phase)
        if phase == step and seen.count(step) == 1:
            monkeypatch.setattr("reput.wings.archive.changes._FAN", 2)
            reput.archive(store, place)

    report = reput.erase(place, topics=["orders"], keys=["customer-48"], progress=merge)
    assert step in seen
    assert len(Archive(place).manifest.keys) < len(Archive(place).manifest.log)
    _check(place, before, report)


def test_a_merge_that_began_before_an_erasure_is_void(
    golden: Golden, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("orders").path
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 100)
    monkeypatch.setattr("reput.wings.archive.changes._MOST_DAY_FILES", 0)
    reput.archive(store, place)
    before = _messages(place)
    monkeypatch.setattr("reput.wings.archive.changes._FAN", 2)
    reports: list[Any] = []

    def erase(phase: str, done: int, total: int) -> None:
        if phase == "commit" and not reports:
            reports.append(reput.erase(place, topics=["orders"], keys=["customer-48"]))

    reput.archive(store, place, progress=erase)
    _check(place, before, reports[0])
    assert len(Archive(place).manifest.keys) < len(Archive(place).manifest.log)
