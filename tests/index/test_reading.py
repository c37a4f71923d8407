"""IndexFiles opened with and without known slots and items."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.base.config import StoreConfig
from reput.core.index.geometry import work_out
from reput.core.index.reader import BrokenChainError, IndexFileReader
from reput.core.index.set_reader import IndexFileSetReader
from reput.errors import FormatError, StoreNotFoundError, UsageError
from reput.format.index_file import index_key, key_hash
from reput.io.reader import FileReader
from tests.golden.sparse import copy_store
from tests.golden.stores import EVERY_STORE, SHIPPED, GoldenStore
from tests.oracle.index_file import IndexFile
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def made(slots: int, items: int, keys: int, start: int = 0) -> bytes:
    """Return an IndexFile with this number of keys, half of them in pairs."""
    file = IndexFile(slots, items, 0)
    for number in range(keys):
        file.put("T", f"key{number // 2}", start + 100 * number, 1_700_000_000_000 + number)
    return file.to_bytes()


def write_index(folder: Path, *contents: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for number, data in enumerate(contents):
        (folder / f"{20260101000000000 + number}").write_bytes(data)
    return folder


@pytest.mark.parametrize("name", slow_from(len(SHIPPED), EVERY_STORE))
def test_slots_and_items_are_worked_out_from_a_golden_store(golden: Golden, name: str) -> None:
    store = golden(name)
    service = IndexFileSetReader(store.path / "index")
    assert {(f.hash_slots, f.index_items) for f in service.current()} == {
        (store.hash_slots, store.index_items)
    }
    headers = [(file.name, *file.header()) for file in service.current()]
    assert headers == [
        (
            row.file,
            row.begin_timestamp,
            row.end_timestamp,
            row.begin_physical_offset,
            row.end_physical_offset,
            row.hash_slot_count,
            row.index_count,
        )
        for row in store.index
    ]
    service.close()


@pytest.mark.parametrize("slots", [1, 2, 7, 100, 1000])
@pytest.mark.parametrize("items", [2, 3, 10, 50, 500])
def test_slots_and_items_of_any_file_are_right_or_not_told(
    tmp_path: Path, slots: int, items: int
) -> None:
    told = 0
    path = tmp_path / "1"
    for keys in {1, 2, 5, items // 2, items - 2, items - 1}:
        if 0 < keys < items:
            path.write_bytes(made(slots, items, keys, start=1))
            geometry = work_out(str(path), path.stat().st_size)
            assert geometry in (None, (slots, items))
            told += geometry is not None
    assert told


@pytest.mark.parametrize(
    ("slots", "items", "keys"),
    [(10_000_000, 19_000_000, 50), (4_999_995, 20_000_001, 1), (5_000_005, 19_999_999, 2)],
)
def test_a_file_of_the_default_size_need_not_be_the_default(
    tmp_path: Path, slots: int, items: int, keys: int
) -> None:
    # The file is as large as one with the default numbers: 5,000,000 slots and 20,000,000 items.
    file = IndexFile(slots, items, 0)
    for number in range(keys):
        file.put("T", f"key{number}", 100 * number, 1_700_000_000_000)
    path = tmp_path / "1"
    with path.open("wb") as writer:
        writer.write(file.used_bytes())
        writer.truncate(420_000_040)
    assert work_out(str(path), 420_000_040) == (slots, items)


@pytest.mark.parametrize("keys", [1, 20, 300])
def test_a_file_of_the_default_geometry_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    slots, items = 5_000_000, 20_000_000
    file = IndexFile(slots, items, 0)
    for number in range(keys):
        file.put("T", f"key{number}", 100 * number, 1_700_000_000_000)
    path = tmp_path / "1"
    with path.open("wb") as writer:
        writer.write(file.used_bytes())
        writer.truncate(420_000_040)
    read = []
    monkeypatch.setattr(FileReader, "last_nonzero", lambda self, size: read.append(size))
    assert work_out(str(path), 420_000_040) == (slots, items)
    assert not read


def test_a_full_file_tells_for_the_others_of_its_size(tmp_path: Path) -> None:
    folder = write_index(tmp_path / "index", made(10, 20, 19), made(10, 20, 0))
    service = IndexFileSetReader(folder)
    assert [(f.hash_slots, f.index_items) for f in service.current()] == [(10, 20)] * 2


def test_options_say_what_the_file_does_not(tmp_path: Path, golden: Golden) -> None:
    data = bytearray(made(10, 20, 7))
    data[40:80] = bytes(40)  # without slots, the file does not show its number of slots and items
    folder = write_index(tmp_path / "index", bytes(data))
    with pytest.raises(UsageError) as caught:
        IndexFileSetReader(folder)
    for word in (str(folder), "hash_slots", "index_items", "broker_config"):
        assert word in str(caught.value)
    for given in ((10, 20), (10, None), (None, 20)):
        (file,) = IndexFileSetReader(folder, *given).current()
        assert (file.hash_slots, file.index_items) == (10, 20)
    for wrong in ((11, 20), (10, 21), (11, None), (None, 24), (1, 2)):
        if wrong in ((11, 20), (10, 21)):  # the file seems to be cut short
            service = IndexFileSetReader(folder, *wrong)
            assert (service.current(), len(service.problems)) == ((), 1)
        else:
            with pytest.raises(UsageError, match="hash_slots"):
                IndexFileSetReader(folder, *wrong)


def test_a_brokers_configuration_says_it_too(golden: Golden, tmp_path: Path) -> None:
    store = golden("lmq")
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=100\nmaxIndexNum = 400\n")
    with reput.open_store(store.path, broker_config=tmp_path / "broker.conf") as opened:
        assert len(opened.index.current()) == len(store.index)
    with reput.open_store(
        store.path, config=StoreConfig(hash_slots=100, index_items=400)
    ) as opened:
        assert len(opened.index.current()) == len(store.index)
    with reput.open_store(store.path, hash_slots=100, index_items=400) as opened:
        assert len(opened.index.current()) == len(store.index)
    with pytest.raises(StoreNotFoundError, match=r"missing\.conf"):
        reput.open_store(store.path, broker_config=tmp_path / "missing.conf")


def test_files_without_entries_need_no_options(tmp_path: Path) -> None:
    folder = write_index(tmp_path / "index", bytes(480), b"", b"short")
    service = IndexFileSetReader(folder)
    assert service.current() == ()
    # Only the short file is a problem. Empty files and files of zeros are normal before the first put.
    assert len(service.problems) == 1


def test_what_is_no_index_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "1"
    good = made(10, 20, 7)
    count_too_high = good[:36] + struct.pack(">i", 21) + good[40:]
    count_below_zero = good[:36] + struct.pack(">i", -1) + good[40:]
    for data, reason in (
        (good[:-1], "479 bytes, but 10 slots and 20 items take 480"),
        (good + b"\0", "481 bytes"),
        (count_too_high, "offset 36: index count 21, but the file has room for 20 items"),
        (count_below_zero, "index count -1"),
        (b"", "the file is empty"),
    ):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=reason) as caught:
            IndexFileReader(str(path), 10, 20)
        assert str(caught.value).startswith(f"{path}: offset ")


def test_offsets_of_a_key_newest_first(golden: Golden) -> None:
    store = golden("orders")
    service = IndexFileSetReader(store.path / "index")
    found = service.offsets("orders", "customer-48")
    named = [r.physical_offset for r in store.messages if "customer-48" in (r.keys or "").split()]
    topics = {r.physical_offset: r.topic for r in store.messages}
    expected = [o for o in reversed(named) if topics[o] == "orders"]
    assert [offset for offset in found if offset in set(expected)] == expected
    assert found == sorted(found, reverse=True)
    assert service.offsets("orders", "no such key") == []


def test_a_self_loop_is_a_broken_chain(tmp_path: Path) -> None:
    path = tmp_path / "1"
    data = bytearray(made(1, 20, 7))
    struct.pack_into(">i", data, 44 + 20 * 3 + 16, 3)
    path.write_bytes(data)
    file = IndexFileReader(str(path), 1, 20)
    found: list[int] = []
    with pytest.raises(BrokenChainError, match="leads to item 3") as caught:
        found.extend(file.offsets(key_hash(index_key("T", "key0"))))
    assert caught.value.offset == 44 + 20 * 3
    assert found == []
    assert list(IndexFileReader(str(write_whole(path)), 1, 20).offsets(0)) == []


def write_whole(path: Path) -> Path:
    path.write_bytes(made(1, 20, 7))
    return path


def test_files_that_come_and_go_are_noticed(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    path = copy_store(store.path, tmp_path / "store")
    files = sorted((path / "index").iterdir())
    newest, oldest = files[-1].read_bytes(), files[0].read_bytes()
    files[-1].unlink()
    service = IndexFileSetReader(path / "index")
    assert len(service.current()) == 14
    files[-1].write_bytes(newest)
    assert len(service.current()) == 15
    files[0].unlink()
    assert [file.name for file in service.current()] == [file.name for file in files[1:]]
    files[3].unlink()
    files[3].write_bytes(oldest)  # another file of the same name
    assert service.current()[2].header().begin_physical_offset == 0
    service.close()
