"""Windows of time without a key over a lost part of the log, or over lost entries of a queue."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput
from reput.base import Kind
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import CorruptMessageError, FormatError
from reput.format.consume_queue import ENTRY_BYTES
from tests.cli.running import reput as reput_command
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.oracle.forge import LogForge, RecordFields, forge_log
from tests.query.stores import build_store

Golden = Callable[[str], GoldenStore]
HOUR_MS = 3_600_000
LOST = 0x40000  # The middle file of the log begins here.
WINDOWS = (
    (1795213865300, 1795213865999),
    (1795213865300, 1795213866500),
    (1795213865000, 1795213865999),
)


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    return copy_store(golden("basic").path, tmp_path / "store")


def lose(store: Path, kind: str) -> None:
    file = store / "commitlog" / f"{LOST:020}"
    if kind == "missing":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        position = 0
        for _ in range(20):
            position += struct.unpack_from(">I", data, position)[0]
        data[position:] = bytes(len(data) - position)
        file.write_bytes(data)


def times(golden: Golden, begin: int, end: int) -> list[int]:
    return [
        row.store_timestamp
        for row in golden("basic").messages
        if begin <= row.physical_offset < end
    ]


def is_complete(path: Path, begin: int, end: int) -> tuple[bool, bool]:
    """Return whether the answers of `messages_of_topic` and of a tail are complete."""
    with reput.open_store(path) as opened:
        page = messages_of_topic(opened, "TopicA", begin, end, limit=10_000)
        assert page.is_complete == (not page.problems)
        tail = LogTail(opened, TailFilter("TopicA", begin=begin, end=end))
        tail.last(10_000)
        coverage = tail.coverage()
        assert coverage.is_complete == (not tail.damage)
        return page.is_complete, coverage.is_complete


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["missing", "zeroed"])
def test_a_window_over_a_lost_part_is_incomplete(
    store: Path, kind: str, window: tuple[int, int]
) -> None:
    assert is_complete(store, *window) == (True, True)
    lose(store, kind)
    assert is_complete(store, *window) == (False, False)
    assert not reput.find([store], topic="TopicA", begin=window[0], end=window[1]).is_complete
    assert not reput.find(
        [store], topic="TopicA", tags="TagA", begin=window[0], end=window[1]
    ).is_complete


@pytest.mark.parametrize("kind", ["missing", "zeroed"])
def test_windows_more_than_an_hour_away_stay_complete(
    golden: Golden, store: Path, kind: str
) -> None:
    """The clock may have been set back in the lost part, by less than an hour."""
    first, last = min(times(golden, 0, 1 << 40)), max(times(golden, 0, 1 << 40))
    lose(store, kind)
    assert is_complete(store, 0, first - HOUR_MS - 1) == (True, True)
    assert is_complete(store, last + HOUR_MS + 1, 1 << 50) == (True, True)
    assert is_complete(store, first - HOUR_MS + 10_000, first - 1) == (False, False)
    assert is_complete(store, last + 1, last + HOUR_MS - 10_000) == (False, False)
    with reput.open_store(store) as opened:
        [note] = messages_of_topic(opened, "TopicA", 0, first - HOUR_MS - 1).coverage.notes
        assert "within an hour" in note


def test_lost_messages_that_were_stored_before_the_clock_was_set_back(tmp_path: Path) -> None:
    """The messages of the lost file are later than the messages of the next file, so its neighbours do not show it."""

    def forge(hasty: range) -> LogForge:
        return forge_log(
            [
                RecordFields(
                    queue_offset=number,
                    store_timestamp=10_000_000 + 10 * number + (60_000 if number in hasty else 0),
                )
                for number in range(300)
            ],
            file_bytes=1 << 13,
        )

    places = forge(range(0)).offsets
    hasty = range(*(sum(place < stop for place in places) for stop in (1 << 13, 2 << 13)))
    store = build_store(tmp_path / "store", forge(hasty).files(), hash_slots=64, index_items=300)
    begin, end = 10_060_000, 10_100_000
    with reput.open_store(store) as opened:
        found = messages_of_topic(opened, "T", begin, end)
        assert (len(found.messages), found.is_complete) == (len(hasty), True)
        assert opened.offset_by_time("T", 0, begin) == hasty.start
        assert opened.end_offset_by_time("T", 0, end) == 300
    (store / "commitlog" / f"{1 << 13:020}").unlink()
    with reput.open_store(store) as opened:
        found = messages_of_topic(opened, "T", begin, end)
        assert (found.messages, found.is_complete) == ((), False)
        tail = LogTail(opened, TailFilter("T", begin=begin, end=end))
        assert (tail.last(1000), tail.coverage().is_complete) == ([], False)
        # The lost messages may have been stored at or after the first time, and until the second one.
        with pytest.raises(CorruptMessageError):
            opened.offset_by_time("T", 0, begin)
        with pytest.raises(CorruptMessageError):
            opened.end_offset_by_time("T", 0, 10_000_000 + 10 * hasty.start - 10)
        assert opened.offset_by_time("T", 0, 10_000_000) == 0
        assert opened.end_offset_by_time("T", 0, end) == 300


def test_an_offset_by_time_next_to_a_lost_part_is_refused(store: Path) -> None:
    with reput.open_store(store) as opened:
        queues = opened.list_queues("TopicA")
        assert all(opened.offset_by_time(*queue, WINDOWS[0][1]) for queue in queues)
    lose(store, "missing")
    with reput.open_store(store) as opened:
        for queue in queues:
            with pytest.raises(FormatError):
                opened.offset_by_time(*queue, WINDOWS[0][1])


def test_a_window_at_lost_entries_is_incomplete(golden: Golden, store: Path) -> None:
    """Ten entries in a queue are zeros: windows that begin or end there may lack their messages."""
    rows = [row for row in golden("basic").messages if (row.topic, row.queue_id) == ("TopicA", 0)]
    rows = [row for row in rows if row.sys_flag & 4 == 0]
    middle = 100
    first = rows[middle].queue_offset
    [file] = sorted((store / "consumequeue/TopicA/0").iterdir())[:1]
    with open(file, "r+b") as queue:
        queue.seek(first * ENTRY_BYTES)
        queue.write(bytes(10 * ENTRY_BYTES))
    lost = [row.store_timestamp for row in rows[middle : middle + 10]]
    last = rows[-1].store_timestamp
    for window in ((lost[0], lost[-1]), (lost[3], last), (0, lost[3]), (lost[2], lost[4])):
        assert is_complete(store, *window) == (False, False), window


@pytest.mark.parametrize("queue", ["", "1"])
def test_a_window_over_a_missing_queue_is_incomplete(store: Path, queue: str) -> None:
    shutil.rmtree(os.path.join(store, "consumequeue", "TopicA", queue))
    for window in WINDOWS:
        assert is_complete(store, *window) == (False, False)


@pytest.mark.parametrize("count", [200, 10_000])
def test_the_last_messages_over_a_lost_part_without_queues_are_incomplete(
    store: Path, count: int
) -> None:
    """Without entries, the messages are read from the log, whose files have no message of the lost part."""
    shutil.rmtree(store / "consumequeue")
    lose(store, "missing")
    filters: tuple[dict[str, Any], ...] = ({}, {"topic": "TopicA"}, {"key": "K25"})
    for wanted in filters:
        report = reput.tail(store, count, **wanted)
        kinds = {lost.kind for lost in report.damage}
        if len(report) < count:
            assert not report.is_complete
            assert Kind.MISSING_LOG_FILE in kinds
    assert reput.tail(store, 10).is_complete
    assert reput_command("tail", store, "--topic", "TopicA", "-n", "10000").code == 3
    assert reput_command("tail", store, "-n", "10").code == 0


def test_a_window_over_lost_light_queues(golden: Golden, tmp_path: Path) -> None:
    """The queues of a light topic (%LMQ%) are named in properties of messages only."""
    store = copy_store(golden("lmq").path, tmp_path / "store")
    window: dict[str, Any] = {"begin": 0, "end": 1 << 50}
    whole = reput.find([store], topic="%LMQ%a", **window)
    assert len(whole) == 222
    assert whole.is_complete
    shutil.rmtree(store / "consumequeue" / "%LMQ%a")
    assert not reput.find([store], topic="%LMQ%a", **window).is_complete
    with reput.open_store(store) as opened:
        found = messages_of_topic(opened, "%LMQ%a", **window)
        assert [one.kind for one in found.coverage.unreadable] == [Kind.MISSING_QUEUE]
        assert messages_of_topic(opened, "%LMQ%never", **window).coverage.is_complete
