"""Written stores with queues in RocksDB: the entries of a 5.3.3 broker, after any crash."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.engine.five.rocksdb_reader import RocksQueues
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.errors import UsageError
from reput.format.rocksdb_queue import (
    ENTRIES_FAMILY,
    OFFSETS_FAMILY,
    decode_value,
    entry_key,
    queue_prefix,
)
from tests.five import CONFIG, inner_batch, write_topics
from tests.golden.sparse import copy_store
from tests.golden.stores import CHECKOUT, GoldenStore
from tests.rocksdb_queues import cut_database, items
from tests.slow import slow_from
from tests.writer.golden_puts import Replay, golden_puts, store_config

Golden = Callable[[str], GoldenStore]
NAME = "five_rocksdb"
ROCKS = replace(CONFIG, queues_in_rocksdb=True)
pytest.importorskip("rocksdict")


@pytest.mark.parametrize("at_once", slow_from(1, [True, False]))
def test_put_again_as_the_broker_got_it(golden: Golden, tmp_path: Path, at_once: bool) -> None:
    store, made = golden(NAME), tmp_path / "store"
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
    assert items(made) == items(store.path)
    assert [path.read_bytes() for path in sorted((made / "commitlog").iterdir())] == [
        path.read_bytes() for path in sorted((store.path / "commitlog").iterdir())
    ]
    checkpoint = (made / "checkpoint").read_bytes()
    # With queues in RocksDB, a broker does not set the time of queue entries.
    assert checkpoint[8:16] == bytes(8)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_database_that_is_behind_gets_every_entry(
    golden: Golden, tmp_path: Path, is_clean: bool
) -> None:
    source = golden(NAME)
    store = copy_store(source.path, tmp_path / "store")
    cut_database(store, source.messages[len(source.messages) // 2].physical_offset)
    assert items(store) != items(source.path)
    if not is_clean:
        (store / "abort").touch()
    ran = StoreWriter(store, store_config(source))
    ran.close()
    assert items(store) == items(source.path)


def test_entries_beyond_the_log_go(golden: Golden, tmp_path: Path) -> None:
    source = golden(NAME)
    store = copy_store(source.path, tmp_path / "store")
    last = max((store / "commitlog").iterdir())
    end = int(last.name)
    last.unlink()
    ran = StoreWriter(store, store_config(source))
    assert ran.recovery.log_end < end
    assert ran.recovery.lost_messages
    ran.close()
    entries = items(source.path)[ENTRIES_FAMILY].items()
    kept = {key: value for key, value in entries if decode_value(value)[0].physical_offset < end}  # type: ignore[index]
    found = items(store)
    assert found[ENTRIES_FAMILY] == kept
    assert max(int.from_bytes(value[:8], "big") for value in found[OFFSETS_FAMILY].values()) < end
    with reput.open_store(store) as opened:
        for topic, queue_id in opened.list_queues():
            prefix = queue_prefix(topic, queue_id)
            stop = opened.max_queue_offset(topic, queue_id)
            assert entry_key(prefix, stop - 1) in kept
            assert entry_key(prefix, stop) not in kept


def test_what_is_put_into_a_brokers_store_is_read(golden: Golden, tmp_path: Path) -> None:
    source = golden(NAME)
    store = copy_store(source.path, tmp_path / "store")
    before = {path.name for path in (store / "consumequeue").iterdir()}
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in source.queues}
    topic, queue_id = next(name for name in ends if name[0].isalnum())
    with reput.open_store(store, mode="rw", config=store_config(source)) as opened:
        places = [opened.put(Message(topic, b"%d" % n, queue_id=queue_id)) for n in range(100)]
        assert places[0].queue_offset == ends[topic, queue_id]
        assert opened.wait_dispatched()
        message = opened.get_by_queue(topic, queue_id, places[40].queue_offset)
        assert message.body == b"40"
    with reput.open_store(store) as opened:
        for number, place in enumerate(places):
            found = opened.get_by_queue(topic, queue_id, place.queue_offset)
            assert found.body == b"%d" % number
    after = {path.name for path in (store / "consumequeue").iterdir()}
    assert {name.split("-")[0].rsplit(".")[-1] for name in after - before} <= {
        "sst", "log", "MANIFEST", "OPTIONS", "CURRENT",
    }  # fmt: skip


PUT_AND_DIE = """
import os, sys
from pathlib import Path
from reput.engine.five.rocksdb_reader import RocksQueues
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from tests.writer.test_rocksdb_queues import ROCKS
writer = StoreWriter(Path(sys.argv[1]), ROCKS)
for number in range(500):
    writer.put(Message("T", b"%d" % number, [f"k{number}"], queue_id=number % 3))
