"""The predicted effects of a broker's next start, compared with the observed behaviour of 5.3.3."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from reput.base.findings import Finding, Kind
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.engine.check.repairing.driver import plan_repair, repair_store
from reput.engine.check.run import check_store
from reput.engine.writer.recovery.broker_start import known_offset
from reput.format.consume_queue import ENTRY_BYTES
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.rocksdb_queues import cut_database, items

Golden = Callable[[str], GoldenStore]


def found(store: Path, kind: Kind) -> list[Finding]:
    return [one for one in check_store(store) if one.kind is kind]


def behind(source: GoldenStore, store: Path) -> int:
    """Copy a store, and let its database end before a message in the middle of the log. Return the message's offset."""
    copy_store(source.path, store)
    entries = sorted(row.physical_offset for row in source.queue_entries)
    at = entries[len(entries) // 2]
    cut_database(store, at)
    return at


def test_the_message_that_a_clean_start_skips_is_named(golden: Golden, tmp_path: Path) -> None:
    """Observed with 5.3.3: after a clean shutdown, the first message that the queue database lacks gets no entry."""
    pytest.importorskip("rocksdict")
    source, store = golden("five_rocksdb"), tmp_path / "store"
    at = behind(source, store)
    [row] = [row for row in source.messages if row.physical_offset == at]
    [one] = found(store, Kind.SKIPPED_AT_START)
    assert one.physical_offset == at
    assert f"queue {row.queue_id} of {row.topic} lacks message {row.queue_offset}" in one.detail
    assert "a copy of a running store must include it" in one.detail
    assert (one.cost, one.at_next_start) == (
        "it gets no entry", f"dispatches messages that begin after {at}, without this one",
    )  # fmt: skip
    (store / "abort").touch()
    assert found(store, Kind.SKIPPED_AT_START) == []


def test_with_queues_in_files_the_later_entries_move(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_timer")
    store = copy_store(source.path, tmp_path / "store")
    assert found(store, Kind.SKIPPED_AT_START) == []
    known = known_offset(store).physical_offset
    # Clear the newest entries of all queues, so that the queues end exactly where a message without an entry begins.
    entries = sorted((row.physical_offset, row.size) for row in source.queue_entries)
    pairs = pairwise(entries)
    at = max(after[0] for before, after in pairs if sum(before) == after[0])
    clear_entries(store, at)
    assert known_offset(store).physical_offset == at < known
    [one] = found(store, Kind.SKIPPED_AT_START)
    assert one.physical_offset == at
    assert one.cost.endswith("all later entries of its queue are one place too early")
    tails = found(store, Kind.UNDISPATCHED_TAIL)
    assert tails
    assert all(f"dispatches messages from {at + 1} on" in tail.at_next_start for tail in tails)


def clear_entries(store: Path, physical_offset: int) -> None:
    with ConsumeQueueSetReader(store) as queues:
        for name in queues.list():
            queue = queues.queue(*name)
            for number in range(queue.min_queue_offset(), queue.max_queue_offset()):
                if queue.entry(number).physical_offset >= physical_offset:
                    [path] = (path for path in Path(queue.folder).iterdir() if path.is_file())
                    data = bytearray(path.read_bytes())
                    begin = number * ENTRY_BYTES - int(path.name)
                    data[begin:] = bytes(len(data) - begin)
                    path.write_bytes(data)
                    break


@pytest.mark.parametrize("has_abort", [True, False])
def test_a_repair_leaves_no_entry_for_the_broker_to_lose(
    golden: Golden, tmp_path: Path, has_abort: bool
) -> None:
    """A repaired store has no `abort`, so its database must reach the end of its log."""
    pytest.importorskip("rocksdict")
    source, store = golden("five_rocksdb"), tmp_path / "store"
    behind(source, store)
    if has_abort:
        (store / "abort").write_bytes(b"1")
    repair_store(plan_repair(store))
    assert not (store / "abort").exists()
    assert items(store) == items(source.path)
    assert list(check_store(store)) == []
