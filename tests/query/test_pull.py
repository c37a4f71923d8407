"""Pulling from queues: the results of a broker's getMessage, and tags that are compared exactly."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import reput
from reput.core.query.answers import PullStatus
from reput.core.query.pull import wanted_tags
from reput.errors import CorruptMessageError, MessageNotFoundError, UsageError
from reput.format.java_string import hash_code
from tests.golden.sparse import copy_store
from tests.golden.stores import SHIPPED, GoldenStore
from tests.golden.tables import MessageRow
from tests.oracle.consume_queue import ENTRY
from tests.small import SMALL_16K

Golden = Callable[[str], GoldenStore]
SMALL = replace(SMALL_16K, queue_entries=20)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def rows_of_queue(store: GoldenStore, topic: str, queue_id: int) -> list[MessageRow]:
    """Return rows in queue order. Prepared and rolled-back messages are in no queue."""
    return [
        row
        for row in store.messages
        if (row.topic, row.queue_id) == (topic, queue_id) and row.sys_flag & 4 == 0
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_queue_from_begin_to_end(golden: Golden, name: str) -> None:
    store = golden(name)
    with reput.open_store(store.path) as opened:
        for queue in store.queues:
            rows = rows_of_queue(store, queue.topic, queue.queue_id)
            pulled: list[int] = []
            position = queue.min_offset
            while position < queue.max_offset:
                result = opened.pull(queue.topic, queue.queue_id, position, 7)
                assert result.status == PullStatus.FOUND
                assert (result.min_offset, result.max_offset) == (
                    queue.min_offset,
                    queue.max_offset,
                )
                position += len(result.messages)
                assert result.next_begin_offset == position
                pulled += [message.physical_offset for message in result.messages]
            end = opened.pull(queue.topic, queue.queue_id, position)
            assert (end.status, end.next_begin_offset) == (PullStatus.NO_NEW_MESSAGE, position)
            if not store.enable_multi_dispatch:
                assert pulled == [row.physical_offset for row in rows]
            assert len(pulled) == queue.max_offset - queue.min_offset


@pytest.mark.parametrize("name", ["basic", "timed", "orders", "tricky"])
def test_tags(golden: Golden, name: str) -> None:
    store = golden(name)
    random = Random(name)
    with reput.open_store(store.path) as opened:
        for queue in store.queues:
            rows = rows_of_queue(store, queue.topic, queue.queue_id)
            messages = [opened.get(row.physical_offset) for row in rows]
            tags = sorted({m.properties["TAGS"] for m in messages if "TAGS" in m.properties})
            tags = [tag for tag in tags if wanted_tags(tag) == {tag}]
            wanted = [*random.sample(tags, min(2, len(tags))), "no such tag"]
            expected = [m.physical_offset for m in messages if m.properties.get("TAGS") in wanted]
            found: list[int] = []
            position = queue.min_offset
            while position < queue.max_offset:
                result = opened.pull(queue.topic, queue.queue_id, position, 5, " || ".join(wanted))
                assert result.next_begin_offset > position
                found += [message.physical_offset for message in result.messages]
                assert (result.status == PullStatus.FOUND) == bool(result.messages)
                position = result.next_begin_offset
            assert found == expected


def test_the_same_hash_is_not_the_same_tag(tmp_path: Path) -> None:
    assert hash_code("Aa") == hash_code("BB")
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        store.put_many(reput.Message("T", tags=tag) for tag in ("Aa", "BB", "", "BB", "Aa"))
        assert store.wait_dispatched()
        pulled = store.pull("T", 0, 0, 10, "BB")
        assert [message.queue_offset for message in pulled.messages] == [1, 3]
        assert pulled.next_begin_offset == 5
        only = store.pull("T", 0, 0, 1, "BB || x")
        assert (only.next_begin_offset, len(only.messages)) == (2, 1)
        nothing = store.pull("T", 0, 0, 10, "other")
        assert nothing.status == PullStatus.NO_MATCHED_MESSAGE
        assert (nothing.messages, nothing.next_begin_offset) == ((), 5)
        for every in (None, "*", "", " * "):
            assert len(store.pull("T", 0, 0, 10, every).messages) == 5


def test_offsets_outside_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with reput.open_store(path, mode="rw", config=SMALL) as store:
        store.put_many(reput.Message("T", b"x" * 400) for _ in range(100))
        assert store.wait_dispatched()
        cases = [
            (-1, PullStatus.OFFSET_TOO_SMALL, 0),
            (100, PullStatus.NO_NEW_MESSAGE, 100),
            (101, PullStatus.OFFSET_TOO_LARGE, 0),
            (1 << 62, PullStatus.OFFSET_TOO_LARGE, 0),
        ]
        for offset, status, following in cases:
            result = store.pull("T", 0, offset)
            assert (result.status, result.messages) == (status, ())
            assert (result.next_begin_offset, result.min_offset) == (following, 0)
            assert result.status.is_offset_illegal == (status != PullStatus.NO_NEW_MESSAGE)
        store.expire(1 << 60)
        least = store.min_queue_offset("T", 0)
        assert 0 < least < 100
        cases = [
            (0, PullStatus.OFFSET_TOO_SMALL, least),
            (least - 1, PullStatus.OFFSET_TOO_SMALL, least),
            (100, PullStatus.NO_NEW_MESSAGE, 100),
            (101, PullStatus.OFFSET_TOO_LARGE, 100),
        ]
        for offset, status, following in cases:
            result = store.pull("T", 0, offset)
            assert (result.status, result.next_begin_offset) == (status, following)
        assert store.pull("T", 0, least).messages[0].queue_offset == least


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        store.put(reput.Message("T"))
        assert store.wait_dispatched()
        with pytest.raises(MessageNotFoundError, match="no queue 1 of topic 'T'"):
            store.pull("T", 1, 0)
        with pytest.raises(UsageError, match="max_messages"):
            store.pull("T", 0, 0, 0)
        with pytest.raises(UsageError, match="no tag in this text"):
            store.pull("T", 0, 0, tags=" || ||")
    assert wanted_tags("a||b || c ||") == {"a", "b", "c"}


@pytest.mark.parametrize("name", SHIPPED)
def test_offsets_by_time(golden: Golden, name: str) -> None:
    store = golden(name)
    with reput.open_store(store.path) as opened:
        for queue in store.queues:
            rows = rows_of_queue(store, queue.topic, queue.queue_id)
            times = [row.store_timestamp for row in rows]
            if store.enable_multi_dispatch:
                continue
            for time in {*times[::11], *(t + 1 for t in times[::13]), times[0] - 1, times[-1] + 1}:
                since = [number for number, stored in enumerate(times) if stored >= time]
                expected = (since or [len(times)])[0] + queue.min_offset
                assert opened.offset_by_time(queue.topic, queue.queue_id, time) == expected


def overwritten(golden: Golden, tmp_path: Path, number: int, entry: bytes) -> tuple[Path, str, int]:
    """Return `basic` with one entry of TopicA/0 overwritten."""
    path = copy_store(golden("basic").path, tmp_path / "store")
    queue = next(q for q in golden("basic").queues if (q.topic, q.queue_id) == ("TopicA", 0))
    size = golden("basic").consume_queue_file_bytes
    at = number * ENTRY.size
    folder = path / "consumequeue" / queue.topic / str(queue.queue_id)
    with (folder / f"{at - at % size:020d}").open("r+b") as file:
        file.seek(at % size)
        file.write(entry)
    return path, queue.topic, queue.queue_id


def test_an_entry_that_points_astray_is_told(golden: Golden, tmp_path: Path) -> None:
    row = rows_of_queue(golden("basic"), "TopicA", 0)[5]
    astray = ENTRY.pack(row.physical_offset + 1, row.size, row.tags_code)
    path, topic, queue_id = overwritten(golden, tmp_path, 5, astray)
    with reput.open_store(path) as opened:
        before = opened.pull(topic, queue_id, 0, 6)
        assert (len(before.messages), before.next_begin_offset) == (5, 5)
        with pytest.raises(CorruptMessageError, match="no message begins there") as raised:
            opened.pull(topic, queue_id, 5, 6)
        assert raised.value.resume_offset == 6
        assert opened.pull(topic, queue_id, 6).messages[0].queue_offset == 6


def test_an_entry_of_another_size_is_told(golden: Golden, tmp_path: Path) -> None:
    row = rows_of_queue(golden("basic"), "TopicA", 0)[5]
    wrong = ENTRY.pack(row.physical_offset, row.size + 1, row.tags_code)
    path, topic, queue_id = overwritten(golden, tmp_path, 5, wrong)
    with (
        reput.open_store(path) as opened,
        pytest.raises(CorruptMessageError, match=f"its entry states {row.size + 1}"),
    ):
        opened.pull(topic, queue_id, 5)


def test_the_newest_entry_may_be_half_written(golden: Golden, tmp_path: Path) -> None:
    """The entry's tags code is not written yet, so the filter compares the tags of the message itself."""
    rows = rows_of_queue(golden("basic"), "TopicA", 0)
    last = next(n for n in range(len(rows) - 1, 0, -1) if rows[n].tags_code != 0)
    row = rows[last]
    half = ENTRY.pack(row.physical_offset, row.size, 0)
    path, topic, queue_id = overwritten(golden, tmp_path, last, half)
    for number in range(last + 1, len(rows)):
        at = number * ENTRY.size
        size = golden("basic").consume_queue_file_bytes
        name = f"{at - at % size:020d}"
        with (path / "consumequeue" / topic / str(queue_id) / name).open("r+b") as file:
            file.seek(at % size)
            file.write(bytes(ENTRY.size))
    with reput.open_store(path) as opened:
        tag = opened.get(row.physical_offset).properties["TAGS"]
        result = opened.pull(topic, queue_id, last, 32, tag)
        assert [message.physical_offset for message in result.messages] == [row.physical_offset]
