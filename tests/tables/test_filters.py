"""Every condition against brute force, with and without indexes."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from reput.engine.messages.schema import COLUMNS
from reput.engine.tables.filters import Condition, choices, dispatched_under, limits
from reput.engine.tables.log_paths import find_logs
from reput.engine.tables.plan import plan_reading
from reput.errors import UsageError
from tests.golden.stores import GoldenStore
from tests.oracle.table import timestamp
from tests.tables.reading import plan, read, rows_of

Golden = Callable[[str], GoldenStore]
Row = dict[str, Any]
STORES = ("basic", "tricky", "timed", "orders", "lmq", "extremes")
SELECTED = ("topic", "physical_offset", "unique_key", "store_timestamp")
TIMES = ("born_timestamp", "store_timestamp")
TEXTS = [f.name for f in COLUMNS if str(f.type) == "string"]


def meets(row: Row, condition: Condition) -> bool:
    """Evaluate a condition on a row slowly, with the semantics of SQL."""
    value, wanted = row[condition.column], condition.value
    operator = condition.operator
    if operator in ("is null", "is not null"):
        return (value is None) == (operator == "is null")
    if value is None:
        return False
    if isinstance(value, str):
        value = value.encode()
        wanted = [w.encode() for w in wanted] if isinstance(wanted, tuple) else wanted.encode()
    answers: dict[str, Callable[[], bool]] = {
        "=": lambda: value == wanted,
        "!=": lambda: value != wanted,
        "<": lambda: value < wanted,
        "<=": lambda: value <= wanted,
        ">": lambda: value > wanted,
        ">=": lambda: value >= wanted,
        "in": lambda: value in wanted,
        "not in": lambda: value not in wanted,
        "starts": lambda: value.startswith(wanted),
        "ends": lambda: value.endswith(wanted),
        "contains": lambda: wanted in value,
    }
    return answers[operator]()


def random_conditions(random: Random, rows: list[Row]) -> Iterator[Condition]:
    columns = [name for name in COLUMNS.names if name not in ("keys", "properties", "body")]
    for column in random.sample(columns, random.choice((1, 1, 2))):
        values = [row[column] for row in random.sample(rows, 3) if row[column] is not None]
        operators = ["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]
        if column in TEXTS:
            operators += ["starts", "ends", "contains"]
        operator = random.choice(operators) if values else "is null"
        if operator in ("in", "not in"):
            yield Condition(column, operator, tuple(values))
        elif operator in ("starts", "ends", "contains"):
            text = values[0]
            cut = {"starts": text[:3], "ends": text[-3:], "contains": text[1:4]}
            yield Condition(column, operator, cut[operator])
        else:
            yield Condition(column, operator, values[0] if values else None)


@pytest.mark.parametrize("name", ["basic", "tricky", "timed", "extremes"])
def test_any_conditions_keep_what_brute_force_keeps(name: str, golden: Golden) -> None:
    store = golden(name).path
    everything = rows_of(read(store, decompressed=False))
    random = Random(name)
    for _ in range(10):
        conditions = list(random_conditions(random, everything))
        expected = [row for row in everything if all(meets(row, c) for c in conditions)]
        found = read(
            store, conditions=conditions, decompressed=False,
            use_indexes=False, split_bytes=random.choice((5_000, 1 << 20)),
        )  # fmt: skip
        assert rows_of(found) == expected, [str(c) for c in conditions]


@pytest.mark.parametrize("name", STORES)
def test_a_topic_through_its_consume_queues_is_what_the_log_has(name: str, golden: Golden) -> None:
    store = golden(name).path
    everything = rows_of(read(store, decompressed=False))
    for topic in sorted({row["topic"] for row in everything}):
        condition = Condition("topic", "=", topic)
        planned = plan(store, [condition])
        assert all(task.part.by_queue for task in planned.tasks)
        found = read(store, SELECTED, [condition])
        expected = [[row[c] for c in SELECTED] for row in everything if row["topic"] == topic]
        assert [[row[c] for c in SELECTED] for row in rows_of(found)] == expected


@pytest.mark.parametrize("name", STORES)
def test_a_unique_key_through_the_index_is_what_the_log_has(name: str, golden: Golden) -> None:
    store = golden(name)
    everything = rows_of(read(store.path, SELECTED))
    rolled_back = {
        row["physical_offset"]
        for row in rows_of(read(store.path, ["physical_offset", "transaction"]))
        if row["transaction"] == "rollback"
    }
    keyed = [row for row in everything if row["unique_key"] is not None]
    for row in Random(1).sample(keyed, 12):
        of_topic = Condition("topic", "=", row["topic"])
        by_column = [Condition("unique_key", "in", (row["unique_key"], "no such key")), of_topic]
        wanted = [*dispatched_under("unique_keys", (row["unique_key"], "no such key")), of_topic]
        with_rolled_back = [o for o in keyed if all(meets(o, each) for each in by_column)]
        assert rows_of(read(store.path, SELECTED, by_column)) == with_rolled_back
        expected = [o for o in with_rolled_back if o["physical_offset"] not in rolled_back]
        planned = plan(store.path, wanted)
        assert "unique_key found through the index" in planned.notes[0]
        assert rows_of(read(store.path, SELECTED, wanted)) == expected


def test_a_key_means_what_dispatch_indexes_wherever_the_message_lies(golden: Golden) -> None:
    store = golden("lmq")
    keys = {key for row in store.messages for key in (row.keys or "").split()}
    rows = rows_of(read(store.path, ["keys", "transaction"]))
    by_column = read(store.path, ["topic"], [Condition("keys", "holds", tuple(keys))])
    assert (len(by_column), len(rows)) == (900, 900)
    for use_indexes in (True, False):
        by_key = read(
            store.path,
            ["keys", "transaction"],
            dispatched_under("keys", keys),
            use_indexes=use_indexes,
        )
        assert rows_of(by_key) == [row for row in rows if row["transaction"] != "rollback"]
        assert len(by_key) == 870


def test_times_leave_out_files_and_ranges(golden: Golden) -> None:
    store = golden("orders").path
    everything = rows_of(read(store, ["store_timestamp", "physical_offset"]))
    middle = everything[len(everything) // 2]["store_timestamp"]
    hour = 3_600_000_000
    wanted = [
        Condition("store_timestamp", ">=", timestamp(middle)),
        Condition("store_timestamp", "<", middle + hour),
    ]
    planned = plan(store, wanted, split_bytes=100_000)
    read_bytes = sum(task.part.stop - task.part.start for task in planned.tasks)
    assert read_bytes <= 500_000
    assert any("files skipped, excluded by store_timestamp" in note for note in planned.notes)
    assert any("bytes skipped, excluded by store_timestamp" in note for note in planned.notes)
    found = rows_of(
        read(store, ["store_timestamp", "physical_offset"], wanted, split_bytes=100_000)
    )
    assert found == [row for row in everything if middle <= row["store_timestamp"] < middle + hour]


def test_offsets_leave_out_files(golden: Golden) -> None:
    store = golden("basic").path
    offsets = [row["physical_offset"] for row in rows_of(read(store, ["physical_offset"]))]
    wanted = [
        Condition("physical_offset", ">", offsets[800]),
        Condition("physical_offset", "<=", offsets[805]),
    ]
    planned = plan(store, wanted)
    assert len(planned.tasks) == 1
    assert "skipped, excluded by physical_offset" in planned.notes[0]
    found = read(store, ["physical_offset"], wanted)["physical_offset"].to_pylist()
    assert found == offsets[801:806]


def test_stores_are_left_out_by_name(golden: Golden) -> None:
    sources = find_logs([str(golden(name).path) for name in ("basic", "timed")])
    planned = plan_reading(sources, [Condition("store", "=", sources[1].name)])
    assert {task.part.store for task in planned.tasks} == {sources[1].name}
    assert planned.notes == [f"{sources[0].name}: skipped, excluded by store"]


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (("colour", "=", 1), "cannot filter by colour"),
        (("queue_id", "=", "one"), "queue_id = 'one': not a value of type int32"),
        (("queue_id", "=", 1 << 40), "not a value of type int32"),
        (("queue_id", "starts", "1"), "works for texts only"),
        (("topic", "~", "x"), "no such operator"),
        (("keys", "=", ("a",)), "cannot filter by this column"),
        (("topic", "in", 3), "not a value of type string"),
    ],
)
def test_conditions_that_cannot_be_are_refused(condition: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Condition(*condition)


def test_limits_and_choices_of_several_conditions() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    micros = int(noon.timestamp()) * 1_000_000
    conditions = [
        Condition("queue_id", ">", 2),
        Condition("queue_id", "<=", 7),
        Condition("queue_id", "in", (1, 3, 9)),
        Condition("store_timestamp", "<", noon),
        Condition("topic", "in", ("a", "b", "c")),
        Condition("topic", "=", "b"),
    ]
    assert limits(conditions, "queue_id") == (3, 7)
    assert limits(conditions, "store_timestamp") == (None, micros - 1)
    assert limits(conditions, "physical_offset") == (None, None)
    assert choices(conditions, "topic") == frozenset("b")
    assert choices(conditions, "unique_key") is None
    assert limits([Condition("queue_id", "in", ())], "queue_id") == (1, 0)


def test_nothing_is_read_of_a_store_without_messages(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(bytes(10_000))
    planned = plan(tmp_path / "store")
    assert planned.tasks == []
    assert planned.notes == [f"{tmp_path / 'store'}: has no messages"]
