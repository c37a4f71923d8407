"""Incremental exports write each message once, and recognize a store that was replaced."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from reput.errors import StoreChangedError, UsageError
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import (
    FORMATS,
    expire,
    export,
    grow_to,
    iceberg_table,
    offsets,
    read_table,
)
from tests.slow import slow_from

Golden = Callable[[str], GoldenStore]


def ends_of(store: GoldenStore) -> list[int]:
    return [message.physical_offset + message.size for message in store.messages]


@pytest.mark.parametrize("layout", FORMATS)
def test_a_store_that_grows_is_exported_once(golden: Golden, tmp_path: Path, layout: str) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    ends = ends_of(source)
    stops = [ends[0], ends[4000], ends[4000], ends[4001], ends[-1]]
    for run, stop in enumerate(stops):
        grow_to(source.path, store, stop)
        report = export(store, out, layout, incremental=True, partition_by=("topic",))
        assert report.committed == (run != 2)
        expected = [message.physical_offset for message in source.messages]
        assert offsets(read_table(out, layout)) == [at for at in expected if at < stop]
        assert report.stores[str(store)][1] == stop


def test_wherever_a_log_ends_the_next_run_goes_on(golden: Golden, tmp_path: Path) -> None:
    source, random = golden("tricky"), Random(7)
    expected = [message.physical_offset for message in source.messages]
    stops = sorted(random.sample(ends_of(source), 12))
    for number, stop in enumerate(stops):
        # The log may end inside a record that is being written.
        grow_to(source.path, tmp_path / "store", stop + random.choice([0, 3, 60]))
        export(tmp_path / "store", tmp_path / "out", incremental=True, decompressed=False)
        found = offsets(read_table(tmp_path / "out", "parquet"))
        assert found == [at for at in expected if at < stop], number


def test_an_export_can_be_gone_on_with(golden: Golden, tmp_path: Path) -> None:
    source, store = golden("basic"), tmp_path / "store"
    grow_to(source.path, store, 400_000)
    export(store, tmp_path / "out")
    grow_to(source.path, store, 1 << 40)
    export(store, tmp_path / "out", incremental=True)
    found = offsets(read_table(tmp_path / "out", "parquet"))
    assert found == [message.physical_offset for message in source.messages]


def test_a_store_that_joins_is_exported_from_its_beginning(golden: Golden, tmp_path: Path) -> None:
    orders, basic = golden("orders"), golden("basic")
    export(orders.path, tmp_path / "out", incremental=True)
    export([orders.path, basic.path], tmp_path / "out", incremental=True)
    export(basic.path, tmp_path / "out", incremental=True)
    table = read_table(tmp_path / "out", "parquet")
    assert len(table) == len(orders.messages) + len(basic.messages)
    assert not export([orders.path, basic.path], tmp_path / "out", incremental=True).committed


def test_messages_that_expired_unexported_are_told(golden: Golden, tmp_path: Path) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 1_500_000)
    export(store, out, incremental=True)
    grow_to(source.path, store, 1 << 40)
    expire(store, 3)
    with pytest.raises(StoreChangedError, match="lost before they were exported"):
        export(store, out, incremental=True)
    report = export(store, out, incremental=True, fail_on_data_loss=False)
    (lost,) = report.missing
    first_file = 3 << 20
    assert lost.physical_offset is not None
    assert lost.physical_offset + lost.length == first_file
    expected = [message.physical_offset for message in source.messages]
    assert offsets(read_table(out, "parquet")) == [
        at for at in expected if at < lost.physical_offset or at >= first_file
    ]


def test_messages_that_expired_exported_are_not_missed(golden: Golden, tmp_path: Path) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 3_500_000)
    export(store, out, incremental=True)
    grow_to(source.path, store, 1 << 40)
    expire(store, 3)
    assert export(store, out, incremental=True).missing == []
    found = offsets(read_table(out, "parquet"))
    assert found == [message.physical_offset for message in source.messages]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_store_that_was_truncated_is_refused(golden: Golden, tmp_path: Path, layout: str) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 1_500_000)
    export(store, out, layout, incremental=True)
    before = read_table(out, layout)
    grow_to(source.path, store, 1_200_000)
    with pytest.raises(StoreChangedError, match="it was truncated or replaced"):
        export(store, out, layout, incremental=True)
    assert read_table(out, layout).equals(before)


def test_a_store_that_was_made_anew_is_refused(golden: Golden, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    grow_to(golden("orders").path, store, 900_000)
    export(store, out, incremental=True)
    # The log of another broker, which is longer than the first one was.
    data = bytearray((golden("orders").path / "commitlog" / f"{2 << 20:020d}").read_bytes())
    (store / "commitlog" / f"{0:020d}").write_bytes(data)
    with pytest.raises(StoreChangedError, match="the bytes before that offset differ"):
        export(store, out, incremental=True)


def test_a_store_keeps_its_name_where_it_is_moved(golden: Golden, tmp_path: Path) -> None:
    source, out = golden("basic"), tmp_path / "out"
    grow_to(source.path, tmp_path / "a", 400_000)
    export(tmp_path / "a", out, names=["shop"], incremental=True)
    (tmp_path / "a").rename(tmp_path / "b")
    grow_to(source.path, tmp_path / "b", 1 << 40)
    export(tmp_path / "b", out, names=["shop"], incremental=True)
    table = read_table(out, "parquet")
    assert offsets(table) == [message.physical_offset for message in source.messages]
    assert set(table["store"].to_pylist()) == {"shop"}


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_store_that_is_moved_without_its_name_is_not_exported_twice(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    source, out = golden("basic"), tmp_path / "out"
    grow_to(source.path, tmp_path / "a", 400_000)
    export(tmp_path / "a", out, layout, incremental=True)
    (tmp_path / "a").rename(tmp_path / "b")
    grow_to(source.path, tmp_path / "b", 1 << 40)
    with pytest.raises(
        UsageError, match=rf"under the name {tmp_path}/a; pass names={tmp_path}/a to give"
    ):
        export(tmp_path / "b", out, layout, incremental=True)
    export(tmp_path / "b", out, layout, names=[f"{tmp_path}/a"], incremental=True)
    assert offsets(read_table(out, layout)) == [m.physical_offset for m in source.messages]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_another_request_is_refused(golden: Golden, tmp_path: Path, layout: str) -> None:
    path, out = golden("basic").path, tmp_path / "out"
    export(path, out, layout, incremental=True, columns=("topic", "physical_offset"))
    with pytest.raises(UsageError, match=r"another columns \(topic,physical_offset, not none\)"):
        export(path, out, layout, incremental=True)
    with pytest.raises(UsageError, match="another topics"):
        export(
            path, out, layout,
            incremental=True, columns=("topic", "physical_offset"), topics=("T",),
        )  # fmt: skip


def forget_states(table: Path) -> None:
    for path in (table / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("commitInfo", {}).pop("reput", None)
        path.write_text("\n".join(map(json.dumps, lines)))


def test_a_delta_table_without_its_history_goes_on(golden: Golden, tmp_path: Path) -> None:
    """Delta's log clean-up deletes the commits, but the transaction identifiers stay."""
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 400_000)
    export(store, out, "delta", incremental=True)
    forget_states(out)
    grow_to(source.path, store, 1 << 40)
    export(store, out, "delta", incremental=True)
    found = offsets(read_table(out, "delta"))
    assert found == [message.physical_offset for message in source.messages]


