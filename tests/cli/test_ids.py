"""Ids in lower case, as some tools print them, name the same messages in every command."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import reput
from reput.cli.main import FOUND, NOT_FOUND
from tests.cli.running import reput as run
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]
SMALL = reput.StoreConfig(commit_log_file_bytes=1 << 20, hash_slots=100, index_items=400)


UNIQUE_KEY = "C29D7DF7AC9FCF1B47E573A82B41892C"
OFFSET_ID = "0A08090100002A9F000000000000D23D"
OFFSET = 53821


@pytest.mark.parametrize(
    "words",
    [
        ("query", "--key"), ("query", "--id"), ("tail", "--key"), ("trace", "--key"), ("trace", "--id"),
        ("show",), ("find",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_id_in_lower_case_finds_what_it_finds_in_upper_case(
    golden: Golden, words: tuple[str, ...]
) -> None:
    command, *options = words
    for text in (UNIQUE_KEY,) if options == ["--key"] else (UNIQUE_KEY, OFFSET_ID):
        upper, lower = (
            run(command, golden("orders").path, *options, spelling)
            for spelling in (text, text.lower())
        )
        assert upper.code == lower.code == FOUND
        assert f"{OFFSET:,}" in lower.out or str(OFFSET) in lower.out
        assert [line for line in lower.lines if "earched" not in line] == [
            line for line in upper.lines if "earched" not in line
        ]


def test_tail_prints_messages_of_both_spellings_newest_first(tmp_path: Path) -> None:
    unique_key = "7F0000010000A2B3C4D5E6F708192A3B"
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        for keys in (unique_key, unique_key.lower(), f"{unique_key} {unique_key.lower()}", "other"):
            store.put(reput.Message("orders", b"body", keys=keys.split()))
    for follow in ((), ("--lines", "all")):
        ran = run(
            "tail", tmp_path / "store", "--key", unique_key.lower(), "--format", "jsonl", *follow
        )
        rows = [json.loads(line) for line in ran.lines]
        assert [row["queue_offset"] for row in rows] == [0, 1, 2]
    assert run("tail", tmp_path / "store", "--key", "a" * 32).code == NOT_FOUND


def test_a_look_up_takes_ids_in_lower_case(golden: Golden, tmp_path: Path) -> None:
    store = golden("orders")
    keys = tmp_path / "keys.csv"
    keys.write_text(
        f"topic,key,mine\norders,{UNIQUE_KEY.lower()},a\norders,{UNIQUE_KEY},b\n"
        f"orders,order-100377,c\norders,{'a' * 32},d\npayments,{UNIQUE_KEY.lower()},e\n"
    )
    ran = run("lookup", store.path, "--keys", keys, "--output", "-")
    rows = [json.loads(line) for line in ran.lines]
    found = {mine: [r["physical_offset"] for r in rows if r["mine"] == mine] for mine in "abcde"}
    assert found["a"] == found["b"] == [OFFSET]
    assert len(found["c"]) > 1
    assert found["d"] == found["e"] == [None]
    assert rows[0]["key"] == UNIQUE_KEY.lower()
    assert all(row["is_complete"] for row in rows)


def test_an_erasure_and_a_copy_take_unique_keys_in_lower_case(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("orders")
    plan = run("erase", store.path, "--key", UNIQUE_KEY.lower(), "--plan", "--format", "json")
    same = run("erase", store.path, "--key", UNIQUE_KEY, "--plan", "--format", "json")
    assert plan.code == same.code
    assert json.loads(plan.out) == json.loads(same.out)
    assert json.loads(plan.out)["records"] == 1
    run("archive", copy_store(store.path, tmp_path / "store"), tmp_path / "archive")
    for name, key in (("lower", UNIQUE_KEY.lower()), ("upper", UNIQUE_KEY)):
        assert run("restore", tmp_path / "archive", tmp_path / name, "--key", key).code == FOUND
    logs = [
        next((tmp_path / name / "commitlog").iterdir()).read_bytes() for name in ("lower", "upper")
    ]
    assert UNIQUE_KEY.encode() in logs[0]
    assert logs[0].count(UNIQUE_KEY.encode()) == logs[1].count(UNIQUE_KEY.encode())


def test_the_api_and_tables_take_ids_in_lower_case(golden: Golden) -> None:
    path, lower = golden("orders").path, UNIQUE_KEY.lower()

    def offsets(rows: object) -> list[int]:
        return [message.physical_offset for message in rows]  # type: ignore[attr-defined]

    with reput.open_store(path) as store:
        for topic in ("orders", None):
            # A key is compared as it is written, as a broker compares it.
            assert offsets(store.query(topic, lower)) == []
            *_, last = store.query_steps(topic, lower)
            assert offsets(last) == []
            assert offsets(store.find_records(topic, lower).records) == []
            assert offsets(store.find_records(topic, lower, any_case=True).records) == [OFFSET]
        assert store.get_by_id(lower).physical_offset == OFFSET
        assert store.get_by_id(OFFSET_ID.lower()).physical_offset == OFFSET
    assert [message.physical_offset for _, message in reput.find([path], lower)] == [OFFSET]
    for indexes in (["orders"], None):
        table = reput.dataset(path, ["physical_offset"], topic=indexes, unique_key=lower).to_table()
        assert table.column(0).to_pylist() == [OFFSET]
    # Filters compare exactly, as SQL does.
    filtered = reput.dataset(path).to_table(["physical_offset"], ds.field("unique_key") == lower)
    assert filtered.num_rows == 0


def test_keys_in_both_spellings_are_found_together(tmp_path: Path) -> None:
    unique_key = "7F0000010000A2B3C4D5E6F708192A3B"
    with reput.open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        for keys in (unique_key, unique_key.lower(), f"{unique_key} {unique_key.lower()}", "other"):
            store.put(reput.Message("orders", b"body", keys=keys.split()))
    with reput.open_store(tmp_path / "store") as reader:
        for key, found in ((unique_key.lower(), [2, 1, 0]), (unique_key, [2, 0])):
            answer = reader.find_records("orders", key, any_case=True).decoded()
            assert [message.queue_offset for message in answer] == found
            page = reader.find_records("orders", key, limit=1, any_case=True).decoded()
            rest = reader.find_records("orders", key, after=page.cursor, any_case=True).decoded()
            assert [message.queue_offset for message in (*page, *rest)] == found
    table = reput.dataset(tmp_path / "store", ["queue_offset"], key=unique_key.lower()).to_table()
    assert table.column(0).to_pylist() == [0, 1, 2]
