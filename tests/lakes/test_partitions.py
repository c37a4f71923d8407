"""Rows are divided among partitions, and sorted, as Arrow's own sort does it."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from reput.wings.lakes.partitions import SORT_COLUMNS, sorted_slices

_TOPICS = ["b", "a", None, "ü", "ab", "", "B"]


@pytest.mark.every_case
@pytest.mark.parametrize("count", [1, 5, 2_000])
@pytest.mark.parametrize("partition_by", [(), ("topic",), ("day", "topic")])
def test_slices_have_all_rows_of_their_partitions_in_order(
    count: int, partition_by: tuple[str, ...]
) -> None:
    random = Random(count)
    columns = {
        "topic": pa.array(random.choices(_TOPICS, k=count), pa.string()),
        "key": pa.array(random.choices(["x", None, "y"], k=count), pa.string()),
        "store_timestamp": pa.array(
            [random.randrange(4 * 86_400_000_000) for _ in range(count)], pa.timestamp("us", "UTC")
        ),
        "row": pa.array(range(count)),
    }
    rows = pa.table(columns)
    table = pa.concat_tables([rows.slice(0, count // 2), rows.slice(count // 2)])
    order = [(name, "ascending") for name in SORT_COLUMNS]
    slices = list(sorted_slices(table, partition_by))
    assert len({each.values for each in slices}) == len(slices)
    for each in slices:
        assert each.table.equals(each.table.sort_by([*order, ("row", "ascending")]))
        values = {
            (f"{time:%Y-%m-%d}", topic)
            for time, topic in zip(
                each.table["store_timestamp"].to_pylist(),
                each.table["topic"].to_pylist(),
                strict=True,
            )
        }
        for name, value in each.values:
            assert {pair[name == "topic"] for pair in values} == {value}
    assert sorted(row for each in slices for row in each.table["row"].to_pylist()) == [
        *range(count)
    ]
