"""A storm of hostile clients, and one good client, against `reput serve` with little memory and few descriptors.

It lasts seconds; `make test-storm` lets it last 30 minutes (REPUT_STORM_S).
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reput import open_store
from reput.format.host import Host
from reput.format.message_id import decode_offset_id
from reput.wings.serve.remoting.access import signature
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from tests.cli.running import REPUT
from tests.remoting.client import Client
from tests.remoting.storm import ACL, SECRET

SECONDS = float(os.environ.get("REPUT_STORM_S", "6"))
MEMORY_BYTES, FILES = 6 << 30, 1024
# In seconds there are too few samples for their 99th percentile to mean much on a busy machine.
MOST_RATIO, LEAST_S = 3.0, 0.002
STORE = """
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=600000
maxHashSlotNum=100000
maxIndexNum=400000
"""


class Good(Client):
    """A well-behaved client that measures its waiting times."""

    def __init__(self, address: Host, echo: tuple[str, int]) -> None:
        super().__init__(address)
        self._echo = socket.create_connection(echo, 60)
        self.waits: dict[str, list[float]] = {}
        self.acknowledged: dict[int, bytes] = {}

    def send(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0
    ) -> int:
        texts = {name: str(value) for name, value in (fields or {}).items()} | {
            "AccessKey": "goodone"
        }
        texts["Signature"] = signature(Command(code, fields=texts, body=body), SECRET).decode()
        return super().send(code, texts, body, flag)

    def timed(self, name: str, ask: Any) -> Any:
        begun = time.perf_counter()
        answer = ask()
        self.waits.setdefault(name, []).append(time.perf_counter() - begun)
        return answer

    def echo(self) -> None:
        self._echo.sendall(bytes(300))
        left = 300
        while left:
            left -= len(self._echo.recv(left))

    def round(self, number: int) -> None:
        """Send, query and read, each as an unaffected client does."""
        self.timed("echo", self.echo)
        body = b"%d " % number * 20
        sent = self.timed("send", lambda: self.put("good", body, {"KEYS": f"k{number}"}))
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        self.acknowledged[decode_offset_id(sent.fields["msgId"]).physical_offset] = body
        place = {"topic": "good", "queueId": 0, "consumerGroup": "good"}
        end = self.timed("offset", lambda: self.ask(RequestCode.GET_MAX_OFFSET, place))
        assert end.code == ResponseCode.SUCCESS
        self.timed("echo", self.echo)
        begin = max(int(end.fields["offset"]) - 50, 0)
        pulled = self.timed("pull", lambda: self.pull("good", 0, begin, consumerGroup="good"))
        assert pulled.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), pulled.remark
        commit = {**place, "commitOffset": begin}
        kept = self.timed("commit", lambda: self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        assert kept.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR), kept.remark


def p99(waits: list[float]) -> float:
    return sorted(waits)[int(len(waits) * 0.99)]


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def peak_bytes(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line)) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="limits and figures of Linux")
@pytest.mark.timeout(900 + SECONDS)
def test_a_storm_harms_nobody_who_behaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("acl.yml", ACL), ("broker.conf", STORE), ("token", "token")):
        (tmp_path / name).write_text(text)
    server = subprocess.Popen(
        [
            REPUT, "serve", tmp_path / "s", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--accept-sends",
            "--acl", tmp_path / "acl.yml", "--http-token-file", tmp_path / "token", "--broker-config",
            tmp_path / "broker.conf",
        ],
        stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("w"), text=True, preexec_fn=limited,
    )  # fmt: skip
    me = [sys.executable, "-m", "tests.remoting.storm"]
    echo = subprocess.Popen([*me, "echo"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert echo.stdout is not None
    host, _, port = server.stdout.readline().split()[0].rpartition(":")
    http = (
        server.stdout.readline().split()[0].removeprefix("http://").rstrip("/").rpartition(":")[2]
    )
    good = Good(Host(host, int(port)), ("127.0.0.1", int(echo.stdout.readline())))
    hostile = subprocess.Popen([*me, "hostile", host, port, http, "1", str(SECONDS)])
    try:
        number, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            good.round(number)
            number += 1
            time.sleep(0.005)
        assert server.poll() is None
        peak = peak_bytes(server)
    finally:
        hostile.kill()
        hostile.wait()
        echo.kill()
        echo.wait()
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0, (tmp_path / "log").read_text()[-2000:]
        server.stdout.close()
        echo.stdout.close()
    base = p99(good.waits["echo"])
    figures = {name: round(p99(waits) * 1000, 2) for name, waits in good.waits.items()}
    with capsys.disabled():
        print(f"\n{SECONDS:.0f} s, {number} rounds, p99 in ms: {figures}; {peak >> 20} MiB at most")
    with open_store(tmp_path / "s") as store:
        for offset, body in good.acknowledged.items():
            assert store.get(offset).body == body
        assert store.max_queue_offset("good", 0) == len(good.acknowledged)
    waits = [wait for name, found in good.waits.items() if name != "echo" for wait in found]
    # A storm of seconds proves only that the server stays alive: no clock decides a test of `make test`.
    if SECONDS >= 60:
        assert p99(waits) <= max(MOST_RATIO * base, LEAST_S), figures
