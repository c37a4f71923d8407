"""A trace finds the messages of inner batches (5.x), which no index has."""

from pathlib import Path

import pytest

import reput
from reput.engine.writer.put.message import Message
from reput.wings.inspect.trace import trace_life
from tests.cli.running import reput as run
from tests.five import CONFIG, inner_batch, write_topics


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two inner batches in B whose messages share keys and unique keys; an ordinary message of the same key."""
    write_topics(tmp_path / "s", "B")
    with reput.open_store(tmp_path / "s", mode="rw", config=CONFIG) as opened:
        opened.put(inner_batch("B", [b"a", b"b", b"c"], keys=["k", "other", "k"]))
        opened.put(Message("B", b"d", ["k"]))
        opened.put(inner_batch("B", [b"e", b"f"], keys=["x", "k"]))
    return tmp_path / "s"


def test_a_key_of_inner_messages(store: Path) -> None:
    with reput.open_store(store) as opened:
        life = trace_life([opened], key="k", topic="B")
        everywhere = trace_life([opened], key="k")
    bodies = [event.message.body for event in life.events]
    # a and e have the same unique key, so they are one life. The same applies to b and f.
    assert bodies == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert everywhere.events == life.events
    assert [event.message.queue_offset for event in life.events] == [0, 1, 2, 3, 4, 5]
    assert all(event.is_queued for event in life.events)
    assert life.is_complete
    lives = {event.message.body: event.life for event in life.events}
    assert lives == {b"a": 1, b"b": 2, b"c": 3, b"d": 4, b"e": 1, b"f": 2}
    assert life.searched[0].coverage.inner_messages == 5


def test_a_unique_key_of_an_inner_message(store: Path) -> None:
    with reput.open_store(store) as opened:
        life = trace_life([opened], message_id="inner-B-1")
    assert [event.message.body for event in life.events] == [b"b", b"f"]


def test_the_answer_says_that_batches_were_searched(store: Path) -> None:
    found = run("trace", store, "--key", "k")
    assert "5 messages inside inner batches, whose keys a broker's index lacks" in found.out
    assert found.code == 0
    assert '"inner_messages": 5' in run("trace", store, "--key", "k", "--format", "jsonl").out
