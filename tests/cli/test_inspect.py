"""`reput inspect`: stores and single files, sound and damaged ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reput.cli.main import DAMAGED, FOUND, WRONG_USE
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def inspected(*args: object) -> Any:
    ran = reput("inspect", *args, "--format", "json")
    assert (ran.code, ran.err) == (FOUND, "")
    return json.loads(ran.out)


def test_a_store_as_its_broker_counts_it(golden: Golden) -> None:
    store = golden("orders")
    found = inspected(store.path)
    assert (found["kind"], found["log_begin"], found["log_end"]) == ("store", 0, 6549067)
    queues = [tuple(queue.values()) for queue in found["queues"]]
    assert queues == sorted((q.topic, q.queue_id, q.min_offset, q.max_offset) for q in store.queues)
    files = [(file["name"], *file["header"].values()) for file in found["index_files"]]
    assert files == [
        (row.file, row.begin_timestamp, row.end_timestamp, row.begin_physical_offset,
         row.end_physical_offset, row.hash_slot_count, row.index_count)
        for row in store.index
    ]  # fmt: skip
    assert found["sizes"]["commitlog"]["files"] == 7
    assert found["checkpoint"] == {
        "physic_msg_timestamp": 0,
        "logics_msg_timestamp": 1792454394688,
        "index_msg_timestamp": 1792370672015,
        "master_flushed_offset": 0,
        "confirmed_offset": 0,
    }
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
        assert found["header"] == {
            "begin_timestamp": row.begin_timestamp,
            "end_timestamp": row.end_timestamp,
            "begin_physical_offset": row.begin_physical_offset,
            "end_physical_offset": row.end_physical_offset,
            "hash_slot_count": row.hash_slot_count,
            "index_count": row.index_count,
        }
        slots = [slots for _, _, slots in found["chain_lengths"]]
        assert (sum(slots), slots[0]) == (1000, 1000 - row.hash_slot_count)
        assert found["longest_chains"][0]["entries"] >= found["entries"] / 1000
        assert found["unreachable"] == 0


def test_an_index_file_in_words(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path / "index" / "20261120232222031")
    assert ran.out.splitlines()[1:14] == [
        "  size           84,040 bytes: 1,000 slots, 4,000 items",
        "  entries        3,999 (full), 3,610 different key hashes",
        "  header         beginTimestamp 1791763229267, endTimestamp 1791838311363, beginPhyOffset 0, "
        "endPhyOffset 463569, hashSlotCount 983, indexCount 4000",
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
    assert one_line(ran) == f"reput: {tmp_path}: not a RocketMQ store: it has no commitlog folder"


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
    assert "pass --hash-slots and --index-items" in one_line(ran)
    empty = inspected(path, "--hash-slots", 1000, "--index-items", 4000)
    assert (empty["entries"], empty["chain_lengths"]) == (0, [[0, 0, 1000]])
