"""Queues read by queue offset, and where they begin and end."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.queues.store_queues import ConsumeQueueSetReader
from reput.errors import CorruptMessageError, MessageNotFoundError
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]
PRE_BLANK = struct.pack(">qiq", 0, 2**31 - 1, 0)


def entries(*offsets: int) -> bytes:
    return b"".join(struct.pack(">qiq", offset, 100, 7) for offset in offsets)


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_queues_begin_and_end_where_the_broker_says(golden: Golden, name: str) -> None:
    store = golden(name)
    queues = ConsumeQueueSetReader(store.path)
    assert queues.list() == sorted((row.topic, row.queue_id) for row in store.queues)
    assert queues.topics() == sorted({row.topic for row in store.queues})
    for row in store.queues:
        queue = queues.queue(row.topic, row.queue_id)
        assert (queue.min_queue_offset(), queue.max_queue_offset()) == (
            row.min_offset,
            row.max_offset,
        )


def test_messages_are_found_by_their_place_in_a_queue(golden: Golden) -> None:
    store = golden("basic")
    with reput.open_store(store.path) as opened:
        for row in store.messages[::7]:
            message = opened.get_by_queue(row.topic, row.queue_id, row.queue_offset)
            assert message.physical_offset == row.physical_offset
        entry = opened.queues.queue("TopicA", 0).entry(0)
        row = next(r for r in store.messages if (r.topic, r.queue_id) == ("TopicA", 0))
        assert entry == (row.physical_offset, row.size, row.tags_code)


def test_places_without_a_message(golden: Golden) -> None:
    row = golden("basic").queues[0]
    with reput.open_store(golden("basic").path) as opened:
        for topic, queue_id, queue_offset in (
            (row.topic, row.queue_id, row.max_offset),
            (row.topic, row.queue_id, -1),
            (row.topic, row.queue_id, 10**9),
            (row.topic, 77, 0),
            (row.topic, -1, 0),
            ("no such topic", 0, 0),
            ("..", 0, 0),
            ("", 0, 0),
            (f"../consumequeue/{row.topic}", row.queue_id, 0),
            ("a\0b", 0, 0),
            ("\ud83d", 0, 0),
        ):
            with pytest.raises(MessageNotFoundError) as caught:
                opened.get_by_queue(topic, queue_id, queue_offset)
            assert "\n" not in str(caught.value)


def test_a_queue_that_starts_above_zero(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "3"
    folder.mkdir(parents=True)
    (folder / f"{200:020d}").write_bytes(PRE_BLANK * 4 + entries(500, 600, 700, 800, 900, 1000))
    (folder / f"{400:020d}").write_bytes(entries(1100, 1200).ljust(200, b"\0"))
    (folder / "junk").touch()
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 3)
    assert (queue.min_queue_offset(), queue.max_queue_offset()) == (14, 22)
    assert queue.min_queue_offset(601) == 16
    assert queue.min_queue_offset(1000) == 19
    assert queue.min_queue_offset(1001) == 20
    assert queue.min_queue_offset(5000) == 22
    assert queue.entry(21) == (1200, 100, 7)
    for queue_offset in (9, 10, 13, 22, 30):
        with pytest.raises(MessageNotFoundError):
            queue.entry(queue_offset)


def test_a_queue_all_of_whose_files_went_since_it_was_opened(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    first, second, third = (folder / f"{start:020d}" for start in (0, 40, 80))
    first.write_bytes(entries(100, 200))
    second.write_bytes(entries(300, 400))
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    assert queue.files_before(200) == []
    assert queue.files_before(201) == [str(first)]
    assert queue.files_before(1000) == [str(first)]
    third.write_bytes(entries(500).ljust(40, b"\0"))
    first.unlink()
    second.unlink()
    with pytest.raises(MessageNotFoundError, match="no longer exists"):
        queue.entry(2)
    assert queue.max_queue_offset() == 5
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    third.rename(folder / f"{120:020d}")
    assert queue.min_queue_offset(450) == 6


def test_a_queue_that_is_cut_under_an_open_reader(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    first, second = (folder / f"{start:020d}" for start in (0, 80))
    first.write_bytes(entries(100, 200, 300, 400))
    second.write_bytes(entries(500, 600).ljust(80, b"\0"))
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    assert queue.max_queue_offset() == 6
    for path, kept, end in ((second, [500], 5), (second, [], 4), (first, [100, 200], 2)):
        # A broker that recovers clears entries in place.
        with path.open("r+b") as file:
            file.write(entries(*kept).ljust(80, b"\0"))
        assert queue.max_queue_offset() == end
        assert [entry.physical_offset for entry in queue.entries(0, 6)] == [
            100,
            200,
            300,
            400,
            500,
        ][:end]
        with pytest.raises(MessageNotFoundError):
            queue.entry(end)
    with first.open("r+b") as file:
        file.write(entries(100, 200, 700))
    assert queue.max_queue_offset() == 3
    assert queue.entry(2).physical_offset == 700


def test_entries_are_read_in_bulk_over_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.core.queues.reader._BULK_ENTRIES", 3)
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    whole = [entries(100 * number) for number in range(1, 13)]
    for start in range(0, 12, 4):
        (folder / f"{start * 20:020d}").write_bytes(b"".join(whole[start : start + 4]))
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    for begin in range(13):
        for stop in range(begin, 14):
            assert b"".join(queue.entry_bytes(begin, stop)) == b"".join(whole[begin:stop])


def test_empty_queues(tmp_path: Path) -> None:
    assert ConsumeQueueSetReader(tmp_path).list() == []
    (tmp_path / "consumequeue" / "T" / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "T" / "not a number").mkdir()
    (tmp_path / "consumequeue" / "file").touch()
    queues = ConsumeQueueSetReader(tmp_path)
    assert queues.list() == [("T", 0)]
    assert queues.queue("T", 0).max_queue_offset() == 0
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(200))
    queue = queues.queue("T", 0)
    assert (queue.min_queue_offset(), queue.max_queue_offset()) == (0, 0)


def test_an_entry_that_points_to_no_message_is_damage_unless_it_has_expired(
    golden: Golden, tmp_path: Path
) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    row = golden("basic").messages[2000]
    file = path / "consumequeue" / row.topic / str(row.queue_id) / f"{0:020d}"
    (first, second) = [
        r for r in golden("basic").messages if (r.topic, r.queue_id) == (row.topic, row.queue_id)
    ][:2]
    data = bytearray(file.read_bytes())
    struct.pack_into(">q", data, 0, first.physical_offset + 1)
    file.write_bytes(data)
    with (
        reput.open_store(path) as opened,
        pytest.raises(CorruptMessageError, match="no message begins there"),
    ):
        opened.get_by_queue(row.topic, row.queue_id, 0)
    (path / "commitlog" / f"{0:020d}").unlink()
    assert second.physical_offset < 65536
    with (
        reput.open_store(path) as opened,
        pytest.raises(MessageNotFoundError, match="any more: the log begins at 65536"),
    ):
        opened.get_by_queue(row.topic, row.queue_id, 1)


def test_a_place_is_searched_for_again_if_its_entries_have_changed(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    file = folder / f"{0:020d}"
    file.write_bytes(entries(0, 100, 200, 300, 400, 500))
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    places = [100, 300, 150]
    assert [queue.min_queue_offset(at) for at in places] == [1, 3, 2]
    file.write_bytes(entries(0, 90, 100, 110, 120, 300))
    assert [queue.min_queue_offset(at) for at in places] == [2, 5, 5]


def test_where_messages_begin_is_not_what_it_was_if_the_entries_are_others(tmp_path: Path) -> None:
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(entries(100, 200, 300, 400, 500))
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    assert [queue.min_queue_offset(offset) for offset in (300, 100)] == [2, 0]
    file.write_bytes(entries(100, 300, 400, 500, 600))
    assert queue.min_queue_offset(300) == 1


def test_an_entry_that_is_just_being_written_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(entries(100) + bytes(20) + entries(300))

    def write(seconds: float) -> None:
        file.write_bytes(entries(100, 200, 300))

    monkeypatch.setattr("reput.core.queues.reader.time.sleep", write)
    queue = ConsumeQueueSetReader(tmp_path).queue("T", 0)
    assert [queue.entry(number).physical_offset for number in range(3)] == [100, 200, 300]
