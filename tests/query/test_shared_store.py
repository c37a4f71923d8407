"""A shared store answers as a store for one thread does, to any thread; the queues of a store are a QueueIndex."""

import inspect
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.log.reader import CommitLogReader
from reput.core.query.message_store import MessageStore
from reput.core.queues.queue_index import QueueIndex, QueueReader
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.engine.writer.shared_store import AnyStore, SharedStore
from reput.engine.writer.writable_store import WritableStore
from reput.errors import UsageError
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store

CONFIG = reput.StoreConfig(1 << 13, 20, 64, 100)


def as_queues(queues: QueueIndex) -> QueueIndex:
    """Return the argument. In the calls of this function, mypy checks that arguments satisfy the protocol."""
    return queues


def as_queue(queue: QueueReader) -> QueueReader:
    return queue


def parameters(method: Callable[..., object]) -> list[tuple[str, object]]:
    return [(p.name, p.default) for p in inspect.signature(method).parameters.values()]


SHARED = [name for name in vars(SharedStore) if hasattr(MessageStore, name) and name[0] != "_"]


@pytest.mark.parametrize("kind", [SharedStore, WritableStore])
def test_a_shared_store_has_the_methods_of_a_store_for_one_thread(kind: type) -> None:
    assert len(SHARED) > 20
    for name in SHARED:
        assert parameters(getattr(kind, name)) == parameters(getattr(MessageStore, name)), name


def test_store_objects_satisfy_the_protocols(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=CONFIG) as owned:
        owned.put(reput.Message("T", b"body"))
        assert owned.wait_dispatched()
        with reput.open_store(tmp_path / "store") as opened:
            stores: tuple[AnyStore, ...] = (owned, opened)
            for store in stores:
                assert store.list_queues() == [("T", 0)]
                assert store.topics() == ["T"]
                assert store.begin_offset() == 0
                record = store.get_record(0)
                assert store.pull_records("T", 0, 0).records == (record,)
                assert store.end_offset() >= len(record)
        with ConsumeQueueSetReader(tmp_path / "store") as queues:
            assert isinstance(as_queues(queues), QueueIndex)
            assert isinstance(as_queue(queues.queue("T", 0)), QueueReader)
        shared = SharedStore(tmp_path / "store", config=CONFIG)
        shared.close()
        with pytest.raises(UsageError):
            shared.get(0)


def small(path: Path) -> Path:
    records = [RecordFields(queue_offset=n, body=b"%d" % n * 40) for n in range(100)]
    return build_store(path, forge_log(records, file_bytes=4096).files(), 50, 900)


def test_records_are_the_bytes_of_the_log(tmp_path: Path) -> None:
    path = small(tmp_path / "store")
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    with reput.open_store(path) as store:
        pulled, messages = store.pull_records("T", 0, 10, 50), store.pull("T", 0, 10, 50)
        assert (pulled.status, *pulled[2:]) == (messages.status, *messages[2:])
        assert len(pulled.records) == len(messages.messages) == 50
        for record, message in zip(pulled.records, messages.messages, strict=True):
            start = message.physical_offset
            assert record == log[start : start + message.size_bytes]
            assert record == store.get_record(start)


@pytest.mark.parametrize("max_bytes", [0, 1, 300, 1000, 10**6])
def test_a_batch_of_records_is_no_longer_than_asked_but_has_one(
    tmp_path: Path, max_bytes: int
) -> None:
    with reput.open_store(small(tmp_path / "store")) as store:
        position = 0
        found: list[bytes] = []
        while records := store.pull_records("T", 0, position, 32, None, max_bytes).records:
            size = sum(map(len, records))
            assert size <= max_bytes or len(records) == 1
            found += records
            position += len(records)
        assert len(found) == 100


def test_threads_do_not_wait_for_one_that_reads_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small(tmp_path / "store")
    store = SharedStore(path, config=CONFIG)
    held, reading = threading.Event(), threading.Event()
    refresh = CommitLogReader.refresh

    def slow_disk(log: CommitLogReader) -> bool:
        if threading.current_thread().name == "slow":
            reading.set()
            assert held.wait(60)
        return refresh(log)

    monkeypatch.setattr(CommitLogReader, "refresh", slow_disk)
    for work in (store.drop_expired, lambda: store.get(0)):
        held.clear()
        reading.clear()
        slow = threading.Thread(target=work, name="slow")
        slow.start()
        assert reading.wait(60)
        answered = threading.Event()

        def ask(answered: threading.Event = answered) -> None:
            assert store.get(0).queue_offset == 0
            assert len(store.pull("T", 0, 0).messages) == 32
            answered.set()

        other = threading.Thread(target=ask)
        other.start()
        assert answered.wait(60)
        held.set()
        slow.join()
        other.join()
    store.close()
