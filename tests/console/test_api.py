"""The HTTP API returns what the library returns, in the format of the command line, and states what is missing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

import reput
from reput.engine.messages.codec import message_fields
from reput.wings.console.volume import volume_of_topic
from tests.cli.running import reput as command
from tests.console.serving import console, lines_of
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def store(golden: Golden) -> GoldenStore:
    return golden("basic")


@pytest.fixture(scope="module")
def client(store: GoldenStore) -> Iterator[TestClient]:
    with console({"basic": store.path}) as opened:
        yield opened


def keyed(store: GoldenStore) -> tuple[str, str]:
    """A topic and a key with several messages."""
    with reput.open_store(store.path) as opened:
        for query in store.queries:
            if len(opened.query(query.topic, query.key).messages) > 2:
                return query.topic, query.key
    raise AssertionError("no such key")


def test_messages_are_those_of_the_query_in_the_form_of_the_command_line(
    client: TestClient, store: GoldenStore
) -> None:
    topic, key = keyed(store)
    with reput.open_store(store.path) as opened:
        expected = opened.query(topic, key)
    found = client.get("/api/messages", params={"topic": topic, "key": key, "limit": 999}).json()
    assert found["messages"] == [message_fields(message) for message in expected.messages]
    assert (found["complete"], found["cursor"]) == (True, None)
    assert found["coverage"]["end"] == expected.coverage.log.stop
    lines = client.get(
        "/api/messages", params={"topic": topic, "key": key, "limit": 999, "format": "jsonl"}
    )
    assert lines.headers["content-type"] == "application/x-ndjson"
    printed = command("query", str(store.path), "--topic", topic, "--key", key, "--format", "jsonl")
    assert lines.text.splitlines()[:-1] == printed.lines
    assert lines_of(lines.text)[-1]["complete"] is True


def test_a_cursor_continues_where_a_limit_stopped(client: TestClient, store: GoldenStore) -> None:
    topic, key = keyed(store)
    whole = client.get("/api/messages", params={"topic": topic, "key": key, "limit": 999}).json()[
        "messages"
    ]
    asked: dict[str, Any] = {"topic": topic, "key": key, "limit": 2}
    first = client.get("/api/messages", params=asked).json()
    rest = client.get(
        "/api/messages", params={**asked, "limit": 999, "after": first["cursor"]}
    ).json()
    assert first["messages"] + rest["messages"] == whole
    assert (len(first["messages"]), rest["cursor"]) == (2, None)


def test_a_message_is_found_by_either_id(client: TestClient, store: GoldenStore) -> None:
    with reput.open_store(store.path) as opened:
        row = next(row for row in store.messages if row.uniq_key and row.sys_flag & 12 == 0)
        message = opened.get(row.physical_offset)
    for name in (message.message_id, message.unique_key):
        found = client.get(f"/api/messages/{name}").json()["messages"]
        assert message.physical_offset in [one["physical_offset"] for one in found]
    assert client.get("/api/messages/nobody").status_code == 404


def test_a_queue_is_read_from_any_offset(client: TestClient, store: GoldenStore) -> None:
    queue = max(store.queues, key=lambda one: one.max_offset - one.min_offset)
    path = f"/api/queues/{queue.topic}/{queue.queue_id}"
    found = client.get(path, params={"offset": queue.min_offset + 1, "limit": 3}).json()
    with reput.open_store(store.path) as opened:
        pulled = opened.pull(queue.topic, queue.queue_id, queue.min_offset + 1, 3)
    assert found["messages"] == [message_fields(message) for message in pulled.messages]
    assert (found["status"], found["next_begin_offset"]) == ("found", pulled.next_begin_offset)
    assert client.get(path).json()["messages"][0]["queue_offset"] == queue.min_offset
    assert client.get("/api/queues/nobody/0").status_code == 404


def test_topics_and_volume_agree_with_the_queues(client: TestClient, store: GoldenStore) -> None:
    topics = client.get("/api/topics").json()["topics"]
    queues = {
        (one["topic"], queue["queue_id"], queue["max_offset"])
        for one in topics
        for queue in one["queues"]
    }
    assert queues == {(one.topic, one.queue_id, one.max_offset) for one in store.queues}
    topic = max(topics, key=lambda one: one["messages"])
    volume = client.get(f"/api/topics/{topic['topic']}/volume", params={"parts": 9}).json()
    with reput.open_store(store.path) as opened:
        expected = volume_of_topic(opened, topic["topic"], parts=9)
    assert volume["messages"] == expected.messages
    assert sum(volume["messages"]) == topic["messages"]


def test_trace_and_check_are_those_of_the_command_line(
    client: TestClient, store: GoldenStore
) -> None:
    topic, key = keyed(store)
    lines = lines_of(
        client.get("/api/trace", params={"key": key, "topic": topic, "format": "jsonl"}).text
    )
    printed = lines_of(
        command("trace", str(store.path), "--key", key, "--topic", topic, "--format", "jsonl").out
    )
    assert lines[1:] == printed[1:]
    whole = client.get("/api/trace", params={"key": key, "topic": topic}).json()
    assert whole["events"] == [line for line in lines if "event" in line]
    findings = lines_of(client.get("/api/check").text)
    assert findings[0]["schema"] == "reput-check/1"
    assert findings[-1]["valid"] is True


def test_what_cannot_be_read_is_said_and_not_called_not_found(
    golden: Golden, tmp_path: Path
) -> None:
    source = golden("basic")
    path = copy_store(source.path, tmp_path / "store")
    shutil.rmtree(path / "index")
    times = Counter(word for row in source.messages for word in (row.keys or "").split())
    lost = next(
        row
        for row in source.messages
        if row.sys_flag & 12 == 0 and times[(row.keys or "?").split()[0]] == 1
    )
    number, position = divmod(lost.physical_offset, source.commit_log_file_bytes)
    with sorted((path / "commitlog").iterdir())[number].open("r+b") as file:
        file.seek(position + 4)
        file.write(bytes(4))
    with console({"damaged": path}) as client:
        asked = {"topic": lost.topic, "key": (lost.keys or "").split()[0]}
        found = client.get("/api/messages", params=asked).json()
        assert found["complete"] is False
        assert found["unreadable"][0]["physical_offset"] == lost.physical_offset
        page = client.get("/", params=asked).text
        assert "This answer is incomplete" in page
        queue = client.get(
            f"/api/queues/{lost.topic}/{lost.queue_id}", params={"offset": lost.queue_offset}
        )
        assert (queue.status_code, queue.json()["complete"]) == (200, False)
        (unreadable,) = queue.json()["unreadable"]
        assert unreadable["begin"] == lost.queue_offset
        assert unreadable["finding"]["physical_offset"] == lost.physical_offset


def test_a_store_deleted_under_the_server_is_reported(golden: Golden, tmp_path: Path) -> None:
    path = copy_store(golden("basic").path, tmp_path / "store")
    with console({"gone": path}) as client:
        assert client.get("/healthz").json() == {"status": "ok", "stores": 1}
        assert 'reput_store_up{store="gone"} 1.0' in client.get("/metrics").text
        shutil.rmtree(path)
        assert client.get("/healthz").status_code == 503
        assert 'reput_store_up{store="gone"} 0.0' in client.get("/metrics").text
        assert client.get("/stores").status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/api/messages", params={"key": "k"}).status_code == 503


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/api/messages", "key"),
        ("/api/messages?key=k&limit=0", "limit"),
        ("/api/messages?key=k&limit=many", "limit"),
        ("/api/messages?key=k&begin=soon", "begin"),
        ("/api/messages?key=k&begin=2&end=1", "begin"),
        ("/api/messages?key=k&after=99999999999999999999999", "after"),
        ("/api/messages?key=k&format=xml", "format"),
        ("/api/topics/T/volume?parts=0", "parts"),
        ("/api/trace", "key"),
    ],
)
def test_a_wrong_parameter_is_named(client: TestClient, path: str, name: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert answer.json()["error"]["kind"] == "usage"
    assert name in answer.json()["error"]["message"]


def test_with_several_stores_one_is_named(golden: Golden) -> None:
    with console({"one": golden("basic").path, "two": golden("timed").path}) as client:
        assert "one, two" in client.get("/api/topics").json()["error"]["message"]
        assert client.get("/api/topics", params={"store": "two"}).status_code == 200
        assert client.get("/api/topics", params={"store": "three"}).status_code == 404
        names = [one["store"] for one in client.get("/api/stores").json()["stores"]]
        assert names == ["one", "two"]


def test_the_document_describes_every_route_and_its_parameters(client: TestClient) -> None:
    document = client.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    app = client.app
    assert isinstance(app, Starlette)
    routed = {route.path.replace(":int64", "") for route in app.routes if isinstance(route, Route)}
    of_api = {path for path in routed if path.startswith("/api/")} - {"/api/openapi.json"}
    assert of_api == set(document["paths"])
    for path, operations in document["paths"].items():
        named = {one["name"] for one in operations["get"]["parameters"] if one["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_requests_are_counted_by_route(client: TestClient) -> None:
    client.get("/api/topics")
    text = client.get("/metrics").text
    assert 'reput_http_requests_total{method="GET",route="/api/topics",status="200"}' in text
