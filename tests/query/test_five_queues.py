"""Queues of RocketMQ 5.3.3, read by get, pull and tail: the rows equal the output of the broker's classes."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reput
from reput.core.query.message_store import MessageStore
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import MessageNotFoundError
from reput.format.commit_log import MessageExt
from reput.format.consume_queue import PRE_BLANK
from reput.format.java_string import decode_utf8
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.golden.tables import MessageRow, QueueEntryRow, QueueRow

Golden = Callable[[str], GoldenStore]
STORES = [
    "five_batch",
    "five_ext",
    "five_multipath",
    "five_dledger",
    "five_rocksdb",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("five_default", "five_crc", "five_timer", "five_compaction", "five_tiered")
    ),
]
Queue = tuple[str, int]


def entries_of(store: GoldenStore) -> dict[Queue, list[QueueEntryRow]]:
    """Return entries by queue, without entries that only fill a queue's first file."""
    found: dict[Queue, list[QueueEntryRow]] = defaultdict(list)
    for row in store.queue_entries:
        if row.size != PRE_BLANK.size:
            found[row.topic, row.queue_id].append(row)
    return found


def pulled(
    opened: MessageStore, queue: Queue, start: int, tags: str | None = None
) -> Iterator[MessageExt]:
    """Return all messages from that queue offset on, pulled some at a time."""
    while True:
        found = opened.pull(*queue, start, 7, tags)
        yield from found.messages
        if found.next_begin_offset == start:
            return
        start = found.next_begin_offset


def least_of(opened: MessageStore, queue: QueueRow) -> int:
    """Return the minimum at which the broker's rows of a queue begin. After holes, a RocksDB broker's is too high."""
    if queue.java_class == "RocksDBConsumeQueue":
        return queue.min_offset
    return opened.min_queue_offset(queue.topic, queue.queue_id)


def is_row(message: MessageExt, row: MessageRow) -> bool:
    return (
        message.topic, message.queue_id, message.queue_offset, message.physical_offset,
        message.size_bytes, message.sys_flag, message.store_timestamp, message.body_crc,
        len(message.body), decode_utf8(message.properties_bytes), message.magic & 0xFFFFFFFF,
    ) == (
        row.topic, row.queue_id, row.queue_offset, row.physical_offset,
        row.size, row.sys_flag, row.store_timestamp, row.body_crc,
        row.body_length, row.properties, row.magic,
    )  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("name", STORES)
def test_every_queue_is_pulled_as_the_broker_has_it(golden: Golden, name: str) -> None:
    store = golden(name)
    rows = {row.physical_offset: row for row in store.messages}
    expected = entries_of(store)
    with reput.open_store(store.path) as opened:
        assert opened.list_queues() == sorted((row.topic, row.queue_id) for row in store.queues)
        for queue in store.queues:
            key = queue.topic, queue.queue_id
            assert opened.max_queue_offset(*key) == queue.max_offset
            found = list(pulled(opened, key, least_of(opened, queue)))
            assert [m.physical_offset for m in found] == [e.physical_offset for e in expected[key]]
            assert all(is_row(message, rows[message.physical_offset]) for message in found)


@pytest.mark.every_case
@pytest.mark.parametrize("name", STORES)
def test_tags_are_the_real_ones(golden: Golden, name: str) -> None:
    store = golden(name)
    rows = {row.physical_offset: row for row in store.messages}
    expected = entries_of(store)
    with reput.open_store(store.path) as opened:
        for queue in store.queues[::5]:
            key = queue.topic, queue.queue_id
            least = least_of(opened, queue)
            read = opened.queues.queue(*key).numbered(least, queue.max_offset)
            if not queue.topic.startswith("SCHEDULE"):
                assert [entry.tags_code for _, entry in read] == [
                    rows[entry.physical_offset].tags_code for entry in expected[key]
                ]
            tags = {message.tags for message in pulled(opened, key, least)} - {None}
            for tag in sorted(filter(None, tags))[:3]:
                if "||" in tag or tag.strip() in ("", "*"):
                    continue
                wanted = [m for m in pulled(opened, key, least) if m.tags == tag.strip()]
                assert list(pulled(opened, key, least, tag)) == wanted


@pytest.mark.parametrize("name", ["five_batch", "five_ext"])
def test_the_tail_gives_every_message_once(golden: Golden, name: str) -> None:
    store = golden(name)
    topic = store.queues[-1].topic
    with reput.open_store(store.path) as opened:
        for wanted, rows in (
            (TailFilter(), store.messages),
            (TailFilter(topic), [row for row in store.messages if row.topic == topic]),
        ):
            end = LogTail(opened, wanted)
            found = [message.physical_offset for message in end.last(10_000)]
            assert found == [row.physical_offset for row in rows]
            assert end.damage == []
            assert [m.physical_offset for m in LogTail(opened, wanted).last(5)] == found[-5:]


def test_any_number_of_a_batch_leads_to_its_record(golden: Golden) -> None:
    store = golden("five_batch")
    queue = next(row for row in store.queues if row.java_class == "BatchConsumeQueue")
    key = queue.topic, queue.queue_id
    with reput.open_store(store.path) as opened:
        assert opened.pull(*key, queue.max_offset).messages == ()
        with pytest.raises(MessageNotFoundError):
            opened.get_by_queue(*key, queue.max_offset)
        for entry in entries_of(store)[key]:
            for number in {entry.queue_offset, entry.queue_offset + entry.batch_size - 1}:
                assert opened.get_by_queue(*key, number).physical_offset == entry.physical_offset
                found = opened.pull(*key, number, 1)
                assert [m.physical_offset for m in found.messages] == [entry.physical_offset]
                assert found.next_begin_offset == entry.queue_offset + entry.batch_size


def test_batch_queues_are_searched_by_time(golden: Golden) -> None:
    store = golden("five_batch")
    stored = {row.physical_offset: row.store_timestamp for row in store.messages}
    with reput.open_store(store.path) as opened:
        for key, entries in entries_of(store).items():
            for entry in entries[::20]:
                time = stored[entry.physical_offset]
                first = next(e for e in entries if stored[e.physical_offset] >= time)
                assert opened.offset_by_time(*key, time) == first.queue_offset
            assert opened.offset_by_time(*key, 1 << 50) == opened.max_queue_offset(*key)


def test_a_filter_by_tags_needs_no_extension_files(golden: Golden, tmp_path: Path) -> None:
    source = golden("five_ext")
    with reput.open_store(source.path) as opened:
        key = max(opened.list_queues(), key=lambda queue: opened.max_queue_offset(*queue))
        tag = next(m.tags for m in pulled(opened, key, 0) if m.tags)
        wanted = list(pulled(opened, key, 0, tag))
    store = copy_store(source.path, tmp_path / "store")
    for path in (store / "consumequeue_ext").glob("*/*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    with reput.open_store(store) as opened:
        assert list(pulled(opened, key, 0, tag)) == wanted
        assert opened.queues.queue(*key).entry(0).tags_code < 0
