"""ConsumeQueues are written like the oracle's, entry by entry, in files as long as a broker's."""

from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reput.base import StoreConfig
from reput.core import DispatchBatch, Queue
from reput.core.queues.kinds import CONSUME_QUEUE, EXTENSION, queue_folder
from reput.core.queues.set_writer import BatchQueues, ConsumeQueueSetWriter
from reput.core.queues.writer import (
    NONE_LOST,
    BatchQueueWriter,
    ConsumeQueueWriter,
    EntryFilesWriter,
    ExtensionWriter,
    LostRanges,
    write_expired_queue,
)
from reput.errors import StoreError, StoreFailedError
from reput.format.commit_log import MIN_RECORD_BYTES
from reput.format.consume_queue import ConsumeQueueEntry
from reput.format.consume_queue_ext import (
    END_BYTES,
    FILE_END,
    MAX_UNIT_BYTES,
    ExtensionUnit,
    address_of,
    encode_unit,
)
from reput.format.dtypes import MESSAGE_DTYPE, MULTI_DTYPE
from reput.io import Disk
from reput.kernels.jit import new_rows
from tests.crash.power import Power
from tests.oracle.consume_queue import ENTRY
from tests.oracle.consume_queue import ConsumeQueue as OracleQueue


class Entry(NamedTuple):
    """An entry to append, and the queue offset at which it belongs."""

    physical_offset: int
    queue_offset: int
    size: int = 10
    tags_code: int = -7


def append(queue: ConsumeQueueWriter, entries: list[Entry], lost: LostRanges = NONE_LOST) -> int:
    messages: Any = new_rows(len(entries), MESSAGE_DTYPE)
    for row, entry in enumerate(entries):
        for name in ("physical_offset", "size", "tags_code"):
            messages[row][name] = getattr(entry, name)
    offsets = np.array([entry.queue_offset for entry in entries], np.int64)
    return queue.append(messages, np.arange(len(entries)), offsets, lost)


def oracle_files(entries: list[Entry], file_entries: int, cut: int = 0) -> dict[str, bytes]:
    """Return the oracle's files for entries that are appended in two parts, divided at `cut`."""
    queue = OracleQueue(file_entries * ENTRY.size)
    for part in (entries[:cut], entries[cut:]):
        following = [entry.queue_offset for entry in part[1:]]
        # An append knows the next message only within its part.
        for entry, after in zip_longest(part, following):
            queue.put(entry.physical_offset, entry.size, entry.tags_code, entry.queue_offset, after)
    return queue.padded()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


SEVERAL_GAPS = ((0, 14), (110, 16), (120, 17), (230, 19), (240, 20), (350, 22), (360, 23))
entry_lists = st.lists(
    st.builds(lambda at, n: Entry(at, n), st.integers(0, 300), st.integers(0, 30)), max_size=30
)


@given(entry_lists, st.sampled_from((1, 2, 5, 100)), st.integers(0, 30), st.booleans())
@example([Entry(10 * n, n) for n in (0, 1, 1)], 2, 0, False)  # the refused entry creates a file
@example([Entry(10 * n, n) for n in (0, 1, 1, 2)], 2, 3, True)
@example([Entry(0, 13), Entry(10, 14)], 5, 1, True)
# The bytes between messages 14 and 16 have room for message 15, so its missing entry becomes a gap.
@example([Entry(0, 14), Entry(101, 16), Entry(300, 17)], 1, 0, False)
@example([Entry(0, 14), Entry(101, 16), Entry(300, 17)], 1, 2, False)
@example([Entry(*at) for at in SEVERAL_GAPS], 5, 0, False)
def test_files_are_the_oracles(
    entries: list[Entry], file_entries: int, cut: int, close_between: bool
) -> None:
    with TemporaryDirectory() as folder:
        queue = ConsumeQueueWriter(Path(folder) / "t" / "0", file_entries)
        taken = append(queue, entries[:cut]) if entries[:cut] else 0
        if close_between:
            queue.close(sync=True)
        taken += append(queue, entries[cut:]) if entries[cut:] else 0
        queue.close(sync=False)
        assert files_of(Path(folder) / "t" / "0") == oracle_files(entries, file_entries, cut)
        assert taken <= len(entries)


@given(st.integers(0, 12), st.integers(1, 12), st.sampled_from((1, 3, 7, 50)))
def test_parts_of_a_queue_can_be_written_in_any_order(
    start: int, cut: int, file_entries: int
) -> None:
    entries = [Entry(10 * n, start + n) for n in range(cut + 5)]
    with TemporaryDirectory() as name:
        folder = Path(name) / "t" / "0"
        # The next part gets its place as an argument, and does not depend on the previous part.
        later = ConsumeQueueWriter(folder, file_entries, start + cut)
        assert append(later, entries[cut:]) == 5
        later.close(sync=False)
        first = ConsumeQueueWriter(folder, file_entries)
        assert append(first, entries[:cut]) == cut
        first.close(sync=False)
        assert files_of(folder) == oracle_files(entries, file_entries)


