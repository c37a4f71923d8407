"""Windows of time without a key over a lost part of the log, or over lost entries of a queue."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import FormatError
from reput.format.consume_queue import ENTRY_BYTES
from reput.query.by_time import messages_of_topic
from reput.query.tail import LogTail, TailFilter
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
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
def test_windows_elsewhere_stay_complete(golden: Golden, store: Path, kind: str) -> None:
    before = times(golden, 0, LOST)
    after = times(golden, 2 * LOST, 1 << 40)
    lose(store, kind)
    assert is_complete(store, 0, max(before) - 1) == (True, True)
    assert is_complete(store, min(after) + 1, 1 << 50) == (True, True)


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
