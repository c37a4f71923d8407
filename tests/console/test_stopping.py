"""A server that stops: searches end at once, and their answers state that they are incomplete."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from reput import Message, open_store
from reput.engine.writer.shared_store import SharedStore
from reput.format.host import Host
from reput.wings.console.app import create_app
from reput.wings.console.mounts import Mounts, StoppedError
from reput.wings.console.server import HttpServer
from reput.wings.console.sweep import Sweep, SweptTo
from tests.cli.running import REPUT
from tests.small import SMALL

# Python imports this module when it starts, in the server and in its children: a search goes on after the whole log
# was searched.
ENDLESS = """
from reput.wings.console.sweep import Sweep, SweptTo

steps = Sweep.steps

def endless(self):
    for step in steps(self):
        yield step
        last = step if isinstance(step, SweptTo) else None
    while True:
        yield last

Sweep.steps = endless
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        store.put_many(Message("T", b"body %d" % number, keys=["k"]) for number in range(200))
    return tmp_path / "store"


@pytest.mark.parametrize("layout", ["json", "jsonl"])
def test_a_search_by_time_ends_with_a_line_that_says_incomplete(
    path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    reached, steps = Event(), Sweep.steps

    def endless(self: Sweep) -> Iterator[Any]:
        """Repeat a step, so that only the end of the server ends the search."""
        first = next(step for step in steps(self) if isinstance(step, SweptTo))
        while True:
            reached.set()
            yield first

    async def stopped(store: SharedStore) -> str:
        server = HttpServer(create_app({"s": store}), Host("127.0.0.1", 0))
        await server.start()
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            url = f"http://{server.address}/api/messages?begin=2000-01-01&format={layout}"
            asking = asyncio.create_task(client.get(url))
            await asyncio.to_thread(reached.wait)
            await server.close()
            return (await asking).text

    monkeypatch.setattr(Sweep, "steps", endless)
    with closing(SharedStore(path)) as store:
        last = json.loads(asyncio.run(stopped(store)).splitlines()[-1])
    assert (last["complete"], last["has_more"]) == (False, True)
    assert last["error"]["kind"] == "busy"
    assert "stopped before its end" in last["error"]["message"]


def test_a_scan_for_store_times_ends_when_the_search_is_stopped(path: Path) -> None:
    mounts = Mounts({})
    until = mounts.until()
    with open_store(path) as store:
        mounts.end()
        ranges = store.known_ranges
        with pytest.raises(StoppedError), ranges.interrupted_by(until.check):
            ranges.end()
        assert ranges.end() == store.end_offset()
    # A search that begins after the end of the server ends at once.
    assert mounts.until().is_over


@pytest.mark.parametrize("condition", ["contains=body", "begin=2000-01-01"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_server_s_process_ends_a_search_and_its_stream(
    path: Path, tmp_path: Path, condition: str, number: signal.Signals
) -> None:
    """A search by content runs in a child process, a search by time in a thread of the server."""
    (tmp_path / "sitecustomize.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [REPUT, "serve", path, "--http-only", "--http", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert process.stdout is not None
    url = next(line for line in process.stdout if line.startswith("http://")).split()[0]
    with httpx.Client(base_url=url, trust_env=False, timeout=None) as client:
        query = f"/api/messages?{condition}&format=jsonl&limit=1000"
        with client.stream("GET", query) as answer:
            lines = answer.iter_lines()
            # The search has found a message, and is running.
            assert json.loads(next(lines))["body"].startswith("body ")
            process.send_signal(number)
            end = [*map(json.loads, lines)][-1]
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert (end["complete"], end["has_more"]) == (False, True)
    assert end["error"]["kind"] == "busy"
    assert "stopped before its end" in end["error"]["message"]
