"""`reput.dataset`: repeated reads by DuckDB, Polars, pandas and pyarrow, with their pushed-down filters."""

import datetime
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reput
import reput.engine.tables.arrow as arrow_module
from reput.engine.messages.schema import select
from reput.engine.tables.expressions import conditions_of, used_columns
from reput.engine.tables.plan import ReadPlan, plan_reading
from reput.errors import CorruptMessageError, UsageError
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.tables.reading import read

Golden = Callable[[str], GoldenStore]
SCHEMA = select(["topic", "queue_id", "store_timestamp", "queue_offset", "tags", "body"])
FIELD = pc.field


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[ReadPlan]:
    """Record the plans of all scans."""
    plans: list[ReadPlan] = []

    def noting(*given: Any, **named: Any) -> ReadPlan:
        plans.append(plan_reading(*given, **named))
        return plans[-1]

    monkeypatch.setattr(arrow_module, "plan_reading", noting)
    return plans


def bytes_of(plan: ReadPlan) -> int:
    """Return the bytes of the log that a plan scans: the parts for which ConsumeQueues do not locate the messages."""
    return sum(task.part.stop - task.part.start for task in plan.tasks if not task.part.by_queue)


def test_it_is_read_again_and_again(golden: Golden) -> None:
    path = golden("orders").path
    messages = reput.dataset(path)
    rows = read(path).num_rows
    assert messages.to_table() == read(path)
    assert [messages.to_table(["size"]).num_rows for _ in range(2)] == [rows, rows]
    assert messages.count_rows() == rows
    assert messages.head(7).num_rows == 7
    assert pa.table(messages).num_rows == pa.table(messages).num_rows == rows
    assert pickle.loads(pickle.dumps(messages)).count_rows() == rows
    assert "orders" in repr(reput.dataset(path, topic="orders"))


def test_duckdb_pushes_columns_and_filters_down(golden: Golden, planned: list[ReadPlan]) -> None:
    path = golden("orders").path
    table = read(path, ["topic", "size", "queue_id"])
    messages = reput.dataset(path)  # noqa: F841
    with duckdb.connect() as database:
        for _ in range(2):
            (found,) = database.execute("select count(*), sum(size) from messages").fetchall()
            assert found == (table.num_rows, pc.sum(table["size"]).as_py())
        query = "select sum(size) from messages where topic = 'payments' and queue_id in (0, 1)"
        (found,) = database.execute(query).fetchall()
    of_all, of_some = bytes_of(planned[0]), bytes_of(planned[-1])
    assert of_some == 0 < of_all  # ConsumeQueues locate all wanted messages, so nothing is scanned
    wanted = pc.and_(
        pc.equal(table["topic"], "payments"), pc.is_in(table["queue_id"], pa.array([0, 1]))
    )
    assert found == (pc.sum(table.filter(wanted)["size"]).as_py(),)


