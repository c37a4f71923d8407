"""Strangers' clients against `reput serve`: PyPI's `rocketmq` (the C++ client) and npm's `ali-ons`.

`make test-clients` installs them into build/clients; elsewhere these tests are skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reput import open_store
from reput.format.host import Host
from reput.remoting.codes import RequestCode, ResponseCode
from tests.cli.running import REPUT
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, messages

pytestmark = pytest.mark.slow
PACKAGES = CHECKOUT / "build" / "clients"
SCRIPTS = Path(__file__).parent / "clients"
_TIMEOUT_S = 300


def _needs(path: Path) -> None:
    if not path.exists():
        if os.environ.get("REPUT_CLIENTS") == "required":
            pytest.fail(f"{path} is not there: `make test-clients` installs it")
        pytest.skip("RocketMQ's clients are not installed: `make test-clients` does that")


def _lines(command: list[str], **environment: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        command, capture_output=True, timeout=_TIMEOUT_S, check=False,
        env={**os.environ, **environment}, cwd=CHECKOUT / "build",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith(b"{")]


def python(server: Host, *arguments: object) -> list[dict[str, Any]]:
    """What the C++ client says."""
    _needs(PACKAGES / "python" / "rocketmq")
    command = [sys.executable, str(SCRIPTS / "python_client.py"), str(server), *map(str, arguments)]
    return _lines(command, PYTHONPATH=str(PACKAGES / "python"), HOME=str(CHECKOUT / "build"))


def node(server: Host, *arguments: object) -> list[dict[str, Any]]:
    """What the client for Node.js says."""
    modules = PACKAGES / "node" / "node_modules"
    _needs(modules / "ali-ons")
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js on the PATH")
    command = ["node", str(SCRIPTS / "ali_ons.js"), str(server), *map(str, arguments)]
    return _lines(command, NODE_PATH=str(modules), HOME=str(CHECKOUT / "build"))


class Process:
    """`reput serve` as a process of its own."""

    def __init__(self, *arguments: object, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [REPUT, "serve", *map(str, arguments), "--listen", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        host, _, number = self._process.stdout.readline().split()[0].rpartition(":")
        self.address = Host(host, int(number))

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self._process.send_signal(how)
        code = self._process.wait(_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


@contextmanager
def served(*arguments: object) -> Iterator[Host]:
    process = Process(*arguments)
    try:
        yield process.address
    finally:
        assert process.end() == 0


def places(lines: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Queue offsets by queue, in the order in which they came."""
    found: dict[int, list[int]] = {}
    for line in lines:
        found.setdefault(line["queue"], []).append(line["offset"])
    return found


def test_the_python_client_sends_every_way_and_gets_each_message_once(tmp_path: Path) -> None:
    with served(tmp_path / "store", "--accept-sends") as server:
        with Client(
            server
        ) as client:  # until it sees the topic, it sends to queues of the example's
            assert client.put("orders", b"first", {"UNIQ_KEY": "first"}).code == 0
        sent = python(server, "send", "orders", 5)
        assert len(sent) == 5 * 3 + 1
        got = python(server, "push", "orders", "python-group", 26)
        bodies = sorted(line["body"] for line in got)
        ways = ("sync", "delayed", "oneway", "ordered", "batch")
        expected = [f"{way} {number}" for way in ways for number in range(5)]
        assert bodies == sorted(["first", *expected])
        assert all(numbers == sorted(numbers) for numbers in places(got).values())
        assert len({line["queue"] for line in got if line["body"].startswith("ordered")}) == 1
        pulled = python(server, "pull", "orders", "python-pull")
        assert sorted(line["body"] for line in pulled) == bodies
        with Client(server) as client:
            for way in ways:
                (found,) = messages(client.query("orders", f"{way}-3").body)[-1:]
                assert found.body == f"{way} 3".encode()


def test_the_node_client_sends_and_gets_what_its_tags_say(tmp_path: Path) -> None:
    with served(tmp_path / "store", "--accept-sends") as server:
        with Client(server) as client:  # it sends only to topics that are there
            assert client.put("events", b"first", {"UNIQ_KEY": "first", "TAGS": "tag0"}).code == 0
        assert [line["status"] for line in node(server, "send", "events", 6)] == ["SEND_OK"] * 6
        got = node(server, "push", "events", "node-group", 7)
        assert sorted(line["body"] for line in got) == ["first", *(f"node {n}" for n in range(6))]
        assert all(numbers == sorted(numbers) for numbers in places(got).values())
        tagged = node(server, "push", "events", "node-tagged", 3, "tag1")
        assert sorted(line["body"] for line in tagged) == ["node 1", "node 3", "node 5"]
        with Client(server) as client:
            assert [each.body for each in messages(client.query("events", "node-3").body)] == [
                b"node 3"
            ]


@pytest.mark.parametrize("client", [python, node], ids=["python", "node"])
def test_each_client_consumes_a_golden_store_whole(client: Any, golden: Any) -> None:
    store: GoldenStore = golden("orders")
    with open_store(store.path) as opened:
        topic = next(
            name for name in opened.topics() if not name.startswith(("%", "SCHEDULE", "RMQ"))
        )
        queues = [queue for name, queue in opened.list_queues() if name == topic]
        expected = {
            queue: list(
                range(opened.min_queue_offset(topic, queue), opened.max_queue_offset(topic, queue))
            )
            for queue in queues
        }
    with served(store.path) as server:
        got = client(server, "push", topic, "archive-group", sum(map(len, expected.values())))
    assert places(got) == {queue: numbers for queue, numbers in expected.items() if numbers}


def test_a_killed_server_loses_nothing_acknowledged_and_consumers_resume(tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = Process(store, "--accept-sends", "--flush", "sync")
    place = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    acknowledged = []
    with Client(process.address) as client:
        for number in range(200):
            assert client.put("T", b"%d" % number, {"UNIQ_KEY": f"{number}"}).code == 0
            acknowledged.append(b"%d" % number)
            if number == 100:
                client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": 50})
                time.sleep(6)  # until offsets are written
    process.end(signal.SIGKILL)
    process = Process(store, "--accept-sends", port=process.address.port)
    try:
        with Client(process.address) as client:
            offset = int(client.ask(RequestCode.QUERY_CONSUMER_OFFSET, place).fields["offset"])
            assert offset == 50
            got: list[bytes] = []
            while (answer := client.pull("T", 0, offset)).code == ResponseCode.SUCCESS:
                got += [each.body for each in messages(answer.body)]
                offset = int(answer.fields["nextBeginOffset"])
        assert got == acknowledged[50:]
    finally:
        assert process.end() == 0
