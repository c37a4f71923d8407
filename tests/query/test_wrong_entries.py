"""One wrong entry of a queue: no reading path passes over a message and says that its answer is complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.query.answers import PullStatus
from reput.core.query.message_store import MessageStore
from reput.engine.messages.tail import LogTail, TailFilter
from reput.engine.messages.topic_messages import messages_of_topic
from reput.errors import FormatError, MessageNotFoundError
from reput.format.consume_queue import ENTRY_BYTES
from tests.oracle.forge import RecordFields, forge_log
from tests.query.stores import build_store

COUNT, STEP_MS = 60, 10
_Answer = tuple[set[int], bool]


def time_of(number: int) -> int:
    # The clock is set back in the middle of the log.
    return 1_000_000 + STEP_MS * number - (100 if number >= COUNT // 2 else 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose only queue has one file, and whose first log file has expired."""
    fields = [
        RecordFields(queue_offset=number, body=b"body", store_timestamp=time_of(number))
        for number in range(COUNT)
    ]
    forge = forge_log(fields, file_bytes=1 << 11)
    build_store(tmp_path / "store", forge.files(), hash_slots=64, index_items=300)
    files = sorted((tmp_path / "store/consumequeue/T/0").iterdir())
    files[0].write_bytes(b"".join(path.read_bytes() for path in files))
    for path in files[1:]:
        path.unlink()
    return tmp_path / "store"


def expire(store: Path) -> None:
    sorted((store / "commitlog").iterdir())[0].unlink()


def by_topic(store: MessageStore, begin: int | None, end: int | None) -> _Answer:
    found = messages_of_topic(store, "T", begin, end, 1000)
    return {one.queue_offset for one in found.messages}, found.is_complete


def by_tail(store: MessageStore, begin: int | None, end: int | None) -> _Answer:
    tail = LogTail(store, TailFilter("T", begin=begin, end=end))
    return {one.queue_offset for one in tail.last(1000)}, tail.coverage().is_complete


def by_offsets(store: MessageStore, begin: int | None, end: int | None) -> _Answer:
    try:
        low = store.min_queue_offset("T", 0)
        low = low if begin is None else max(low, store.offset_by_time("T", 0, begin))
        high = store.max_queue_offset("T", 0)
        high = high if end is None else min(high, store.end_offset_by_time("T", 0, end))
        found = [store.get_by_queue("T", 0, number) for number in range(low, high)]
    except (FormatError, MessageNotFoundError):
        return set(), False
    times = range(0 if begin is None else begin, 1 << 40 if end is None else end + 1)
    return {one.queue_offset for one in found if one.store_timestamp in times}, True


def by_pulls(store: MessageStore, begin: int | None, end: int | None) -> _Answer:
    found: set[int] = set()
    is_complete = True
    try:
        position = store.min_queue_offset("T", 0)
        while True:
            pulled = store.pull("T", 0, position, 7)
            found |= {one.queue_offset for one in pulled.messages}
            if pulled.status is not PullStatus.FOUND:
                break
            position = pulled.next_begin_offset
    except FormatError:
        is_complete = False
    return {number for number in found if _is_within(number, begin, end)}, is_complete


def _is_within(number: int, begin: int | None, end: int | None) -> bool:
    time = time_of(number)
    return (begin is None or begin <= time) and (end is None or time <= end)


PATHS: tuple[Callable[[MessageStore, int | None, int | None], _Answer], ...] = (
    by_topic, by_tail, by_offsets, by_pulls,
)  # fmt: skip
WINDOWS = (
    (None, None), (time_of(25), time_of(35)), (time_of(10), time_of(12)), (None, time_of(15)), (time_of(45), None),
)  # fmt: skip


@pytest.mark.parametrize("bit", [0, 3, 8, 9, 10, 11, 12, 13, 31, 40, 63])
@pytest.mark.parametrize("has_expired", [False, True])
def test_a_flipped_bit_of_an_offset(store: Path, bit: int, has_expired: bool) -> None:
    if has_expired:
        expire(store)
    [queue] = (store / "consumequeue/T/0").iterdir()
    data = queue.read_bytes()
    with reput.open_store(store) as opened:
        least = opened.min_queue_offset("T", 0)
        assert (least > 0) == has_expired
        for path in PATHS:
            for window in WINDOWS:
                wanted = {one for one in range(least, COUNT) if _is_within(one, *window)}
                assert path(opened, *window) == (wanted, True), (path, window)
    wrong = []
    for number in (least, least + 1, 20, 29, 30, 31, 47, COUNT - 2):
        at = ENTRY_BYTES * number + 7 - bit // 8
        queue.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :])
        with reput.open_store(store) as opened:
            for path in PATHS:
                for window in WINDOWS:
                    found, is_complete = path(opened, *window)
                    wanted = {one for one in range(least, COUNT) if _is_within(one, *window)}
                    assert found <= wanted
                    if is_complete and found < wanted:
                        wrong.append((path.__name__, window, number, wanted - found))
    assert not wrong


@pytest.fixture
def two_queues(tmp_path: Path) -> Path:
    fields = [
        RecordFields(queue_id=number % 2, queue_offset=number // 2, body=b"body")
        for number in range(COUNT)
    ]
    files = forge_log(fields, file_bytes=1 << 13).files()
    return build_store(tmp_path / "store", files, hash_slots=64, index_items=300)


def newest_by_topic(store: MessageStore, count: int) -> tuple[list[int], bool]:
    found = messages_of_topic(store, "T", limit=count)
    return sorted(one.physical_offset for one in found.messages), found.is_complete


def newest_by_tail(store: MessageStore, count: int) -> tuple[list[int], bool]:
    tail = LogTail(store, TailFilter("T"))
    found = [one.physical_offset for one in tail.last(count)]
    return found, not tail.damage


NEWEST = (newest_by_topic, newest_by_tail)


@pytest.mark.parametrize("bit", [None, 0, 5, 8, 9, 10, 11, 12, 40])
def test_the_newest_messages_next_to_wrong_entries(two_queues: Path, bit: int | None) -> None:
    """A wrong entry that leads to an old message hides newer messages of its queue."""
    expected = {}
    with reput.open_store(two_queues) as opened:
        for path in NEWEST:
            for count in (1, 4, 20):
                expected[path, count], is_complete = path(opened, count)
                assert len(expected[path, count]) == count
                assert is_complete
    queue = sorted((two_queues / "consumequeue/T/1").iterdir())[0]
    data = queue.read_bytes()
    wrong = []
    for number in (29, 28, 27, 22, 20, 16):
        at = ENTRY_BYTES * number + 7 - (bit or 0) // 8
        if bit is None:
            other = sorted((two_queues / "consumequeue/T/0").iterdir())[0].read_bytes()
            entry = ENTRY_BYTES * (number - 16)
            changed = data[: at - 7] + other[entry : entry + ENTRY_BYTES] + data[at + 13 :]
        else:
            changed = data[:at] + bytes([data[at] ^ 1 << bit % 8]) + data[at + 1 :]
        queue.write_bytes(changed)
        with reput.open_store(two_queues) as opened:
            for (path, count), messages in expected.items():
                found, is_complete = path(opened, count)
                if is_complete and found != messages:
                    wrong.append((path.__name__, count, number))
    assert not wrong
