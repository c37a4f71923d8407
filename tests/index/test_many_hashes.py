"""Many hashes in one IndexFile: a hash is ruled out only if its chain has no item of the hash, and no damage."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest

import reput
from reput.core.index.key_index import FEW_HASHES, KeyHashes
from reput.core.index.many_hashes import worth_following
from reput.core.index.reader import IndexFileReader
from reput.core.index.spot_checks import SlotPages
from reput.errors import StoreError
from reput.format.index_file import HashedTopics, file_bytes, index_key, key_hash
from reput.format.java_string import hash_code
from tests.oracle.index_file import IndexFile

SLOTS, ROOM = 5 * 1024, 31_000
SLOTS_AT, ITEMS_AT = 40, 40 + 4 * SLOTS
TOPICS = [f"topic-{number}" for number in range(2000)]


def index_file(folder: Path, items: int, change: Callable[[bytearray, Random], None]) -> Path:
    made = IndexFile(SLOTS, ROOM, 0)
    for number in range(items):
        made.put(TOPICS[number % 1500], f"k{number // 1500}", 100 * number, 1)
    data = bytearray(made.to_bytes())
    change(data, Random(items))
    path = folder / "20260101000000000"
    path.write_bytes(data)
    return path


def nothing(data: bytearray, random: Random) -> None:
    pass


def words(data: bytearray, random: Random) -> None:
    for _ in range(300):
        at = 4 * random.randrange(SLOTS_AT // 4, file_bytes(SLOTS, ROOM) // 4)
        data[at : at + 4] = random.choice([bytes(4), random.randbytes(4), b"\xff" * 4])


def slot_page(data: bytearray, random: Random) -> None:
    data[8192:12288] = bytes(4096)


def items_page(data: bytearray, random: Random) -> None:
    data[ITEMS_AT : ITEMS_AT + 4096] = bytes(4096)


def fewer_counted(data: bytearray, random: Random) -> None:
    count = int.from_bytes(data[36:40], "big")
    data[36:40] = (count - count // 10).to_bytes(4, "big")


def finds(file: IndexFileReader, hashed: int, *, is_spot_checked: bool) -> bool:
    """Return whether the chain of a hash has an item of the hash, or damage."""
    try:
        if is_spot_checked:
            SlotPages(file).check(hashed)
        return bool(list(file.offsets(hashed)))
    except StoreError:
        return True


@pytest.mark.parametrize("is_spot_checked", [True, False])
@pytest.mark.parametrize("items", [40, 900, 30_000])
@pytest.mark.parametrize("change", [nothing, words, slot_page, items_page, fewer_counted])
def test_hashes_are_ruled_out_that_find_nothing_and_nothing_wrong(
    tmp_path: Path,
    change: Callable[[bytearray, Random], None],
    items: int,
    is_spot_checked: bool,
) -> None:
    path = index_file(tmp_path, items, change)
    with_keys = KeyHashes(TOPICS, ["k0", "k7"]).array
    others = Random(7).sample(range(1 << 31), 600)
    hashes = np.unique(np.concatenate([with_keys[:: 1 if items < 1000 else 8], others]))
    with closing(IndexFileReader(str(path), SLOTS, ROOM)) as file:
        slots = SlotPages(file) if is_spot_checked else None
        for _ in range(2):  # the second time, most pages are trusted
            left = set(worth_following(file, hashes.astype(np.int32), slots))
            each = {
                one: finds(file, one, is_spot_checked=is_spot_checked) for one in hashes.tolist()
            }
            assert not [one for one, is_found in each.items() if is_found and one not in left]
            if change is nothing:
                assert left == {one for one, is_found in each.items() if is_found}


def test_many_topics_have_the_same_hashes_as_each_alone() -> None:
    topics = [
        *TOPICS,
        "",
        "#",
        "中文",
        "a\ud83d\ude00",
        "\ud83d",
        "\ude00x",
        "é" * 300,
        *TOPICS[:9],
    ]
    for key in ("k", "", "键", "\ude00", "\ud83d", "x" * 5000):
        found = KeyHashes(topics, [key])
        expected = {key_hash(index_key(topic, key)) for topic in topics}
        assert (set(found), len(found)) == (expected, len(expected))
        assert found.array.tolist() == sorted(expected)
    both = KeyHashes(HashedTopics(topics), ["a", "b"])
    assert set(both) == {*KeyHashes(topics, ["a"]), *KeyHashes(topics, ["b"])}


def test_the_least_integer_has_the_hash_zero_among_many() -> None:
    before = hash_code(index_key("t", "")) * 31**5
    left = (-(1 << 31) - before) % (1 << 32)
    key = ""
    for power in (4, 3, 2, 1, 0):
        unit, left = divmod(left, 31**power)
        key += chr(unit)
    assert hash_code(index_key("t", key)) == -(1 << 31)
    assert 0 in KeyHashes([*TOPICS, "t"], [key])


def test_a_key_is_found_in_many_topics_by_index_and_scan(tmp_path: Path) -> None:
    path, count = tmp_path / "store", FEW_HASHES + 100
    sizes = reput.StoreConfig(
        commit_log_file_bytes=1 << 20, queue_entries=10, hash_slots=4096, index_items=2000
    )
    with reput.open_store(path, "rw", config=sizes) as store:
        store.put_many(
            [
                reput.Message(f"t{n}", b"x", keys=[f"k{n}", *(["all"] * (n % 100 == 0))])
                for n in range(count)
            ]
        )
    with reput.open_store(path) as store:
        for _ in range(2):
            assert [one.topic for one in store.query(None, "k17")] == ["t17"]
            found = store.query(None, "all")
            assert [one.topic for one in found] == [f"t{n}" for n in range(600, -1, -100)]
            assert found.coverage.indexed
            assert not store.query(None, "none").messages
        with reput.open_store(path, "rw", config=sizes) as owner:
            owner.put(reput.Message("new", b"x", keys=["all"]))
        assert store.query(None, "all").messages[0].topic == "new"
