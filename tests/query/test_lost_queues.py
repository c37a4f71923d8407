"""A queue whose messages are in the log is lost if it has no entries. It differs from an empty queue."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.log import log_topics
from reput.core.query import queue_ends
from reput.core.query.answers import PullStatus
from reput.core.query.message_store import MessageStore
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import FormatError, MessageNotFoundError
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store

Golden = Callable[[str], GoldenStore]
LOST = ("TopicA", 1)


def delete_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def empty_files(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(bytes(path.stat().st_size))


@pytest.fixture(params=[shutil.rmtree, delete_files, empty_files])
def store(golden: Golden, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = copy_store(golden("basic").path, tmp_path / "store")
    request.param(path.joinpath("consumequeue", LOST[0], str(LOST[1])))
    return path


READS: tuple[Callable[[MessageStore, str, int], object], ...] = (
    lambda store, *queue: store.get_by_queue(*queue, 0),
    lambda store, *queue: store.get_by_queue(*queue, 10),
    lambda store, *queue: store.pull(*queue, 0),
    lambda store, *queue: store.pull_records(*queue, 0),
    lambda store, *queue: store.end_offset_by_time(*queue, 1 << 50),
)


def test_a_lost_light_queue_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    config = reput.StoreConfig(1 << 16, 50, 64, 300, enable_multi_dispatch=True)
    with reput.open_store(tmp_path, mode="rw", config=config) as owner:
        names = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
        owner.put_many([reput.Message("T", b"x", properties=names)] * 3)
        assert owner.wait_dispatched()
    (folder,) = (tmp_path / "consumequeue").glob("%LMQ%*")
    shutil.rmtree(folder)
    with reput.open_store(tmp_path, config=config) as opened:
        for read in READS:
            with pytest.raises(FormatError, match="queue is lost; rebuild"):
                read(opened, "%LMQ%a", 0)
            with pytest.raises(MessageNotFoundError):
                read(opened, "%LMQ%b", 0)


def test_a_lost_light_queue_of_a_longer_log_is_noticed_by_samples(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_ends, "_MOST_LIGHT_BYTES", 0)
    monkeypatch.setattr(log_topics, "_QUEUES_WALKED_BYTES", 0)
    store = copy_store(golden("lmq").path, tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "%LMQ%a")
    with reput.open_store(store) as opened:
        with pytest.raises(FormatError, match="queue is lost; rebuild"):
            opened.pull("%LMQ%a", 0, 0)
        with pytest.raises(MessageNotFoundError):
            opened.pull("%LMQ%never", 0, 0)


@pytest.mark.every_case
def test_a_lost_queue_is_not_taken_for_an_empty_one(store: Path) -> None:
    with reput.open_store(store) as opened:
        for read in READS:
            with pytest.raises(FormatError, match="queue is lost; rebuild"):
                read(opened, *LOST)
            with pytest.raises(MessageNotFoundError):
                read(opened, "TopicA", 1000)
            with pytest.raises(MessageNotFoundError):
                read(opened, "unknown", 0)
        skipped = opened.pull(*LOST, 0, on_corrupt="skip")
        assert (skipped.status, skipped.messages) == (PullStatus.NO_NEW_MESSAGE, ())
        assert not skipped.is_complete
        [unreadable] = skipped.unreadable
        assert "rebuild the ConsumeQueues" in str(unreadable)
    shown = run("show", store, f"{LOST[0]}/{LOST[1]}/0")
    assert (shown.code, shown.out) == (3, "")
    assert "rebuild the ConsumeQueues" in shown.err
    assert run("show", store, "TopicA/1000/0").code == 1
    reput.rebuild(store, runner="serial")
    with reput.open_store(store) as opened:
        assert opened.pull(*LOST, 0).messages


@pytest.mark.parametrize(("walked", "scanned"), [(0, 1 << 30), (0, 0)])
def test_lost_queues_of_longer_logs(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walked: int, scanned: int
) -> None:
    """Longer logs are scanned, and the longest ones are sampled."""
    monkeypatch.setattr(log_topics, "_QUEUES_WALKED_BYTES", walked)
    monkeypatch.setattr(log_topics, "_SCANNED_BYTES", scanned)
    store = copy_store(golden("basic").path, tmp_path / "store")
    shutil.rmtree(store / "consumequeue" / "TopicA" / "1")
    with reput.open_store(store) as opened:
        with pytest.raises(FormatError, match="queue is lost"):
            opened.pull(*LOST, 0)
        with pytest.raises(MessageNotFoundError):
            opened.pull("TopicA", 1000, 0)
        assert opened._log_queues.are_all == bool(scanned)
    # Without any queue, samples cannot show which queues the topic had.
    shutil.rmtree(store / "consumequeue" / "TopicA")
    with reput.open_store(store) as opened:
        with pytest.raises(FormatError if not scanned else MessageNotFoundError):
            opened.pull("TopicA", 1000, 0)
        with pytest.raises(MessageNotFoundError):
            opened.pull("unknown", 0, 0)


def test_a_queue_whose_messages_have_expired_is_not_lost(tmp_path: Path) -> None:
    """A broker deletes the queue after the last of its messages."""
    fields = [
        RecordFields(topic="Old" if number < 5 else "T", queue_offset=number % 5, body=b"body")
        for number in range(200)
    ]
    files = forge_log(fields, file_bytes=1 << 13).files()
    store = build_store(tmp_path / "store", files, hash_slots=64, index_items=300)
    shutil.rmtree(store / "consumequeue" / "Old")
    with reput.open_store(store) as opened:
        with pytest.raises(FormatError, match="queue is lost"):
            opened.pull("Old", 0, 0)
        sorted(store.joinpath("commitlog").iterdir())[0].unlink()
        with pytest.raises(MessageNotFoundError):
            opened.pull("Old", 0, 0)


def test_the_newest_messages_of_a_topic_are_incomplete_without_a_queue(store: Path) -> None:
    with reput.open_store(store) as opened:
        assert not messages_of_topic(opened, LOST[0], limit=5).is_complete
        assert messages_of_topic(opened, "TopicB", limit=5).is_complete
    for path in store.joinpath("consumequeue", "TopicB").rglob("0*"):
        if path.is_file():
            cut_last_entry(path)
    with reput.open_store(store) as opened:
        assert not messages_of_topic(opened, "TopicB", limit=5).is_complete


def cut_last_entry(path: Path) -> None:
    data = path.read_bytes()
    used = len(data.rstrip(b"\0"))
    path.write_bytes(data[: (used - 1) // 20 * 20].ljust(len(data), b"\0"))
