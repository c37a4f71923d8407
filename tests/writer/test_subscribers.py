"""Subscribers of dispatched messages, and further dispatchers."""

from pathlib import Path

import numpy as np
import pytest

import reput
from reput.core.log.dispatch_batch import DispatchBatch
from reput.errors import UsageError
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.format.java_string import hash_code
from tests.recovery.checking import check_store
from tests.small import SMALL_16K

Message = reput.Message


class Offsets:
    """A dispatcher that records the physical offsets it gets, and its place in the order of calls."""

    def __init__(self, calls: list[str], name: str, fails_at: int | None = None) -> None:
        self.calls, self.name, self.fails_at = calls, name, fails_at
        self.offsets: list[int] = []

    def dispatch(self, batch: DispatchBatch) -> None:
        self.calls.append(self.name)
        if self.fails_at is not None and len(self.offsets) >= self.fails_at:
            raise SystemExit(self.name)
        self.offsets += batch.messages["physical_offset"].tolist()


def put_some(store: reput.WritableStore, count: int) -> list[int]:
    puts = store.put_many([Message("T", bytes(300), [str(n)]) for n in range(count)])
    assert store.wait_dispatched()
    offsets: list[int] = puts.physical_offset.tolist()
    return offsets


def test_further_dispatchers_get_each_message_once_in_order(tmp_path: Path) -> None:
    calls: list[str] = []
    one, two = Offsets(calls, "one"), Offsets(calls, "two")
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_16K) as store:
        missed = put_some(store, 50)
        with store.add_dispatcher(one) as handle, store.add_dispatcher(two):
            assert handle.begins_at == store.dispatched_to > missed[-1]
            given = put_some(store, 100)
        put_some(store, 50)
    assert one.offsets == two.offsets == given
    assert calls == ["one", "two"] * (len(calls) // 2)


def test_one_that_fails_is_detached_and_stops_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store"
    bad, good = Offsets([], "bad", fails_at=1), Offsets([], "good")
    with reput.open_store(path, mode="rw", config=SMALL_16K) as store:
        failing, working = store.add_dispatcher(bad), store.add_dispatcher(good)
        given = [offset for _ in range(3) for offset in put_some(store, 10)]
        assert good.offsets == given
        assert bad.offsets == given[: len(bad.offsets)] != given
        assert isinstance(failing.error, SystemExit)
        assert working.error is None
    assert not (path / "abort").exists()
    check_store(path, SMALL_16K)


def test_a_subscription_ends_when_it_is_closed(tmp_path: Path) -> None:
    ends: list[int] = []
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_16K) as store:
        with store.subscribe(lambda topic, queue_id, end: ends.append(end)):
            put_some(store, 3)
        put_some(store, 3)
    assert ends[-1] == 3


def test_the_store_says_how_far_dispatch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_16K) as store:
        put_some(store, 10)
        assert (store.dispatched_to, store.dispatch_lag_bytes) == (store.end_offset(), 0)
        before = store.dispatched_to
        with store._writer.dispatcher.between_batches:
            store.put(Message("T", bytes(300)))
            assert store.dispatched_to == before
            assert store.dispatch_lag_bytes == store.end_offset() - before > 300
        assert store.wait_dispatched()
        assert store.dispatch_lag_bytes == 0


class Requests:
    """A dispatcher that keeps what it reads of each request."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, ...]] = []
        self.last: DispatchBatch | None = None

    def dispatch(self, batch: DispatchBatch) -> None:
        self.last = batch
        for each in batch.requests():
            self.seen.append(
                (each.topic, each.queue_id, each.queue_offset, each.physical_offset, each.size, each.tags_code,
                 each.store_timestamp, each.sys_flag, each.keys, each.unique_key, each.properties,
                 each.prepared_transaction_offset)
            )  # fmt: skip


def test_requests_have_what_the_messages_have(tmp_path: Path) -> None:
    dispatcher = Requests()
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_16K) as store:
        with store.add_dispatcher(dispatcher):
            store.put(Message("T", b"first", ["a", "b"], tags="t"))
            store.put(Message("U", b"second", properties={"colour": "red"}))
            offsets = put_some(store, 60)
        messages = [store.get(row[3]) for row in dispatcher.seen if isinstance(row[3], int)]
    assert len(messages) == 62
    assert [message.physical_offset for message in messages[2:]] == offsets
    for row, message in zip(dispatcher.seen, messages, strict=True):
        assert row == (
            message.topic, message.queue_id, message.queue_offset, message.physical_offset, message.size_bytes,
            hash_code(message.tags or ""), message.store_timestamp, message.sys_flag, message.keys,
            message.unique_key, message.properties, message.prepared_transaction_offset,
        )  # fmt: skip
    assert messages[0].keys == ["a", "b"]
    assert messages[1].properties["colour"] == "red"


def test_a_batch_without_its_log_has_no_requests() -> None:
    batch = DispatchBatch(
        np.zeros(0, MESSAGE_DTYPE), np.zeros(0, np.int32), np.zeros(0, MULTI_DTYPE), []
    )
    with pytest.raises(UsageError, match="only the batches that dispatchers receive"):
        next(batch.requests())
