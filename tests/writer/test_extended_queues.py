"""Written stores with ConsumeQueue extension files: units and entries as a 5.3.3 broker writes them."""

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import reput
from reput.base.findings import Kind
from reput.base.tasks import SerialRunner
from reput.core.queues.reader import ExtendedQueueReader
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.engine.check.run import check_store
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.writer.put.message import Message
from reput.engine.writer.store_writer import StoreWriter
from reput.format.consume_queue_ext import is_address
from reput.testing.forgetful_disk import ForgetfulDisk
from tests.five import CONFIG
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.writer.golden_puts import Replay, golden_puts, store_config

Golden = Callable[[str], GoldenStore]
EXTENDED = replace(CONFIG, extension_files=True, extension_file_bytes=256)
Entries = dict[tuple[str, int], list[tuple[int, ...]]]


def entries(store: Path) -> Entries:
    """Return for each queue: position, size, whether there is a unit, and the tags code and the time in it."""
    found: Entries = {}
    with closing(ConsumeQueueSetReader(store)) as queues:
        for name in queues.list():
            queue = queues.queue(*name)
            assert isinstance(queue, ExtendedQueueReader)
            rows: list[tuple[int, ...]] = []
            for number in range(queue.min_queue_offset(), queue.max_queue_offset()):
                entry = queue.stored_entry(number)
                row = entry.physical_offset, entry.size
                if is_address(entry.tags_code):
                    unit = queue.units.unit(entry.tags_code)
                    assert unit is not None
                    rows.append((*row, 1, unit.tags_code, unit.store_timestamp))
                else:
                    rows.append((*row, 0, entry.tags_code))
            if rows:
                found[name] = rows
    return found


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_put_again_as_the_broker_got_it(golden: Golden, tmp_path: Path) -> None:
    store, made = golden("five_ext"), tmp_path / "store"
    shutil.copytree(store.path / "config", made / "config")
    replay = Replay(store, made)
    for put in golden_puts(store):
        writer = replay.writer(put)
        if put.is_batch:
            writer.put_batch(put.messages)
        else:
            writer.put_many(put.messages)
    replay.close()
    assert entries(made) == entries(store.path)
    # The broker's units have bit maps; apart from these, a rebuild writes the same bytes.
    again = tmp_path / "again"
    shutil.copytree(made / "commitlog", again / "commitlog")
    shutil.copytree(made / "config", again / "config")
    rebuild_store(SerialRunner(), again, config=store_config(store))
    for folder in ("consumequeue", "consumequeue_ext"):
        assert files(made / folder) == files(again / folder)


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_put_into_a_brokers_store_is_read(
    golden: Golden, tmp_path: Path, is_clean: bool
) -> None:
    source = golden("five_ext")
    store = copy_store(source.path, tmp_path / "store")
    before, units = entries(store), files(store / "consumequeue_ext")
    if not is_clean:
        (store / "abort").touch()
    ran = StoreWriter(store, store_config(source))
    ran.close()
    assert (entries(store), files(store / "consumequeue_ext")) == (before, units)
    topic, queue_id = max(before, key=lambda name: len(before[name]) * name[0].isalnum())
    with reput.open_store(store, mode="rw", config=store_config(source)) as opened:
        for number in range(100):
            opened.put(Message(topic, b"%d" % number, tags=f"t{number}", queue_id=queue_id))
    after = entries(store)
    rows = after.pop((topic, queue_id))
    old = before.pop((topic, queue_id))
    assert (after, rows[: len(old)], len(rows)) == (before, old, len(old) + 100)
    assert list(check_store(store, config=store_config(source))) == []


def test_entries_beyond_the_log_go_with_their_units(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_ext")
    store = copy_store(source.path, tmp_path / "store")
    last = max((store / "commitlog").iterdir())
    last.unlink()
    kept = {
        name: [row for row in rows if row[0] < int(last.name)]
        for name, rows in entries(store).items()
    }
    ran = StoreWriter(store, store_config(source))
    ran.close()
    assert entries(store) == {name: rows for name, rows in kept.items() if rows}
    found = {one.kind for one in check_store(store, config=store_config(source))}
    assert found <= {Kind.CHECKPOINT_AHEAD}


def test_lost_entries_and_units_are_written_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.open_store(store, mode="rw", config=EXTENDED) as opened:
        opened.put_many(Message("T", b"%d" % n, tags=f"t{n}", queue_id=n % 2) for n in range(90))
    before, written = entries(store), files(store / "consumequeue")
    assert all(row[2] for rows in before.values() for row in rows)
    shutil.rmtree(store / "consumequeue_ext" / "T" / "1")
    path = store / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:60] + bytes(path.stat().st_size - 60))
    (store / "abort").touch()
    with reput.open_store(store, mode="rw", config=EXTENDED):
        pass
    assert entries(store) == before
    assert files(store / "consumequeue") == written


def test_units_are_durable_before_the_entries_that_lead_to_them(tmp_path: Path) -> None:
    store = tmp_path / "store"
    disk, left = ForgetfulDisk(store), list[Path]()

    def cut(point: str) -> None:
        if point in ("sync consumequeue/TOPIC/QUEUE/file done", "sync folder consumequeue done"):
            left.append(tmp_path / f"left {len(left)}")
            disk.cut_power(Random(len(left)), left[-1])

    disk.on_point = cut
    with closing(StoreWriter(store, EXTENDED, disk=disk)) as writer:
        for tag in ("first", "second", "third"):
            writer.put_many([Message("T", b"body", tags=tag, queue_id=n % 2) for n in range(10)])
            assert writer.dispatcher.wait(writer.end_offset, None)
            writer._index_sync.run()
    # `entries` refuses an entry whose unit is missing.
    survivors = [entries(target) for target in left]
    assert any(survivors)


def test_units_expire_with_their_messages(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with reput.open_store(store, mode="rw", config=EXTENDED) as opened:
        opened.put_many(Message("T", bytes(200), tags=f"t{n}") for n in range(200))
        assert opened.wait_dispatched()
        before = sorted(files(store / "consumequeue_ext"))
        report = opened.expire(2**62)
        gone = [path for path in report.queue_files if "consumequeue_ext" in path]
        left = sorted(files(store / "consumequeue_ext"))
        assert len(gone) + len(left) == len(before)
        assert len(gone) > 10
        opened.put(Message("T", b"new", tags="new"))
    begin = report.log_begin
    with closing(ConsumeQueueSetReader(store)) as queues:
        queue = queues.queue("T", 0)
        first = queue.min_queue_offset(begin)
        assert [queue.entry(n).tags_code > -(1 << 31) for n in range(first, 201)] == [True] * (
            201 - first
        )
