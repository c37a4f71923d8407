"""Random filters in the languages of several engines, and stores with known rows on which they are tried."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

import reput
from tests.golden.sparse import copy_store
from tests.oracle import table
from tests.oracle.walk import read_log

Row = dict[str, Any]
COLUMNS = [
    "topic", "queue_id", "physical_offset", "size", "store_timestamp", "unique_key", "keys", "tags",
    "transaction", "message_id",
]  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class RandomFilter:
    """A filter.

    sql     text with `{holds}` for the name of the function that says whether a list has a value
    polars  the same as an expression of Polars
    meets   the same in plain Python: true, false, or None for null
    """

    sql: str
    polars: pl.Expr
    meets: Callable[[Row], bool | None]

    def __and__(self, other: RandomFilter) -> RandomFilter:
        return RandomFilter(
            f"({self.sql}) AND ({other.sql})",
            self.polars & other.polars,
            lambda row: _and(self.meets(row), other.meets(row)),
        )

    def __or__(self, other: RandomFilter) -> RandomFilter:
        return RandomFilter(
            f"({self.sql}) OR ({other.sql})",
            self.polars | other.polars,
            lambda row: _not(_and(_not(self.meets(row)), _not(other.meets(row)))),
        )

    def __invert__(self) -> RandomFilter:
        return RandomFilter(f"NOT ({self.sql})", ~self.polars, lambda row: _not(self.meets(row)))


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _quoted(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}+00:00'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _comparison(column: str, operator: str, value: Any) -> RandomFilter:
    compare: dict[str, Callable[[Any, Any], Any]] = {
        "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
        ">=": lambda a, b: a >= b,
    }  # fmt: skip
    test = compare[operator]

    def meets(row: Row) -> bool | None:
        return None if row[column] is None else bool(test(row[column], value))

    return RandomFilter(
        f"{column} {operator} {_quoted(value)}", test(pl.col(column), pl.lit(value)), meets
    )


def _one_of(column: str, values: Sequence[Any]) -> RandomFilter:
    return RandomFilter(
        f"{column} IN ({', '.join(map(_quoted, values))})",
        pl.col(column).is_in(list(values)),
        lambda row: None if row[column] is None else row[column] in values,
    )


def _holds(value: str) -> RandomFilter:
    return RandomFilter(
        f"{{holds}}(keys, {_quoted(value)})",
        pl.col("keys").list.contains(value),
        lambda row: value in row["keys"],
    )


def _begins(column: str, text: str) -> RandomFilter:
    return RandomFilter(
        f"{column} LIKE '{text}%'",
        pl.col(column).str.starts_with(text),
        lambda row: None if row[column] is None else row[column].startswith(text),
    )


def random_filter(
    random: Random, rows: Sequence[Row], *, with_negations: bool = True
) -> RandomFilter:
    """Return a filter on values that some of the rows have."""
    leaves = [_leaf(random, rows) for _ in range(random.choice((1, 1, 2, 3)))]
    combined = leaves[0]
    for leaf in leaves[1:]:
        combined = combined & leaf if random.random() < 0.6 else combined | leaf
    return ~combined if with_negations and random.random() < 0.1 else combined


def _leaf(random: Random, rows: Sequence[Row]) -> RandomFilter:
    row = random.choice(rows)
    kind = random.choice(
        ("id", "ids", "key", "topic", "topics", "prefix", "queue", "time", "offset", "offsets", "message", "other")
    )  # fmt: skip
    sample = random.sample(rows, min(len(rows), random.choice((1, 3, 40))))
    if kind == "id":
        return _comparison("unique_key", "=", row["unique_key"] or "no such id")
    if kind == "ids":
        return _one_of("unique_key", [each["unique_key"] or "no such id" for each in sample])
    if kind == "key":
        return _holds(random.choice(row["keys"] or ["no such key"]))
    if kind == "topic":
        return _comparison("topic", random.choice(("=", "<>")), row["topic"])
    if kind == "topics":
        return _one_of("topic", sorted({each["topic"] for each in sample}))
    if kind == "prefix":
        return _begins("topic", row["topic"][:3].replace("%", "").replace("_", ""))
    if kind == "queue":
        return _comparison("queue_id", random.choice(("=", ">=", "<")), row["queue_id"])
    if kind == "time":
        return _comparison("store_timestamp", random.choice(("<", ">=")), row["store_timestamp"])
    if kind == "offset":
        operator = random.choice(("=", "<", ">="))
        return _comparison("physical_offset", operator, row["physical_offset"])
    if kind == "offsets":
        return _one_of("physical_offset", [each["physical_offset"] for each in sample])
    if kind == "message":
        return _one_of("message_id", [each["message_id"] for each in sample])
    return random.choice(
        [
            _comparison("tags", "=", row["tags"] or "none"),
            _comparison("transaction", "<>", "rollback"),
            _comparison("size", ">=", row["size"]),
        ]
    )


def expected_rows(store: Path) -> list[Row]:
    """Return the rows of a store that may be damaged, as a plain parser reads them."""
    walked = table.salvaged(read_log(store))
    rows = [table.row_of(*item, str(store)) for item in walked.records]
    return [
        {
            **{name: row[name] for name in COLUMNS},
            "store_timestamp": _EPOCH + timedelta(microseconds=row["store_timestamp"] or 0),
        }
        for row in rows
    ]


def random_store(random: Random, golden: Path, folder: Path) -> Path:
    """Copy a store into a folder: with proven indexes or without, whole or damaged before or after the proof."""
    store = copy_store(golden, folder)
    state = random.choice(
        ("bare", "proven", "damaged", "proven, then damaged", "damaged, then proven")
    )
    if state in ("damaged", "damaged, then proven"):
        _damage(random, store)
    if "proven" in state:
        reput.prove(store)
    if state == "proven, then damaged":
        _damage(random, store)
    return store


def _damage(random: Random, store: Path) -> None:
    """Change bytes of the log, and remove or change parts of the indexes."""
    files = sorted((store / "commitlog").iterdir())
    rows = expected_rows(store)
    for row in random.sample(rows, 3):
        path = next(path for path in reversed(files) if int(path.name) <= row["physical_offset"])
        with path.open("r+b") as file:
            place = row["physical_offset"] - int(path.name)
            at = random.choice((place + 5, place + 2, place + row["size"] - 3))
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << random.randrange(8)]))
    if random.random() < 0.5:
        random.choice(sorted((store / "index").iterdir())).unlink()
    if random.random() < 0.5:
        shutil.rmtree(random.choice(sorted((store / "consumequeue").iterdir())))
