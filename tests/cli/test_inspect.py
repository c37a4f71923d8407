"""`reput inspect`: stores and single files, sound and damaged ones."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reput.cli.main import DAMAGED, FOUND, WRONG_USE
from reput.format.index_file import item_position
from tests.cli.running import Ran, one_line, reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore, TornCase

Golden = Callable[[str], GoldenStore]
Torn = Callable[[str], TornCase]


def inspected(*args: object) -> Any:
    ran = reput("inspect", *args, "--json")
    assert (ran.code, ran.err) == (FOUND, "")
    return json.loads(ran.out)


def test_a_store_as_its_broker_counts_it(golden: Golden) -> None:
    store = golden("orders")
    found = inspected(store.path)
    assert (found["kind"], found["log_begin"], found["log_end"]) == ("store", 0, 6549067)
    queues = [tuple(queue.values()) for queue in found["queues"]]
    assert queues == sorted((q.topic, q.queue_id, q.min_offset, q.max_offset) for q in store.queues)
    files = [(file["name"], *file["header"]) for file in found["index_files"]]
    assert files == [
        (row.file, row.begin_timestamp, row.end_timestamp, row.begin_physical_offset,
         row.end_physical_offset, row.hash_slot_count, row.index_count)
        for row in store.index
    ]  # fmt: skip
    assert found["sizes"]["commitlog"]["files"] == 7
    assert found["checkpoint"] == [0, 1792454394688, 1792370672015]
    assert not found["has_abort"]


def test_a_store_in_words(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path)
    assert (ran.code, ran.err) == (FOUND, "")
    assert ran.lines[1] == "  commitlog/     offsets 0 to 6,549,067; 7 files, 7.0 MiB"
    assert "19,622 messages, 19 queues, 5 topics; 35 files, 683.6 KiB" in ran.out
    assert "58,866 entries; 15 files, 1.2 MiB" in ran.out
    assert "20261120232222247     2,880     6,260,942   2026-10-19 00:45:39" in ran.out
    assert all(len(line) <= 100 for line in ran.lines)


@pytest.mark.parametrize("name", ["orders", "basic", "timed", "tricky", "extremes", "lmq"])
def test_every_file_that_a_broker_wrote_is_sound(golden: Golden, name: str) -> None:
    store = golden(name)
    sizes = ("--hash-slots", store.hash_slots, "--index-items", store.index_items)
    for path in [store.path, *sorted(path for path in store.path.rglob("*") if path.is_file())]:
        ran = reput("inspect", path, *sizes)
        assert (ran.code, ran.err) == (FOUND, ""), path
        assert str(path) in ran.lines[0]


def test_an_index_file_in_numbers(golden: Golden) -> None:
    store = golden("orders")
    for row in store.index:
        found = inspected(store.path / "index" / row.file)
        assert (found["hash_slots"], found["index_items"]) == (1000, 4000)
        assert found["entries"] == row.index_count - 1
        assert found["used_slots"] == row.hash_slot_count
        slots = [slots for _, _, slots in found["chain_lengths"]]
        assert (sum(slots), slots[0]) == (1000, 1000 - row.hash_slot_count)
        assert found["longest_chains"][0]["entries"] >= found["entries"] / 1000
        assert found["unreachable"] == 0


def test_an_index_file_in_words(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path / "index" / "20261120232222031")
    assert ran.out.splitlines()[1:13] == [
        "  size           84,040 bytes: 1,000 slots, 4,000 items",
        "  entries        3,999 (full), 3,610 different key hashes",
        "  CommitLog      first message at 0, last at 463,569",
        "  stored         2026-10-12T00:00:29.267Z to 2026-10-12T20:51:51.363Z (20 h 51 min)",
        "  slots used     983 of 1,000 (98.3 %), 4.07 entries each",
        "",
        "slots by the length of their chain",
        "entries   slots",
        "0            17   █▌",
        "1            83   ███████▍",
        "2-3         392   ██████████████████████████████████▊",
        "4-7         450   ████████████████████████████████████████",
    ]


def test_a_commit_log_file(golden: Golden) -> None:
    store = golden("orders")
    found = inspected(store.path / "commitlog" / "00000000000005242880")
    rows = [row for row in store.messages if 5242880 <= row.physical_offset < 6291456]
    assert found["messages"] == len(rows)
    assert found["keys"] == 3 * len(rows)
    assert found["earliest_store_timestamp"] == min(row.store_timestamp for row in rows)
    assert found["latest_store_timestamp"] == max(row.store_timestamp for row in rows)
    topics = {topic: sum(row.topic == topic for row in rows) for topic in found["topics"]}
    assert found["topics"] == topics
    assert (found["finished"], found["end"], found["free_bytes"]) == (True, 6291415, 41)
    last = inspected(store.path / "commitlog" / "00000000000006291456")
    assert (last["finished"], last["end"], last["torn_tail"]) == (False, 6549067, False)


def test_a_commit_log_file_under_another_name(golden: Golden, tmp_path: Path) -> None:
    source = golden("orders").path / "commitlog" / "00000000000005242880"
    copy = shutil.copy(source, tmp_path / "some.bak")
    found = inspected(copy)
    assert (found["kind"], found["begin"], found["misplaced"]) == ("CommitLog file", 5242880, 0)


def test_a_consume_queue_file(golden: Golden) -> None:
    store = golden("orders")
    found = inspected(store.path / "consumequeue" / "orders" / "1" / "00000000000000020000")
    rows = [row for row in store.messages if (row.topic, row.queue_id) == ("orders", 1)][1000:]
    assert (found["first_entry"], found["entries"]) == (1000, len(rows))
    assert found["begin"] == rows[0].physical_offset
    assert found["end"] == rows[-1].physical_offset + rows[-1].size
    assert found["message_bytes"] == sum(row.size for row in rows)


def test_a_checkpoint(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path / "checkpoint")
    assert ran.lines[2:] == [
        "  CommitLog      not set",
        "  ConsumeQueue   2026-10-19T23:59:54.688Z  1792454394688",
        "  IndexFile      2026-10-19T00:44:32.015Z  1792370672015",
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("abort", b"", "its last one crashed"),
        ("lock", b"lock", "locked by a broker"),
        ("delayOffset.json", b'{"offsetTable":{}}', "of the broker itself"),
    ],
)
def test_markers_are_told_in_words(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    ran = reput("inspect", tmp_path / name)
    assert (ran.code, ran.err) == (FOUND, "")
    assert says in ran.out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("some.txt", b"hello, this is a letter"),
        ("empty", b""),
        ("checkpoint", b"short"),
        ("zeros", bytes(5000)),
    ],
)
def test_an_alien_file_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    ran = reput("inspect", tmp_path / name)
    assert (ran.code, ran.out) == (DAMAGED, "")
    assert one_line(ran).startswith(f"reput: {tmp_path / name}: offset ")


def test_a_directory_that_is_no_store(tmp_path: Path) -> None:
    ran = reput("inspect", tmp_path)
    assert ran.code == WRONG_USE
    assert one_line(ran) == f"reput: {tmp_path}: not a RocketMQ store, it has no commitlog folder"


def test_slots_and_items_that_do_not_fit(golden: Golden) -> None:
    path = golden("orders").path / "index" / "20261120232222031"
    ran = reput("inspect", path, "--hash-slots", 1001, "--index-items", 4000)
    assert ran.code == DAMAGED
    says = "offset 84040: 84040 bytes, but 1001 slots and 4000 items take 84044"
    assert one_line(ran) == f"reput: {path}: {says}"


def test_an_index_file_without_entries_asks_for_its_sizes(tmp_path: Path) -> None:
    path = tmp_path / "index" / "20261120232222031"
    path.parent.mkdir()
    path.write_bytes(bytes(84040))
    ran = reput("inspect", path)
    assert ran.code == WRONG_USE
    assert "give --hash-slots and --index-items" in one_line(ran)
    empty = inspected(path, "--hash-slots", 1000, "--index-items", 4000)
    assert (empty["entries"], empty["chain_lengths"]) == (0, [[0, 0, 1000]])


def damaged_index(golden: Golden, folder: Path, at: int, value: bytes) -> tuple[Path, Ran]:
    """The oldest IndexFile of `orders` with some bytes changed."""
    source = golden("orders").path / "index" / "20261120232222031"
    content = bytearray(source.read_bytes())
    content[at : at + len(value)] = value
    path = folder / source.name
    path.write_bytes(content)
    return path, reput("inspect", path, "--hash-slots", 1000, "--index-items", 4000)


@pytest.mark.parametrize(
    ("at", "value", "offset", "says"),
    [
        (36, struct.pack(">i", 4001), 36, "index count 4001, the file has 4000 items"),
        (36, struct.pack(">i", -5), 36, "index count -5"),
        (32, struct.pack(">i", 5), 32, "the header counts 5 used slots, there are 983"),
        (40 + 4 * 553, struct.pack(">i", 5000), 40 + 4 * 553, "slot 553 leads to item 5000"),
        (40 + 4 * 553, struct.pack(">i", 1), 40 + 4 * 553, "slot 553 leads to item 1, which is of"),
        (12960 + 16, struct.pack(">i", 446), 12960, "item 446 leads to a later item, itself or none"),
        (12960 + 16, struct.pack(">i", 3), 12960, "item 446 leads to an item of another slot"),
        (12960 + 4, struct.pack(">q", -1), 12960, "the physical offset of item 446 is below zero"),
        (12960, struct.pack(">i", -1), 12960, "the key hash of item 446 is below zero"),
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
    assert "entries" in ran.out, "what can be told is told all the same"


def test_items_on_no_chain(golden: Golden, tmp_path: Path) -> None:
    at = item_position(1000, 446) + 16
    path, ran = damaged_index(golden, tmp_path, at, struct.pack(">i", 0))
    assert ran.code == DAMAGED
    where = f"reput: {path}: offset {item_position(1000, 437)}"
    assert f"{where}: 1 items are on no chain, the first is item 437" in ran.err


def test_a_damaged_commit_log_file(golden: Golden, tmp_path: Path) -> None:
    content = bytearray((golden("orders").path / "commitlog" / "00000000000000000000").read_bytes())
    content[53821 + 4] ^= 1
    path = tmp_path / "00000000000000000000"
    path.write_bytes(content)
    ran = reput("inspect", path)
    assert ran.code == DAMAGED
    lost = len(content) - 53821
    assert one_line(ran) == (
        f"reput: {path}: offset 53821: no record begins here; {lost} bytes to the end of the file are lost"
    )
    assert reput("inspect", path, "--json").code == DAMAGED


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
    assert "offset 20000: 3 bytes at the end are no whole entry" in ran.err
    assert (
        "offset 220: entry 11 leads to 53821, before the end of the message of the entry" in ran.err
    )


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
        "commitlog/00000000000003145728: offset 0: 1048576 bytes before this file are in none",
        f"index/{names[0]}: offset 5: too short for the header of an IndexFile",
        f"index/{names[14]}: offset 24: leads to offset 6548768, the log ends at 6291423",
        "checkpoint: offset 16: time -1 is below zero",
    ):
        assert f"reput: {store}/{line}\n" in ran.err
    assert "readme.txt: not the name of an IndexFile" in ran.out
    assert "there: a broker runs, or the last one crashed" in ran.out


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
    """The last file of each is damaged; a zeroed last entry is the end of its queue."""
    store = torn(case)
    paths = sorted(path for path in store.before.rglob("*") if path.is_file())
    sizes = ("--hash-slots", store.hash_slots, "--index-items", store.index_items)
    damaged = [path for path in paths if reput("inspect", path, *sizes).code == DAMAGED]
    last = [path for path in paths if path.parent.name == file][-1:]
    assert damaged == last


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_mutation_of_a_file_is_more_than_damage(
    golden: Golden, tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever the bytes, the answer is one of the exit codes and lines with an offset."""
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
