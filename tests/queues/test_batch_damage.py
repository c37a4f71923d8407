"""Damaged batch queues: an answer belongs to the requested queue, or an error reports what is wrong."""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reput
from reput.core.query.message_store import MessageStore
from reput.core.queues.queue_index import LostEntriesError
from reput.core.queues.reader import BatchQueueReader
from reput.engine.messages.tail import LogTail, TailFilter
from reput.errors import MessageNotFoundError, StoreError
from reput.format.consume_queue import ConsumeQueueEntry, batch_entry, encode_batch_entry
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.slow import examples

Golden = Callable[[str], GoldenStore]
TOPIC, QUEUE = "BatchTopic", 0
ENTRY_BYTES = 46


@pytest.fixture(scope="module")
def batches(
    golden: Golden, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[tuple[Path, bytes]]]:
    """A copy of the store whose batch queue may be changed, and its original files."""
    store = copy_store(golden("five_batch").path, tmp_path_factory.mktemp("batch") / "store")
    folder = store / "batchconsumequeue" / TOPIC / str(QUEUE)
    return store, [(path, path.read_bytes()) for path in sorted(folder.iterdir())]


Batches = tuple[Path, list[tuple[Path, bytes]]]


def ask(opened: MessageStore, start: int) -> tuple[list[int], bool]:
    """Return queue offsets of the messages from `start` on, and whether an error reported that messages are missing."""
    found: list[int] = []
    try:
        while True:
            answer = opened.pull(TOPIC, QUEUE, start, 50)
            assert all((m.topic, m.queue_id) == (TOPIC, QUEUE) for m in answer.messages)
            found += [message.queue_offset for message in answer.messages]
            if answer.next_begin_offset <= start:
                return found, False
            start = answer.next_begin_offset
    except StoreError:
        return found, True


def test_entries_that_begin_before_an_offset(golden: Golden) -> None:
    folder = golden("five_batch").path / "batchconsumequeue" / TOPIC / str(QUEUE)
    with closing(BatchQueueReader(str(folder))) as queue:
        begins = [begin for begin, _ in queue.numbered(0, queue.max_queue_offset())]
        assert len(begins) > 2
        for number, stop in enumerate(begins):
            assert [begin for begin, _ in queue.numbered(0, stop)] == begins[:number]


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(data=st.data())
def test_damage_is_reported_or_does_no_harm(batches: Batches, data: st.DataObject) -> None:
    store, files = batches
    with reput.open_store(store) as opened:
        expected, _ = ask(opened, 0)
    try:
        for path, content in files:
            damage = data.draw(st.sampled_from(["none", "cut", "zero", "flip", "delete"]))
            at = data.draw(st.integers(0, len(content) - 1))
            stop = min(len(content), at + data.draw(st.integers(1, 500)))
            changed = bytearray(content)
            if damage == "cut":
                del changed[at:]
            elif damage == "zero":
                changed[at:stop] = bytes(stop - at)
            elif damage == "flip":
                changed[at] ^= 1 << data.draw(st.integers(0, 7))
            path.unlink()
            if damage != "delete":
                path.write_bytes(changed)
        with reput.open_store(store) as opened:
            found, has_failed = ask(opened, 0)
            assert found == [one for one in expected if one in set(found)]
            if not has_failed and found:
                least = opened.min_queue_offset(TOPIC, QUEUE)
                assert found == [one for one in expected if one >= least]
            LogTail(opened, TailFilter(TOPIC, QUEUE)).last(20)
    finally:
        for path, content in files:
            path.write_bytes(content)


