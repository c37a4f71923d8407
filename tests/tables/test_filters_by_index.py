"""Filters on keys read only what the index names, once rolled-back messages are remembered, and are exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

import reput
from reput.core.log import known_ranges
from reput.core.log.files import CommitLogFile
from reput.engine.lookup.index_file_search import IndexFileSearch
from reput.engine.tables.expressions import conditions_of
from reput.engine.tables.filters import Condition
from reput.io import stamps
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.tables.reading import plan, read

Golden = Callable[[str], GoldenStore]
_COLUMNS = ["physical_offset", "unique_key", "transaction"]


@pytest.fixture(autouse=True)
def _kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember facts about short files, on file systems in memory as well."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stamps, "_REPORTING", frozenset([*stamps._REPORTING, "tmpfs", "overlay"]))
    monkeypatch.setattr(CommitLogFile, "LEAST_KEPT_BYTES", 1)
    monkeypatch.setattr(known_ranges, "_LEAST_GROWTH_BYTES", 1)


def _proven(golden: Golden, name: str, tmp_path: Path) -> Path:
    store = tmp_path / "store"
    copy_store(golden(name).path, store)
    reput.prove(store)
    return store


def _bytes(store: Path, condition: Condition) -> int:
    planned = plan(store, [condition])
    return sum(
        task.part.stop - task.part.start if task.part.found is None else int(task.part.found.size.sum())
        for task in planned.tasks
    )  # fmt: skip


@pytest.mark.parametrize("name", ["basic", "orders", "lmq"])
def test_filters_by_unique_key_are_those_of_a_scan(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    store = _proven(golden, name, tmp_path)
    rows = read(store, _COLUMNS, use_indexes=False).to_pylist()
    keys = sorted({row["unique_key"] for row in rows} - {None})
    rolled_back = sorted({row["unique_key"] for row in rows if row["transaction"] == "rollback"})
    random = Random(name)
    for count in (1, 1, 1, 7, 50):
        wanted = {*random.sample(keys, min(count, len(keys))), *rolled_back[:2], "no such key"}
        condition = Condition("unique_key", "in", tuple(sorted(wanted)))
        expected = [row for row in rows if row["unique_key"] in wanted]
        assert read(store, _COLUMNS, [condition]).to_pylist() == expected


def test_a_filter_by_unique_key_reads_little_after_a_proof(golden: Golden, tmp_path: Path) -> None:
    store = _proven(golden, "orders", tmp_path)
    key = golden("orders").messages[10].uniq_key
    condition = Condition("unique_key", "=", key)
    whole = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    assert _bytes(store, condition) < whole / 20
    text = reput.dataset(store).explain(pc.field("unique_key") == key)
    assert "unique_key found through the index" in text
    assert f"of {whole:,} bytes" in text
    assert "s, by a sample" in text


def test_without_facts_about_rolled_back_messages_all_is_read(
    golden: Golden, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    copy_store(golden("orders").path, store)
    key = golden("orders").messages[10].uniq_key
    planned = plan(store, [Condition("unique_key", "=", key)])
    assert not any("through the index" in note for note in planned.notes)


def test_a_record_that_changed_after_the_proof_is_not_missed(
    golden: Golden, tmp_path: Path
) -> None:
    store = _proven(golden, "basic", tmp_path)
    message = golden("basic").messages[20]
    key = (message.uniq_key or "").encode()
    path = next(
        path
        for path in sorted((store / "commitlog").iterdir())
        if int(path.name) <= message.physical_offset < int(path.name) + path.stat().st_size
    )
    data = bytearray(path.read_bytes())
    place = data.index(key, message.physical_offset - int(path.name))
    # The message now has another key, which the index does not know.
    data[place : place + len(key)] = other = key[:-4] + b"ZZZZ"
    path.write_bytes(data)
    condition = Condition("unique_key", "=", other.decode())
    assert len(read(store, _COLUMNS, [condition])) == 1


def test_a_message_id_or_an_offset_leads_to_its_record(golden: Golden) -> None:
    store = golden("orders").path
    rows = read(store, ["physical_offset", "message_id"], use_indexes=False).to_pylist()
    chosen = [rows[0], rows[700], rows[-1]]
    ids = Condition("message_id", "in", (*(row["message_id"] for row in chosen), "no id", None))
    offsets = Condition("physical_offset", "in", tuple(row["physical_offset"] for row in chosen))
    # No record begins there, and so none of these offsets has a row.
    inside = Condition("physical_offset", "in", tuple(row["physical_offset"] + 4 for row in chosen))
    for condition, expected in ((ids, chosen), (offsets, chosen), (inside, [])):
        assert _bytes(store, condition) == len(chosen)
        assert read(store, ["physical_offset", "message_id"], [condition]).to_pylist() == expected


def test_a_queue_or_a_pattern_of_topics_is_answered_by_the_consume_queues(golden: Golden) -> None:
    store = golden("orders").path
    rows = read(store, ["topic", "queue_id", "physical_offset"], use_indexes=False).to_pylist()
    queue, prefix = Condition("queue_id", "=", 3), Condition("topic", "starts", "%RETRY")
    cases: list[tuple[list[Condition], Callable[[dict[str, Any]], bool]]] = [
        ([queue], lambda row: row["queue_id"] == 3),
        ([prefix], lambda row: row["topic"].startswith("%RETRY")),
        ([queue, prefix], lambda row: row["queue_id"] == 3 and row["topic"].startswith("%RETRY")),
    ]
    for conditions, keeps in cases:
        planned = plan(store, conditions)
        assert all(task.part.by_queue for task in planned.tasks)
        found = read(store, ["topic", "queue_id", "physical_offset"], conditions).to_pylist()
        assert found == [row for row in rows if keeps(row)]


def test_many_keys_are_answered_by_the_index_unless_a_scan_takes_less_time(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _proven(golden, "orders", tmp_path)
    key = golden("orders").messages[10].uniq_key
    wanted = (key, *(f"no such key {number}" for number in range(100_000)))
    condition = Condition("unique_key", "in", wanted)
    whole = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    assert any("are scanned, because" in note for note in plan(store, [condition]).notes)
    for _ in range(2):
        rows = read(store, _COLUMNS, [condition]).to_pylist()
        assert [row["unique_key"] for row in rows] == [key]
        # In a log of this size, a scan takes less time than a search for so many keys.
        monkeypatch.setattr(IndexFileSearch, "weight", lambda self, keys: 0)
    assert _bytes(store, condition) < whole / 20
    assert str(condition).endswith("and 99,991 more")


def test_alternatives_for_one_column_are_a_list(golden: Golden) -> None:
    schema = reput.dataset(golden("basic").path).schema
    key, topic, tags = pc.field("unique_key"), pc.field("topic"), pc.field("tags")
    texts = [
        ((key == "a") | (key == "b"), ["unique_key in 'a', 'b'"]),
        ((key == "a") | (key.isin(["b", "c"]) & (tags == "t")), ["unique_key in 'a', 'b', 'c'"]),
        ((key == "a") | (topic == "b"), []),
        (((key == "a") | (key == "b")) & (topic == "t"), ["unique_key in 'a', 'b'", "topic = 't'"]),
        ((key == "a") | (key > "b"), []),
    ]
    for expression, expected in texts:
        assert [str(condition) for condition in conditions_of(expression, schema)] == expected
