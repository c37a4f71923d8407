"""A broker's messages are put again: the same CommitLog, the same ConsumeQueues, for all ways of putting."""

import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from reput.engine.writer.put.message import Message
from reput.errors import MessageRefusedError
from tests.golden.stores import GoldenStore
from tests.writer.golden_puts import GoldenPut, Replay, golden_puts

Golden = Callable[[str], GoldenStore]
# `extremes` has times at which no store can be opened: see test_commit_log_writer.
LONG = ("git", "orders")
STORES = ("basic", "git", "lmq", "orders", "timed", "tricky")
FIVE = (
    "five_batch",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("five_compaction", "five_crc", "five_default", "five_timer")
    ),
)


@pytest.mark.parametrize("name", STORES)
def test_put_one_by_one(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    replay = Replay(store, tmp_path / "store")
    for put in golden_puts(store):
        writer = replay.writer(put)
        one = put.messages[0]
        results = writer.put_batch(put.messages) if put.is_batch else [writer.put(one)]
        assert [
            (one.physical_offset, one.queue_offset, one.store_timestamp) for one in results
        ] == [(record.physical_offset, record.queue_offset, put.time_ms) for record in put.records]
    replay.close()
    assert_same_bytes(store, tmp_path / "store")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in STORES],
)
def test_put_many_at_once(golden: Golden, tmp_path: Path, name: str) -> None:
    store = golden(name)
    replay = Replay(store, tmp_path / "store")

    def together(put: GoldenPut) -> tuple[object, ...]:
        return put.time_ms, put.store_host, put.records[0].physical_offset if put.is_batch else None

    for _, group in groupby(golden_puts(store), together):
        puts = list(group)
        writer = replay.writer(puts[0])
        if puts[0].is_batch:
            writer.put_batch(puts[0].messages)
        else:
            writer.put_many(message for put in puts for message in put.messages)
    replay.close()
    assert_same_bytes(store, tmp_path / "store")


def test_message_ids_are_a_brokers(golden: Golden, tmp_path: Path) -> None:
    store = golden("tricky")
    replay = Replay(store, tmp_path / "store")
    ids = []
    for put in golden_puts(store):
        writer = replay.writer(put)
        results = writer.put_batch(put.messages) if put.is_batch else writer.put_many(put.messages)
        ids.append(",".join(one.message_id for one in results))
    replay.close()
    larger_than_a_file = {p.message_id for p in store.puts if p.size == store.commit_log_file_bytes}
    assert {put.message_id for put in store.puts} - set(ids) == {None, *larger_than_a_file}
    assert len(set(ids)) == len(ids) == 1578 - 1 + 4  # 4 are deliveries of delayed messages


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "many at once"])
@pytest.mark.parametrize("name", FIVE)
def test_put_as_a_5_broker(golden: Golden, tmp_path: Path, name: str, at_once: bool) -> None:
    store, made = golden(name), tmp_path / "store"
    # topics.json states which queues are batch queues.
    shutil.copytree(store.path / "config", made / "config")
    replay = Replay(store, made)
    for put in golden_puts(store):
        writer = replay.writer(put)
        if put.is_batch:
            writer.put_batch(put.messages)
        elif at_once:
            writer.put_many(put.messages)
        else:
            writer.put(put.messages[0])
    replay.close()
    assert_same_bytes(store, made, ("commitlog", "consumequeue", "batchconsumequeue"))
    index, expected = sorted((made / "index").iterdir()), sorted((store.path / "index").iterdir())
    assert [path.read_bytes() for path in index] == [path.read_bytes() for path in expected]


def assert_same_bytes(
    store: GoldenStore, made: Path, folders: tuple[str, ...] = ("commitlog", "consumequeue")
) -> None:
    for folder in folders:
        expected, found = files(store.path / folder), files(made / folder)
        assert expected.keys() == found.keys()
        for name, path in found.items():
            assert path.read_bytes() == expected[name].read_bytes(), name


def files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_the_message_that_a_broker_lost_is_refused(golden: Golden, tmp_path: Path) -> None:
    store = golden("tricky")
    replay = Replay(store, tmp_path / "store")
    writer = replay.writer(next(golden_puts(store)))
    for put in (writer.put, lambda message: writer.put_many([message])):
        with pytest.raises(MessageRefusedError, match="at most 65528 bytes"):
            put(Message("TrickyTopic", bytes(65_500)))
    replay.close()
