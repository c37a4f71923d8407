"""`reput inspect --slots`, `--items`, `--chain`: the drawings of docs/format/index-file.md, and a broker's file."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND, WRONG_USE
from reput.format.index_file import index_key, key_hash
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
NAME = "20261120232222031"
SLOTS, ITEMS = 1000, 4000
CHAIN = """\
key hash 1046199553, slot 553 at byte 2252, newest item 3026
      item      at byte    key hash        slot    physical offset    time (s)  stored                      previous
      3026        64560  1046106553         553             351187       65453  2026-10-12T18:11:22.267Z        1113
      1113        26300   347769553         553             131982       40854  2026-10-12T11:21:23.267Z         446
       446        12960  1046199553         553              53821       30877  2026-10-12T08:35:06.267Z         437  *
       437        12780  1046199553         553              52636       30808  2026-10-12T08:33:57.267Z           0  *
2 items have the key's hash (*)
"""


def rows(*args: object) -> list[dict[str, Any]]:
    ran = reput("inspect", *args, "--format", "json")
    assert (ran.code, ran.err) == (FOUND, "")
    return [json.loads(line) for line in ran.lines]


def test_a_chain_is_the_worked_example_of_the_format_page(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path / "index" / NAME, "--chain", "orders#order-100377")
    assert (ran.code, ran.err, ran.out) == (FOUND, "", CHAIN)


def test_items_and_slots_are_the_bytes_of_the_file(golden: Golden) -> None:
    path = golden("orders").path / "index" / NAME
    data = path.read_bytes()
    items = rows(path, "--items")
    assert [row["item"] for row in items] == list(range(1, ITEMS))
    begin = struct.unpack_from(">q", data)[0]
    for row in items:
        stored = (row["key_hash"], row["physical_offset"], row["time_diff_s"], row["previous"])
        assert struct.unpack_from(">iqii", data, row["position"]) == stored
        assert row["position"] == 40 + 4 * SLOTS + 20 * row["item"]
        assert row["slot"] == row["key_hash"] % SLOTS
        assert row["store_timestamp"] == begin + 1000 * row["time_diff_s"]
    values = struct.unpack_from(f">{SLOTS}i", data, 40)
    expected = [(slot, 40 + 4 * slot, value) for slot, value in enumerate(values) if value]
    assert [tuple(row.values()) for row in rows(path, "--slots")] == expected


def test_lists_have_a_header_and_a_line_per_row(golden: Golden) -> None:
    path = golden("orders").path / "index" / NAME
    slots, items = reput("inspect", path, "--slots").lines, reput("inspect", path, "--items").lines
    assert slots[0].split() == ["slot", "at", "byte", "newest", "item"]
    assert (len(slots), len(items)) == (1 + 983, 1 + 3999)
    assert "       553         2252         3026" in slots
    assert CHAIN.splitlines()[2] in items


def test_every_chain_holds_what_a_message_was_indexed_under(golden: Golden) -> None:
    store = golden("orders")
    message = next(row for row in store.messages if row.physical_offset == 53821)
    path = store.path / "index" / NAME
    for key in ("order-100377", "customer-65"):
        chain = rows(path, "--chain", f"{message.topic}#{key}")
        hashed = key_hash(index_key(message.topic, key))
        assert 53821 in [row["physical_offset"] for row in chain if row["key_hash"] == hashed]
        assert {row["slot"] for row in chain} == {hashed % SLOTS}


def test_a_key_that_no_item_has_is_not_found(golden: Golden) -> None:
    ran = reput("inspect", golden("orders").path / "index" / NAME, "--chain", "orders#order-1")
    assert (ran.code, ran.err) == (NOT_FOUND, "")
    assert ran.lines[-1] == "0 items have the key's hash (*)"


def test_a_chain_that_leads_astray_is_damage(golden: Golden, tmp_path: Path) -> None:
    data = bytearray((golden("orders").path / "index" / NAME).read_bytes())
    # item 446 links back to the beginning of the chain
    struct.pack_into(">i", data, 12960 + 16, 3026)
    (tmp_path / NAME).write_bytes(data)
    sizes = ("--hash-slots", SLOTS, "--index-items", ITEMS)
    ran = reput("inspect", tmp_path / NAME, *sizes, "--chain", "orders#order-100377")
    assert ran.code == DAMAGED
    assert one_line(ran).endswith("offset 12960: the chain of slot 553 leads to item 3026")
    struct.pack_into(">i", data, 2252, 1)  # the slot points to an item of another slot
    (tmp_path / NAME).write_bytes(data)
    ran = reput("inspect", tmp_path / NAME, *sizes, "--chain", "orders#order-100377")
    assert ran.code == DAMAGED
    assert "item 1 is in the chain of slot 553, its hash is of slot" in one_line(ran)


def test_wrong_use_of_the_lists_is_one_line(golden: Golden) -> None:
    store = golden("orders").path
    path = store / "index" / NAME
    for wrong, line in (
        (
            (path, "--slots", "--items"),
            "reput: pass only one of --slots, --items, --chain, --entries and --at",
        ),
        (
            (path, "--chain", "order-1"),
            "reput: --chain order-1: write the topic before the key, as TOPIC#KEY",
        ),
        (
            (store / "checkpoint", "--slots"),
            f"reput: {store / 'checkpoint'}: not an IndexFile, so it has no slots, items and chains",
        ),
        (
            (store, "--items"),
            f"reput: {store}: not an IndexFile, so it has no slots, items and chains",
        ),
    ):
        ran = reput("inspect", *wrong)
        assert (ran.code, ran.out, one_line(ran)) == (WRONG_USE, "", line)
