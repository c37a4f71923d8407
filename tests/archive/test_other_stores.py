"""Archivers of other stores or of older states of a store, or during an erasure: refused, or without effect."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.cli.main import main
from reput.errors import UsageError
from reput.io.archive import Archive
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_store(golden("orders").path, tmp_path / "store")


def _log(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def _objects(place: str) -> set[str]:
    found = {str(path.relative_to(place)) for path in Path(place).rglob("*") if path.is_file()}
    return found - {".reput-lock", "archive.json"}


def _without(store: Path, files: slice) -> list[tuple[Path, bytes]]:
    """Delete log files of a store, and return them."""
    gone = [(path, path.read_bytes()) for path in _log(store)[files]]
    for path, _ in gone:
        path.unlink()
    return gone


def test_a_store_that_went_back_and_wrote_other_messages_is_refused(
    store: Path, place: str
) -> None:
    later = _without(store, slice(-2, None))
    reput.archive(store, place)
    newest = Path(Archive(place).manifest.log[-1].path).name
    data = bytearray((store / "commitlog" / newest).read_bytes())
    at = data.rindex(b"customer-")
    data[at : at + 9] = b"CUSTOMER-"
    (store / "commitlog" / newest).write_bytes(data)
    for path, content in later:
        path.write_bytes(content)
    before = _objects(place)
    with pytest.raises(UsageError, match="another state"):
        reput.archive(store, place)
    assert _objects(place) == before


def test_an_older_copy_of_a_store_is_refused(store: Path, place: str) -> None:
    reput.archive(store, place)
    _without(store, slice(-2, None))
    with pytest.raises(UsageError, match="older copy"):
        reput.archive(store, place)


def test_a_store_that_begins_after_the_archive_of_another_one_is_refused(
    golden: Golden, store: Path, place: str
) -> None:
    reput.archive(golden("basic").path, place)
    end = Archive(place).manifest.end
    assert end
    for path in _log(store):
        if int(path.name) < end:
            path.unlink()
    before = _objects(place)
    with pytest.raises(UsageError, match="archive of another store"):
        reput.archive(store, place)
    assert _objects(place) == before


def test_a_store_whose_files_expired_meanwhile_continues_its_archive(
    store: Path, place: str
) -> None:
    later = _without(store, slice(3, None))
    reput.archive(store, place)
    for path, content in later:
        path.write_bytes(content)
    _without(store, slice(0, 4))
    report = reput.archive(store, place)
    assert any("expired before it was archived" in note for note in report.notes)
    assert report.files == len(later) - 2


def test_an_archiver_that_comes_late_leaves_no_copy_of_an_erased_message(
    store: Path, place: str
) -> None:
    """An archiver has uploaded files, but not committed, when another one archives them and a message is erased."""
    done: list[str] = []

    def erase_first(phase: str, at: int, total: int) -> None:
        if phase == "commit" and not done:
            done.append(phase)
            reput.archive(store, place)
            assert reput.erase(place, topics=["orders"], keys=["customer-48"]).records

    reput.archive(store, place, progress=erase_first)
    assert _objects(place) == set(Archive(place).manifest.objects())
    assert Archive(place).manifest.erasures
    with reput.open_store(place) as archive:
        assert not archive.query("orders", "customer-48").messages


def test_nothing_expires_if_the_archive_changes_after_it_was_compared(
    store: Path, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from reput.cli.options import own

    reput.archive(store, place)

    def changed(*args: object, **options: object) -> object:
        os.unlink(Path(place, Archive(place).manifest.log[1].object))
        return own(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("reput.wings.archive.expire_command.own", changed)
    before = _log(store)
    assert main(["expire", str(store), "--before", "now", "--archived", place]) != 0
    assert _log(store) == before
    assert "no longer exists" in capsys.readouterr().err


def test_erased_files_do_not_expire(store: Path, place: str) -> None:
    reput.archive(store, place)
    assert reput.erase(place, topics=["orders"], keys=["customer-48"]).files > 1
    erased = Archive(place).manifest.erasures[0].begins
    assert main(["expire", str(store), "--before", "now", "--archived", place]) == 0
    assert {int(path.name) for path in _log(store)} >= set(erased)


def test_a_manifest_of_earlier_is_told_from_a_later_one(store: Path, place: str) -> None:
    from reput.format.archive import problem_since

    later = _without(store, slice(3, None))
    reput.archive(store, place)
    old = Archive(place).manifest
    for path, content in later:
        path.write_bytes(content)
    reput.archive(store, place)
    new = Archive(place).manifest
    reput.erase(place, topics=["orders"], keys=["customer-48"])
    erased = Archive(place).manifest
    assert [problem_since(*pair) for pair in ((old, new), (new, erased), (old, erased))] == [""] * 3
    assert "older one replaced it" in problem_since(new, old)
    assert "older one replaced it" in problem_since(erased, new)
