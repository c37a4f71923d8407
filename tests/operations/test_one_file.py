"""`reput.IndexFile` and `reput.ConsumeQueue`: one file and one queue, as articles on RocketMQ draw them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import FormatError, UsageError
from reput.format.index_file import index_key, key_hash
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
_HEADER, _ITEM = struct.Struct(">qqqqii"), struct.Struct(">iqii")


def toy_bytes(
    slots: int, items: int, puts: list[tuple[str, int, int]], end: tuple[int, int] = (0, 0)
) -> bytes:
    """Return an IndexFile by the steps of docs/format/index-file.md ("Put")."""
    begin = last = end[1]
    begin_offset = last_offset = end[0]
    table, rows, used = [0] * slots, [(0, 0, 0, 0)] * items, 0
    count = 1
    for key, offset, stored in puts:
        if count >= items:
            break
        slot = key_hash(key) % slots
        seconds = 0 if begin <= 0 else max((stored - begin) // 1000, 0)
        rows[count] = (key_hash(key), offset, seconds, table[slot])
        used += table[slot] == 0
        table[slot] = count
        if count == 1:
            begin, begin_offset = stored, offset
        count += 1
        last, last_offset = stored, offset
    header = _HEADER.pack(begin, last, begin_offset, last_offset, used, count if count > 1 else 0)
    return header + struct.pack(f">{slots}i", *table) + b"".join(_ITEM.pack(*row) for row in rows)


def test_the_toy_file_of_five_slots_and_twenty_items_is_the_one_of_the_format_page(
    tmp_path: Path,
) -> None:
    path = tmp_path / "20261120232222031"
    puts = [
        (f"orders#key-{n % 7}", 1000 + 100 * n, 1_700_000_000_000 + 1500 * n) for n in range(25)
    ]
    with reput.IndexFile.create(path, hash_slots=5, index_items=20) as file:
        assert [file.put_key(*put) for put in puts] == [True] * 19 + [False] * 6
        assert file.is_full
        assert file.header.index_count == 20
    assert path.read_bytes() == toy_bytes(5, 20, puts)


@pytest.mark.parametrize("count", [0, 1, 2, 18, 19])
def test_a_file_that_is_opened_again_continues_where_it_ended(tmp_path: Path, count: int) -> None:
    path = tmp_path / "20261120232222031"
    puts = [(f"T#k{n % 3}", 10 * n, 1_700_000_000_000 + 700 * n) for n in range(19)]
    end = (77, 1_699_999_990_000)
    with reput.IndexFile.create(
        path, 5, 20, end_physical_offset=end[0], end_timestamp=end[1]
    ) as file:
        for put in puts[:count]:
            file.put_key(*put)
    assert path.read_bytes() == toy_bytes(5, 20, puts[:count], end)
    with reput.IndexFile.open(path, 5, 20, mode="rw") as file:
        for put in puts[count:]:
            assert file.put_key(*put)
        file.sync()
    assert path.read_bytes() == toy_bytes(5, 20, puts, end)


def test_offsets_are_the_ones_that_a_broker_selects(golden: Golden) -> None:
    store = golden("orders")
    files = [
        reput.IndexFile.open(store.path / "index" / row.file, 1000, 4000) for row in store.index
    ]
    message = next(one for one in store.messages if one.physical_offset == 53821)
    key = index_key(message.topic, "order-100377")
    assert files[0].select_physical_offsets(key) == [53821, 52636]
    assert files[0].select_physical_offsets(key, max_num=1) == [53821]
    assert [row.physical_offset for row in files[0].chain("orders", "order-100377").items][
        2
    ] == 53821
    header = files[0].header
    assert (header.begin_timestamp, header.index_count) == (1791763229267, 4000)
    begin, end = header.begin_timestamp, header.end_timestamp
    # IndexFile.isTimeMatched (4.9.3): the window includes the file's times, or one of its ends lies within them.
    for window in ((begin, begin), (end, end + 9), (begin - 9, begin), (begin - 1, end + 1)):
        assert files[0].is_time_matched(*window)
    for window in ((end + 1, end + 9), (begin - 9, begin - 1)):
        assert not files[0].is_time_matched(*window)
    assert len(list(files[0].items())) == 3999
    assert len(list(files[0].slots())) == header.hash_slot_count
    for file in files:
        file.close()


def test_a_file_for_reading_refuses_keys(golden: Golden) -> None:
    store = golden("orders")
    file = reput.IndexFile.open(store.path / "index" / store.index[0].file, 1000, 4000)
    with file, pytest.raises(UsageError, match='mode="rw"'):
        file.put_key("T#k", 0, 0)
    with pytest.raises(UsageError, match="the file exists"):
        reput.IndexFile.create(store.path / "index" / store.index[0].file)
    with pytest.raises(UsageError, match="mode must be"):
        reput.IndexFile.open(store.path / "index" / store.index[0].file, 1000, 4000, mode="w")  # type: ignore[arg-type]


def test_a_file_that_another_writer_has_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "20261120232222031"
    with (
        reput.IndexFile.create(path, 5, 20),
        pytest.raises(UsageError, match="another process has the file open"),
    ):
        reput.IndexFile.open(path, 5, 20, mode="rw")


def test_a_queue_is_the_bytes_of_its_entries(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    entry = struct.Struct(">qiq")
    with reput.ConsumeQueue.create(folder, file_entries=4) as queue:
        assert (queue.min_logical_offset, queue.max_logical_offset) == (0, 0)
        for number in range(6):
            assert queue.append(100 * number, 100, number + 1)
        # A record that the queue already has is dropped (`putMessagePositionInfo`).
        assert not queue.append(100, 100, 2, queue_offset=1)
        assert (queue.min_logical_offset, queue.max_logical_offset) == (0, 120)
        assert [n for n, _ in queue.entries(2, 4)] == [2, 3]
    stored = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    expected = b"".join(entry.pack(100 * n, 100, n + 1) for n in range(6))
    assert stored == expected.ljust(8 * 20, b"\0")
    assert [path.name for path in sorted(folder.iterdir())] == [f"{0:020}", f"{80:020}"]
    with reput.ConsumeQueue.open(folder, mode="rw") as queue:
        assert queue.append(600, 50, 7)
        assert list(queue.entries(6)) == [(6, (600, 50, 7))]


def test_a_queue_that_begins_above_zero_begins_with_pre_blank_entries(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    with reput.ConsumeQueue.create(folder, file_entries=4) as queue:
        assert queue.append(500, 100, 1, queue_offset=6)
        assert list(queue.entries()) == [
            (4, (0, 2**31 - 1, 0)), (5, (0, 2**31 - 1, 0)), (6, (500, 100, 1)),
        ]  # fmt: skip
        assert (queue.min_logical_offset, queue.max_logical_offset) == (120, 140)


def test_a_broker_s_queue_is_read(golden: Golden) -> None:
    store = golden("orders")
    for row in store.queues:
        folder = store.path / "consumequeue" / row.topic / str(row.queue_id)
        with reput.ConsumeQueue.open(folder) as queue:
            assert (queue.min_queue_offset, queue.max_queue_offset) == (
                row.min_offset,
                row.max_offset,
            )
            assert queue.max_logical_offset == 20 * row.max_offset
            with pytest.raises(UsageError, match='mode="rw"'):
                queue.append(0, 1, 0)
    with pytest.raises(UsageError, match="no ConsumeQueue files"):
        reput.ConsumeQueue.open(store.path)


def test_wrong_arguments_are_refused_and_create_nothing(tmp_path: Path) -> None:
    path = tmp_path / "20261120232222031"
    for arguments in (
        {"end_timestamp": 1 << 70}, {"end_physical_offset": 1 << 63}, {"hash_slots": 0}, {"index_items": "9"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            reput.IndexFile.create(path, **{"hash_slots": 5, "index_items": 20, **arguments})  # type: ignore[arg-type]
    for name in ("i1", "memory://x/1", "1\0"):
        with pytest.raises(UsageError):
            reput.IndexFile.create(f"{tmp_path}/{name}" if "://" not in name else name, 5, 20)
    assert list(tmp_path.iterdir()) == []
    with reput.IndexFile.create(path, 5, 20) as file:
        for put in ((None, 0, 0), ("a", "x", 0), ("a", 1 << 63, 0), ("a", 1.5, 0)):
            with pytest.raises(UsageError):
                file.put_key(*put)
        with pytest.raises(UsageError):
            file.select_physical_offsets("a", 64, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="closed"):
        file.header  # noqa: B018  # the property raises
    for slots in (0, -5):
        with pytest.raises(UsageError, match="at least 1"):
            reput.IndexFile.open(path, slots, 21)
    folder = tmp_path / "consumequeue" / "T" / "0"
    with reput.ConsumeQueue.create(folder, file_entries=4) as queue:
        for entry in (
            (0, 0, 0),
            ("a", 1, 0),
            (0, 1 << 31, 0),
            (0, 1, 1 << 63),
            ((1 << 63) - 1, 5, 0),
            (-1, 1, 0),
        ):
            with pytest.raises(UsageError):
                queue.append(*entry)
        with pytest.raises(UsageError):
            queue.append(0, 1, 0, queue_offset=1 << 59)
    with pytest.raises(UsageError, match="closed"):
        list(queue.entries())


def test_a_damaged_file_stays_free_for_other_writers(tmp_path: Path) -> None:
    path = tmp_path / "20261120232222031"
    reput.IndexFile.create(path, 5, 20).close()
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 36, 9999)
    path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(FormatError, match="index count 9999"):
            reput.IndexFile.open(path, 5, 20, mode="rw")
    assert path.read_bytes() == data


@pytest.mark.parametrize("size", [0, 19, 73])
def test_a_queue_of_files_that_are_cut_is_not_written(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    with reput.ConsumeQueue.create(folder, file_entries=4) as queue:
        queue.append(0, 100, 1)
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(FormatError, match="one size"):
        reput.ConsumeQueue.open(folder, mode="rw")
    assert [path.name for path in folder.iterdir()] == [file.name]
