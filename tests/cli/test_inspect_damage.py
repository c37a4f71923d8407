"""`reput inspect` of files that were damaged by people, by a crash, or at random."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.cli.main import DAMAGED, FOUND, WRONG_USE
from reput.format.index_file import item_position
from tests.cli.running import Ran, one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def damaged_index(golden: Golden, folder: Path, at: int, value: bytes) -> tuple[Path, Ran]:
    """Change some bytes of the oldest IndexFile of `orders`."""
    source = golden("orders").path / "index" / "20261120232222031"
    content = bytearray(source.read_bytes())
    content[at : at + len(value)] = value
    path = folder / source.name
    path.write_bytes(content)
    return path, reput("inspect", path, "--hash-slots", 1000, "--index-items", 4000)


@pytest.mark.parametrize(
    ("at", "value", "offset", "says"),
    [
        (36, struct.pack(">i", 4001), 36, "index count 4001, but the file has room for 4000 items"),
        (36, struct.pack(">i", -5), 36, "index count -5"),
        (32, struct.pack(">i", 5), 32, "the header counts 5 used slots, but 983 are used"),
        (40 + 4 * 553, struct.pack(">i", 5000), 40 + 4 * 553, "slot 553 leads to item 5000"),
        (40 + 4 * 553, struct.pack(">i", 1), 40 + 4 * 553, "slot 553 leads to item 1, which is of"),
        (12960 + 16, struct.pack(">i", 446), 12960, "item 446 leads to a later item, itself or none"),
        (12960 + 16, struct.pack(">i", 3), 12960, "item 446 leads to an item of another slot"),
        (12960 + 4, struct.pack(">q", -1), 12960, "the physical offset of item 446 is negative"),
        (12960, struct.pack(">i", -1), 12960, "the key hash of item 446 is negative"),
    ],
)  # fmt: skip
def test_a_damaged_index_file_is_told_with_its_offset(
    golden: Golden, tmp_path: Path, at: int, value: bytes, offset: int, says: str
) -> None:
    path, ran = damaged_index(golden, tmp_path, at, value)
    assert ran.code == DAMAGED
    assert any(
        line.startswith(f"reput: {path}: offset {offset}: {says}") for line in ran.err.splitlines()
    ), ran.err
    assert "entries" in ran.out, "the readable part is printed nevertheless"


def test_items_on_no_chain(golden: Golden, tmp_path: Path) -> None:
    at = item_position(1000, 446) + 16
    path, ran = damaged_index(golden, tmp_path, at, struct.pack(">i", 0))
    assert ran.code == DAMAGED
    where = f"reput: {path}: offset {item_position(1000, 437)}"
    assert f"{where}: item 437 is on no chain" in ran.err


def test_a_damaged_commit_log_file(golden: Golden, tmp_path: Path) -> None:
    content = bytearray((golden("orders").path / "commitlog" / "00000000000000000000").read_bytes())
    content[53821 + 4] ^= 1
    path = tmp_path / "00000000000000000000"
    path.write_bytes(content)
    ran = reput("inspect", path)
    assert ran.code == DAMAGED
    lost = len(content) - 53821
    assert one_line(ran) == (
        f"reput: {path}: offset 53821: {lost} bytes lost: no record begins here"
    )
    assert reput("inspect", path, "--format", "json").code == DAMAGED


def test_a_damaged_consume_queue_file(golden: Golden, tmp_path: Path) -> None:
    source = golden("orders").path / "consumequeue" / "orders" / "1" / "00000000000000000000"
    path = tmp_path / "consumequeue" / "orders" / "1" / source.name
    path.parent.mkdir(parents=True)
    content = bytearray(source.read_bytes())
    content[200:220] = bytes(20)
    path.write_bytes(content)
    ran = reput("inspect", path)
    assert ran.code == DAMAGED
    assert "offset 200: entry 10 is not written and ends the queue, but later ones are" in ran.err
    content[200:220] = content[400:420]
    path.write_bytes(content + b"xyz")
    ran = reput("inspect", path)
    assert ran.code == DAMAGED
    assert "offset 20000: 3 bytes at the end are not a whole entry" in ran.err
    assert (
        "offset 220: entry 11 leads to 53821, before the end of the previous entry's message"
        in ran.err
    )


def test_records_whose_bodies_do_not_match_their_crc(golden: Golden, tmp_path: Path) -> None:
    source = golden("orders")
    content = bytearray((source.path / "commitlog" / "00000000000000000000").read_bytes())
    assert content[53821 + 8 : 53821 + 12] != b"xxxx"
    for at in (0, 53821):
        content[at + 8 : at + 12] = b"xxxx"  # a byte of BODYCRC
    path = tmp_path / "00000000000000000000"
    path.write_bytes(content)
    ran = reput("inspect", path)
    assert ran.code == DAMAGED
    assert [line.partition(": ")[2] for line in ran.err.splitlines()] == [
        f"{path}: offset {at}: the body does not match its CRC" for at in (0, 53821)
    ]
    assert "2 bodies do not match the CRC" in ran.out
    found = json.loads(reput("inspect", path, "--format", "json").out)
    assert found["wrong_bodies"] == 2
    assert [each["kind"] for each in found["findings"]] == ["body_crc"] * 2


def test_a_store_with_files_that_do_not_fit_together(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    (store / "index" / "readme.txt").write_bytes(b"hello")
    (store / "abort").touch()
    names = sorted(path.name for path in (store / "index").iterdir())
    (store / "index" / names[0]).write_bytes(b"short")
    (store / "checkpoint").write_bytes(b"\xff" * 4096)
    (store / "commitlog" / "00000000000006291456").unlink()
    (store / "commitlog" / "00000000000002097152").unlink()
    ran = reput("inspect", store)
    assert ran.code == DAMAGED
    for line in (
        "commitlog/00000000000002097152: physical offset 2097152: 1048576 bytes lost: no file contains these offsets",
        f"index/{names[0]}: offset 5: too short for the header of an IndexFile",
        f"index/{names[14]}: offset 24: leads to offset 6548768, the log ends at 6291456",
        "checkpoint: offset 16: time -1 is negative",
    ):
        assert f"reput: {store}/{line}\n" in ran.err
    assert "readme.txt: not the name of an IndexFile" in ran.err
    assert "exists: a broker is running, or the last one crashed" in ran.out


@pytest.mark.parametrize(
    ("case", "file"),
    [
        ("index_header_zero_noabort", "index"),
        ("index_count_zero_noabort", "index"),
        ("index_last_entry_half", "index"),
        ("index_short_file", "index"),
        ("magic_first_lastfile_abort", "commitlog"),
        ("size_bigger_noabort", "commitlog"),
        ("cq_last_entry_zeroed", None),
    ],
)
def test_damage_that_a_broker_met(torn: Torn, case: str, file: str | None) -> None:
    """Only the last file of a kind is reported as damaged. A zeroed last entry is not: the queue ends before it."""
    store = torn(case)
    paths = sorted(path for path in store.before.rglob("*") if path.is_file())
    sizes = ("--hash-slots", store.hash_slots, "--index-items", store.index_items)
    damaged = [path for path in paths if reput("inspect", path, *sizes).code == DAMAGED]
    last = [path for path in paths if path.parent.name == file][-1:]
    assert damaged == last


@given(data=st.data())
def test_no_mutation_of_a_file_is_more_than_damage(
    golden: Golden, tmp_path: Path, data: st.DataObject
) -> None:
    """For any bytes, the command ends with a known exit code and prints lines with offsets."""
    store = golden("basic")
    kinds = {
        "index": sorted((store.path / "index").iterdir())[0],
        "commitlog": sorted((store.path / "commitlog").iterdir())[3],
        "consumequeue/TopicA/0": sorted((store.path / "consumequeue/TopicA/0").iterdir())[0],
    }
    folder = data.draw(st.sampled_from(sorted(kinds)))
    content = bytearray(kinds[folder].read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        value = data.draw(st.binary(min_size=1, max_size=8))
        content[at : at + len(value)] = value
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    path = tmp_path / folder / kinds[folder].name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    ran = reput(
        "inspect", path, "--hash-slots", store.hash_slots, "--index-items", store.index_items
    )
    assert ran.code in (FOUND, WRONG_USE, DAMAGED), ran.err
    assert "unexpected" not in ran.err
    assert all(line.startswith(f"reput: {path}: ") for line in ran.err.splitlines())
