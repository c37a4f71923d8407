"""Independent clients against `reput serve`: PyPI's `rocketmq` (the C++ client) and npm's `ali-ons`.

`make test-clients` installs them into build/clients; elsewhere these tests are skipped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reput import open_store
from reput.format.host import Host
from reput.wings.serve.remoting.commands import ResponseCode
from tests.cli.running import REPUT
from tests.docs.pages import CHECKOUT
from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, messages
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
PACKAGES = CHECKOUT / "build" / "clients"
SCRIPTS = Path(__file__).parent / "clients"
_TIMEOUT_S = 90
Line = dict[str, Any]


def _needs(path: Path) -> None:
    if path.exists() and shutil.which("node"):
        return
    if os.environ.get("REPUT_CLIENTS") == "required":
        pytest.fail(f"{path} or Node.js is not there: `make test-clients` needs both")
    pytest.skip("RocketMQ's clients are not installed: `make test-clients` does that")


def _needed(path: Path) -> Path:
    _needs(path)
    return path


def _python(server: Host, arguments: tuple[object, ...]) -> tuple[list[str], dict[str, str]]:
    folder = _needed(PACKAGES / "python")
    script = str(SCRIPTS / "python_client.py")
    return [sys.executable, script, str(server), *map(str, arguments)], {"PYTHONPATH": str(folder)}


def _node(server: Host, arguments: tuple[object, ...]) -> tuple[list[str], dict[str, str]]:
    folder = _needed(PACKAGES / "node" / "node_modules" / "ali-ons").parent
    script = str(SCRIPTS / "ali_ons.js")
    return ["node", script, str(server), *map(str, arguments)], {"NODE_PATH": str(folder)}


class Started:
    """A client's process, whose output is read as it arrives."""

    def __init__(self, what: Any, server: Host, *arguments: object) -> None:
        command, environment = what(server, arguments)
        self.lines: list[Line] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=CHECKOUT / "build",
            env={**os.environ, **environment, "HOME": str(CHECKOUT / "build")},
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(b"{"):
                    self.lines.append(json.loads(line))

    def all(self) -> list[Line]:
        """Return its output, after a clean exit."""
        try:
            code = self._process.wait(_TIMEOUT_S)
        finally:
            self._process.kill()
            self._reading.join(_TIMEOUT_S)
        assert code == 0
        return self.lines


def python(server: Host, *arguments: object) -> list[Line]:
    """Return the output of PyPI's client, which wraps the C++ client."""
    return Started(_python, server, *arguments).all()


def node(server: Host, *arguments: object) -> list[Line]:
    """Return the output of the client for Node.js."""
    return Started(_node, server, *arguments).all()