def test_lost_entries_are_passed_over_to_the_next_batch(batches: Batches) -> None:
    files = batches[1]
    path, content = files[0]
    reader = BatchQueueReader(str(path.parent))
    bases = [number for number, _ in reader.numbered(0, reader.max_queue_offset())]
    changed = bytearray(content)
    changed[5 * ENTRY_BYTES : 8 * ENTRY_BYTES] = bytes(3 * ENTRY_BYTES)
    path.write_bytes(changed)
    try:
        reader = BatchQueueReader(str(path.parent))
        found: list[int] = []
        with pytest.raises(LostEntriesError) as lost:
            found.extend(number for number, _ in reader.numbered(0, 10_000))
        assert found == bases[:5]
        assert lost.value.resume_offset == bases[8]
        assert f"queue offsets {bases[5]} to {bases[8] - 1} are lost" in str(lost.value)
        with pytest.raises(LostEntriesError):
            reader.entry(bases[6])
        assert next(reader.numbered(bases[8], 10_000))[0] == bases[8]
    finally:
        path.write_bytes(content)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Return the folder of a queue of batches of 1, 2, 3, 4 and 5 messages."""
    base, data = 0, b""
    for number, count in enumerate((1, 2, 3, 4, 5)):
        entry = batch_entry(ConsumeQueueEntry(100 * number, 100, 7), 1000 + number, base, count)
        data += encode_batch_entry(entry)
        base += count
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(8 * ENTRY_BYTES, b"\0"))
    return tmp_path


BASES = (0, 1, 3, 6, 10, 15)


def test_a_queue_offset_spans_its_batch(short: Path) -> None:
    reader = BatchQueueReader(str(short))
    assert (reader.min_queue_offset(), reader.max_queue_offset()) == (0, 15)
    for begin, stop in pairwise(BASES):
        for queue_offset in range(begin, stop):
            assert reader.span(queue_offset) == (begin, stop)
            assert reader.entry(queue_offset).physical_offset == 100 * BASES.index(begin)
    assert (reader.span(-1), reader.span(15)) == ((-1, 0), (15, 16))


@pytest.mark.every_case
@pytest.mark.parametrize(("first", "stop"), [(0, 1), (0, 3), (1, 2), (1, 4), (3, 4)])
def test_lost_queue_offsets_span_the_lost_batches(short: Path, first: int, stop: int) -> None:
    path = short / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[first * ENTRY_BYTES : stop * ENTRY_BYTES] = bytes((stop - first) * ENTRY_BYTES)
    path.write_bytes(data)
    reader = BatchQueueReader(str(short))
    for queue_offset in range(BASES[first], BASES[stop]):
        assert reader.span(queue_offset) == (BASES[first], BASES[stop])
        with pytest.raises(LostEntriesError) as lost:
            reader.entry(queue_offset)
        assert lost.value.resume_offset == BASES[stop]
    for queue_offset in (*range(BASES[first]), *range(BASES[stop], 15)):
        assert reader.entry(queue_offset).is_written


def test_queue_offsets_that_no_entry_has_span_the_gap(short: Path) -> None:
    path = short / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:ENTRY_BYTES] + data[2 * ENTRY_BYTES :])
    reader = BatchQueueReader(str(short))
    assert [reader.span(queue_offset) for queue_offset in (0, 1, 2, 3)] == [
        (0, 1), (1, 3), (1, 3), (3, 6)
    ]  # fmt: skip


def test_an_entry_without_messages_is_lost_as_well(short: Path) -> None:
    path = short / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[ENTRY_BYTES : 2 * ENTRY_BYTES] = bytes(ENTRY_BYTES)
    entry = batch_entry(ConsumeQueueEntry(200, 100, 7), 1002, BASES[2], 0)
    data[2 * ENTRY_BYTES : 3 * ENTRY_BYTES] = encode_batch_entry(entry)
    path.write_bytes(data)
    reader = BatchQueueReader(str(short))
    for start in (0, 1, 2, 3, 5):
        with pytest.raises(LostEntriesError) as lost:
            list(reader.numbered(start, 20))
        assert lost.value.resume_offset == BASES[3]
    assert [number for number, _ in reader.numbered(BASES[3], 20)] == [6, 10]


def test_a_batch_queue_whose_last_entries_are_lost_is_shorter(short: Path) -> None:
    path = short / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: 3 * ENTRY_BYTES].ljust(8 * ENTRY_BYTES, b"\0"))
    reader = BatchQueueReader(str(short))
    assert reader.max_queue_offset() == 6
    assert [number for number, _ in reader.numbered(2, 20)] == [1, 3]
    assert reader.min_queue_offset(100) == 1
    assert reader.min_queue_offset(201) == 6


def test_a_queue_without_files_is_empty(tmp_path: Path) -> None:
    reader = BatchQueueReader(str(tmp_path))
    assert reader.max_queue_offset() == reader.min_queue_offset() == 0
    assert list(reader.entries(0, 10)) == []
    assert reader.span(3) == (3, 4)
    with pytest.raises(MessageNotFoundError):
        reader.entry(0)
