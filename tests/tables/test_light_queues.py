"""Tables have the messages of light queues (LMQ) under their own topics, so these queues are refused as topics."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.errors import UsageError
from reput.spark.options import read_options
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
