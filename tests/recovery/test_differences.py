"""All differences between indexes and their log, held against the oracle's files, compared a unit at a time."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from reput.config import StoreConfig
from reput.log.sources import StoreLog
from reput.recovery import index_differences, queue_differences
from reput.recovery.difference import Difference
from reput.recovery.differences import differences
from tests.oracle.consume_queue import ENTRY
from tests.oracle.forge import write_store
from tests.oracle.index_file import HEADER, ITEM, SLOT
from tests.oracle.random_logs import LogOptions, random_log
from tests.oracle.walk import read_log, walk
from tests.pipeline.rebuilding import assert_oracle, rebuild, tree
from tests.slow import slow_from

CONFIG = StoreConfig(queue_entries=7, hash_slots=11, index_items=40)
Unit = tuple[str, str, int, bytes, bytes]
Damage = Callable[[Path, Random], None]


@pytest.fixture(autouse=True, params=[3, 1 << 16], ids=["small windows", "large windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_differences, "_WINDOW_ITEMS", request.param)
    monkeypatch.setattr(queue_differences, "_WINDOW_ENTRIES", request.param)


def indexed(folder: Path, seed: int, **options: bool) -> dict[str, bytes]:
    """A log and its indexes in one folder; the indexes' files, which are the oracle's."""
    made = random_log(seed, LogOptions(records=250, **options))
    config = CONFIG
    write_store(folder, made.files)
    rebuild(folder, folder.with_name("built"), config)
    assert_oracle(folder.with_name("built"), walk(read_log(folder)), config)
    files = tree(folder.with_name("built"))
    files.pop("checkpoint")
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return files


def found_in(folder: Path) -> Iterator[Difference]:
    files = StoreLog(folder).list().files
    return differences(folder, files, files[-1].end, CONFIG)


def units(name: str, size: int) -> Iterator[tuple[str, int, int]]:
    """What a file is made of: part, first byte, the byte after the last."""
    if name.startswith("consumequeue/"):
        for at in range(0, size, ENTRY.size):
            yield "entry", at, at + ENTRY.size
        return
    yield "header", 0, HEADER.size
    items_at = HEADER.size + CONFIG.hash_slots * SLOT.size
    for at in range(HEADER.size, items_at, SLOT.size):
        yield "slot", at, at + SLOT.size
    for at in range(items_at + ITEM.size, size, ITEM.size):
        yield "item", at, at + ITEM.size


def by_oracle(folder: Path, files: dict[str, bytes]) -> set[Unit]:
    """Every unit that is not the oracle's; those of zeros are not there."""
    there = tree(folder)
    wrong: set[Unit] = set()
    for name, expected in files.items():
        found = there.get(name, b"")
        for part, start, stop in units(name, len(expected)):
            ours, theirs = found[start:stop], expected[start:stop]
            if part in ("entry", "item"):
                ours, theirs = (data if any(data) else b"" for data in (ours, theirs))
            if ours != theirs:
                wrong.add((part, str(folder / name), start, theirs, ours))
    return wrong


def as_unit(difference: Difference) -> Unit:
    part, path, file_offset, offset, expected, found = difference
    data = expected or found
    if part in ("entry", "item"):
        found = found if any(found) else b""
        at = 0 if part == "entry" else 4
        assert offset == int.from_bytes(data[at : at + 8], "big", signed=True)
    else:
        assert offset is None
    return part, path, file_offset, expected, found


