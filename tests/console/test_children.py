"""Searches by content run in child processes: the server answers meanwhile, and no child outlives its search."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pickle
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import pytest

from reput import Message, open_store
from reput.engine.writer.shared_store import SharedStore
from reput.errors import WorkerLostError
from reput.format.host import Host
from reput.wings.console import children, live_page, searching
from reput.wings.console.app import create_app
from reput.wings.console.arguments import SearchForm
from reput.wings.console.children import Children
from reput.wings.console.content import Content, parse_content
from reput.wings.console.server import HttpServer
from reput.wings.console.sweep import Sweep
from tests.console.serving import console, lines_of
from tests.small import SMALL
from tests.waiting import wait_for, wait_in_loop

_STOPPED = "stopped before its end"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"body %d" % number, keys=["k"]) for number in range(200))
        store.put(Message("T", b"a" * 20_000 + b"b"))
    return tmp_path / "store"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the children that this test begins."""
    made: list[Any] = []

    class Child(children._Child):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(children, "_Child", Child)
    own = Children()
    for user in (children, live_page, searching):
        monkeypatch.setattr(user, "CHILDREN", own)
    yield made
    own.close()
    for child in made:
        wait_for(lambda child=child: child.process.poll() is not None)


def test_a_search_runs_in_another_process_and_the_next_one_in_the_same(
    path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(self: Sweep) -> Any:
        raise AssertionError("the search runs in the process of the server")

    monkeypatch.setattr(Sweep, "steps", here)
    with console({"s": path}) as client:
        for condition, bodies in (
            ("contains=body+1%5B89%5D%240&how=regex", 0),
            ("contains=body+1%5B89%5D0&how=regex", 2),
            ("contains=%28a%2B%29%2B%24&how=regex", 0),
            ("contains=%28a%2B%29%2Bb%24&how=regex", 1),
        ):
            answer = client.get(f"/api/messages?{condition}").json()
            assert (len(answer["messages"]), answer["complete"]) == (bodies, True)
            lines = lines_of(client.get(f"/api/messages?{condition}&format=jsonl").text)
            assert lines[:-1] == answer["messages"]
            assert lines[-1]["complete"]
    assert len(begun) == 1
    assert begun[0].process.pid != os.getpid()


def test_new_messages_are_matched_in_another_process(
    path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(self: Content, body: bytes, properties: dict[str, str]) -> bool:
        raise AssertionError("the condition is tested in the process of the server")

    monkeypatch.setattr(Content, "takes", here)
    paths = {name: path.rename(path.with_name(name)) for name in ("a",)}
    paths |= {name: Path(shutil.copytree(paths["a"], path.with_name(name))) for name in "bcdef"}
    with console(paths) as client:
        page = client.get("/live?contains=body+1..&how=regex").text
        assert page.count('<td data-label="Keys"') == 19 * len(paths)
        (link,) = re.findall(r'data-live="([^"]+)"', page)
        with open_store(paths["b"], mode="rw") as store:
            store.put_many(Message("T", body, keys=["new"]) for body in (b"body 1xx", b"other"))
        rows = client.get(link.replace("&amp;", "&")).text
        assert rows.count('<td data-label="Keys"') == 1
        assert "body 1xx" in rows
    assert len(begun) == 1


def test_the_live_page_continues_after_a_killed_child(path: Path, stopped: list[Any]) -> None:
    async def kill(
        client: httpx.AsyncClient, url: str, server: HttpServer, begun: list[Any]
    ) -> None:
        rows = asyncio.create_task(client.get(f"{url}/live/rows?contains=x&after=s:77"))
        await wait_in_loop(lambda: begun)
        begun[0].process.kill()
        answer = await rows
        assert answer.status_code == 200
        assert "ended before its end" in answer.text
        assert "after=s%3A77" in answer.text

    asyncio.run(held(path, stopped, kill))


class _Unsendable(SearchForm):
    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle this")


def test_a_job_that_cannot_be_sent_fails_at_once(path: Path, begun: list[Any]) -> None:
    form = _Unsendable(None, (), None, None, 1, None, parse_content("text", "x"))
    with closing(SharedStore(path)) as store:
        steps = searching.search(store, form, searching.Share())
        with pytest.raises(WorkerLostError, match="TypeError: cannot pickle this") as lost:
            list(steps)
    assert "\n" not in str(lost.value)


def test_a_step_that_cannot_be_received_fails_at_once(
    path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: Any) -> Any:
        raise pickle.UnpicklingError("invalid load key\n")

    monkeypatch.setattr(Connection, "recv", damaged)
    with console({"s": path}) as client:
        answer = client.get("/api/messages?contains=x")
        assert answer.status_code == 500
        assert "UnpicklingError: invalid load key" in answer.json()["error"]["message"]


def test_an_error_of_a_child_is_the_error_of_the_search(path: Path, begun: list[Any]) -> None:
    with console({"s": path}) as client:
        client.get("/api/messages?contains=x")
        for file in (path / "commitlog").iterdir():
            file.rename(file.with_name("x" + file.name))
        assert client.get("/api/messages?contains=x").json().get("complete") is not True


def running(begun: list[Any]) -> int:
    return sum(child.process.poll() is None for child in begun)


Asked = Callable[[httpx.AsyncClient, str, HttpServer, list[Any]], Awaitable[None]]


async def held(path: Path, begun: list[Any], asked: Asked) -> None:
    """Run a server, and call `asked` with a client."""
    with closing(SharedStore(path)) as store:
        server = HttpServer(create_app({"s": store}), Host("127.0.0.1", 0))
        await server.start()
        async with httpx.AsyncClient(trust_env=False, timeout=600) as client:
            await asked(client, f"http://{server.address}", server, begun)
        await server.close()


@pytest.fixture
def stopped(begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the children, each of which is stopped before it gets a search."""
    plain = children._Child.__mro__[1]

    class Stopped(plain):  # type: ignore[valid-type,misc]
        def __init__(self) -> None:
            super().__init__()
            os.kill(self.process.pid, signal.SIGSTOP)
            begun.append(self)

    monkeypatch.setattr(children, "_Child", Stopped)
    return begun


PATHS = [
    "/api/messages?contains=x",
    "/api/messages?contains=x&format=jsonl",
    "/?contains=x",
    "/download?contains=x",
    "/live?contains=x",
    "/live/rows?contains=x&after=s:0",
]


@pytest.mark.parametrize("asked", PATHS)
def test_the_server_answers_while_a_child_works_which_ends_when_the_client_leaves(
    path: Path, stopped: list[Any], asked: str
) -> None:
    async def leave(
        client: httpx.AsyncClient, url: str, server: HttpServer, begun: list[Any]
    ) -> None:
        searches = [asyncio.create_task(client.get(url + asked)) for _ in range(6)]
        await wait_in_loop(lambda: len(begun) == 4)
        for cheap in ("/livez", "/readyz", "/api/stores", "/api/messages?key=k&limit=1"):
            assert (await client.get(url + cheap)).status_code == 200
        for search in searches:
            search.cancel()
        await wait_in_loop(lambda: server._app.state.mounts.searches == 0)
        await wait_in_loop(lambda: not running(begun))

    asyncio.run(held(path, stopped, leave))


def test_a_child_that_waited_and_does_not_answer_ends_when_the_client_leaves(
    path: Path, begun: list[Any]
) -> None:
    async def leave(
        client: httpx.AsyncClient, url: str, server: HttpServer, begun: list[Any]
    ) -> None:
        search = f"{url}/api/messages?contains=x"
        assert (await client.get(search)).status_code == 200
        (child,) = begun
        os.kill(child.process.pid, signal.SIGSTOP)
        task = asyncio.create_task(client.get(search))
        await wait_in_loop(lambda: not children.CHILDREN._idle)
        task.cancel()
        await wait_in_loop(lambda: not running(begun))
        assert (await client.get(search)).status_code == 200
        assert len(begun) == 2

    asyncio.run(held(path, begun, leave))


@pytest.mark.parametrize("layout", ["json", "jsonl"])
def test_the_end_of_the_server_ends_the_child(path: Path, stopped: list[Any], layout: str) -> None:
    async def end(
        client: httpx.AsyncClient, url: str, server: HttpServer, begun: list[Any]
    ) -> None:
        search = asyncio.create_task(client.get(f"{url}/api/messages?contains=x&format={layout}"))
        await wait_in_loop(lambda: begun)
        await server.close()
        last = json.loads((await search).text.splitlines()[-1])
        assert (last["complete"], last["has_more"]) == (False, True)
        assert _STOPPED in last["error"]["message"]
        await wait_in_loop(lambda: not running(begun))

    asyncio.run(held(path, stopped, end))


def test_a_search_without_a_child_is_an_error(
    path: Path, begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(children, "_Child", full)
    with console({"s": path}) as client:
        answer = client.get("/api/messages?contains=x")
        assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "unreadable")


def test_a_child_that_ended_while_it_waited_is_replaced(path: Path, begun: list[Any]) -> None:
    with console({"s": path}) as client:
        for _ in range(2):
            assert client.get("/api/messages?contains=body").json()["complete"]
            begun[-1].process.kill()
            begun[-1].process.wait()
    assert len(begun) == 2


@pytest.mark.parametrize("layout", ["json", "jsonl"])
def test_a_killed_child_is_an_incomplete_answer(
    path: Path, stopped: list[Any], layout: str
) -> None:
    async def kill(
        client: httpx.AsyncClient, url: str, server: HttpServer, begun: list[Any]
    ) -> None:
        search = asyncio.create_task(client.get(f"{url}/api/messages?contains=x&format={layout}"))
        await wait_in_loop(lambda: begun)
        begun[0].process.kill()
        last = json.loads((await search).text.splitlines()[-1])
        assert last.get("complete") is not True
        assert "ended before its end" in last["error"]["message"]

    asyncio.run(held(path, stopped, kill))
