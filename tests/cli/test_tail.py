"""`reput tail`: the last messages of a store, or all of them."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reput.cli.main import DAMAGED, FOUND, NOT_FOUND
from reput.testing.builders import MESSAGE, write_log
from tests.cli.running import reput
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


def offsets(*options: object, store: Path) -> list[int]:
    ran = reput("tail", store, *options, "--format", "jsonl")
    assert ran.err == "" or "no topic nothing; it has" in ran.err
    found = [json.loads(line)["physical_offset"] for line in ran.raw.splitlines()]
    assert ran.code == (FOUND if found else NOT_FOUND)
    return found


@pytest.mark.parametrize("count", [1, 7, 300, 100_000])
@pytest.mark.parametrize("name", ["orders", "tricky", "lmq"])
def test_the_last_of_the_log(golden: Golden, name: str, count: int) -> None:
    expected = [row.physical_offset for row in golden(name).messages]
    assert offsets("--lines", count, store=golden(name).path) == expected[-count:]


@pytest.mark.parametrize("count", [3, 100_000])
@pytest.mark.parametrize("bare", [False, True], ids=["with queues", "without"])
def test_the_last_of_those_that_are_asked_for(
    golden: Golden, tmp_path: Path, count: int, bare: bool
) -> None:
    store, rows = golden("orders").path, golden("orders").messages
    if bare:
        store = copy_store(store, tmp_path / "bare")
        for folder in (store / "consumequeue").iterdir():
            folder.rename(tmp_path / f"lost {folder.name}")
    asked = {
        ("--topic", "orders"): [row for row in rows if row.topic == "orders"],
        ("--topic", "%DLQ%billing", "--queue-id", 3): [
            row for row in rows if (row.topic, row.queue_id) == ("%DLQ%billing", 3)
        ],
        ("--queue-id", 2): [row for row in rows if row.queue_id == 2],
        ("--tag", "cancelled || declined"): [
            row
            for row in rows
            if {"TAGS\x01cancelled", "TAGS\x01declined"} & {*row.properties.split("\x02")}
        ],
        ("--topic", "payments", "--key", "order-103921"): [
            row
            for row in rows
            if row.topic == "payments" and "order-103921" in (row.keys or "").split(" ")
        ],
        ("--key", "order-103921"): [
            row for row in rows if "order-103921" in (row.keys or "").split(" ")
        ],
        ("--key", "order-103921", "--tag", "delivered"): [
            row
            for row in rows
            if "order-103921" in (row.keys or "").split(" ")
            and "TAGS\x01delivered" in row.properties
        ],
        ("--topic", "nothing"): [],
    }
    for options, found in asked.items():
        if bare and "--key" in options and "--topic" not in options:
            continue  # only consumequeue/ shows which topics to look up in the index
        expected = [row.physical_offset for row in found][-count:]
        assert offsets(*options, "--lines", count, store=store) == expected, options


def test_transactions_are_in_the_log_and_in_no_topic(golden: Golden) -> None:
    store, rows = golden("tricky").path, golden("tricky").messages
    opened = [row for row in rows if row.sys_flag & 12 in (4, 12)]
    assert opened
    for topic in {row.topic for row in opened}:
        expected = [row.physical_offset for row in rows if row.topic == topic and row not in opened]
        assert offsets("--topic", topic, "--lines", 5000, store=store) == expected


def test_all_of_them(golden: Golden) -> None:
    expected = [row.physical_offset for row in golden("basic").messages]
    assert offsets("--lines", "all", store=golden("basic").path) == expected


def test_what_is_not_dispatched_yet(golden: Golden, tmp_path: Path) -> None:
    store, rows = copy_store(golden("basic").path, tmp_path / "s"), golden("basic").messages
    behind = rows[-40].physical_offset
    # the queue as it was before its last 39 messages were dispatched
    for file in (store / "consumequeue").glob("*/*/*"):
        entries = [file.read_bytes()[at : at + 20] for at in range(0, file.stat().st_size, 20)]
        kept = [e if int.from_bytes(e[:8], "big") < behind else bytes(20) for e in entries]
        file.write_bytes(b"".join(kept))
    for file in (store / "index").iterdir():  # a broker writes the index after the queues
        file.unlink()
    topic = rows[-1].topic
    expected = [row.physical_offset for row in rows if row.topic == topic]
    for count in (2, 30, 500):
        assert offsets("--topic", topic, "-n", count, store=store) == expected[-count:]
        assert offsets("-n", count, store=store) == [row.physical_offset for row in rows][-count:]


def test_an_empty_file_at_the_end_is_not_the_end(golden: Golden, tmp_path: Path) -> None:
    store, rows = copy_store(golden("basic").path, tmp_path / "s"), golden("basic").messages
    last = max((store / "commitlog").iterdir())
    size = last.stat().st_size
    for ahead in (1, 2):
        (store / "commitlog" / f"{int(last.name) + ahead * size:020d}").write_bytes(bytes(size))
    assert offsets("-n", 3, store=store) == [row.physical_offset for row in rows][-3:]


def test_damage_is_told(tmp_path: Path) -> None:
    store = write_log(tmp_path, [MESSAGE] * 5)
    log = next((store / "commitlog").iterdir())
    size = log.read_bytes().rstrip(b"\0").__len__() // 5
    with log.open("r+b") as file:
        file.seek(2 * size + 4)
        file.write(b"????")
    ran = reput("tail", store, "--format", "jsonl")
    assert (ran.code, len(ran.lines)) == (DAMAGED, 2)
    assert ran.err.startswith(f"reput: {log}: offset {2 * size}: ")


def test_a_message_of_a_topic_that_is_damaged_is_told(golden: Golden, tmp_path: Path) -> None:
    store, rows = copy_store(golden("basic").path, tmp_path / "s"), golden("basic").messages
    bad = rows[-50]
    log = max(
        path for path in (store / "commitlog").iterdir() if int(path.name) <= bad.physical_offset
    )
    with log.open("r+b") as file:
        file.seek(bad.physical_offset - int(log.name) + 4)
        file.write(b"????")
    ran = reput("tail", store, "--topic", bad.topic, "-n", 100, "--format", "jsonl")
    expected = [row.physical_offset for row in rows if row.topic == bad.topic and row != bad]
    found = [json.loads(line)["physical_offset"] for line in ran.raw.splitlines()]
    assert (ran.code, found) == (DAMAGED, expected[-100:])
    (line,) = ran.err.splitlines()
    assert f"physical offset {bad.physical_offset}: " in line
    assert " bytes lost: no message begins there" in line


def test_csv_and_table(golden: Golden) -> None:
    ran = reput("tail", golden("orders").path, "-n", 400, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.raw.decode(), newline="")))
    expected = [row.physical_offset for row in golden("orders").messages][-400:]
    assert [int(row["physical_offset"]) for row in rows] == expected
    table = reput("tail", golden("orders").path, "-n", 400).lines
    assert (len(table), table[0].split()[:2]) == (801, ["stored", "(UTC)"])
    assert table[-1].startswith('  {"order": "order-103146"')


def test_a_store_cannot_steer_the_terminal(tmp_path: Path) -> None:
    evil = replace(MESSAGE, topic="T\x1b[2J", body=b"\x1b]0;owned\x07")
    ran = reput("tail", write_log(tmp_path, [evil]))
    assert ran.code in (FOUND, DAMAGED)
    assert "\x1b" not in ran.out
