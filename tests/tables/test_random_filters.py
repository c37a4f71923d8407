"""DuckDB and Polars return the rows that a plain parser keeps for random filters, also on damaged stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import reput
from reput.engine.tables.arrow import Dataset
from tests.golden.stores import GoldenStore
from tests.tables.random_filters import (
    COLUMNS,
    RandomFilter,
    expected_rows,
    random_filter,
    random_store,
)

Golden = Callable[[str], GoldenStore]
FILTERS = 20


def _in_duckdb(messages: Dataset, chosen: RandomFilter) -> list[int]:
    query = f"select physical_offset from messages where {chosen.sql.format(holds='list_contains')}"
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        return sorted(offset for (offset,) in database.execute(query).fetchall())


def _in_polars(messages: Dataset, chosen: RandomFilter) -> list[int]:
    frame = pl.scan_pyarrow_dataset(messages).filter(chosen.polars).select("physical_offset")
    return sorted(frame.collect()["physical_offset"].to_list())


ENGINES = {"duckdb": _in_duckdb, "polars": _in_polars}


def _compare(engine: str, golden: Path, random: Random, folder: Path) -> None:
    store = random_store(random, golden, folder)
    rows = expected_rows(store)
    messages = reput.dataset(store, COLUMNS, on_corrupt="skip")
    for _ in range(FILTERS):
        # Polars (2.1) keeps null in "not in" if an Arrow dataset filters the rows, whoever made the dataset.
        chosen = random_filter(random, rows, with_negations=engine != "polars")
        expected = [row["physical_offset"] for row in rows if chosen.meets(row)]
        assert ENGINES[engine](messages, chosen) == sorted(expected), chosen.sql


@pytest.mark.parametrize("engine", ENGINES)
def test_random_filters_keep_what_a_plain_parser_keeps(
    engine: str, golden: Golden, tmp_path: Path
) -> None:
    _compare(engine, golden("basic").path, Random(engine), tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("engine", ENGINES)
def test_200_random_filters_keep_what_a_plain_parser_keeps(
    engine: str, seed: int, golden: Golden, tmp_path: Path
) -> None:
    name = ("basic", "orders", "lmq")[seed % 3]
    _compare(engine, golden(name).path, Random(seed), tmp_path / "store")


@pytest.mark.parametrize("count", [1, 30, 3_000])
def test_a_join_with_keys_keeps_what_a_plain_parser_keeps(
    count: int, golden: Golden, tmp_path: Path
) -> None:
    random = Random(count)
    store = random_store(random, golden("basic").path, tmp_path / "store")
    rows = expected_rows(store)
    ids = [row["unique_key"] for row in rows if row["unique_key"]][:count]
    wanted = pa.table({"id": [*ids[: count // 2 + 1], *(f"none {n}" for n in range(count))]})  # noqa: F841
    messages = reput.dataset(store, COLUMNS, on_corrupt="skip")  # noqa: F841
    query = "select physical_offset from messages semi join wanted on unique_key = id order by 1"
    with duckdb.connect() as database:
        found = [offset for (offset,) in database.execute(query).fetchall()]
    chosen = {*ids[: count // 2 + 1]}
    assert found == [row["physical_offset"] for row in rows if row["unique_key"] in chosen]