def some_unit(folder: Path, random: Random, parts: tuple[str, ...]) -> tuple[Path, int, int]:
    """One that a message has written."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("commitlog"):
            data = path.read_bytes()
            is_used = name.startswith("consumequeue/") or any(data[36:40])
            for part, start, stop in units(name, len(data)):
                blank = part == "entry" and data[start:stop] == ENTRY.pack(0, 2**31 - 1, 0)
                if part in parts and is_used and any(data[start:stop]) and not blank:
                    found.append((path, start, stop))
    return random.choice(found)


def change(folder: Path, random: Random) -> None:
    path, start, stop = some_unit(folder, random, ("entry", "item", "header", "slot"))
    data = bytearray(path.read_bytes())
    data[random.randrange(start, stop)] ^= random.randrange(1, 256)
    path.write_bytes(data)


def clear(folder: Path, random: Random) -> None:
    path, start, stop = some_unit(folder, random, ("entry", "item"))
    data = bytearray(path.read_bytes())
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)


def add(folder: Path, random: Random) -> None:
    """One too many, behind all."""
    queue = random.choice(sorted((folder / "consumequeue").glob("*/*")))
    path = random.choice([max(queue.iterdir()), max((folder / "index").iterdir())])
    data = bytearray(path.read_bytes())
    size = ENTRY.size if path.parent == queue else ITEM.size
    if not any(data[-size:]):
        data[-size:] = random.randbytes(4).rjust(8, b"\0") + b"\1" * (size - 8)
    path.write_bytes(data)


def lose_queue_file(folder: Path, random: Random) -> None:
    random.choice(sorted((folder / "consumequeue").glob("*/*/*"))).unlink()


def cut_short(folder: Path, random: Random) -> None:
    path = random.choice(sorted((folder / "consumequeue").glob("*/*/*")))
    path.write_bytes(path.read_bytes()[: random.randrange(CONFIG.queue_entries) * ENTRY.size])


DAMAGES: list[Damage] = [change, change, change, clear, clear, add, lose_queue_file, cut_short]


@pytest.mark.parametrize("options", [{}, {"irregular": True}, {"multi_dispatch": True}], ids=str)
def test_sound_indexes_have_none(tmp_path: Path, options: dict[str, bool]) -> None:
    indexed(tmp_path / "store", 1, **options)
    assert list(found_in(tmp_path / "store")) == []


@pytest.mark.parametrize("seed", slow_from(6, range(40)))
def test_each_of_many_changes_is_found_in_its_place(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path / "store"
    files = indexed(folder, seed % 4, irregular=seed % 3 == 2)
    for _ in range(random.randrange(1, 12)):
        random.choice(DAMAGES)(folder, random)
    found = [as_unit(one) for one in found_in(folder)]
    assert len(found) == len(set(found))
    assert set(found) == by_oracle(folder, files)
    assert list(map(as_unit, islice(found_in(folder), 1))) == found[:1], "the first alone"


def test_they_come_in_the_order_of_the_messages(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    indexed(folder, 2)
    for path in (folder / "consumequeue").rglob("*"):
        if path.is_file():
            path.unlink()
    found = list(found_in(folder))
    assert {one.part for one in found} == {"entry"}
    assert all(one.expected and not any(one.found) for one in found)
    offsets = [one.physical_offset for one in found]
    assert len(offsets) > 100
    assert offsets == sorted(offsets, key=lambda offset: offset or 0)


def test_an_index_file_that_is_lost_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    files = indexed(folder, 2)
    names = sorted(name for name in files if name.startswith("index/"))
    (folder / names[1]).unlink()
    found = list(found_in(folder))
    items_at = HEADER.size + CONFIG.hash_slots * SLOT.size
    lost = files[names[1]][items_at + ITEM.size :]
    assert b"".join(one.expected for one in found) == lost
    assert {(one.path, one.found) for one in found} == {(str(folder / "index"), b"")}


@pytest.mark.parametrize("seed", slow_from(3, range(12)))
def test_what_has_expired_is_taken_as_it_is(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path / "store"
    files = indexed(folder, seed % 4)
    logs = sorted((folder / "commitlog").iterdir())
    for path in logs[: len(logs) // 2]:
        path.unlink()
    begin = int(logs[len(logs) // 2].name)
    assert list(found_in(folder)) == []
    for _ in range(6):
        change_live(folder, random, begin)
    found = {as_unit(one) for one in found_in(folder)}
    assert found == by_oracle(folder, files)
    assert found


def change_live(folder: Path, random: Random, begin: int) -> None:
    """The last byte of an entry or item of a message that has not expired."""
    while True:
        path, start, stop = some_unit(folder, random, ("entry", "item"))
        data = bytearray(path.read_bytes())
        at = start if path.parent.name != "index" else start + 4
        if int.from_bytes(data[at : at + 8], "big") >= begin:
            break
    data[stop - 1] ^= 0x55
    path.write_bytes(data)
