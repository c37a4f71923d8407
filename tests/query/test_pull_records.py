"""Records that are pulled many at a time equal records that are pulled one by one, for any range."""

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reput
from reput.core.query import pull_records
from reput.core.query.answers import PullStatus
from reput.core.query.message_store import MessageStore
from reput.engine.writer.put.message import Message
from reput.errors import CorruptMessageError
from reput.format.commit_log import QUEUE_OFFSET_POSITION
from tests.golden.sparse import copy_store
from tests.golden.stores import SHIPPED, GoldenStore
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
SMALL = replace(SMALL_16K, queue_entries=20)
MOST_BYTES = 3000


@pytest.fixture(autouse=True, params=["plain", "kernel"])
def quickly(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select how quick pulls read: before the kernel is loaded, or after that."""
    kernel = pull_records._Kernel()
    if request.param == "kernel":
        kernel.load_now()
    else:
        monkeypatch.setattr(kernel, "load", lambda: None)
    monkeypatch.setattr(pull_records, "_KERNEL", kernel)
    return str(request.param)


def _queue_offset(record: bytes) -> int:
    return int.from_bytes(record[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8])


def check_quick(
    store: MessageStore, topic: str, queue_id: int, offset: int, most: int, tags: str | None = None
) -> bool:
    """Compare a quick pull with a pull of records; return whether the quick pull answered."""
    asked = topic, queue_id, offset, most, tags, MOST_BYTES
    quick = store.quick_records(*asked)
    if quick is None:
        return False
    found = store.pull_records(*asked)
    body, messages, end, *bounds = quick
    assert (found.status, tuple(bounds)) == (PullStatus.FOUND, found[3:5])
    assert bytes(body) == b"".join(found.records[:messages])
    if tags is None:
        assert (messages, end) == (len(found.records), found[2])
    # With tags, a quick pull may look at fewer entries. Then the next pull returns the rest.
    assert end <= found[2]
    assert all(_queue_offset(record) < end for record in found.records[:messages])
    assert all(_queue_offset(record) >= end for record in found.records[messages:])
    return True


def check(store: MessageStore, topic: str, queue_id: int, offset: int, most: int) -> int:
    """Compare quick pulls and pulls of records with `pull`. Return the offset of the next pull."""
    check_quick(store, topic, queue_id, offset, most)
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


def test_records_that_follow_each_other_and_those_that_do_not(tmp_path: Path, quickly: str) -> None:
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        for number in range(300):
            store.put(Message("T", bytes(number), queue_id=number % 7 // 6))
            if number % 50 == 0:
                store.put(Message("large", bytes(9000)))
    with reput.open_store(tmp_path / "s") as opened:
        for queue_id in (0, 1):
            end, answered = opened.max_queue_offset("T", queue_id), 0
            for offset in range(0, end, 5):
                check(opened, "T", queue_id, offset, 40)
                answered += check_quick(opened, "T", queue_id, offset, 4)
            assert answered >= end // 10 if quickly == "kernel" else answered == 0


def test_a_damaged_record_ends_the_answer_before_it_and_is_reported_at_its_own(
    golden: Golden, tmp_path: Path, quickly: str
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
        assert store.quick_records(topic, queue_id, begin, 8, None, MOST_BYTES) is None
        for most in (1, 5):
            assert check_quick(store, topic, queue_id, begin, most) == (quickly == "kernel")
        with pytest.raises(CorruptMessageError):
            store.pull_records(topic, queue_id, begin + 5, 8)


TAGS = ("a", "b", "Aa", "BB", "a property of a tag", "\u00fc", "")
"""The hashes of Aa and BB are equal."""


@pytest.mark.parametrize("tags", ["a", "a || b", "BB", "Aa || BB", "\u00fc", "seldom", "not there"])
def test_wanted_tags_are_found_as_one_by_one(tmp_path: Path, tags: str, quickly: str) -> None:
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        for number in range(400):
            tag = "seldom" if number % 100 == 7 else TAGS[number * 7 % 11 % len(TAGS)]
            store.put(Message("T", bytes(number % 90), tags=tag, keys="TAGS"))
    answered = 0
    with reput.open_store(tmp_path / "s") as opened:
        for offset in range(0, 400, 9):
            for most in (1, 5, 30):
                answered += check_quick(opened, "T", 0, offset, most, tags)
    is_answered = quickly == "kernel" and tags != "not there"
    assert (answered > 20) == is_answered


@pytest.mark.parametrize("place", [0, 4, 12, 20, 28, 36, 84])
def test_no_damaged_field_of_a_record_passes(tmp_path: Path, place: int, quickly: str) -> None:
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as store:
        puts = store.put_many([Message("T", b"body", tags="t", keys="k")] * 20)
    with reput.open_store(tmp_path / "s") as store:
        assert check_quick(store, "T", 0, 0, 10) == (quickly == "kernel")
        with next((tmp_path / "s" / "commitlog").iterdir()).open("r+b") as file:
            file.seek(puts[4].physical_offset + place + 3)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x14]))
        assert store.quick_records("T", 0, 0, 10, None, MOST_BYTES) is None
        assert check_quick(store, "T", 0, 5, 10) == (quickly == "kernel")
        assert check_quick(store, "T", 0, 0, 4) == (quickly == "kernel")
