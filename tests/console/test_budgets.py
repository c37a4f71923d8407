"""HTTP clients that request more than an answer may hold, send slowly, or do not read. Other clients are served."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from reput import Message, open_store
from reput.core.log.reader import CommitLogReader
from reput.core.query.pull_records import load_pull_kernel
from reput.engine.writer.shared_store import SharedStore
from reput.format.commit_log import SYS_FLAG_COMPRESSED
from reput.format.host import Host
from reput.wings.console.app import create_app
from reput.wings.console.server import HttpServer
from reput.wings.serve.broker.limits import HTTP, HttpLimits
from tests.console.serving import console, lines_of
from tests.small import SMALL
from tests.waiting import wait_for

INFLATED = 3 << 20
COUNT, ZEROS = 12, 4 << 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of small messages and of compressed ones: some inflate to 3 MiB each, one to 60 MiB."""
    path = tmp_path_factory.mktemp("budgets") / "s"
    zeros = zlib.compress(bytes(ZEROS))
    body, huge = zlib.compress(b"x" * INFLATED), zlib.compress(bytes(60 << 20))
    with open_store(path, mode="rw", config=SMALL) as made:
        for n in range(COUNT):
            made.put(Message("big", body, keys=["k"], queue_id=n % 2, sys_flag=SYS_FLAG_COMPRESSED))
        made.put(Message("huge", huge, keys=["k"], sys_flag=SYS_FLAG_COMPRESSED))
        made.put(Message("escaped", bytes(900_000), keys=["k"]))
        for _ in range(20):
            made.put(Message("zeros", zeros, keys=["z"], sys_flag=SYS_FLAG_COMPRESSED))
        made.put_many(Message("long", b"x" * 700_000, keys=["long"]) for _ in range(30))
        made.put_many(Message("small", b"%d" % n, keys=["k"]) for n in range(100))
    return path


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[TestClient]:
    with console({"s": store}) as opened:
        yield opened


@pytest.mark.every_case
@pytest.mark.parametrize("how", [{}, {"format": "jsonl"}])
@pytest.mark.parametrize("asked", [{"topic": "big"}, {"topic": "big", "key": "k"}, {"key": "k"}])
def test_an_answer_is_cut_at_its_bytes_and_the_cursor_leads_to_the_others(
    client: TestClient, asked: dict[str, Any], how: dict[str, Any]
) -> None:
    found, pages, after = list[int](), 0, None
    while True:
        query = {**asked, **how, "limit": 1000, **({} if after is None else {"after": after})}
        answer = client.get("/api/messages", params=query)
        assert len(answer.content) < HTTP.answer_bytes + (8 << 10)
        if how:
            *messages, end = lines_of(answer.text)
        else:
            end = answer.json()
            messages = end["messages"]
        assert (end["complete"], end["has_more"]) == (True, end["cursor"] is not None)
        found += [one["physical_offset"] for one in messages]
        pages, after = pages + 1, end["cursor"]
        if after is None:
            break
        assert messages
    expected = COUNT if "topic" in asked else COUNT + 102
    assert (len(found), found) == (expected, sorted(set(found), reverse=True))
    assert pages >= COUNT


def test_a_body_that_is_longer_than_an_answer_is_left_out_and_can_be_downloaded(
    client: TestClient,
) -> None:
    (message,) = client.get("/api/messages", params={"topic": "escaped"}).json()["messages"]
    assert (message["body"], "omitted" in message["body_error"]) == ("", True)
    (message,) = client.get("/api/messages", params={"topic": "huge"}).json()["messages"]
    assert f"exceeds {HTTP.answer_bytes} bytes" in message["body_error"]
    path = f"/messages/{message['physical_offset']}"
    assert client.get(path).status_code == 200
    assert len(client.get(f"{path}/body").content) == 60 << 20


