"""Messages of a topic by time, and their number over time, against the messages of the golden stores."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import MessageNotFoundError
from reput.wings.console.volume import volume_of_topic
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.golden.tables import MessageRow

Golden = Callable[[str], GoldenStore]


def newest_first(store: GoldenStore, topic: str) -> list[MessageRow]:
    return [row for row in store.messages if row.topic == topic and row.sys_flag & 4 == 0][::-1]


def topics_of(store: GoldenStore) -> list[str]:
    return sorted({queue.topic for queue in store.queues})


@pytest.mark.parametrize("name", ["orders", "basic", "timed"])
def test_pages_hold_every_message_of_a_topic_newest_first(golden: Golden, name: str) -> None:
    store = golden(name)
    with reput.open_store(store.path) as opened:
        for topic in topics_of(store):
            found, cursor = [], None
            while True:
                page = messages_of_topic(opened, topic, limit=97, after=cursor)
                assert page.problems == ()
                assert len(page.messages) == 97 or page.cursor is None
                found += [message.physical_offset for message in page.messages]
                cursor = page.cursor
                if cursor is None:
                    break
            assert found == [row.physical_offset for row in newest_first(store, topic)]


def test_times_are_inclusive(golden: Golden) -> None:
    store = golden("orders")
    topic = topics_of(store)[0]
    rows = newest_first(store, topic)
    times = sorted(row.store_timestamp for row in rows)
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]
    with reput.open_store(store.path) as opened:
        page = messages_of_topic(opened, topic, begin, end, limit=len(rows))
    expected = [row.physical_offset for row in rows if begin <= row.store_timestamp <= end]
    assert [message.physical_offset for message in page.messages] == expected
    assert 0 < len(expected) < len(rows)


def test_what_cannot_be_read_is_reported_and_the_rest_returned(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders")
    topic = topics_of(store)[0]
    rows = newest_first(store, topic)
    path = copy_store(store.path, tmp_path / "store")
    lost = rows[len(rows) // 2]
    number, position = divmod(lost.physical_offset, store.commit_log_file_bytes)
    with sorted((path / "commitlog").iterdir())[number].open("r+b") as file:
        file.seek(position + 4)
        file.write(bytes(4))
    with reput.open_store(path) as opened:
        page = messages_of_topic(opened, topic, limit=len(rows))
    found = [message.physical_offset for message in page.messages]
    assert found == [row.physical_offset for row in rows if row is not lost]
    assert [problem.physical_offset for problem in page.problems] == [lost.physical_offset]


@pytest.mark.parametrize("parts", [1, 7, 60])
def test_volume_counts_every_message_once_in_its_part(golden: Golden, parts: int) -> None:
    store = golden("orders")
    with reput.open_store(store.path) as opened:
        for topic in topics_of(store):
            volume = volume_of_topic(opened, topic, parts=parts)
            times = [row.store_timestamp for row in newest_first(store, topic)]
            expected = [0] * len(volume.messages)
            for time in times:
                expected[(time - volume.begin_ms) // volume.part_ms] += 1
            assert volume.messages == expected
            assert (volume.begin_ms, len(expected) <= parts) == (min(times), True)


def test_a_topic_without_messages_has_no_volume(golden: Golden) -> None:
    with reput.open_store(golden("orders").path) as opened:
        with pytest.raises(MessageNotFoundError):
            volume_of_topic(opened, "nobody")
        page = messages_of_topic(opened, "nobody")
        assert (page.messages, page.cursor, page.problems) == ((), None, ())
        assert page.is_complete
