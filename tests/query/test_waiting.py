"""A query by the original topic of a message reports in which topic the message waits for its delivery."""

from collections.abc import Callable
from pathlib import Path

import pytest

import reput
from reput.core.query import message_store
from reput.core.query.answers import QueryResult
from reput.engine.writer.put.message import Message
from reput.format.properties import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.cli.running import reput as run
from tests.console.serving import console, lines_of
from tests.golden.stores import GoldenStore
from tests.golden.tables import read_named
from tests.small import SMALL

Golden = Callable[[str], GoldenStore]
_PLACES = {"timer": TIMER_TOPIC, "delaylevel": SCHEDULE_TOPIC, "transaction": HALF_TOPIC}


def test_every_message_that_was_sent_is_found_or_said_to_wait(golden: Golden) -> None:
    store = golden("five_life")
    noted = 0
    with reput.open_store(store.path) as opened:
        for row in read_named(store.root / "sent.tsv")[::3]:
            found = opened.query(row["topic"], row["ownUniqKey"])
            assert found.is_complete
            if found.messages:
                assert found.notes == ()
            elif row["kind"] in _PLACES:
                (note,) = found.notes
                assert f"sent to {row['topic']} is in {_PLACES[row['kind']]}: " in note
                noted += 1
            else:
                raise AssertionError(row)
        assert noted > 20
        assert opened.query("Bank", "no such key").notes == ()
        assert opened.query(None, "no such key").notes == ()
        assert opened.find_by_id("no such id", "Bank").notes == ()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A half message of topic T with the keys `h` and `both`, and one of U; a message of T with the key `both`."""
    with reput.open_store(tmp_path / "s", mode="rw", config=SMALL) as opened:
        for topic, keys in (("T", ["h", "both"]), ("U", ["u"])):
            properties = {"KEYS": " ".join(keys), "REAL_TOPIC": topic, "REAL_QID": "0"}
            opened.put(Message(HALF_TOPIC, b"half", properties=properties))
        opened.put(Message("T", b"message", ["both"]))
    return tmp_path / "s"


def test_only_an_answer_without_messages_is_noted(store: Path) -> None:
    with reput.open_store(store) as opened:
        assert [one.body for one in opened.query("T", "both").messages] == [b"message"]
        assert opened.query("T", "both").notes == ()
        assert len(opened.query("T", "h").notes) == 1
        assert opened.query("T", "u").notes == ()
        assert opened.query(HALF_TOPIC, "x").notes == ()
        *_, last = opened.query_steps("T", "h")
        assert isinstance(last, QueryResult)
        assert last.notes == opened.query("T", "h").notes
        stored = opened.query(HALF_TOPIC, "h").messages[0].store_timestamp
        assert len(opened.query("T", "h", begin=stored, end=stored).notes) == 1
        assert opened.query("T", "h", begin=stored + 1).notes == ()


def test_a_note_costs_no_scan_of_a_long_log(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_store, "_MOST_SCANNED_BYTES", 0)
    with reput.open_store(store, index=store / "commitlog") as opened:
        assert opened.query("T", "h").notes == ()


def test_the_command_prints_it(store: Path) -> None:
    note = "A message with this key that was sent to T is in RMQ_SYS_TRANS_HALF_TOPIC"
    found = run("query", store, "--topic", "T", "--key", "h")
    assert found.code == 1
    assert note in found.out
    found = run("query", store, "--topic", "T", "--key", "h", "--format", "jsonl")
    assert found.out == ""
    assert note in found.err


def test_the_pages_and_the_api_have_it(store: Path) -> None:
    with console({"s": store}) as client:
        note = "sent to T is in RMQ_SYS_TRANS_HALF_TOPIC"
        assert note in client.get("/", params={"topic": "T", "key": "h"}).text
        *_, last = lines_of(client.get("/api/messages", params={"topic": "T", "key": "h"}).text)
        assert note in last["coverage"]["notes"][0]
