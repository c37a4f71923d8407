"""Pulls of queues whose messages cannot all be read: each unreadable range is reported, and reading continues."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.query.answers import PullStatus
from reput.errors import CorruptMessageError, FormatError
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
TOPIC, QUEUE = "TopicA", 0
# The CommitLog file of `basic` in the middle has these queue offsets of the queue.
LOST = range(140, 176)
MIDDLE = f"{262_144:020}"


@pytest.fixture
def holed(golden: Golden, tmp_path: Path) -> Path:
    """Return a store that lacks the CommitLog file in the middle."""
    copy_store(golden("basic").path, tmp_path / "store")
    (tmp_path / "store" / "commitlog" / MIDDLE).unlink()
    return tmp_path / "store"


def clear_entries(store: Path, numbers: range) -> None:
    """Overwrite entries of the queue with zeros."""
    for file in (store / "consumequeue" / TOPIC / str(QUEUE)).iterdir():
        data = bytearray(file.read_bytes())
        begin = int(file.name) // 20
        for at in set(numbers) & set(range(begin, begin + len(data) // 20)):
            data[(at - begin) * 20 : (at - begin + 1) * 20] = bytes(20)
        file.write_bytes(data)


def test_a_pull_ends_before_a_missing_log_file_and_the_next_one_raises(holed: Path) -> None:
    with reput.open_store(holed) as store:
        before = store.pull(TOPIC, QUEUE, LOST.start - 1, 4)
        assert [each.queue_offset for each in before.messages] == [LOST.start - 1]
        assert before.next_begin_offset == LOST.start
        for pull in store.pull, store.pull_records:
            with pytest.raises(CorruptMessageError, match="no file contains it") as raised:
                pull(TOPIC, QUEUE, LOST.start, 4)
            assert raised.value.resume_offset == LOST.stop
            assert pickle.loads(pickle.dumps(raised.value)).resume_offset == LOST.stop
        after = store.pull(TOPIC, QUEUE, LOST.stop, 4)
        assert after.messages[0].queue_offset == LOST.stop
        with pytest.raises(CorruptMessageError, match="no file contains it"):
            store.get_by_queue(TOPIC, QUEUE, LOST.start)


def test_a_skipping_pull_reports_a_missing_log_file(holed: Path) -> None:
    with reput.open_store(holed) as store:
        for pull in store.pull, store.pull_records:
            pulled = pull(TOPIC, QUEUE, LOST.start, 4, on_corrupt="skip")
            assert (pulled.status, len(pulled[1])) == (PullStatus.FOUND, 4)
            assert pulled.next_begin_offset == LOST.stop + 4
            (lost,) = pulled.unreadable
            assert (lost.begin, lost.end) == (LOST.start, LOST.stop)
            assert "no file contains it" in str(lost)


def test_zeros_in_the_place_of_a_log_file_are_treated_as_a_missing_file(holed: Path) -> None:
    (holed / "commitlog" / MIDDLE).write_bytes(bytes(65_536))
    with reput.open_store(holed) as store:
        with pytest.raises(CorruptMessageError) as raised:
            store.pull(TOPIC, QUEUE, LOST.start)
        assert raised.value.resume_offset == LOST.stop
        pulled = store.pull(TOPIC, QUEUE, LOST.start, 4, on_corrupt="skip")
        assert pulled.messages[0].queue_offset == LOST.stop
        assert [(lost.begin, lost.end) for lost in pulled.unreadable] == [(LOST.start, LOST.stop)]


def test_lost_entries_are_skipped_and_reported(golden: Golden, tmp_path: Path) -> None:
    copy_store(golden("basic").path, tmp_path / "store")
    clear_entries(tmp_path / "store", range(20, 30))
    with reput.open_store(tmp_path / "store") as store:
        with pytest.raises(FormatError) as raised:
            store.pull(TOPIC, QUEUE, 20)
        assert raised.value.resume_offset == 30
        pulled = store.pull(TOPIC, QUEUE, 15, 32, on_corrupt="skip")
        assert pulled.next_begin_offset == 20
        pulled = store.pull(TOPIC, QUEUE, 20, 4, on_corrupt="skip")
        assert pulled.messages[0].queue_offset == 30
        assert [(lost.begin, lost.end) for lost in pulled.unreadable] == [(20, 30)]


def test_a_queue_that_lost_its_last_entries_is_reported_at_its_end(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.core.query.queue_ends._PATIENCE_S", 0.001)
    copy_store(golden("basic").path, tmp_path / "store")
    clear_entries(tmp_path / "store", range(150, 100_000))
    with reput.open_store(tmp_path / "store") as store:
        with pytest.raises(FormatError, match="later message") as raised:
            store.pull(TOPIC, QUEUE, 150)
        assert raised.value.resume_offset == 150
        pulled = store.pull(TOPIC, QUEUE, 150, on_corrupt="skip")
        assert (pulled.status, pulled.next_begin_offset) == (PullStatus.NO_NEW_MESSAGE, 150)
        assert [(lost.begin, lost.end) for lost in pulled.unreadable] == [(150, 150)]


@pytest.fixture
def repeated(tmp_path: Path) -> Path:
    """Return a store of ten messages in one queue. Message 5 and all later ones state a queue offset one too low."""
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        for number in range(10):
            store.put(reput.Message("T", b"m%d" % number, keys=[f"k{number}"]))
        assert store.wait_dispatched()
    log = path / "commitlog" / f"{0:020}"
    data, at = bytearray(log.read_bytes()), 0
    for number in range(10):
        (size,) = struct.unpack_from(">I", data, at)
        struct.pack_into(">q", data, at + 20, number - (number >= 5))
        at += size
    log.write_bytes(data)
    return path


def test_an_entry_wins_over_the_queue_offset_in_its_record(repeated: Path) -> None:
    bodies = [b"m%d" % number for number in range(10)]
    with reput.open_store(repeated) as store:
        for begin in range(10):
            pulled = store.pull("T", 0, begin)
            assert [each.body for each in pulled.messages] == bodies[begin:]
            assert store.get_by_queue("T", 0, begin).body == bodies[begin]
            assert len(store.pull_records("T", 0, begin).records) == 10 - begin


def test_an_entry_that_another_entry_replaced_is_reported(repeated: Path) -> None:
    queue = repeated / "consumequeue" / "T" / "0" / f"{0:020}"
    data = bytearray(queue.read_bytes())
    for copied, onto in ((2, 4), (8, 6)):
        data[onto * 20 : onto * 20 + 20] = data[copied * 20 : copied * 20 + 20]
    queue.write_bytes(data)
    with reput.open_store(repeated) as store:
        pulled = store.pull("T", 0, 0, on_corrupt="skip")
        assert pulled.next_begin_offset == 4
        for begin in 4, 6:
            with pytest.raises(CorruptMessageError, match=r"leads to a message of T/0"):
                store.pull("T", 0, begin)
            skipping = store.pull("T", 0, begin, on_corrupt="skip")
            assert (skipping.unreadable[0].begin, skipping.unreadable[0].end) == (begin, begin + 1)
            assert skipping.messages[0].body == b"m%d" % (begin + 1)


def test_a_tail_has_the_messages_of_a_repeated_queue_offset(
    repeated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from reput.cli.main import main

    assert main(["query", str(repeated), "--topic", "T"]) == 0
    printed = capsys.readouterr()
    assert all(f"m{number}\n" in printed.out for number in range(10))
    assert "10 messages" in printed.out


def test_a_topic_whose_messages_were_all_in_a_missing_log_file_is_not_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from reput.cli.main import main

    path, body = tmp_path / "store", bytes(5_000)
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        for topic in "AAABBBAAA":
            store.put(reput.Message(topic, body))
        assert store.wait_dispatched()
    (path / "commitlog" / f"{1 << 14:020}").unlink()
    for command in (["tail", str(path)], ["query", str(path)]):
        assert main([*command, "--topic", "B"]) == 3
        assert "16384 bytes lost" in capsys.readouterr().err
    with reput.open_store(path) as store:
        pulled = store.pull("B", 0, 0, on_corrupt="skip")
        assert (pulled.messages, pulled.next_begin_offset) == ((), 3)
        assert [(lost.begin, lost.end) for lost in pulled.unreadable] == [(0, 3)]
