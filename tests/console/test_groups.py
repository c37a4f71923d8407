"""Consumer groups over stores: lag, dead letters, traces."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import reput
from reput import Message
from reput.engine.writer.shared_store import MissingStore
from tests.console.serving import console
from tests.golden.stores import GoldenStore
from tests.small import SMALL

_EVIL = "<script>x</script>"
Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Two brokers: a message of the first has become a dead letter in the second."""
    folder = tmp_path_factory.mktemp("stores")
    with reput.open_store(folder / "a", "rw", config=SMALL) as store:
        first = store.put(Message("orders", b"order 1", keys=["o-1"]))
        for number in range(2, 7):
            store.put(Message("orders", b"x", keys=[f"o-{number}"]))
        origin = store.get(first.physical_offset)
    with reput.open_store(folder / "b", "rw", config=SMALL) as store:
        properties = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": origin.message_id}
        dead = Message(
            "%DLQ%billing", b"order 1", keys=["o-1"], properties=properties, reconsume_times=16
        )
        store.put(dead)
        store.put(Message(f"%DLQ%{_EVIL}".replace("/", "-"), b"x"))
    for name, offset in (("a", 2), ("b", 0)):
        config = folder / name / "config"
        config.mkdir()
        table = {"orders@billing": {"0": offset}, "orders@fast": {"0": 6}} if name == "a" else {}
        (config / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    with console({"a": folder / "a", "b": folder / "b"}) as found:
        yield found


def test_groups_are_listed_over_all_stores_the_farthest_behind_first(client: TestClient) -> None:
    page = client.get("/groups").text
    names = re.findall(r"<strong>([^<]+)</strong></a>", page)
    assert names[0] == "billing"
    assert {*names} >= {"billing", "fast"}
    assert '<td data-label="Behind" class="num"><span class="strong">4</span>' in page
    assert "<script>x" not in page
    assert re.findall(r"<strong>([^<]+)</strong></a>", client.get("/groups?search=FAS").text) == [
        "fast"
    ]
    assert "billing" not in client.get("/groups?search=nothing").text


def test_a_group_shows_its_queues_and_the_story_of_its_dead_letters(client: TestClient) -> None:
    page = client.get("/groups/billing").text
    assert re.search(r'data-label="Sent to" class="clip">orders<', page)
    assert "16 retries" in page
    link = re.search(r'href="(/trace\?message=[^"]+)"', page)
    assert link is not None
    trace = client.get(link[1].replace("&amp;", "&")).text
    assert "dead letter" in trace
    assert {"/messages/0?store=a", "/messages/0?store=b"} <= {*re.findall(r'href="([^"]+)"', trace)}
    assert "has no dead letters" in client.get("/groups/fast").text
    assert "committed no offset" in client.get("/groups/billing?store=b").text


def test_an_unknown_group_is_not_found(client: TestClient, tmp_path: Path) -> None:
    answer = client.get("/groups/unknown")
    assert answer.status_code == 404
    assert "No store has offsets or dead letters of the consumer group" in answer.text
    assert client.get("/groups/fast?store=b").status_code == 404
    # A store that cannot be read, or is missing, may have the group.
    with reput.open_store(tmp_path / "c", "rw", config=SMALL) as store:
        store.put(Message("orders", b"x"))
    gone = MissingStore("gone", "/gone", 1_792_000_000_000, "the store is gone")
    with console({"c": tmp_path / "c"}, missing=lambda: [gone]) as other:
        assert other.get("/groups/unknown").status_code == 200
        assert other.get("/groups/unknown?store=c").status_code == 404
        (tmp_path / "c" / "config").mkdir(exist_ok=True)
        (tmp_path / "c" / "config" / "consumerOffset.json").write_text("{")
        answer = other.get("/groups/unknown?store=c")
    assert (answer.status_code, "Some data could not be read" in answer.text) == (200, True)


def test_a_topic_is_counted_once_per_store(client: TestClient) -> None:
    counted = "topics, each counted once per store."
    assert counted in client.get("/start").text
    assert counted not in client.get("/start?store=b").text


def test_dead_letters_of_replicas_without_names_are_counted_by_store(
    client: TestClient, tmp_path: Path
) -> None:
    with reput.open_store(tmp_path / "a", "rw", config=SMALL) as store:
        store.put_many(Message("%DLQ%billing", b"x") for _ in range(3))
    shutil.copytree(tmp_path / "a", tmp_path / "slave")
    with console({name: tmp_path / name for name in ("a", "slave")}) as opened:
        page = opened.get("/groups/billing").text
    assert "<dt>Dead letters</dt><dd>6</dd>" in page
    assert "a: 3, slave: 3. The number above is their sum." in page
    assert "a, slave have the same dead letters at the same offsets." in page
    assert "their sum" not in client.get("/groups/billing").text
    assert "the same dead letters" not in client.get("/groups/billing").text


def test_a_trace_goes_over_all_stores_or_one(client: TestClient) -> None:
    every = client.get("/api/trace?key=o-1").json()
    assert every["stores"] == ["a", "b"]
    assert len(every["events"]) == 2
    assert len(client.get("/api/trace?key=o-1&store=a").json()["events"]) == 1
    page = client.get("/trace?key=o-1").text
    assert page.count('<li class="event') == 2
    assert "in 2 stores" in page


def test_offsets_that_cannot_be_read_are_a_problem_of_one_store(
    client: TestClient, tmp_path: Path
) -> None:
    with reput.open_store(tmp_path / "c", "rw", config=SMALL) as store:
        store.put(Message("orders", b"x"))
    (tmp_path / "c" / "config").mkdir(exist_ok=True)
    (tmp_path / "c" / "config" / "consumerOffset.json").write_text("{")
    with console({"c": tmp_path / "c"}) as other:
        answer = other.get("/groups")
        assert answer.status_code == 200
        assert "Some stores could not be read" in answer.text


def test_a_dead_letter_without_an_origin_says_so_and_has_no_wrong_age(golden: Golden) -> None:
    with console({"orders": golden("orders").path}) as client:
        page = client.get("/groups/billing").text
        assert page.count('data-label="Sent to" class="clip">not stated<') == 3
        assert "after it was sent" not in page
        # The trace of its key has the message, its retries and the dead letter.
        link = re.search(r'href="(/trace\?key=pay-a4f912f0)"', page)
        assert link is not None
        trace = client.get(link[1]).text
        assert "payments" in trace
        assert "retry 3" in trace
