"""A store that is written to and queried, in one process and in two."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.base.config import StoreConfig
from reput.errors import MessageNotFoundError, MessageRefusedError, StoreLockedError, UsageError
from reput.format.properties import decode_properties
from tests.recovery.checking import check_store
from tests.small import SMALL_32K
from tests.waiting import wait_for

Message = reput.Message


def orders(count: int) -> list[Message]:
    return [
        Message("orders", f"body {n}".encode(), [f"o-{n}", "all"], f"t{n % 3}", n % 2)
        for n in range(count)
    ]


def test_put_get_query_pull(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as store:
        results = [store.put(message) for message in orders(500)]
        arrived: list[tuple[str, int, int]] = []
        store.subscribe(lambda *grown: arrived.append(grown))
        results += store.put_many(orders(500))
        assert store.wait_dispatched()
        assert arrived[-1][0] == "orders"
        assert max(end for _, _, end in arrived) == 500
        assert store.get(results[7].physical_offset).body == b"body 7"
        assert store.get_by_id(results[9].message_id).queue_offset == results[9].queue_offset
        found = store.query("orders", "o-123")
        assert [m.physical_offset for m in found.messages] == [
            results[623].physical_offset,
            results[123].physical_offset,
        ]
        assert len(store.query("orders", "all").messages) == 1000
        unique = found.messages[0].properties["UNIQ_KEY"]
        assert store.get_by_id(unique, "orders").body == b"body 123"
        pulled = store.pull("orders", 1, 0, 10, "t0 || t2")
        assert [m.properties["TAGS"] for m in pulled.messages] == ["t0", "t2"] * 5
        assert pulled.next_begin_offset == 15
        assert (pulled.min_offset, pulled.max_offset) == (0, 500)
        assert store.pull("orders", 1, 499, 10).messages[0].body == b"body 499"
        assert store.pull("orders", 1, 500, 10).messages == ()
        time = store.get_by_queue("orders", 0, 250).store_timestamp
        first = store.offset_by_time("orders", 0, time)
        assert first <= 250
        assert store.get_by_queue("orders", 0, first).store_timestamp == time
        assert store.offset_by_time("orders", 0, 1 << 62) == 500
        with pytest.raises(MessageNotFoundError):
            store.pull("orders", 7, 0)
    check_store(tmp_path / "store", SMALL_32K)
    assert not (tmp_path / "store" / "abort").exists()


def test_a_store_goes_on_where_it_ended(tmp_path: Path) -> None:
    for _ in range(5):
        with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as store:
            assert store.recovery.is_clean
            store.put_many(orders(130))
        check_store(tmp_path / "store", SMALL_32K)
    with reput.open_store(tmp_path / "store") as reader:
        assert reader.max_queue_offset("orders", 0) == 5 * 65
        assert len(reader.query("orders", "o-7").messages) == 5


def test_columns_are_the_same_messages(tmp_path: Path) -> None:
    count = 70_000
    batch = pa.record_batch(
        {
            "topic": pa.array(["orders", "payments"] * (count // 2)),
            "body": pa.array([str(n).encode() for n in range(count)]),
            "queue_id": pa.array([n % 4 for n in range(count)], pa.int32()),
            "keys": pa.array([[f"k{n}", "x"] if n % 5 else None for n in range(count)]),
            "tags": pa.array([None, "a"] * (count // 2)),
        }
    )
    config = StoreConfig(1 << 24, 40_000, 1000, 300_000)
    with reput.open_store(tmp_path / "store", mode="rw", config=config) as store:
        store.put_columns(batch.slice(0, 0))
        result = store.put_columns(batch.slice(3))
        assert len(result.physical_offset) == count - 3
        store.put_columns({"topic": "orders", "body": [b"one", b"two"], "queue_id": 3})
        store.put_columns({"topic": "keyless", "body": [b"three"], "keys": [[]]})
        assert store.wait_dispatched()
        message = store.get(int(result.physical_offset[4]))
        assert (message.topic, message.body, message.queue_id) == ("payments", b"7", 3)
        text = message.properties_bytes.decode()
        assert list(decode_properties(text)) == ["KEYS", "UNIQ_KEY", "TAGS"]
        assert message.properties["KEYS"] == "k7 x"
        assert store.get_by_queue("orders", 3, 1).body == b"two"
        keys = {store.get(int(at)).properties["UNIQ_KEY"] for at in result.physical_offset}
        assert len(keys) == count - 3
    check_store(tmp_path / "store", config)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"topic": "T"}, UsageError),
        ({"topic": "T", "body": [b""], "colour": [1]}, UsageError),
        ({"topic": ["T", "T"], "body": [b""]}, UsageError),
        ([1], UsageError),
        ({"topic": "T", "body": [b""], "queue_id": [1 << 31]}, UsageError),
        ({"topic": "T", "body": [b""], "queue_id": [-1]}, MessageRefusedError),
        ({"topic": "T", "body": [b""], "keys": [["a b"]]}, MessageRefusedError),
        ({"topic": "T", "body": [b""], "tags": ["a\x02"]}, MessageRefusedError),
        ({"topic": [None], "body": [b""]}, MessageRefusedError),
        ({"topic": "T", "body": [b"", b"x" * (1 << 15)]}, MessageRefusedError),
    ],
)
def test_columns_that_cannot_be_right(
    tmp_path: Path, columns: object, error: type[Exception]
) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as store:
        with pytest.raises(error):
            store.put_columns(columns)
        assert store.end_offset() == 0


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "store"
    code = f"import reput; reput.open_store({str(path)!r}, mode='rw')"
    with reput.open_store(path, mode="rw", config=SMALL_32K) as store:
        with pytest.raises(StoreLockedError):
            reput.open_store(path, mode="rw")
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "StoreLockedError" in other.stderr
        store.put(Message("T"))
    reput.open_store(path, mode="rw").close()


def test_a_reader_sees_what_is_dispatched_meanwhile(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as store:
        store.put_many(orders(1))
        store.wait_dispatched()
        with reput.open_store(tmp_path / "store", config=SMALL_32K) as reader:
            for number in range(1, 30):
                store.put_many(orders(100))
                assert store.wait_dispatched()
                assert len(reader.query("orders", "o-0").messages) == number + 1
                assert reader.max_queue_offset("orders", 0) == 50 * number + 1
                last = reader.pull("orders", 1, 50 * number - 1).messages[0]
                assert last.body == b"body 99"


def test_one_sync_serves_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a slow disk, each sync takes so long that every thread has put its next message."""
    fdatasync = os.fdatasync
    store = reput.open_store(tmp_path / "store", mode="rw", flush="sync")
    store.put(Message("T", b"x" * 1000, ["00"]))
    size, before = store._writer.end_offset, store._writer.syncs

    def waiting() -> int:
        return (store._writer.end_offset - store._writer.flusher.flushed) // size

    def as_slow_as_a_disk(descriptor: int) -> None:
        if threading.current_thread().name == "reput-flush":
            wait_for(lambda: waiting() >= sum(each.is_alive() for each in threads))
        fdatasync(descriptor)

    # A thread that puts before the others have started would have syncs of its own.
    begin = threading.Barrier(16)

    def put_some() -> None:
        begin.wait()
        for number in range(40):
            result = store.put(Message("T", b"x" * 1000, [f"{number:02}"]))
            assert store._writer.flusher.flushed > result.physical_offset

    monkeypatch.setattr(os, "fdatasync", as_slow_as_a_disk)
    threads = [threading.Thread(target=put_some) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncs = store._writer.syncs - before
    store.close()
    # A sync covers what is put before it begins, so two syncs serve all threads.
    assert 640 / syncs >= 6


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K)
    store.close()
    store.close()
    with pytest.raises(UsageError, match="is closed"):
        store.put(Message("T"))
    with pytest.raises(UsageError):
        reput.open_store(tmp_path / "store", mode="w")  # type: ignore[call-overload]
    with pytest.raises(UsageError):
        reput.open_store(tmp_path / "store", mode="rw", flush="never")  # type: ignore[call-overload]


def test_what_was_dispatched_is_in_a_brokers_answers(tmp_path: Path) -> None:
    asked = ("orders", "all", 64, 0, 1 << 62)
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL_32K) as store:
        assert store.query_offset(*asked).physical_offsets == ()
        for count in (1, 200, 700):  # 300 entries fill a file
            newest = store.put_many(orders(count))[-1].physical_offset
            assert store.wait_dispatched()
            found = store.query_offset(*asked)
            assert found.physical_offsets[0] == newest
            assert found.index_last_update_physical_offset == newest
            assert newest in store.query_message(*asked).physical_offsets
