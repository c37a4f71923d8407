"""`reput.to_arrow`: the rows of the table, for all readers of Arrow."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from reput.engine.tables.arrow import to_arrow
from reput.errors import CorruptMessageError, StoreNotFoundError, UsageError
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]


def test_all_messages_with_all_columns_are_those_of_the_table(golden: Golden) -> None:
    path = golden("orders").path
    reader = to_arrow(path)
    assert reader.schema == read(path).schema
    assert reader.read_all() == read(path)


def test_everything_that_is_asked_for_is_met(golden: Golden) -> None:
    path = golden("orders").path
    rows = to_arrow(path).read_all().to_pylist()
    one = next(row for row in rows if row["keys"] and row["queue_id"] > 0)
    stamp_ms = int(one["store_timestamp"].timestamp() * 1000)
    asked: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
        ({"topic": one["topic"]}, lambda row: row["topic"] == one["topic"]),
        ({"key": one["keys"][0]}, lambda row: one["keys"][0] in row["keys"]),
        ({"unique_key": one["unique_key"]}, lambda row: row["unique_key"] == one["unique_key"]),
        ({"queue_id": [0, one["queue_id"]]}, lambda row: row["queue_id"] in (0, one["queue_id"])),
        (
            {"begin": stamp_ms, "end": stamp_ms},
            lambda row: int(row["store_timestamp"].timestamp() * 1000) == stamp_ms,
        ),
    ]
    for arguments, is_wanted in asked:
        found = to_arrow(path, ["physical_offset"], **arguments).read_all()
        expected = [row["physical_offset"] for row in rows if is_wanted(row)]
        assert found.column(0).to_pylist() == expected, arguments
        assert 0 < len(expected) < len(rows)


def test_duckdb_reads_it(golden: Golden) -> None:
    path = golden("orders").path
    messages = to_arrow([path], ["topic", "size"])  # noqa: F841
    with duckdb.connect() as database:
        (found,) = database.execute("select count(*), sum(size) from messages").fetchall()
    table = read(path, ["size"])
    assert found == (table.num_rows, sum(table.column(0).to_pylist()))


def test_it_reads_as_it_is_asked_and_no_faster(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    reader = to_arrow(store, ["physical_offset"])
    for path in (store / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(StoreNotFoundError):
        reader.read_all()


@pytest.fixture
def damaged(golden: Golden, tmp_path: Path) -> Path:
    store = copy_store(golden("orders").path, tmp_path / "store")
    log = store / "commitlog" / "00000000000000000000"
    content = bytearray(log.read_bytes())
    content[53821 + 4] ^= 1  # a byte of the magic code of one message
    log.write_bytes(content)
    return store


def test_damage_is_raised_told_or_a_row(
    damaged: Path, golden: Golden, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(CorruptMessageError, match="offset 53821"):
        to_arrow(damaged, ["physical_offset"]).read_all()
    whole = to_arrow(golden("orders").path, ["physical_offset"]).read_all()
    with caplog.at_level(logging.WARNING, "reput.table"):
        skipped = to_arrow(damaged, ["physical_offset"], on_corrupt="skip").read_all()
    assert skipped.num_rows == whole.num_rows - 1
    (told,) = caplog.messages
    assert "offset 53821: 277 bytes lost" in told
    rows = to_arrow(damaged, on_corrupt="row").read_all().to_pylist()
    lost = [row for row in rows if row["corrupt_reason"]]
    assert [(row["physical_offset"], row["size"]) for row in lost] == [(53821, 277)]
    assert len(rows) == whole.num_rows


def test_a_log_file_that_is_missing_is_damage(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    files = sorted((store / "commitlog").iterdir())
    if len(files) < 3:
        pytest.skip("one file")
    files[1].unlink()
    with pytest.raises(CorruptMessageError, match="on_corrupt 'skip' or 'row'"):
        to_arrow(store)
    rows = to_arrow(store, ["physical_offset", "corrupt_reason"], on_corrupt="row")
    lost = [row for row in rows.read_all().to_pylist() if row["corrupt_reason"]]
    assert [row["physical_offset"] for row in lost] == [int(files[1].name)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": []}, "columns is empty; name at least one"),
        ({"columns": ["nothing"]}, "no column nothing"),
        ({"on_corrupt": "ignore"}, "on_corrupt must be fail, skip or row, not ignore"),
    ],
)
def test_what_cannot_be_right_is_refused(
    golden: Golden, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        to_arrow(golden("orders").path, **arguments)


@pytest.mark.filterwarnings("ignore:no queue of topic")
def test_no_message_is_an_empty_reader_of_the_same_schema(golden: Golden) -> None:
    reader = to_arrow(golden("orders").path, ["body"], topic="no such topic")
    assert reader.read_all() == pa.table({"body": pa.array([], pa.binary())})
