"""Missing stores: the console reports them on each page, and no answer ignores them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event

import httpx
import pytest
from starlette.testclient import TestClient

from reput import Message, open_store
from reput.engine.messages.topic_messages import messages_of_topic
from reput.engine.writer.shared_store import MissingStore, SharedStore
from reput.errors import StoreNotFoundError, StoreUnreachableError, UsageError
from reput.format.host import Host
from reput.wings.console.app import create_app
from reput.wings.console.mounts import BusyError, Mounts
from reput.wings.console.searching import Outcome, Share, search
from reput.wings.console.server import HttpServer, host_names
from reput.wings.console.surveys import Rounds
from reput.wings.serve.broker.limits import HttpLimits
from reput.wings.serve.remoting.service import Service, ServiceOptions
from tests.console.serving import console
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore
from tests.small import SMALL
from tests.waiting import wait_for, wait_in_loop

Golden = Callable[[str], GoldenStore]
GONE = MissingStore("gone", "/data/gone", 1_792_000_000_000, "the store is gone")


@pytest.fixture
def client(golden: Golden) -> Iterator[TestClient]:
    with console({"orders": golden("orders").path}, missing=lambda: [GONE]) as found:
        yield found


def test_health_is_503_and_the_process_is_alive(client: TestClient) -> None:
    for path in ("/healthz", "/readyz"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert answer.json() == {
            "status": "unreadable",
            "stores": 2,
            "unreadable": {
                "gone": "gone is missing since 2026-10-14T17:46:40.000Z: /data/gone: the store is gone"
            },
        }
    assert client.get("/livez").status_code == 200


def test_metrics_say_that_it_is_down(client: TestClient) -> None:
    text = client.get("/metrics").text
    assert 'reput_store_up{store="gone"} 0.0' in text
    assert 'reput_store_up{store="orders"} 1.0' in text


@pytest.mark.parametrize("path", ["/", "/stores", "/topics?store=orders", "/?key=order-103921"])
def test_every_page_names_it(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert "gone is missing since 2026-10-14T17:46:40.000Z" in page.text


def test_what_is_asked_of_it_is_not_an_empty_answer(client: TestClient) -> None:
    for path in ("/api/messages?store=gone&key=k", "/topics?store=gone", "/?store=gone&key=k"):
        assert client.get(path).status_code == 503, path
    listed = client.get("/api/stores").json()["stores"]
    assert [one["store"] for one in listed] == ["gone", "orders"]
    assert listed[0]["error"]["kind"] == "missing"


def test_a_search_without_any_store_is_503() -> None:
    app = create_app({}, missing=lambda: [GONE])
    alone = TestClient(app, "http://localhost")
    assert alone.get("/?key=k").status_code == 503
    assert alone.get("/api/messages?key=k").status_code == 503


def test_health_is_answered_whatever_name_the_server_is_called_by(golden: Golden) -> None:
    with console({"orders": golden("orders").path}) as open_one:
        for path, status in {
            "/livez": 200,
            "/readyz": 200,
            "/healthz": 200,
            "/": 421,
            "/metrics": 421,
        }.items():
            assert open_one.get(path, headers={"host": "10.1.2.3:8080"}).status_code == status


def test_names_that_are_given_are_served(golden: Golden) -> None:
    async def run() -> list[int]:
        store = SharedStore(golden("basic").path)
        address = Host("127.0.0.1", 0)
        app = create_app({"basic": store}, hosts=host_names(address, ["Reput.Example"]))
        server = HttpServer(app, address)
        await server.start()
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                url = f"http://{server.address}/metrics"
                names = ("reput.example", "other.example")
                return [(await client.get(url, headers={"host": n})).status_code for n in names]
        finally:
            await server.close()
            store.close()

    assert asyncio.run(run()) == [200, 421]


def test_health_does_not_wait_for_searches(golden: Golden) -> None:
    """All threads for searches and pages are busy. Health checks use another thread."""

    async def run() -> None:
        store = SharedStore(golden("basic").path)
        mounts = Mounts({"basic": store}, limits=HttpLimits(searches=3, search_threads=2))
        hold = Event()
        searches = [asyncio.create_task(mounts.search(hold.wait)) for _ in range(3)]
        pages = [asyncio.create_task(mounts.run(hold.wait)) for _ in range(20)]
        await asyncio.sleep(0)
        await wait_in_loop(lambda: mounts._searches == 3)
        with pytest.raises(BusyError, match="3 searches are running"):
            await mounts.search(lambda: None)
        assert await mounts.run_aside(lambda: "answered", 60) == "answered"
        stuck = Event()
        assert await mounts.run_aside(stuck.wait, 0.01) is None
        stuck.set()
        hold.set()
        await asyncio.gather(*searches, *pages)
        await mounts.search(lambda: None)
        store.close()

    asyncio.run(run())


def test_a_search_ends_at_its_time_limit_with_a_cursor(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reput.wings.console import searching
    from reput.wings.console.arguments import SearchForm

    with console({"orders": golden("orders").path}) as client:
        every = client.get("/api/messages?key=order-103921").json()["messages"]
        monkeypatch.setattr(searching, "HTTP", HttpLimits(search_s=-1.0))
        found, after = [], None
        for _ in range(100):
            form = SearchForm(None, ("order-103921",), None, None, 50, after)
            with closing(SharedStore(golden("orders").path)) as store:
                *parts, outcome = search(store, form, Share())
            found += [one for part in parts if isinstance(part, tuple) for one in part]
            assert isinstance(outcome, Outcome)
            if outcome.cursor is None:
                break
            assert outcome.is_late
            after = outcome.cursor
        assert [one.physical_offset for one in found] == [one["physical_offset"] for one in every]


def test_the_service_remembers_stores_that_went_and_tries_those_that_are_empty(
    golden: Golden, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        copy_store(golden("basic").path, tmp_path / "stores" / name)
    (tmp_path / "stores" / "c" / "commitlog").mkdir(
        parents=True
    )  # the store is empty, and will get its first message

    async def run() -> None:
        options = ServiceOptions(Host("127.0.0.1", 0))
        paths = [str(tmp_path / "stores"), str(tmp_path / "never")]
        service = Service(paths, lambda path, address: SharedStore(path), options)
        await service.start()
        stop = asyncio.Event()
        running = asyncio.create_task(service.run(stop))
        try:
            assert sorted(service.stores()) == ["a", "b"]
            reasons = {one.name: one.reason for one in service.missing()}
            assert sorted(reasons) == ["c", "never"]
            assert "no CommitLog file" in reasons["c"]
            shutil.move(tmp_path / "stores" / "a", tmp_path / "away")
            await wait_in_loop(lambda: "a" in {one.name for one in service.missing()})
            assert sorted(service.stores()) == ["b"]
            shutil.move(tmp_path / "away", tmp_path / "stores" / "a")
            for file in (tmp_path / "stores" / "a" / "commitlog").iterdir():
                shutil.copy(file, tmp_path / "stores" / "c" / "commitlog")
            await wait_in_loop(lambda: sorted(service.stores()) == ["a", "b", "c"])
            assert [one.name for one in service.missing()] == ["never"]
            lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
            assert any("a: the store is gone" in line for line in lines)
            assert any("a: served as a; it was missing since 20" in line for line in lines)
        finally:
            stop.set()
            await running
            await service.close()

    asyncio.run(run())


def test_metrics_are_openmetrics_for_who_asks_and_have_process_and_searches(
    client: TestClient,
) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    answer = client.get(
        "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    found = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
    names = {family.name for family in found}
    assert {"reput_store_up", "reput_http_searches", "process_resident_memory_bytes"} <= names
    assert client.get("/metrics").headers["content-type"].startswith("text/plain")


def test_each_request_has_an_audit_line(golden: Golden) -> None:
    lines: list[dict[str, object]] = []
    with console({"orders": golden("orders").path}, token="secret", audit=lines.append) as client:
        client.get("/livez")
        client.get("/api/messages?key=a&topic=t", headers={"authorization": "Bearer secret"})
        client.get("/api/messages?key=a")
    first, second = lines
    assert (first["path"], first["key"], first["topic"]) == ("/api/messages", "a", "t")
    assert (first["status"], first["client"], second["status"]) == (200, "testclient", 401)
    assert isinstance(first["bytes"], int)
    assert first["bytes"] > 50


def test_metrics_have_the_last_survey_of_each_store(golden: Golden, tmp_path: Path) -> None:
    copy_store(golden("orders").path, tmp_path / "orders")
    (tmp_path / "orders" / "abort").touch()
    with console({"orders": tmp_path / "orders"}) as client:
        wait_for(lambda: 'reput_store_state{store="orders"}' in client.get("/metrics").text)
        text = client.get("/metrics").text
    assert 'reput_store_state{store="orders"} 1.0' in text
    assert 'reput_store_findings{severity="warning",store="orders"} 1.0' in text
    assert 'reput_store_newest_message_seconds{store="orders"} 1.792454394688e+09' in text
    assert 'reput_store_index_coverage_ratio{store="orders"} 0.99' in text


def test_metrics_of_an_owned_store_show_what_is_not_durable(tmp_path: Path) -> None:
    with open_store(
        tmp_path / "s", mode="rw", config=SMALL, flush_interval_commit_log_s=600.0,
        flush_commit_log_thorough_interval_s=600.0,
    ) as store:  # fmt: skip
        client = TestClient(create_app({"s": store}), "http://localhost")
        store.put(Message("t", b"x"))
        store.wait_dispatched()
        text = client.get("/metrics").text
        assert 'reput_store_undispatched_bytes{store="s"} 0.0' in text
        assert 'reput_store_unflushed_bytes{store="s"} 0.0' not in text
        store.flush()
        assert 'reput_store_unflushed_bytes{store="s"} 0.0' in client.get("/metrics").text


def test_who_asks_for_a_store_that_is_there_does_not_wait_for_a_look_at_the_others(
    golden: Golden,
) -> None:
    asked: list[None] = []

    def missing() -> list[MissingStore]:
        asked.append(None)
        return [GONE]

    with closing(SharedStore(golden("orders").path)) as store:
        mounts = Mounts({"orders": store}, missing)
        assert mounts.named("orders") == ("orders", store)
        assert not asked
        with pytest.raises(StoreUnreachableError):
            mounts.named("gone")


def test_a_scrape_does_not_wait_long_for_counts(golden: Golden) -> None:
    """A scrape returns the counts of the quick stores. Later scrapes also return the figures of the slow store."""
    may_end, looked = Event(), list[str]()

    def look(name: str) -> str:
        looked.append(name)
        if name == "slow":
            assert may_end.wait(60)
        return f"seen {len(looked)}"

    stores = {name: SharedStore(golden("orders").path) for name in ("quick", "slow")}
    rounds = Rounds(Mounts(stores), look, wait_s=0.01)
    try:
        found = wait_for(rounds.latest)
        assert {name: one.result for name, one in found.items()} == {"quick": "seen 1"}
        assert set(rounds.latest()) == {"quick"}
        may_end.set()
        wait_for(lambda: set(rounds.latest()) == {"quick", "slow"})
        count = len(looked)
        wait_for(
            lambda: {one.result for one in rounds.latest().values()}.isdisjoint(
                {"seen 1", "seen 2"}
            )
        )
        assert len(looked) > count
    finally:
        may_end.set()
        for store in stores.values():
            store.close()


def test_without_an_open_store_a_request_names_no_choice() -> None:
    with pytest.raises(UsageError, match=r"^no store is open$"):
        Mounts({}).named(None)


def test_a_request_without_a_store_does_not_concern_the_only_one_left(client: TestClient) -> None:
    for path in ("/api/messages?key=order-103921", "/api/topics", "/api/queues/orders/0"):
        answer = client.get(path)
        assert answer.status_code == 400, path
        assert "orders, gone (missing)" in answer.json()["error"]["message"]
    assert client.get("/api/messages?store=orders&key=order-103921").json()["complete"] is True


def test_a_trace_over_all_stores_is_incomplete_and_names_the_missing_one(
    client: TestClient,
) -> None:
    traced = client.get("/api/trace?key=order-103921").json()
    assert traced["complete"] is False
    assert traced["events"]
    assert "gone is missing since 2026-10-14" in traced["failed"][0]
    lines = client.get("/api/trace?key=order-103921&format=jsonl").text.splitlines()
    assert '"complete":false' in lines[-1]
    assert "gone is missing" in lines[-1]
    assert client.get("/api/trace?store=orders&key=order-103921").json()["complete"] is True
    page = client.get("/trace?key=order-103921").text
    assert page.count("gone is missing since 2026-10-14") >= 2


def test_a_trace_without_any_store_is_503() -> None:
    alone = TestClient(create_app({}, missing=lambda: [GONE]), "http://localhost")
    assert alone.get("/api/trace?key=k").status_code == 503
    assert alone.get("/groups").status_code == 503


def test_a_store_that_vanishes_under_an_open_reader_is_an_error(
    golden: Golden, tmp_path: Path
) -> None:
    path = copy_store(golden("orders").path, tmp_path / "store")
    with closing(SharedStore(path)) as store:
        topic = store.topics()[0]
        shutil.rmtree(path)
        for ask in (
            lambda: store.topics(), lambda: store.list_queues(), lambda: store.list_queues(topic),
            lambda: messages_of_topic(store, topic), lambda: store.query(topic, "k"),
            lambda: store.pull(topic, 0, 0), lambda: store.end_offset(),
        ):  # fmt: skip
            with pytest.raises(StoreNotFoundError):
                ask()


def test_a_trace_passes_a_store_that_vanished_a_moment_ago_and_names_it(
    golden: Golden, tmp_path: Path
) -> None:
    paths = {name: copy_store(golden("orders").path, tmp_path / name) for name in ("a", "b")}
    with console(paths) as opened:
        shutil.rmtree(paths["b"])
        traced = opened.get("/api/trace?key=order-103921").json()
        assert traced["complete"] is False
        assert traced["events"]
        assert traced["failed"][0].startswith("b: not searched: ")
        shutil.rmtree(paths["a"])
        assert opened.get("/api/trace?key=order-103921").status_code == 503


def test_a_path_that_is_still_served_is_not_missing_under_another_name(
    golden: Golden, tmp_path: Path
) -> None:
    async def run() -> None:
        path = copy_store(golden("orders").path, tmp_path / "store")
        options = ServiceOptions(Host("127.0.0.1", 0))
        service = Service([str(path)], lambda path, address: SharedStore(path), options)
        await service.start()
        shutil.rmtree(path)
        assert service.missing() == []
        await service._watch()
        assert [one.reason for one in service.missing()] == ["the store is gone"]
        await service.close()

    asyncio.run(run())
