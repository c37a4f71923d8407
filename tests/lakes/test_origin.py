"""Tables with the columns of brokers and real topics, and partitioned by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import reput
from reput.errors import UsageError
from reput.wings.lakes.request import TABLE_COLUMNS, ExportRequest
from tests.cli.running import reput as command
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import FORMATS, read_table

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def brokers(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stores: main/a/store and main/b/store."""
    folder = tmp_path_factory.mktemp("brokers")
    copy_store(golden("tricky").path, folder / "main" / "a" / "store")
    copy_store(golden("lmq").path, folder / "main" / "b" / "store")
    return folder


@pytest.mark.parametrize("layout", FORMATS)
def test_partitions_by_broker_and_real_topic(brokers: Path, tmp_path: Path, layout: str) -> None:
    out, pattern = tmp_path / "table", f"{brokers}/*/*/store"
    request = ExportRequest(partition_by=("broker", "real_topic"))
    name_from = f"{brokers}/{{cluster}}/{{broker}}/store"
    rejected = 0
    for is_first in (True, False):
        report = reput.export(
            pattern, out, to=layout, request=request, name_from=name_from, incremental=not is_first
        )
        assert report.committed is is_first
        rejected += report.rejects
    columns = ["store", "broker", "real_topic", "physical_offset"]
    messages = reput.dataset(pattern, columns, name_from=name_from).to_table()
    found = _rows(read_table(out, layout), columns)
    if rejected:
        found += _rows(read_table(out, layout, rejects=True), columns)
    assert found == _rows(messages, columns)
    if layout == "parquet":
        folders = {path.name for path in (out / "broker=a").iterdir()}
        assert {"real_topic=DelayTopic", "real_topic=__HIVE_DEFAULT_PARTITION__"} < folders


def _rows(table: pa.Table, columns: list[str]) -> Counter[tuple[object, ...]]:
    rows = table.select(columns).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def test_the_usual_columns_and_further_ones(brokers: Path, tmp_path: Path) -> None:
    store = brokers / "main" / "b" / "store"
    ran = command(
        "export", store, tmp_path / "out", "--columns", "*,broker,real_queue_id",
        "--name-from", f"{brokers}/*/{{broker}}/store",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    table = read_table(tmp_path / "out", "parquet")
    assert table.schema.names == [*TABLE_COLUMNS.names, "broker", "real_queue_id"]
    assert set(table["store"].to_pylist()) == set(table["broker"].to_pylist()) == {"b"}


def test_what_is_refused_in_one_line(brokers: Path, tmp_path: Path) -> None:
    store = brokers / "main" / "b" / "store"
    for more, why in (
        (["--name-from", "/x/{broker}"], "--name-from /x/{broker}: does not match the store"),
        (["--name-from", "{broker}", "--name", "x"], "pass --name or --name-from, not both"),
        (
            ["--partition-by", "colour"],
            "--partition-by colour: must be one of topic, real_topic, broker",
        ),
    ):
        ran = command("export", store, tmp_path / "out", *more)
        assert ran.code == 2
        assert why in ran.err
        assert not (tmp_path / "out").exists()


def test_stores_of_one_name_are_refused(golden: Golden, tmp_path: Path) -> None:
    path = golden("lmq").path
    copy_store(path, tmp_path / "copy")
    stores = [reput.NamedStore("x", str(path)), reput.NamedStore("x", str(tmp_path / "copy"))]
    with pytest.raises(UsageError, match="two stores have this name"):
        reput.export(stores, tmp_path / "out")