class Process:
    """`reput serve` in a new process. At its end, the context manager checks that it exited well, or kills it."""

    def __init__(self, *arguments: object, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [REPUT, "serve", *map(str, arguments), "--listen", f"127.0.0.1:{port}"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        host, _, number = self._process.stdout.readline().split()[0].rpartition(":")
        self.address = Host(host, int(number))
        self._expected = 0

    def __enter__(self) -> Host:
        return self.address

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(_TIMEOUT_S)
        finally:
            self.kill()
        assert error is not None or code == self._expected

    def kill(self) -> None:
        if self._process.poll() is None:
            self._expected = -signal.SIGKILL
        self._process.kill()
        self._process.wait(_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def places(lines: list[Line]) -> dict[int, list[int]]:
    """Return queue offsets by queue, in the order of arrival."""
    found: dict[int, list[int]] = {}
    for line in lines:
        found.setdefault(line["queue"], []).append(line["offset"])
    return found


def bodies(lines: list[Line]) -> list[str]:
    return sorted(line["body"] for line in lines)


def test_the_python_client_sends_every_way_and_gets_each_message_once(tmp_path: Path) -> None:
    ways = ("sync", "delayed", "oneway", "ordered", "batch")
    expected = sorted(["first", *(f"{way} {number}" for way in ways for number in range(5))])
    with Process(tmp_path / "store", "--accept-sends") as server, Client(server) as client:
        # Create the topic first. To an unknown topic, the client sends by the queues of the template topic TBW102.
        assert client.put("orders", b"first", {"UNIQ_KEY": "first"}).code == 0
        sent = python(server, "send", "orders", 5)
        assert len(sent) == 5 * 3 + 1
        got = python(server, "push", "orders", "python-group", len(expected))
        assert bodies(got) == expected
        assert all(numbers == list(range(len(numbers))) for numbers in places(got).values())
        assert len({line["queue"] for line in got if line["body"].startswith("ordered")}) == 1
        # the group has consumed these
        assert python(server, "push", "orders", "python-group", 0) == []
        tagged = python(server, "push", "orders", "python-tagged", 10, "tag1")
        assert {line["tags"] for line in tagged} == {"tag1"}
        assert bodies(tagged) == sorted(f"{way} {number}" for way in ways for number in (1, 3))
        assert bodies(python(server, "pull", "orders", "python-pull")) == expected
        for way in ways:
            found = messages(client.query("orders", f"{way}-3").body)
            assert [each.body for each in found] == [f"{way} 3".encode()]


def test_the_node_client_sends_and_gets_what_its_tags_say(tmp_path: Path) -> None:
    with Process(tmp_path / "store", "--accept-sends") as server, Client(server) as client:
        # The Node.js client sends only to existing topics, so create this one.
        assert client.put("events", b"first", {"UNIQ_KEY": "first", "TAGS": "tag0"}).code == 0
        assert [line["status"] for line in node(server, "send", "events", 6)] == ["SEND_OK"] * 6
        got = node(server, "push", "events", "node-group", 7)
        assert bodies(got) == ["first", *(f"node {n}" for n in range(6))]
        assert all(numbers == list(range(len(numbers))) for numbers in places(got).values())
        tagged = node(server, "push", "events", "node-tagged", 3, "tag1")
        assert bodies(tagged) == ["node 1", "node 3", "node 5"]
        found = messages(client.query("events", "node-3").body)
        assert [each.body for each in found] == [b"node 3"]


@pytest.mark.parametrize("client", [python, node], ids=["python", "node"])
def test_each_client_consumes_a_golden_store_whole(client: Any, golden: Any) -> None:
    store: GoldenStore = golden("orders")
    with open_store(store.path) as opened:
        topic = next(
            name for name in opened.topics() if not name.startswith(("%", "SCHEDULE", "RMQ"))
        )
        expected = {
            queue: list(range(opened.max_queue_offset(topic, queue)))
            for name, queue in opened.list_queues()
            if name == topic
        }
    with Process(store.path) as server:
        got = client(server, "push", topic, "archive-group", sum(map(len, expected.values())))
    assert places(got) == {queue: numbers for queue, numbers in expected.items() if numbers}


@pytest.mark.parametrize("client", [_python, _node], ids=["python", "node"])
def test_a_kill_in_the_middle_loses_nothing_acknowledged_and_consumers_resume(
    client: Any, tmp_path: Path
) -> None:
    store, most = tmp_path / "store", 150
    process = Process(store, "--accept-sends", "--flush", "sync")
    with process as server:
        with Client(server) as direct:
            for number in range(20):
                sent = direct.put("T", b"old %d" % number, {"UNIQ_KEY": f"old-{number}"})
                assert sent.code == ResponseCode.SUCCESS
        assert len(Started(client, server, "push", "T", "g", 20).all()) == 20
        kept = store / "config" / "consumerOffset.json"
        wait_for(lambda: kept.exists() and b":20" in kept.read_bytes())
        consumer = Started(client, server, "push", "T", "g", most)
        producer = Started(client, server, "insist", "T", most, 0.02)
        wait_for(lambda: len(producer.lines) >= most // 3 and consumer.lines)
        process.kill()
        with Process(store, "--accept-sends", "--flush", "sync", port=server.port):
            acknowledged, got = producer.all(), consumer.all()
            with Client(server) as direct:
                for line in acknowledged:
                    key = line["body"].replace(" ", "-")
                    assert messages(direct.query("T", key).body), key
    assert set(bodies(acknowledged)) == set(bodies(got))  # none lost, and no old message repeated
    for numbers in places(got).values():
        assert sorted(set(numbers)) == list(range(min(numbers), max(numbers) + 1))
