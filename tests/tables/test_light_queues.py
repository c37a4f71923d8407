"""Tables have the messages of light queues (LMQ) under their own topics, so these queues are refused as topics."""

import uuid
import warnings
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.compute as pc
import pytest
from pyspark.sql.datasource import EqualTo, Filter, In, Not, StringStartsWith

import reput
from reput.engine.messages import COLUMNS
from reput.errors import UsageError
from reput.spark.options import read_options
from reput.spark.reader import FilteredLogReader
from tests.cli.running import reput as run

LITE, PLAIN = "%LMQ%$orders$one", "%LMQ%one"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("light") / "store"
    with reput.open_store(path, mode="rw") as opened:
        for queue in (LITE, PLAIN):
            opened.put(reput.Message("orders", b"body", properties={"INNER_MULTI_DISPATCH": queue}))
    return path


def export(store: Path, topic: str) -> object:
    return reput.export(store, str(store.with_name("table")), topics=["orders", topic])


def load(store: Path, topic: str) -> object:
    return read_options({"path": str(store), "topic": topic})


@pytest.mark.every_case
@pytest.mark.parametrize("read", [reput.dataset, export, load])
@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        (LITE, "its parent topic orders"),
        (PLAIN, "the topic of its messages"),
        ("%LMQ%*", "the topic of its messages"),
    ],
)
def test_a_light_queue_is_no_topic_of_a_table(
    store: Path, read: Callable[..., object], queue: str, topic: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        read(store, topic=queue)
    assert (
        str(refusal.value) == f"{queue} is a light queue, not a topic: use {topic}, or reput tail"
    )
    assert not store.with_name("table").exists()


def test_an_export_of_a_light_queue_is_refused(store: Path) -> None:
    ran = run("export", store, "-", "--to", "jsonl", "--topic", LITE)
    assert (ran.code, ran.out) == (2, "")
    assert "use its parent topic orders, or reput tail" in ran.err
    assert run("export", store, "-", "--to", "jsonl", "--topic", "orders").out.count("\n") == 2


def by_sql(store: Path, topics: list[str]) -> int:
    messages = reput.dataset(store)  # noqa: F841
    texts = ", ".join(f"'{topic}'" for topic in topics)
    with duckdb.connect() as database:
        query = f"select topic from messages where topic in ({texts})"
        return len(database.execute(query).fetchall())


def by_polars(store: Path, topics: list[str]) -> int:
    lazy = pl.scan_pyarrow_dataset(reput.dataset(store))
    return len(lazy.filter(pl.col("topic").is_in(topics)).collect())


def by_filter(store: Path, topics: list[str]) -> int:
    return len(reput.dataset(store).to_table(filter=pc.field("topic").isin(topics)))


def by_explain(store: Path, topics: list[str]) -> int:
    reput.dataset(store).explain(pc.field("topic").isin(topics))
    return 2 if "orders" in topics else 0


@pytest.mark.every_case
@pytest.mark.parametrize("rows_of", [by_sql, by_polars, by_filter, by_explain])
def test_a_filter_that_names_a_light_queue_warns(
    store: Path, rows_of: Callable[[Path, list[str]], int]
) -> None:
    line = f"{LITE} is a light queue, not a topic: use its parent topic orders, or reput tail"
    for topics, count in (([LITE], 0), (["orders", LITE], 2)):
        with pytest.warns(UserWarning, match="light queue") as warned:
            assert rows_of(store, topics) == count
        assert {str(warning.message) for warning in warned} == {line}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows_of(store, ["orders"]) == 2


def test_a_filter_of_spark_that_names_a_light_queue_prints_a_line(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(store.parent))
    topic = ("topic",)

    def lines(pushed: Filter) -> list[str]:
        reader = FilteredLogReader(read_options({"path": str(store)}), COLUMNS)
        reader.load = uuid.uuid4().hex
        assert list(reader.pushFilters([pushed])) == []
        assert reader.partitions()
        return [line for line in capsys.readouterr().err.splitlines() if "light" in line]

    named = "use the topic of its messages, or reput tail"
    assert lines(EqualTo(topic, PLAIN)) == [
        f"reput: {PLAIN} is a light queue, not a topic: {named}"
    ]
    assert len(lines(In(topic, ("orders", PLAIN, LITE)))) == 2
    assert len(lines(StringStartsWith(topic, "%LMQ%"))) == 1
    assert lines(EqualTo(topic, "orders")) == lines(Not(EqualTo(topic, PLAIN))) == []