def test_a_queue_offset_below_0_is_never_taken(tmp_path: Path) -> None:
    queue = ConsumeQueueWriter(tmp_path / "q", 3)
    assert append(queue, [Entry(0, -1), Entry(10, -(2**63))]) == 0
    queue.close(sync=False)
    assert not (tmp_path / "q").exists()


def test_a_queue_can_start_where_no_one_ever_came(tmp_path: Path) -> None:
    queue = ConsumeQueueWriter(tmp_path / "q", 3)
    last = (2**63 - 1) // 20
    assert append(queue, [Entry(0, last)]) == 1
    queue.close(sync=False)
    assert files_of(tmp_path / "q") == oracle_files([Entry(0, last)], 3)


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "a\0", "t" * 256])
def test_a_topic_that_is_no_folder_name_has_no_queue(tmp_path: Path, topic: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of a folder"):
        queue_folder(tmp_path, topic, 0)


@pytest.mark.parametrize("lost_bytes", [MIN_RECORD_BYTES - 1, MIN_RECORD_BYTES])
def test_a_gap_stays_if_the_lost_bytes_have_room_for_the_missing_message(
    tmp_path: Path, lost_bytes: int
) -> None:
    queue = ConsumeQueueWriter(tmp_path / "t" / "0", 10)
    append(queue, [Entry(0, 0)])
    queue.close(sync=False)
    queue = ConsumeQueueWriter(tmp_path / "t" / "0", 10, 1, 10)
    append(queue, [Entry(1000, 2)], np.array([[10, 10 + lost_bytes]], np.int64))
    assert queue.position == (3 if lost_bytes == MIN_RECORD_BYTES else 2)
    assert queue.blanks == queue.position - 2
    queue.close(sync=False)


@pytest.mark.parametrize("first", [3, 4])
def test_a_queue_of_expired_messages_begins_anew_if_entries_are_missing(
    tmp_path: Path, first: int
) -> None:
    folder = tmp_path / "t" / "0"
    old = ConsumeQueueWriter(folder, 2)
    append(old, [Entry(10 * n, n) for n in range(3)])
    old.close(sync=False)
    queue = ConsumeQueueWriter(folder, 2, 3, 30, is_expired=True)
    entries = [Entry(1000 + 10 * n, first + n) for n in range(2)]
    append(queue, entries)
    queue.close(sync=False)
    if first == 3:  # it follows the last entry
        entries = [Entry(10 * n, n) for n in range(3)] + entries
    assert files_of(folder) == oracle_files(entries, 2)


def test_ends_are_those_of_queues_of_one_kind_that_have_entries(tmp_path: Path) -> None:
    plain = {Queue("T", n): ConsumeQueueWriter(tmp_path, 4, end) for n, end in enumerate((None, 3))}
    batch_queue = BatchQueueWriter(tmp_path, 4 * 46, lambda at: 1, 2, 5, 70)
    batches = BatchQueues(queues={Queue("B", 0): batch_queue})
    writer = ConsumeQueueSetWriter(tmp_path, StoreConfig(), Disk(), plain, batches)
    assert writer.positions() == {Queue("T", 1): (3, -1)}
    assert writer.batch_ends() == {Queue("B", 0): (2, 5, 70)}


@pytest.mark.parametrize("number", [0, 3, 6])
def test_of_an_expired_queue_the_last_entry_is_left(tmp_path: Path, number: int) -> None:
    write_expired_queue(tmp_path / "0", 4, number, ConsumeQueueEntry(70, 10, 7))
    blanks = ENTRY.pack(0, 2**31 - 1, 0) * (number % 4)
    data = (blanks + ENTRY.pack(70, 10, 7)).ljust(4 * ENTRY.size, b"\0")
    assert files_of(tmp_path / "0") == {f"{number // 4 * 80:020d}": data}


def _written(folder: Path, numbers: range) -> EntryFilesWriter:
    files = EntryFilesWriter(folder, CONSUME_QUEUE, 4 * ENTRY.size)
    for number in numbers:
        files.write(memoryview(ENTRY.pack(number + 1, 10, 7)), number)
        files.position = number + 1
    return files


def test_synced_entries_and_their_files_survive_a_power_cut(tmp_path: Path) -> None:
    root = tmp_path / "store"
    folder = root / "consumequeue" / "T" / "0"
    (root / "consumequeue").mkdir(parents=True)
    power = Power(root, keeps=0)
    with power.on():
        files = _written(folder, range(6))
        files.sync()
        later = len(power.steps)
        files.write(memoryview(ENTRY.pack(7, 10, 7)), 6)
        files.position = 7
        files.sync()
        # No file is new, so no folder is synced again.
        assert power.steps[later:] == [f"sync consumequeue/T/0/{80:020d}"]
        files.write(memoryview(ENTRY.pack(8, 10, 7) * 2), 7)
        files.position = 9
        files.sync()
    power.come_back()
    expected = b"".join(ENTRY.pack(n + 1, 10, 7) for n in range(7)) + ENTRY.pack(8, 10, 7) * 2
    there = b"".join(data for _, data in sorted(files_of(folder).items()))
    assert there == expected.ljust(12 * ENTRY.size, b"\0")


def test_synced_queues_and_their_units_survive_a_power_cut(tmp_path: Path) -> None:
    root, places = tmp_path / "store", ("consumequeue", "consumequeue_ext")
    for name in places:
        (root / name).mkdir(parents=True)
    queues = [Queue("T", number) for number in range(2)]
    messages: Any = np.zeros(4, MESSAGE_DTYPE)
    for number, message in enumerate(messages):
        message["physical_offset"], message["size"] = 10 * number, 10
        message["queue"], message["queue_offset"] = number % 2, number // 2
    batch = DispatchBatch(messages, np.empty(0, np.int32), new_rows(0, MULTI_DTYPE), queues)
    config = StoreConfig(queue_entries=4, extension_file_bytes=1024)
    power = Power(root, keeps=0)
    with power.on():
        writer = ConsumeQueueSetWriter(
            root / places[0], config, Disk(), {}, extensions=root / places[1]
        )
        grown = writer.append(batch)
        assert writer.append(batch) == []  # as after a crash
        writer.sync()
        written = [
            files_of(queue_folder(root / name, *queue)) for name in places for queue in queues
        ]
    power.come_back()
    assert dict(grown) == dict.fromkeys(queues, 2)
    assert all(any(data.strip(b"\0") for data in files.values()) for files in written)
    there = [files_of(queue_folder(root / name, *queue)) for name in places for queue in queues]
    assert there == written
    unit = encode_unit(ExtensionUnit(0, 0, b""))
    for number in range(2):
        (entries,), (units,) = there[number].values(), there[2 + number].values()
        assert units == (2 * unit).ljust(1024, b"\0")
        first, second = (
            ENTRY.pack(10 * (number + 2 * n), 10, address_of(n * len(unit))) for n in range(2)
        )
        assert entries == (first + second).ljust(80, b"\0")


@pytest.mark.parametrize("number", [1, 5])
def test_a_file_that_another_process_replaced_is_noticed(tmp_path: Path, number: int) -> None:
    files = _written(tmp_path / "T" / "0", range(6))
    files.check_in_place()
    files.write(memoryview(ENTRY.pack(9, 10, 7)), number)
    files.close(sync=False)
    path = tmp_path / "T" / "0" / f"{number // 4 * 80:020d}"
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)
    with pytest.raises(StoreFailedError, match=path.name):
        files.check_in_place()
    if number == 5:  # the newest file: it is checked before it is opened again
        with pytest.raises(StoreFailedError, match=path.name):
            files.write(memoryview(ENTRY.pack(9, 10, 7)), number)


