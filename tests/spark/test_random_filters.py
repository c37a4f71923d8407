"""Spark returns the rows that a plain parser keeps for random filters, whether it pushes them down or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.golden.stores import GoldenStore
from tests.spark.loading import load
from tests.spark.test_selection import spark_pushes_filters
from tests.tables.random_filters import COLUMNS, expected_rows, random_filter, random_store

Golden = Callable[[str], GoldenStore]
_FILTERS = 20


def _compare(tables: SparkSession, golden: Path, random: Random, folder: Path, count: int) -> None:
    store = random_store(random, golden, folder)
    rows = expected_rows(store)
    for _ in range(count):
        chosen = random_filter(random, rows)
        expected = [row["physical_offset"] for row in rows if chosen.meets(row)]
        with spark_pushes_filters(tables):
            frame = load(
                tables, store, columns=",".join(COLUMNS), onCorrupt="skip",
                pushFilters=random.choice(("true", "false")),
            )  # fmt: skip
            found = frame.where(chosen.sql.format(holds="array_contains")).select("physical_offset")
            assert sorted(row[0] for row in found.collect()) == expected, chosen.sql


def test_random_filters_keep_what_a_plain_parser_keeps(
    tables: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    _compare(tables, golden("basic").path, Random("spark"), tmp_path / "store", 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_200_random_filters_keep_what_a_plain_parser_keeps(
    seed: int, tables: SparkSession, golden: Golden, tmp_path: Path
) -> None:
    name = ("basic", "orders", "lmq")[seed % 3]
    _compare(tables, golden(name).path, Random(seed), tmp_path / "store", _FILTERS)
