"""A look-up without Spark: keys from Arrow and files, results as Arrow and as files."""

import csv
import errno
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import reput
from reput.base.tasks import SerialRunner
from reput.core.store.store_reader import StoreReader
from reput.engine.lookup import arrow
from reput.engine.lookup.arrow import find
from reput.engine.lookup.keys import Keys
from reput.engine.lookup.local_files import write_answer
from reput.errors import StoreAccessError, UsageError
from tests.golden.stores import GoldenStore
from tests.query.stores import expected_offsets, keyed_messages

Golden = Callable[[str], GoldenStore]
EVER = (-(2**63), 2**63)


def text(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_arrow_keys_find_what_a_scan_of_the_messages_finds(golden: Golden, processes: int) -> None:
    store = golden("orders")
    keyed = keyed_messages(store.messages)
    asked = [*sorted(keyed)[::97], ("orders", "nobody")]
    keys = pa.table({
        "topic": pa.array([topic for topic, _ in asked]).dictionary_encode(),
        "key": pa.array([key for _, key in asked], pa.string_view()),
        "place": range(len(asked)),
    })  # fmt: skip
    answer = reput.look_up(
        store.path, keys, columns=["physical_offset", "body"], processes=processes
    )
    assert answer.schema.names == [
        "topic",
        "key",
        "place",
        "physical_offset",
        "body",
        "is_complete",
    ]
    found = defaultdict(list)
    rows = answer.read_all().to_pylist()
    assert [row["place"] for row in rows] == sorted(row["place"] for row in rows)
    for row in rows:
        found[row["topic"], row["key"]].append(row["physical_offset"])
        assert row["is_complete"]
    assert found.pop(("orders", "nobody")) == [None]
    assert found == {key: expected_offsets(keyed, *key, *EVER) for key in asked[:-1]}


@pytest.mark.parametrize(
    "keys",
    [
        [("orders", "order-100377"), ("orders", "nobody")],
        [{"topic": "orders", "key": "order-100377"}, {"topic": "orders", "key": "nobody"}],
        {"topic": ["orders", "orders"], "key": ["order-100377", "nobody"]},
        "pandas",
        "polars",
    ],
)
def test_keys_may_be_rows_or_columns_of_pythons_and_tables(golden: Golden, keys: Any) -> None:
    if isinstance(keys, str):  # each takes a second to import
        columns = {"topic": ["orders", "orders"], "key": ["order-100377", "nobody"]}
        keys = importlib.import_module(keys).DataFrame(columns)
    answer = reput.look_up(golden("orders").path, keys, columns=["physical_offset"]).read_all()
    offsets = answer["physical_offset"].to_pylist()
    assert answer["key"].to_pylist() == ["order-100377", "order-100377", "nobody"]
    assert offsets[0] > offsets[1] >= 0
    assert offsets[2] is None
    assert reput.look_up(golden("orders").path, []).read_all().num_rows == 0


def test_coverage_is_said_once_for_each_store_or_in_each_row(golden: Golden) -> None:
    store = golden("orders").path
    keys = [("orders", "order-100377"), ("orders", "nobody")]
    table = reput.look_up(store, keys, columns=["tags"]).read_all()
    (summary,) = reput.reports.coverage_of(table)
    assert reput.reports.coverage_of(reput.look_up(store, keys)) == [summary]
    rows = reput.look_up(store, keys, columns=["tags"], coverage="rows").read_all()
    assert rows.schema.names == ["topic", "key", "tags", "coverage"]
    for row in rows["coverage"].to_pylist():
        assert {name: summary[name] for name in row} == row
    assert reput.reports.coverage_of(rows) == [summary]
    with pytest.raises(UsageError, match="this table has no coverage"):
        reput.reports.coverage_of(table.to_pandas())
    with pytest.raises(UsageError, match="coverage must be summary or rows, not all"):
        reput.look_up(store, keys, coverage="all")  # type: ignore[arg-type]
    taken = {"topic": ["orders"], "key": ["nobody"], "is_complete": [1]}
    with pytest.raises(UsageError, match="is_complete"):
        reput.look_up(store, taken)
    assert reput.look_up(store, taken, coverage="rows").read_all()["is_complete"].to_pylist() == [1]


@pytest.mark.parametrize(
    "keys", [["orders"], [1, 2], {"topic": "orders", "key": [1]}, [("a", "b", "c")]]
)
def test_rows_that_are_no_keys_are_one_line(golden: Golden, keys: Any) -> None:
    with pytest.raises(UsageError, match=r"keys: neither rows of \(topic, key\) nor columns: "):
        reput.look_up(golden("orders").path, keys)


@pytest.mark.parametrize("row", [("orders", b"k"), (b"orders", "k"), ("orders", 3)])
def test_a_key_that_is_no_string_is_refused(golden: Golden, row: Any) -> None:
    """It would be searched in another spelling, and the empty answer would be reported as complete."""
    with pytest.raises(UsageError, match=r"^keys: (topic|key) of row 1 must be a string, not "):
        reput.look_up(golden("orders").path, [("orders", "k"), row])


def test_what_is_staged_goes_when_the_answer_is_read(golden: Golden, tmp_path: Path) -> None:
    keys = pa.table({"topic": ["orders"], "key": ["order-100377"]})
    answer = reput.look_up(golden("orders").path, keys, staging=tmp_path)
    (staged,) = tmp_path.iterdir()
    assert answer.read_all().num_rows == 2
    assert not staged.exists()


def test_keys_that_are_no_table_are_one_line(golden: Golden) -> None:
    with pytest.raises(
        UsageError, match=r"keys must be an Arrow table .* of \(topic, key\), not int"
    ):
        reput.look_up(golden("orders").path, 7)
    twice = pa.table([["t"], ["k"], ["k"]], names=["topic", "key", "key"])
    with pytest.raises(UsageError, match="'key' names two columns"):
        reput.look_up(golden("orders").path, twice)


def test_csv_is_read_as_others_write_it(tmp_path: Path) -> None:
    rows = [("t", 'a "b"', "\\"), ("t", "ä,😀", 'x"'), ("t", "c\\", ""), ("t", "two\nlines", "1")]
    path = tmp_path / "keys.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("topic", "key", "note"), *rows])
    table = pa.Table.from_batches(Keys.read(str(path)).batches)
    assert {field.type for field in table.schema} == {pa.string()}, "0100 is no number"
    found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert found == [*rows[:2], ("t", "c\\", None), rows[3]]


@pytest.mark.parametrize("line", ["orders,a key, with a comma", "orders"])
def test_a_line_of_other_columns_is_refused(golden: Golden, tmp_path: Path, line: str) -> None:
    staged = tmp_path / "staged"
    # The error also arises after the first block, which is read before the others.
    for before in (1, 200_000):
        keys = text(tmp_path / "keys.csv", ["topic,key", *["orders,order-1"] * before, line])
        with pytest.raises(UsageError, match=f"more or fewer values than names: {line}$"):
            find(golden("orders").path, Keys.read(keys), SerialRunner(), staging=staged)
    assert list(staged.iterdir()) == []


def test_files_that_are_no_keys_are_one_line(tmp_path: Path) -> None:
    for name, content in (("a.csv", b""), ("b.csv", b"t\xff,key\n"), ("c.parquet", b"junk")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"{name}: cannot be read: ") as raised:
            list(Keys.read(str(tmp_path / name)).batches)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("layout", ["parquet", "jsonl", "csv"])
def test_without_keys_the_answer_has_its_columns(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    keys = Keys.read(text(tmp_path / "keys.csv", ["topic,key,note"]))
    with find(golden("orders").path, keys, SerialRunner(), columns=["tags"]) as found:
        write_answer(found, str(tmp_path / "out"), layout)  # type: ignore[arg-type]
    (file,) = (tmp_path / "out").iterdir()
    if layout == "parquet":
        table = pq.read_table(file)
        assert (table.num_rows, table.column_names[:4]) == (0, ["topic", "key", "note", "tags"])
    else:
        assert file.read_text() == ""


def test_an_answer_that_cannot_be_written_leaves_nothing(golden: Golden, tmp_path: Path) -> None:
    keys = Keys.of(pa.table({"topic": ["orders"], "key": ["order-100377"]}))
    with find(golden("orders").path, keys, SerialRunner()) as found:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "other").touch()
        with pytest.raises(StoreAccessError, match="out: cannot be created"):
            write_answer(found, str(tmp_path / "out"), "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_parquet_keys_from_a_folder_and_parquet_answers(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    for number, key in enumerate(("order-100377", "customer-48")):
        table = pa.table({"topic": ["orders"], "key": [key]})
        pq.write_table(table, tmp_path / "keys" / f"part-{number}.parquet")
    (tmp_path / "keys" / "_SUCCESS").touch()
    keys = Keys.read(str(tmp_path / "keys"))
    with find(golden("orders").path, keys, SerialRunner()) as found:
        write_answer(found, str(tmp_path / "out"), "parquet")
        expected = pa.Table.from_batches(found.batches(), found.schema)
    assert pa.dataset.dataset(tmp_path / "out").to_table() == expected
    assert set(expected["key"].to_pylist()) == {"order-100377", "customer-48"}


def test_a_store_that_cannot_be_opened_for_a_moment_is_searched(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.base.tasks.time.sleep", lambda seconds: None)
    opened: list[str] = []

    class Stale(StoreReader):
        def __init__(self, path: str, **options: Any) -> None:
            opened.append(path)
            if opened.count(path) < 3:
                stale = OSError(errno.ESTALE, "Stale file handle")
                raise StoreAccessError(f"{path}: cannot be opened") from stale
            super().__init__(path, **options)

    monkeypatch.setattr(arrow, "StoreReader", Stale)
    stores = [str(golden(name).path) for name in ("orders", "basic")]
    with find(stores, Keys.of([("orders", "nobody")]), SerialRunner()) as found:
        assert found.answer.coverage.failed == ()
        assert len(found.stores) == 2
    assert len(opened) == 6
