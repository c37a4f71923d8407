"""`reput inspect --entries` and `--at`: the entries of queues of all kinds, as the files have them."""

from __future__ import annotations

import json
import shutil
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reput as reput_api
from reput.cli.main import FOUND, NOT_FOUND, WRONG_USE
from reput.core.queues.kinds import CONSUME_QUEUE
from reput.format.java_string import hash_code
from reput.format.properties import decode_properties
from reput.io.storage import LOCAL
from reput.wings.inspect.queue_listing import listing_of_file
from tests.cli.running import one_line, reput
from tests.golden.stores import EVERY_FIVE, SHIPPED, GoldenStore

Golden = Callable[[str], GoldenStore]
_ENTRY = struct.Struct(">qiq")
# The first value that is the address of an extension unit, not a tags code.
_ADDRESSES = -(1 << 31)


def rows(*args: object) -> list[dict[str, Any]]:
    ran = reput("inspect", *args, "--format", "json")
    assert (ran.code, ran.err) == (FOUND, "")
    return [json.loads(line) for line in ran.lines]


def flat(listed: list[dict[str, Any]]) -> list[tuple[int, int, int, int]]:
    """Return (queue offset, physical offset, size, tags code) per entry; a pre-blank run as its entries."""
    return [
        (row["queue_offset"] + number, row["physical_offset"], row["size"], _code_of(row))
        for row in listed
        for number in range(row["messages"] if row["state"] == "pre-blank" else 1)
    ]


def _code_of(row: dict[str, Any]) -> int:
    """Return the tags code that a broker reads: of the extension unit, if the entry has one."""
    code: int = row["tags_code"] if row["unit"] is None else row["unit"]["tags_code"]
    return code


