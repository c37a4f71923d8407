"""An archive that has the store's last log file from before it was full (`archive --with-last`)."""

import shutil
from pathlib import Path

import pytest

import reput
from reput.engine.stores.opening import with_archive
from reput.errors import UsageError
from reput.format.archive import Manifest
from reput.io.archive import Archive
from tests.cli.running import reput as run

_FILE_BYTES = 1 << 14
_CONFIG = reput.StoreConfig(_FILE_BYTES, 20, 64, 120)
_FIRST, _ALL = 100, 300


def _put(store: Path, begin: int, end: int, text: bytes = b"x") -> None:
    with reput.open_store(store, mode="rw", config=_CONFIG) as opened:
        opened.put_many(
            reput.Message("T", text * 300, [f"k{n}"], queue_id=n % 3) for n in range(begin, end)
        )


def _log(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def _manifest(place: str) -> Manifest:
    return Archive(place).manifest


def _expire(store: Path, place: str) -> None:
    assert run("expire", store, "--before", "now", "--archived", place).code == 0


def _require_all(path: str | Path, keys: int) -> None:
    """Require that each key from 0 on has one message, and that the answers are complete."""
    with reput.open_store(path) as store:
        for number in range(0, keys, 7):
            found = store.query("T", f"k{number}")
            assert (len(found.messages), found.is_complete) == (1, True), number


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def store(tmp_path: Path, place: str) -> Path:
    """Return a store of three log files, of which an archive has the last one from before it was full."""
    path = tmp_path / "store"
    _put(path, 0, _FIRST)
    reput.archive(path, place, with_last=True)
    assert [file.is_sealed for file in _manifest(place).log] == [True, True, False]
    return path


def test_a_store_of_which_only_the_copied_file_is_left_is_archived_further(
    store: Path, place: str, tmp_path: Path
) -> None:
    _expire(store, place)
    assert len(_log(store)) == 1
    found = run("archive", store, place)
    assert (found.code, "Archived 0 log files" in found.out) == (0, True), found.err
    assert run("archive", store, place, "--with-last").code == 0
    _put(store, _FIRST, _ALL)
    _require_all(with_archive(store, place), _ALL)
    assert run("archive", store, place).code == 0
    log = _manifest(place).log
    assert all(file.is_sealed for file in log)
    assert [file.begin for file in log] == [n * _FILE_BYTES for n in range(len(log))]
    assert log[-1].end == int(_log(store)[-1].name)
    assert run("archive", store, place, "--with-last").code == 0
    _expire(store, place)
    assert run("archive", store, place, "--with-last").code == 0
    assert reput.verify_archive(place).is_valid
    for path in (place, with_archive(store, place)):
        _require_all(path, _ALL)
    reput.restore(place, tmp_path / "restored")
    assert reput.check(tmp_path / "restored").is_valid
    _require_all(tmp_path / "restored", _ALL)


def test_a_file_expires_only_when_the_archive_has_all_of_it(store: Path, place: str) -> None:
    copied = _log(store)[-1]
    _put(store, _FIRST, _ALL)
    found = run("expire", store, "--before", "now", "--archived", place)
    assert f"{copied.name}: has no copy in {place}" in found.err
    assert _log(store)[0] == copied
    assert run("archive", store, place).code == 0
    _expire(store, place)
    assert len(_log(store)) == 1


def test_messages_of_a_copied_file_that_expired_before_it_was_full_are_kept_and_the_others_are_missed(
    store: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = _manifest(place).log[-1]
    _put(store, _FIRST, _ALL)
    for path in _log(store):
        if int(path.name) <= copied.begin:
            path.unlink()
    report = reput.archive(store, place)
    note = f"the log from {copied.messages_end:,} to {copied.end:,} expired before it was archived"
    assert note in report.notes
    assert reput.archive(store, place, with_last=True).files == 1
    assert reput.verify_archive(place).is_valid
    for where in (place, with_archive(store, place)):
        with reput.open_store(where) as opened:
            assert len(opened.query("T", f"k{_FIRST - 1}").messages) == 1
            assert len(opened.query("T", f"k{_ALL - 1}").messages) == 1
            found = opened.query("T", f"k{_FIRST}")
            assert (found.messages, found.is_complete) == ((), False)
            (lost,) = found.coverage.unreadable
            missed = copied.end - copied.messages_end
            assert (lost.physical_offset, lost.length) == (copied.messages_end, missed)
    reput.restore(place, tmp_path / "restored")
    assert not reput.check(tmp_path / "restored").is_valid
    log = _manifest(place).log
    later = max(file.times.greatest for file in log if file.times is not None)
    monkeypatch.setattr("reput.wings.archive.archiver.now_ms", lambda: later + 10 * 86_400_000)
    assert reput.archive(store, place, retention_days=1).expired == len(log) - 1


def test_the_copied_file_of_another_store_is_not_replaced(place: str, tmp_path: Path) -> None:
    _put(tmp_path / "small", 0, 20)
    reput.archive(tmp_path / "small", place, with_last=True)
    _put(tmp_path / "other", 0, _FIRST, b"y")
    before = _manifest(place)
    with pytest.raises(UsageError, match="archive of another store"):
        reput.archive(tmp_path / "other", place, with_last=True)
    assert _manifest(place) == before
    with (
        pytest.raises(UsageError, match="is not the archive of"),
        reput.open_store(with_archive(tmp_path / "other", place)) as opened,
    ):
        opened.query("T", "k1")
    _put(tmp_path / "small", 20, _FIRST)
    assert reput.archive(tmp_path / "small", place).files == 2


def test_a_store_that_lost_its_newest_messages_in_a_power_cut_replaces_the_copied_file(
    place: str, tmp_path: Path
) -> None:
    _put(tmp_path / "store", 0, 20)
    shutil.copytree(tmp_path / "store", tmp_path / "earlier")
    _put(tmp_path / "store", 20, 30)
    reput.archive(tmp_path / "store", place, with_last=True)
    _put(tmp_path / "earlier", 20, _FIRST, b"z")
    _require_all(with_archive(tmp_path / "earlier", place), _FIRST)
    assert reput.archive(tmp_path / "earlier", place).files == 2
    with reput.open_store(place) as opened:
        (message,) = opened.query("T", "k25").messages
    assert message.body == b"z" * 300