def test_polars_pushes_columns_filters_and_limits_down(
    golden: Golden, planned: list[ReadPlan]
) -> None:
    # Imported here, because it takes a second in each process that collects tests.
    import polars as pl

    path = golden("orders").path
    table = read(path, ["topic", "store_timestamp"])
    middle = sorted(table["store_timestamp"].to_pylist())[table.num_rows // 2]
    lazy = pl.scan_pyarrow_dataset(reput.dataset(path))
    found = lazy.filter((pl.col("topic") == "orders") & (pl.col("store_timestamp") >= middle))
    times = table.filter(pc.equal(table["topic"], "orders"))["store_timestamp"].to_pylist()
    assert found.select("store_timestamp").collect().height == sum(t >= middle for t in times) > 0
    assert bytes_of(planned[-1]) == 0
    assert lazy.head(3).collect().height == 3
    assert pl.DataFrame(reput.dataset(path, ["topic"])).height == table.num_rows


def test_pandas_and_expressions_as_columns(golden: Golden) -> None:
    path = golden("basic").path
    messages = reput.dataset(path)
    kilobytes = {"kb": pc.divide(FIELD("size"), 1024), "topic": FIELD("topic")}
    frame = messages.to_table(kilobytes, filter=FIELD("size") > 1024).to_pandas()
    sizes = read(path, ["size"]).column(0).to_pylist()
    assert sorted(frame["kb"]) == sorted(size // 1024 for size in sizes if size > 1024)


def test_times_as_texts_lists_and_patterns_of_topics(golden: Golden) -> None:
    path = golden("orders").path
    table = read(path, ["topic", "store_timestamp"])
    stamp = table["store_timestamp"][5].as_py()
    text = stamp.isoformat(timespec="milliseconds")
    same = reput.dataset(path, begin=text, end=text).count_rows()
    assert same == reput.dataset(path, begin=stamp, end=stamp).count_rows() > 0
    topics = set(table["topic"].to_pylist())
    some = {topic for topic in topics if topic.startswith("pay") or topic == "orders"}
    assert len(some) > 1
    found = reput.dataset(path, ["topic"], topic=["pay*", "orders"]).to_table()
    assert found.num_rows == sum(topic in some for topic in table["topic"].to_pylist())
    with pytest.raises(UsageError, match="begin: 'noon' is not a time"):
        reput.dataset(path, begin="noon")


def test_a_topic_that_no_store_has_is_warned_of_with_near_names(golden: Golden) -> None:
    with pytest.warns(UserWarning, match="no queue of topic payment; there are payments"):
        messages = reput.dataset(golden("orders").path, topic="payment")
    assert messages.count_rows() == 0


def test_damage_is_raised_by_each_reader(golden: Golden, tmp_path: Path) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    file = sorted((store / "commitlog").iterdir())[1]
    data = bytearray(file.read_bytes())
    data[500_000:500_064] = bytes(range(64))
    file.write_bytes(data)
    messages = reput.dataset(store, ["physical_offset"])
    for reading in (messages.to_table, messages.count_rows, lambda: pa.table(messages)):
        with pytest.raises((CorruptMessageError, pa.ArrowInvalid), match="no record begins here"):
            reading()
    assert 0 < reput.dataset(store, on_corrupt="skip").count_rows() < 20_000


@pytest.mark.parametrize(
    "refused",
    [
        lambda d: d.filter(FIELD("size") > 1), lambda d: d.get_fragments(),
        lambda d: d.replace_schema(SCHEMA), lambda d: d.sort_by("size"), lambda d: d.join(d, "size"),
        lambda d: d.join_asof(d, "size", [], 1), lambda d: d.partition_expression,
    ],
)  # fmt: skip
def test_parts_of_pyarrow_that_need_its_own_datasets_are_refused(
    golden: Golden, refused: Callable[[Any], Any]
) -> None:
    with pytest.raises(UsageError, match="a dataset of messages does not support"):
        refused(reput.dataset(golden("basic").path))


NOON = datetime.datetime(2026, 10, 14, 12, tzinfo=datetime.UTC)
TEXTS = ["", "orders", 'a"b', "%RETRY%g", "é", "x\n]"]
LEAVES = st.one_of(
    st.builds(lambda v: FIELD("topic") == v, st.sampled_from(TEXTS)),
    st.builds(lambda v: pc.scalar(v) != FIELD("tags"), st.sampled_from(TEXTS)),
    st.builds(
        lambda v: FIELD("topic").isin(v), st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3)
    ),
    st.builds(lambda v: FIELD("queue_id") >= v, st.sampled_from([-1, 0, 3])),
    st.builds(lambda v: FIELD("queue_offset") < v, st.sampled_from([-(1 << 62), 0, 7, 1 << 62])),
    st.builds(lambda v: pc.scalar(v) <= FIELD("queue_id"), st.sampled_from([-1, 0, 3])),
    st.just(FIELD("store_timestamp") >= pa.scalar(NOON, pa.timestamp("us", "UTC"))),
    st.just(FIELD("tags").is_valid()),
    st.just(pc.starts_with(FIELD("topic"), "ord")),
    st.just(
        pc.if_else(FIELD("topic").is_valid(), FIELD("topic").isin(["orders"]), pc.scalar(None))
    ),
    st.just(pc.if_else(FIELD("topic").is_valid(), FIELD("topic") == "orders", pc.scalar(True))),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)
ROWS = pa.table(
    {
        "topic": [*TEXTS, None, "orders"] * 3,
        "queue_id": pa.array([0, 3, None, -1] * 6, pa.int32()),
        "store_timestamp": pa.array([NOON, None, NOON - datetime.timedelta(1)] * 8, pa.timestamp("us", "UTC")),
        "queue_offset": pa.array([0, 7, 1 << 62, None, -5, 6] * 4, pa.int64()),
        "tags": [None, "orders", ""] * 8,
        "body": [b""] * 24,
    },
    SCHEMA,
)  # fmt: skip


@given(FILTERS)
def test_conditions_keep_every_row_that_a_filter_keeps(expression: pc.Expression) -> None:
    kept = ROWS.append_column("n", pa.array(range(len(ROWS)))).filter(expression)
    met = set(range(len(ROWS)))
    for condition in conditions_of(expression, SCHEMA):
        column = ROWS[condition.column].combine_chunks()
        met &= {row for row, is_met in enumerate(condition.keeps(column)) if is_met}
    assert met >= set(kept["n"].to_pylist())


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (FIELD("topic") == 'a"b', ["topic = 'a\"b'"]),
        ((FIELD("queue_id") > 3) & (pc.scalar(9) > FIELD("queue_offset")), ["queue_id > 3", "queue_offset < 9"]),
        (FIELD("queue_offset") == -5, ["queue_offset = -5"]),
        (FIELD("topic").isin(["a", "b"]), ["topic in 'a', 'b'"]),
        (FIELD("topic").is_valid() | (FIELD("topic") == "a"), []),
    ],
)  # fmt: skip
def test_what_is_understood(expression: pc.Expression, texts: list[str]) -> None:
    assert [str(condition) for condition in conditions_of(expression, SCHEMA)] == texts


def test_columns_that_an_expression_names() -> None:
    expression = (FIELD("topic") == "a") & (pc.add(FIELD("queue_id"), 1) > 3)
    assert used_columns(expression, SCHEMA) == ["topic", "queue_id"]
    assert used_columns(ds.scalar(True), SCHEMA) == []