writer.wait_dispatched(None, None)
os._exit(0)
"""


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    subprocess.run([sys.executable, "-c", PUT_AND_DIE, str(store)], cwd=CHECKOUT, check=True)
    assert (store / "abort").exists()
    with reput.open_store(store, mode="rw", config=ROCKS) as opened:
        assert not opened.recovery.is_clean
        assert opened.put(Message("T", b"500", queue_id=2)).queue_offset == 166
    with reput.open_store(store) as opened:
        for number in range(501):
            found = opened.get_by_queue("T", number % 3, number // 3)
            assert found.body == b"%d" % number
    assert len(items(store)[ENTRIES_FAMILY]) == 501


def test_a_batch_that_is_last_keeps_its_numbers(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_topics(store, "B")
    with reput.open_store(store, mode="rw", config=ROCKS) as opened:
        opened.put(inner_batch("B", [b"a", b"b", b"c"]))
    with reput.open_store(store, mode="rw", config=ROCKS) as opened:
        assert opened.put(Message("B", b"d")).queue_offset == 3


FORK = """
import os, sys
import reput
from tests.writer.test_rocksdb_queues import ROCKS
with reput.open_store(sys.argv[1], mode="rw", config=ROCKS) as opened:
    opened.put(reput.Message("T", b"one"))
    assert opened.wait_dispatched()
    files = sorted(os.listdir(sys.argv[1] + "/consumequeue"))
    child = os.fork()
    if not child:
        sys.exit(0)  # which ends every object of the child
    os.waitpid(child, 0)  # RocksDB may end it by a signal: its threads are missing
    assert sorted(os.listdir(sys.argv[1] + "/consumequeue")) == files
    opened.put(reput.Message("T", b"two"))
"""


def test_a_fork_leaves_the_database_to_its_parent(tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-c", FORK, str(store)]
    subprocess.run(command, cwd=CHECKOUT, check=True, timeout=300)
    with reput.open_store(store) as found:
        assert found.get_by_queue("T", 0, 1).body == b"two"


def test_the_kind_of_queues_is_not_changed(tmp_path: Path) -> None:
    with reput.open_store(tmp_path, mode="rw", config=CONFIG) as opened:
        opened.put(Message("T", b"one"))
    with pytest.raises(UsageError, match="reput rebuild converts them"):
        reput.open_store(tmp_path, mode="rw", config=ROCKS)


def test_readers_of_a_store_that_stays_open_hold_few_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, puts = 50, 40
    monkeypatch.setattr("reput.engine.five.rocksdb_database.MOST_UNDISPATCHED", limit)
    store = tmp_path / "store"
    with reput.open_store(store, mode="rw", config=ROCKS) as opened:
        opened.put(Message("T", b"first"))
        assert opened.wait_dispatched()
        with reput.open_store(store) as reader:
            for number in range(1, 30):
                opened.put_many(Message("T", b"%d" % n) for n in range(puts))
                assert opened.wait_dispatched()
                assert reader.max_queue_offset("T", 0) == 1 + number * puts
                assert reader.get_by_queue("T", 0, 1 + (number - 1) * puts).body == b"0"
                assert isinstance(reader.queues, RocksQueues)
                assert reader.queues.held <= 3 * (limit + puts)


@pytest.mark.skipif(sys.platform != "linux", reason="needs on_exit")
def test_a_forked_child_ends_as_it_says(tmp_path: Path) -> None:
    """The library's clean-up would wait for threads that only the parent has, and crash."""
    lines = (
        "import os, sys, reput",
        f"from tests.five import CONFIG; from dataclasses import replace; path = {str(tmp_path / 'store')!r}",
        "config = replace(CONFIG, queues_in_rocksdb=True)",
        "with reput.open_store(path, mode='rw', config=config) as store:",
        "    store.put(reput.Message('T', b'x'))",
        "    store.wait_dispatched()",
        "    child = os.fork()",
        "    if not child:",
        "        print('child')",
        "        sys.exit(3)",
        "    status = os.waitpid(child, 0)[1]",
        "    store.put(reput.Message('T', b'y'))",
        "print(os.waitstatus_to_exitcode(status))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=CHECKOUT, capture_output=True, text=True, timeout=300,
        check=True,
    )  # fmt: skip
    assert done.stdout == "child\n3\n"
    with reput.open_store(tmp_path / "store") as reader:
        assert reader.max_queue_offset("T", 0) == 2