def stored_entries(folder: Path) -> list[tuple[int, int, int, int]]:
    """Return the entries of a ConsumeQueue by the layout of docs/format/consume-queue.md, up to the first empty one."""
    entries: list[tuple[int, int, int, int]] = []
    for path in sorted(folder.iterdir()):
        for number, entry in enumerate(_ENTRY.iter_unpack(path.read_bytes()), int(path.name) // 20):
            if entry[1] == 0:
                return entries
            entries.append((number, *entry))
    return entries


@pytest.mark.parametrize("name", SHIPPED)
def test_entries_are_the_bytes_of_the_files(golden: Golden, name: str) -> None:
    store = golden(name).path
    queues = sorted((store / "consumequeue").glob("*/*"))
    for folder in (queues[0], queues[len(queues) // 2], queues[-1]):
        listed = rows(store, f"{folder.parent.name}/{folder.name}", "--entries", "0-")
        assert flat(listed) == stored_entries(folder)
        for row in listed:
            assert row["logical_offset"] == row["queue_offset"] * 20
            data = Path(row["file"]).read_bytes()[row["position"] :][:20]
            assert _ENTRY.unpack(data) == (row["physical_offset"], row["size"], row["tags_code"])


@pytest.mark.parametrize("name", EVERY_FIVE)
def test_entries_are_those_that_a_broker_of_5_3_reads(golden: Golden, name: str) -> None:
    store = golden(name)
    if name in ("five_dledger", "five_multipath", "five_tiered", "five_compaction"):
        pytest.skip("other places of the log or of queues")
    by_queue = defaultdict(list)
    for entry in store.queue_entries:
        by_queue[entry.topic, entry.queue_id].append(entry)
    queues = sorted(by_queue)
    for topic, queue_id in {queues[0], queues[len(queues) // 2], queues[-1]}:
        expected = [
            (one.queue_offset, one.physical_offset, one.size, one.tags_code, one.batch_size)
            for one in by_queue[topic, queue_id]
        ]
        first, last = expected[0][0], expected[-1][0]
        listed = rows(store.path, f"{topic}/{queue_id}", "--entries", f"{first}-{last}")
        assert [(*one, 1) for one in flat([row for row in listed if row["messages"] == 1])] == [
            one for one in expected if one[4] == 1
        ]
        assert [
            (row["queue_offset"], row["physical_offset"], row["messages"])
            for row in listed
            if row["state"] == "entry"
        ] == [(one[0], one[1], one[4]) for one in expected if one[2] != 2**31 - 1]


def test_a_tag_is_the_one_of_the_message(golden: Golden) -> None:
    store = golden("orders")
    tags = {
        one.physical_offset: decode_properties(one.properties).get("TAGS") for one in store.messages
    }
    listed = rows(store.path, "orders/1", "--entries", "0-99")
    assert len(listed) == 100
    for row in listed:
        assert row["tag"] == tags[row["physical_offset"]]
        assert hash_code(row["tag"]) == row["tags_code"]


def test_text_has_a_header_and_a_line_per_entry(golden: Golden) -> None:
    path = golden("orders").path / "consumequeue" / "orders" / "1" / "00000000000000000000"
    line = "          11              220              53821         277             476588369  tag cancelled"
    for at in ("220", "239"):
        ran = reput("inspect", path, "--at", at)
        assert (ran.code, ran.err) == (FOUND, "")
        assert ran.lines[1:] == [line]
    ran = reput("inspect", golden("orders").path, "orders/1", "--entries", "11")
    assert ran.lines[1:] == [line]


def test_a_queue_is_described_by_its_ends(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path, "orders/1")
    assert (ran.code, ran.err) == (FOUND, "")
    assert "queue offsets  0 to 1,311" in ran.out
    assert "offsets 0 to 26,220" in ran.out


def test_a_due_time_and_a_unit_are_explained(golden: Golden) -> None:
    store = golden("five_ext")
    delayed = [one for one in store.queue_entries if one.topic == "SCHEDULE_TOPIC_XXXX"]
    queue = delayed[0].queue_id
    listed = rows(store.path, f"SCHEDULE_TOPIC_XXXX/{queue}", "--entries", "0-")
    messages = {one.physical_offset: one.store_timestamp for one in store.messages}
    assert listed
    for row in listed:
        if row["state"] != "entry":
            continue
        code = row["unit"]["tags_code"] if row["tags_code"] < _ADDRESSES else row["tags_code"]
        assert row["due"] == code
        assert row["due"] >= messages[row["physical_offset"]]
    units = [row["unit"] for row in listed if row["unit"] is not None]
    assert units
    assert all(unit["store_timestamp"] in messages.values() for unit in units)


def test_a_gap_is_a_row_and_the_free_part_is_not(golden: Golden, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden("orders").path, store)
    path = store / "consumequeue" / "orders" / "1" / "00000000000000000000"
    with path.open("r+b") as file:
        file.seek(11 * 20)
        file.write(bytes(3 * 20))
    listed = rows(path, "--entries", "9-15")
    assert [(row["queue_offset"], row["state"], row["messages"]) for row in listed] == [
        (9, "entry", 1), (10, "entry", 1), (11, "unwritten", 3), (14, "entry", 1), (15, "entry", 1),
    ]  # fmt: skip
    assert rows(path, "--entries", "12-12")[0]["state"] == "unwritten"
    last = rows(store, "orders/1", "--entries", "1305-")
    assert [row["queue_offset"] for row in last] == list(range(1305, 1311))


def test_a_file_outside_of_its_store_is_listed_without_tags(golden: Golden, tmp_path: Path) -> None:
    path = golden("orders").path / "consumequeue" / "orders" / "1" / "00000000000000000000"
    shutil.copy(path, tmp_path / "copy")
    listed = rows(tmp_path / "copy", "--entries", "11-11")
    assert (listed[0]["physical_offset"], listed[0]["tag"]) == (53821, None)


def test_nothing_in_the_range_is_not_found(golden: Golden) -> None:
    for arguments in (("--entries", "9999-"), ("--at", "9999999")):
        ran = reput("inspect", golden("orders").path, "orders/1", *arguments)
        assert (ran.code, ran.err) == (NOT_FOUND, "")


def test_wrong_use_of_entries_is_one_line(golden: Golden) -> None:
    store = golden("orders").path
    index = store / "index" / "20261120232222031"
    for wrong, line in (
        ((store, "orders", "--entries", "1"), "orders: write a queue as TOPIC/QUEUE, for example orders/1"),
        ((store, "orders/1", "--entries", "x"), "--entries x: write queue offsets as FROM-TO, for example 0-99"),
        ((store, "orders/1", "--entries", "9-1"), "--entries 9-1: the first queue offset is after the last one"),
        ((index, "--entries", "1"), f"{index}: not a file of a queue, so it has no entries"),
        ((store, "orders/1", "--slots"), "--slots, --items and --chain are for an IndexFile, not for a queue"),
        ((index, "--slots", "--at", "0"), "pass only one of --slots, --items, --chain, --entries and --at"),
    ):  # fmt: skip
        ran = reput("inspect", *wrong)
        assert (ran.code, ran.out, one_line(ran)) == (WRONG_USE, "", f"reput: {line}")


def test_an_entry_that_is_appended_while_the_queue_is_listed_is_no_gap(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    with reput_api.ConsumeQueue.create(folder, file_entries=50) as queue:
        for number in range(3):
            queue.append(100 * number, 100, 0)
        listing = listing_of_file(str(folder / f"{0:020}"), CONSUME_QUEUE, LOCAL)
        listed = listing.rows()
        seen = [next(listed)]
        queue.append(300, 100, 0)
        seen += listed
    assert {row.state for row in seen} == {"entry"}


def test_a_relative_path_and_a_place_beyond_all_entries(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = golden("orders").path
    monkeypatch.chdir(store / "consumequeue" / "orders" / "1")
    assert rows("00000000000000000000", "--at", "220")[0]["tag"] == "cancelled"
    ran = reput("inspect", golden("five_rocksdb").path, "%LMQ%a/0", "--at", "9" * 25)
    assert (ran.code, ran.err) == (NOT_FOUND, "")


def test_an_entry_of_a_damaged_batch_queue_is_found_by_its_place(
    golden: Golden, tmp_path: Path
) -> None:
    path = tmp_path / "0"
    (source,) = list(
        (golden("five_batch").path / "batchconsumequeue" / "BatchTopic" / "1").iterdir()
    )[:1]
    data = bytearray(source.read_bytes())
    struct.pack_into(">q", data, 2 * 46 + 28, -5)
    path.write_bytes(data)
    (row,) = rows(path, "--at", str(2 * 46))
    assert (row["queue_offset"], row["logical_offset"]) == (-5, 2 * 46)


def test_entries_that_are_appended_into_a_gap_are_listed_once(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    with reput_api.ConsumeQueue.create(folder, file_entries=50) as queue:
        for number in range(10):
            queue.append(100 * number, 100, 0)
    path = folder / f"{0:020}"
    whole = path.read_bytes()
    path.write_bytes(whole[: 3 * 20] + bytes(4 * 20) + whole[7 * 20 :])
    listed = listing_of_file(str(path), CONSUME_QUEUE, LOCAL).rows()
    seen = [next(listed)]
    path.write_bytes(whole)
    seen += listed
    assert [(row.queue_offset, row.state) for row in seen] == [(n, "entry") for n in range(10)]
