"""A store and its archive, read as one log."""

import json
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import reput
from reput.core.log.sources import StoreLog
from reput.core.query.message_store import MessageStore
from reput.engine.stores.opening import with_archive
from reput.errors import StoreError, UsageError
from reput.io.archive import Archive
from reput.io.storage import storage_of
from reput.wings.archive.joined_queues import ContinuedQueue
from tests.cli.running import reput as run
from tests.golden.sparse import copy_file, copy_store
from tests.golden.stores import EVERY_FIVE, EVERY_STORE, GoldenStore

Golden = Callable[[str], GoldenStore]
_OTHERWISE = ("five_dledger", "five_multipath", "five_tiered", "defaults")
_STORES = [
    pytest.param(name, marks=() if name in ("lmq", "five_ext") else pytest.mark.slow)
    for name in (*EVERY_STORE, *EVERY_FIVE)
    if name not in _OTHERWISE
]


def expire(store: Path, files: int) -> None:
    """Delete the first log files, as a broker does."""
    for path in sorted((store / "commitlog").iterdir())[:files]:
        path.unlink()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def _answers(store: MessageStore, golden: GoldenStore) -> Iterator[object]:
    """Yield the store's answers to every recorded query, and the answers of every queue."""
    for asked in golden.queries:
        found = store.query(asked.topic, asked.key, asked.begin, asked.end)
        yield asked.topic, asked.key, found.messages, found.is_complete
    for topic, queue_id in store.list_queues():
        begin, end = (
            store.min_queue_offset(topic, queue_id),
            store.max_queue_offset(topic, queue_id),
        )
        yield topic, queue_id, begin, end
        pulled = store.pull(topic, queue_id, begin, 100)
        yield pulled
        for message in pulled.messages[:: max(len(pulled.messages) // 3, 1)]:
            yield store.offset_by_time(topic, queue_id, message.store_timestamp)
            yield store.get(message.physical_offset)
            yield store.get_by_id(message.message_id)
        for number in {begin, (begin + end) // 2, end - 1} if begin < end else ():
            yield store.get_by_queue(topic, queue_id, number)
    yield store.begin_offset(), store.end_offset(), store.topics()


@pytest.mark.parametrize("name", _STORES)
def test_store_archive_and_both_answer_every_recorded_query_alike(
    golden: Golden, name: str, place: str, tmp_path: Path
) -> None:
    whole = golden(name)
    reput.archive(whole.path, place, with_last=True)
    left = copy_store(whole.path, tmp_path / "left")
    expire(left, len(list((left / "commitlog").iterdir())) // 2)
    with reput.open_store(whole.path) as store:
        expected = list(_answers(store, whole))
    for path in (place, with_archive(left, place)):
        with reput.open_store(path) as store:
            for found, wanted in zip(_answers(store, whole), expected, strict=True):
                assert found == wanted, path


def test_a_gap_between_archive_and_store_makes_answers_incomplete(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    whole = golden("orders")
    young = copy_store(whole.path, tmp_path / "young")
    for path in sorted((young / "commitlog").iterdir())[3:]:
        path.unlink()
    reput.archive(young, place)  # archive the first two log files
    left = copy_store(whole.path, tmp_path / "left")
    expire(left, 4)
    with reput.open_store(with_archive(left, place)) as store, reput.open_store(whole.path) as full:
        archived, first = Archive(place).manifest.end, sorted((left / "commitlog").iterdir())[0]
        for asked in whole.queries[:50]:
            found = store.query(asked.topic, asked.key)
            assert not found.is_complete
            (lost,) = found.coverage.unreadable
            assert (lost.physical_offset, lost.length) == (archived, int(first.name) - archived)
            there = [
                one
                for one in full.query(asked.topic, asked.key).messages
                if not archived <= one.physical_offset < int(first.name)
            ]
            assert list(found.messages) == there
        for topic, queue_id in full.list_queues():
            begin, end = (
                full.min_queue_offset(topic, queue_id),
                full.max_queue_offset(topic, queue_id),
            )
            for number in range(begin, end, 7):
                message = full.get_by_queue(topic, queue_id, number)
                if not archived <= message.physical_offset < int(first.name):
                    assert store.get_by_queue(topic, queue_id, number) == message
                    continue
                with pytest.raises(StoreError, match=r"expired before they were archived|no file"):
                    store.get_by_queue(topic, queue_id, number)


def test_log_files_that_the_store_lost_come_from_the_archive(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    whole = golden("orders")
    reput.archive(whole.path, place)
    left = copy_store(whole.path, tmp_path / "left")
    sorted((left / "commitlog").iterdir())[3].unlink()
    with reput.open_store(with_archive(left, place)) as both, reput.open_store(whole.path) as full:
        for asked in whole.queries[:50]:
            found = both.query(asked.topic, asked.key)
            assert found.messages == full.query(asked.topic, asked.key).messages
            assert found.is_complete


@pytest.mark.parametrize("files", [0, 2, 6])
def test_the_archive_of_another_store_is_refused(
    golden: Golden, place: str, tmp_path: Path, files: int
) -> None:
    """The archive is refused whether or not its offsets overlap, and even if one log ends where the other begins."""
    reput.archive(golden("tricky").path, place)
    other = copy_store(golden("orders").path, tmp_path / "other")
    expire(other, files)
    with pytest.raises(UsageError, match="not the archive of"):
        reput.open_store(with_archive(other, place))


def test_an_older_copy_of_the_store_is_refused(golden: Golden, place: str, tmp_path: Path) -> None:
    whole = golden("orders")
    reput.archive(whole.path, place)
    old = copy_store(whole.path, tmp_path / "old")
    for path in sorted((old / "commitlog").iterdir())[3:]:
        path.unlink()
    with pytest.raises(UsageError, match="reaches further"):
        reput.open_store(with_archive(old, place))


def test_log_files_that_expire_while_the_store_is_open_are_read_from_the_archive(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    whole = golden("orders")
    live = copy_store(whole.path, tmp_path / "live")
    shutil.rmtree(place, ignore_errors=True)
    young = copy_store(whole.path, tmp_path / "young")
    for path in sorted((young / "commitlog").iterdir())[3:]:
        path.unlink()
    reput.archive(young, place)
    with reput.open_store(with_archive(live, place)) as both, reput.open_store(whole.path) as full:
        before = [both.query(one.topic, one.key).messages for one in whole.queries[:20]]
        reput.archive(live, place)
        expire(live, 4)
        for asked, expected in zip(whole.queries[:20], before, strict=True):
            found = both.query(asked.topic, asked.key)
            assert found.is_complete
            assert found.messages == expected
        for topic, queue_id in full.list_queues():
            begin = full.min_queue_offset(topic, queue_id)
            assert both.min_queue_offset(topic, queue_id) == begin
            assert both.pull(topic, queue_id, begin, 200) == full.pull(topic, queue_id, begin, 200)


@pytest.fixture
def both(golden: Golden, place: str, tmp_path: Path) -> tuple[str, str]:
    """A store that has lost half of its log, and its archive."""
    reput.archive(golden("orders").path, place)
    left = copy_store(golden("orders").path, tmp_path / "left")
    expire(left, 3)
    return str(left), place


def test_commands_join_a_store_and_its_archive(
    golden: Golden, both: tuple[str, str], tmp_path: Path
) -> None:
    left, place = both
    whole = str(golden("orders").path)
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(f'[[store]]\nname = "a"\npath = "{left}"\narchive = "{place}"\n')
    for what in (
        ("query", "--topic", "orders", "--key", "customer-48", "--format", "jsonl"),
        ("query", "--topic", "orders", "--begin", "2026-10-12", "--limit", "9", "--format", "jsonl"),
        ("tail", "--topic", "orders", "--begin", "2026-10-12", "--end", "2026-10-13", "--format", "jsonl"),
    ):  # fmt: skip
        expected = run(what[0], whole, *what[1:]).out
        assert expected
        assert run(what[0], left, "--archive", place, *what[1:]).out == expected
        named = run(what[0], "--stores", str(fleet), *what[1:]).out
        assert len(named.splitlines()) == len(expected.splitlines())
    assert run("show", left, "0", "--archive", place).out == run("show", whole, "0").out
    assert run("check", "--stores", str(fleet), "--quick").code in (0, 5)


def test_an_archive_is_joined_with_one_store(both: tuple[str, str]) -> None:
    left, place = both
    for stores, message in (
        ((left, left), "--archive: only for one STORE"),
        ((place,), "pass the path of a store"),
    ):
        found = run("query", *stores, "--archive", place, "--key", "x")
        assert found.code == 2
        assert message in found.err


def test_a_table_has_the_messages_of_both(golden: Golden, both: tuple[str, str]) -> None:
    names = ["physical_offset", "topic", "queue_offset"]
    found = reput.dataset(with_archive(*both)).to_table(columns=names)
    assert found == reput.dataset(golden("orders").path).to_table(columns=names)


def test_only_what_is_in_the_archive_expires(golden: Golden, place: str, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    young = copy_store(store, tmp_path / "young")
    for name in names[5:]:
        (young / "commitlog" / name).unlink()
    reput.archive(young, place)  # archive the first four log files
    third = Path(place, Archive(place).manifest.log[2].object)
    stored = bytearray(third.read_bytes())
    stored[100] ^= 1
    sizes = ("--hash-slots", 1000, "--index-items", 4000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reput.wings.archive.restoring._FRAMES_AT_ONCE", 3)
        third.write_bytes(stored)
        found = run("expire", store, "--before", "now", "--archived", place, "--dry-run")
        assert found.code == 0
        assert f"{names[2]}: has no copy in {place}" in found.err
        assert "CommitLog     2 files" in found.out
        stored[100] ^= 1
        third.write_bytes(stored)
    found = run("expire", store, "--before", "now", "--archived", place, *sizes)
    assert found.code == 0, found.err
    assert f"{names[4]}: has no copy in {place}" in found.err
    assert sorted(path.name for path in (store / "commitlog").iterdir()) == names[4:]
    with reput.open_store(with_archive(store, place)) as both:
        for asked in golden("orders").queries[:20]:
            assert both.query(asked.topic, asked.key).is_complete


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_followed_store_is_archived_file_by_file(
    golden: Golden, place: str, tmp_path: Path, number: signal.Signals
) -> None:
    whole = golden("orders").path
    live = copy_store(whole, tmp_path / "live")
    names = sorted(path.name for path in (live / "commitlog").iterdir())
    for name in names[3:]:
        (live / "commitlog" / name).unlink()
    command = [sys.executable, "-m", "reput", "archive", str(live), place, "--follow"]
    with subprocess.Popen(
        [*command, "--every", "0.1", "--format", "json"], stdout=subprocess.PIPE
    ) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["files"] == 2
        copy_file(whole / "commitlog" / names[3], live / "commitlog" / names[3])
        assert json.loads(follower.stdout.readline())["files"] == 1
        follower.send_signal(number)
        assert follower.stdout.read() == b""
    assert follower.returncode == 0
    assert len(Archive(place).manifest.log) == 3
    assert reput.verify_archive(place).is_valid


def test_nothing_expires_that_another_store_has_archived(
    golden: Golden, place: str, tmp_path: Path
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    reput.archive(golden("tricky").path, place)
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    found = run("expire", store, "--before", "now", "--archived", place, "--dry-run")
    assert f"{names[0]}: has no copy in {place}" in found.err
    assert "CommitLog     no file" in found.out


def test_joined_storage_can_be_sent_to_another_process(both: tuple[str, str]) -> None:
    storage, path = storage_of(with_archive(*both))
    sent = pickle.loads(pickle.dumps(storage))
    files = StoreLog(path, sent).list().files
    assert len(files) == 7
    for file in files[:4]:
        with (
            pickle.loads(pickle.dumps(sent.open_file))(file.path) as one,
            storage.open(file.path) as other,
        ):
            assert one.read(0, 5000) == other.read(0, 5000)


class _Queue:
    """A queue whose messages are 10 bytes long, of which some entries are lost."""

    folder, kind = "consumequeue/T/0", None

    def __init__(self, numbers: range, stop: int) -> None:
        self.numbers, self.stop = numbers, stop

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        return next((n for n in self.numbers if 10 * n >= min_physical_offset), self.stop)

    def max_queue_offset(self) -> int:
        return self.stop


def test_the_archive_gives_entries_that_the_store_has_lost() -> None:
    """The store's log begins with message 5, but its queue has lost the entries 5 to 7."""
    archived, own = _Queue(range(9), 9), _Queue(range(8, 12), 12)
    queue = ContinuedQueue(cast("Any", archived), cast("Any", own), 50)
    assert [queue.min_queue_offset(10 * n) for n in range(12)] == list(range(12))