def test_units_are_put_after_one_another_and_never_cross_the_end_of_a_file(tmp_path: Path) -> None:
    file_bytes = 70
    writer = ExtensionWriter(tmp_path / "T" / "0", file_bytes)
    units = [ExtensionUnit(-n, 1000 + n, bytes(size)) for n, size in enumerate([3, 0, 20, 40, 9])]
    expected, addresses = [bytearray()], list[int]()
    for unit in units:
        data = encode_unit(unit)
        if len(expected[-1]) + len(data) + END_BYTES > file_bytes:
            expected[-1] += FILE_END
            expected.append(bytearray())
        addresses.append(address_of((len(expected) - 1) * file_bytes + len(expected[-1])))
        expected[-1] += data
    assert len(expected) > 2
    assert [writer.put(unit) for unit in units] == addresses
    # Neither a unit longer than a file, nor one longer than the format allows, is written.
    for size in (file_bytes, MAX_UNIT_BYTES):
        assert writer.put(ExtensionUnit(1, 1, bytes(size))) is None
    writer.flush()
    assert files_of(tmp_path / "T" / "0") == {
        EXTENSION.file_name(number * file_bytes): bytes(data).ljust(file_bytes, b"\0")
        for number, data in enumerate(expected)
    }
    end = writer.position
    writer.close()
    again = ExtensionWriter(tmp_path / "T" / "0", file_bytes, end)
    assert again.put(units[1]) == address_of(end)
    again.flush()
    again.sync()
    again.close()
    data = bytes(expected[-1]) + encode_unit(units[1])
    last = files_of(tmp_path / "T" / "0")[EXTENSION.file_name((len(expected) - 1) * file_bytes)]
    assert last == data.ljust(file_bytes, b"\0")
