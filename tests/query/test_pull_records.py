"""Records that are pulled many at a time equal records that are pulled one by one, for any range."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.errors import CorruptMessageError
from reput.query.answers import PullStatus
from reput.query.message_store import MessageStore
from reput.writer.put.message import Message
from tests.golden.sparse import copy_store
from tests.golden.stores import SHIPPED, GoldenStore
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
SMALL = replace(SMALL_16K, queue_entries=20)
MOST_BYTES = 3000


def check(store: MessageStore, topic: str, queue_id: int, offset: int, most: int) -> int:
    """Compare; the offset where the next pull begins."""
    plain = store.pull(topic, queue_id, offset, most)
    many = store.pull_records(topic, queue_id, offset, most, None)
    records = tuple(store.get_record(one.physical_offset) for one in plain.messages)
    assert many == (plain.status, records, *plain[2:])
    limited = store.pull_records(topic, queue_id, offset, most, None, MOST_BYTES)
    assert limited.records == records[: len(limited.records)]
    assert limited.status == plain.status
    if records:
        sizes = list(map(len, records))
        fit = max(sum(sum(sizes[: n + 1]) <= MOST_BYTES for n in range(len(sizes))), 1)
        assert len(limited.records) == fit
    return plain.next_begin_offset


@pytest.mark.every_case
@pytest.mark.parametrize("name", SHIPPED)
def test_every_queue_of_a_brokers_store(golden: Golden, name: str) -> None:
    with reput.open_store(golden(name).path) as store:
        for topic, queue_id in store.list_queues():
            offset = store.min_queue_offset(topic, queue_id)
            most, end = 1, store.max_queue_offset(topic, queue_id)
            while offset < end:
                offset = max(check(store, topic, queue_id, offset, most), offset + 1)
                most = most * 2 + 1
            check(store, topic, queue_id, end, 3)
            check(store, topic, queue_id, end + 5, 3)


def test_records_that_follow_each_other_and_those_that_do_not(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        for number in range(300):
            store.put(Message("T", bytes(number), queue_id=number % 7 // 6))
            if number % 50 == 0:
                store.put(Message("large", bytes(9000)))
    with reput.open_store(tmp_path / "s") as opened:
        for queue_id in (0, 1):
            for offset in range(0, opened.max_queue_offset("T", queue_id), 5):
                check(opened, "T", queue_id, offset, 40)


def test_a_damaged_record_ends_the_answer_before_it_and_is_reported_at_its_own(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("basic")
    path = copy_store(source.path, tmp_path / "store")
    with reput.open_store(path) as store:
        topic, queue_id = store.list_queues()[0]
        begin = store.min_queue_offset(topic, queue_id)
        whole = store.pull_records(topic, queue_id, begin, 8).records
        lost = store.get_by_queue(topic, queue_id, begin + 5)
    number, position = divmod(lost.physical_offset, source.commit_log_file_bytes)
    with sorted((path / "commitlog").iterdir())[number].open("r+b") as file:
        file.seek(position)
        file.write(struct.pack(">i", lost.size_bytes + 1))
    with reput.open_store(path) as store:
        before = store.pull_records(topic, queue_id, begin, 8)
        assert (before.status, before.records) == (PullStatus.FOUND, whole[:5])
        assert before.next_begin_offset == begin + 5
        with pytest.raises(CorruptMessageError):
            store.pull_records(topic, queue_id, begin + 5, 8)