@pytest.mark.every_case
@pytest.mark.parametrize(("what", "name"), [("topics", "topic"), ("stores", "store")])
def test_lists_end_at_their_bytes_and_the_cursor_leads_to_the_others(
    store: Path, monkeypatch: pytest.MonkeyPatch, what: str, name: str
) -> None:
    stores = {f"s{n}": store for n in range(4)}
    with console(stores) as client:
        asked = {"store": "s0"} if what == "topics" else {}
        everything = client.get(f"/api/{what}", params=asked).json()
        assert (everything["has_more"], everything["cursor"]) == (False, None)
        monkeypatch.setattr("reput.wings.console.json_api.HTTP", HttpLimits(answer_bytes=300))
        found, after = list[dict[str, Any]](), None
        while True:
            answer = client.get(
                f"/api/{what}", params={**asked, **({} if after is None else {"after": after})}
            ).json()
            found += answer[what]
            after = answer["cursor"]
            assert answer["has_more"] == (after is not None)
            if after is None:
                break
            assert after == answer[what][-1][name]
            assert len(answer[what]) < 4
    assert found == everything[what]
    assert len(found) >= 4


def test_topics_are_paged_and_found_by_a_part_of_their_name(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = re.findall(r"<strong>([^<]+)</strong></a>", client.get("/topics").text)
    assert len(every) > 2
    monkeypatch.setattr("reput.wings.console.topic_pages.TOPICS_OF_A_PAGE", 2)
    monkeypatch.setattr("reput.wings.console.topic_pages._MOST_SUGGESTED", 2)
    found, link = [], "/topics"
    while link:
        page = client.get(link).text
        found += re.findall(r"<strong>([^<]+)</strong></a>", page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        link = following[1].replace("&amp;", "&") if following else ""
    assert found == every
    page = client.get("/topics", params={"search": every[-1][1:].upper()}).text
    assert every[-1] in re.findall(r"<strong>([^<]+)</strong></a>", page)
    assert "No topic here has" in client.get("/topics?search=nothing").text
    assert client.get("/topics?page=-3").text.count('data-label="Topic"') == 2
    assert client.get("/suggest/topics").text.count("<option") == 2


def test_many_topics_are_not_counted_for_the_start_page(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "data-row" in client.get("/start").text
    monkeypatch.setattr("reput.wings.console.search_page._COUNT_LIMIT", 2)
    with console({"again": Path(client.get("/api/stores").json()["stores"][0]["path"])}) as other:
        page = other.get("/start").text
        assert ("data-row" in page, " topics. " in page) == (False, True)


def test_words_in_place_of_methods_are_not_kept(client: TestClient) -> None:
    for n in range(20):
        client.request(f"WORD{n}", "/api/topics")
    text = client.get("/metrics").text
    assert ('method="other"' in text, "WORD" in text) == (True, False)


def test_messages_are_read_as_far_as_an_answer_goes(
    store: Path, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    locate = CommitLogReader.locate

    def counted(reader: CommitLogReader, *place: Any, **how: Any) -> Any:
        found = locate(reader, *place, **how)
        if threading.current_thread().name != "reput-survey":
            read.append(found.layout.total_bytes)
        return found

    load_pull_kernel()  # It reads the messages whose times are compared.
    # The first request compares what is known of each log file with its last record.
    client.get("/api/messages", params={"topic": "long"})
    monkeypatch.setattr(CommitLogReader, "locate", counted)
    for asked in ({"topic": "long"}, {"topic": "long", "key": "long"}):
        read.clear()
        answer = client.get("/api/messages", params=asked).json()
        assert 0 < len(answer["messages"]) < 10
        assert sum(read) <= HTTP.answer_bytes * 3


@pytest.mark.every_case
@pytest.mark.parametrize("path", ["/messages/{}", "/messages/{}?view=hex"])
def test_a_page_of_a_body_of_control_characters_takes_few_times_its_size(
    store: Path, client: TestClient, path: str
) -> None:
    with open_store(store) as opened:
        offset = opened.get_by_queue("zeros", 0, 0).physical_offset
    client.get(path.format(offset))
    tracemalloc.start()
    try:
        assert client.get(path.format(offset)).status_code == 200
        assert tracemalloc.get_traced_memory()[1] < 12 * ZEROS
    finally:
        tracemalloc.stop()


def test_bodies_that_are_left_out_end_an_answer_too(client: TestClient) -> None:
    found = client.get("/api/messages", params={"topic": "zeros", "limit": 1000}).json()
    assert (len(found["messages"]), found["has_more"]) == (16, True)
    rest = {"topic": "zeros", "limit": 1000, "after": found["cursor"]}
    assert len(client.get("/api/messages", params=rest).json()["messages"]) == 4


def test_the_health_of_a_busy_server_is_known(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: Any) -> None:
        begun.release()
        release.wait(60)

    monkeypatch.setattr("reput.wings.console.topic_pages.topics_of", slow)

    def talk(server: HttpServer) -> None:
        asking = [socket.create_connection(server.address, 60) for _ in range(20)]
        for each in asking:
            each.sendall(b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(16):
            assert begun.acquire(timeout=60)
        with httpx.Client(trust_env=False, timeout=60) as client:
            assert client.get(f"http://{server.address}/healthz").status_code == 200
        release.set()
        for each in asking:
            each.close()

    serving(store, HttpLimits(), talk)


def test_a_queue_is_read_in_parts_of_an_answer(client: TestClient) -> None:
    offsets, at = list[int](), 0
    while True:
        answer = client.get("/api/queues/big/0", params={"offset": at, "limit": 1000})
        assert len(answer.content) < HTTP.answer_bytes + (8 << 10)
        found = answer.json()
        if not found["messages"]:
            break
        offsets += [one["queue_offset"] for one in found["messages"]]
        at = found["next_begin_offset"]
    assert offsets == list(range(COUNT // 2))
    page = client.get("/queues/big/0?limit=1000")
    assert (page.status_code, len(page.content) < 1 << 20) == (200, True)


def test_a_trace_leaves_bodies_out_that_do_not_fit(client: TestClient) -> None:
    answer = client.get("/api/trace", params={"key": "k", "topic": "big"})
    assert len(answer.content) < HTTP.answer_bytes
    assert "exceeds" in answer.text


def serving(store: Path, limits: HttpLimits, talk: Callable[[HttpServer], None]) -> None:
    """Run a server while `talk` talks to it from another thread."""
    opened = SharedStore(store)

    async def run() -> None:
        server = HttpServer(create_app({"s": opened}), Host("127.0.0.1", 0), limits)
        await server.start()
        try:
            await asyncio.to_thread(talk, server)
        finally:
            await server.close()

    asyncio.run(run())
    opened.close()


def ask(server: HttpServer) -> int:
    with httpx.Client(trust_env=False, timeout=60) as client:
        url = f"http://{server.address}/api/messages?topic=small"
        return client.get(url).status_code


HALF = b"GET /api/topics HTTP/1.1\r\nHost: localhost\r\n"


def test_requests_that_do_not_come_shut_nobody_out(store: Path) -> None:
    def talk(server: HttpServer) -> None:
        begun = []
        for _ in range(200):
            begun.append(socket.create_connection(server.address, 30))
            begun[-1].sendall(HALF)
        assert [ask(server) for _ in range(5)] == [200] * 5
        assert len(server.guard.connections) <= 20
        for each in begun:
            each.close()

    serving(store, HttpLimits(connections=20), talk)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "begin", [b"", HALF, b"POST /login HTTP/1.1\r\nContent-Length: 9\r\n\r\nto"]
)
def test_a_request_that_does_not_come_is_closed(store: Path, begin: bytes) -> None:
    def talk(server: HttpServer) -> None:
        with socket.create_connection(server.address, 60) as slow:
            slow.sendall(begin)
            while slow.recv(1 << 16):
                pass

    serving(store, HttpLimits(request_s=0.5), talk)


def test_answers_that_are_not_read_are_closed_at_their_share(store: Path) -> None:
    def talk(server: HttpServer) -> None:
        deaf = []
        for _ in range(20):
            deaf.append(socket.socket())
            deaf[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf[-1].connect(server.address)
            deaf[-1].sendall(b"GET /api/messages?topic=big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: 0 < len(server.guard.connections) < 20)
        assert ask(server) == 200
        for each in deaf:
            each.close()

    serving(store, HttpLimits(unsent_bytes=8 << 20), talk)
