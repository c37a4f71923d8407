"""The examples find in the shop's store what the golden tables and plain Python find there."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from examples.latency import latencies, summary
from examples.messages_per_hour import messages_per_hour
from examples.paid_twice import TWICE, paid_twice, pay_again
from examples.shop import unpack
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore

pytestmark = pytest.mark.slow

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def orders(golden: Golden) -> GoldenStore:
    return golden("orders")


def first_key(keys: str | None) -> str:
    return (keys or "").split()[0]


def waits_ms(store: GoldenStore) -> dict[str, int]:
    """Return the milliseconds from each order to its payment, by key, from the golden table of messages."""
    ordered: dict[str, int] = {}
    paid: dict[str, int] = {}
    for message in store.messages:
        of_topic = {"orders": ordered, "payments": paid}.get(message.topic, {})
        of_topic.setdefault(first_key(message.keys), message.store_timestamp)
    return {key: at - ordered[key] for key, at in paid.items()}


def test_messages_per_hour(spark: SparkSession, orders: GoldenStore) -> None:
    found = Counter(
        {
            (row["topic"], row["hour"].replace(tzinfo=UTC)): row["count"]
            for row in messages_per_hour(spark, orders.path).collect()
        }
    )
    hours = (
        (m.topic, datetime.fromtimestamp(m.store_timestamp // 3_600_000 * 3600, UTC))
        for m in orders.messages
    )
    assert found == Counter(hours)


def test_latency(spark: SparkSession, orders: GoldenStore) -> None:
    rows = latencies(spark, orders.path).collect()
    expected = waits_ms(orders)
    assert {row["key"]: round(row["seconds"] * 1000) for row in rows} == expected
    told = {row["tags"]: row.asDict() for row in summary(latencies(spark, orders.path)).collect()}
    assert {tag: row["messages"] for tag, row in told.items()} == {
        "authorised": 4730, "declined": 270,
    }  # fmt: skip
    assert 0 < told["authorised"]["half"] < told["authorised"]["of_hundred_99"]


def test_paid_twice(spark: SparkSession, orders: GoldenStore, tmp_path: Path) -> None:
    assert paid_twice(spark, orders.path).collect() == []
    store = unpack(tmp_path)
    pay_again(store)
    found = paid_twice(spark, store).collect()
    assert {row["order"] for row in found} == set(TWICE)
    assert {row["payments"] for row in found} == {2}
    assert {row["order"]: row["amount"] for row in found} == {TWICE[0]: 150.0, TWICE[1]: 1513.32}
    assert all(row["first"] < row["last"] for row in found)


def test_two_plots(orders: GoldenStore, tmp_path: Path) -> None:
    # Here, for matplotlib takes half a second in each process that collects tests.
    from examples.plots import main as plot
    from examples.plots import per_hour, read_messages, waits_s

    messages = read_messages(orders.path)
    _, topics = per_hour(messages)
    assert {topic: int(counts.sum()) for topic, counts in topics.items()} == Counter(
        message.topic for message in orders.messages
    )
    assert sorted(waits_s(messages) * 1000) == pytest.approx(sorted(waits_ms(orders).values()))
    plot([str(orders.path), str(tmp_path)])
    for name in ("messages.png", "payments.png"):
        data = (tmp_path / name).read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(set(np.frombuffer(data, np.uint8))) == 256, "a picture, not an empty one"


def test_the_plots_lie_where_they_were_asked_for(tmp_path: Path) -> None:
    """Run examples.plots with a store and a folder: it writes the plot into this folder."""
    store = unpack(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-m", "examples.plots", str(store), str(tmp_path)],
        cwd=CHECKOUT, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()
    assert (tmp_path / "messages.png").exists()
    assert "5,000 payments" in ended.stdout.decode()