def test_a_delta_table_without_its_history_keeps_the_types_that_were_inferred(
    golden: Golden, tmp_path: Path
) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 400_000)
    export(store, out, "delta", incremental=True, json_body="infer", topics=("orders",))
    before = read_table(out, "delta").schema.field("json").type
    forget_states(out)
    grow_to(source.path, store, 1 << 40)
    # The other topics, payments and shipments, add fields to the type.
    export(store, out, "delta", incremental=True, json_body="infer")
    now = read_table(out, "delta").schema.field("json").type
    assert [now.field(n) for n in range(before.num_fields)] == list(before)
    assert now.num_fields > before.num_fields


def test_a_delta_table_goes_on_from_where_it_was_restored_to(
    golden: Golden, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    for stop in (400_000, 900_000):
        grow_to(source.path, store, stop)
        export(store, out, "delta", incremental=True)
    DeltaTable(out).restore(0)
    assert len(read_table(out, "delta")) < 2000
    for stop in (900_000, 1 << 40):
        grow_to(source.path, store, stop)
        export(store, out, "delta", incremental=True)
    found = offsets(read_table(out, "delta"))
    assert found == [message.physical_offset for message in source.messages]


def test_an_iceberg_table_goes_on_from_where_it_was_rolled_back_to(
    golden: Golden, tmp_path: Path
) -> None:
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    for stop in (400_000, 900_000):
        grow_to(source.path, store, stop)
        export(store, out, "iceberg", incremental=True)
    table = iceberg_table(out)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert len(read_table(out, "iceberg")) < 2000
    export(store, out, "iceberg", incremental=True)
    expected = [m.physical_offset for m in source.messages if m.physical_offset + m.size <= 900_000]
    assert offsets(read_table(out, "iceberg")) == expected


def test_an_iceberg_table_without_its_snapshots_summaries_goes_on(
    golden: Golden, tmp_path: Path
) -> None:
    """Continue a table whose current snapshot is another writer's, and whose last snapshot of reput has expired."""
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    grow_to(source.path, store, 400_000)
    export(store, out, "iceberg", incremental=True)
    table = iceberg_table(out)
    ours = table.metadata.snapshots[0].snapshot_id
    table.append(pa.Table.from_batches([], schema=table.schema().as_arrow()))
    table.maintenance.expire_snapshots().by_id(ours).commit()
    grow_to(source.path, store, 1 << 40)
    export(store, out, "iceberg", incremental=True)
    found = offsets(read_table(out, "iceberg"))
    assert found == [message.physical_offset for message in source.messages]


def test_an_iceberg_table_keeps_as_many_snapshots_and_metadata_files_as_it_states(
    golden: Golden, tmp_path: Path
) -> None:
    source, store, out = golden("basic"), tmp_path / "store", tmp_path / "out"
    stops = (300_000, 500_000, 700_000, 1 << 40)
    for stop in stops:
        grow_to(source.path, store, stop)
        export(store, out, "iceberg", incremental=True)
        if stop == stops[0]:
            with iceberg_table(out).transaction() as transaction:
                transaction.set_properties(
                    {"reput.snapshots": "2", "write.metadata.previous-versions-max": "2"}
                )
    assert len(iceberg_table(out).metadata.snapshots) == 2
    assert len(list((out / "messages" / "metadata").glob("*.metadata.json"))) == 3
    found = offsets(read_table(out, "iceberg"))
    assert found == [message.physical_offset for message in source.messages]


@pytest.mark.parametrize("layout", slow_from(1, FORMATS))
def test_a_run_that_finds_nothing_asked_for_still_moves_on(
    golden: Golden, tmp_path: Path, layout: str
) -> None:
    source, store, out = golden("orders"), tmp_path / "store", tmp_path / "out"
    asked = {"topics": ("%DLQ%billing",), "partition_by": ("topic",)}
    for end in (100_000, 200_000, 1 << 40):
        grow_to(source.path, store, end)
        report = export(store, out, layout, incremental=True, **asked)  # type: ignore[arg-type]
        assert report.committed
        assert report.stores[str(store)][0] <= 200_000
    assert report.stores[str(store)][0] > 199_000
    wanted = [m.physical_offset for m in source.messages if m.topic == "%DLQ%billing"]
    assert offsets(read_table(out, layout)) == wanted
    assert len(wanted) == 3
