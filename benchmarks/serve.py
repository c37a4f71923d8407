"""Measure `reput serve` under load: queries, pulls and sends over sockets, and the memory of idle connections.

This process creates the load, on the same machine as the server. To use little processor time, it sends prepared
frames and only counts the answers. Its processor time is reported.
"""

from __future__ import annotations

import os
import random
import re
import select
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.echo import PULLED_BYTES
from benchmarks.generate import QUEUES, topic_of, unique_key
from benchmarks.result import Figure
from reput.wings.serve.remoting.commands import Command, ResponseCode
from reput.wings.serve.remoting.requests import RequestCode
from reput.wings.serve.remoting.session import Session

_GROUP = "serve"
_CONNECTIONS, _IN_FLIGHT = 4, 8
_QUERIES, _SINGLE, _PULLS, _SENDS = 40_000, 8_000, 3_000, 40_000
_IDLE, _PAGES = 2_000, 50
_ECHOED = {"queries": 20_000, "sends": 20_000, "pulls": 3_000}
_SENT = "orders"
_BODY_BYTES = 1024
_THREADS = (1, 8, 32)
_LOOK_S, _QUIET_S, _QUIET_LOOKS, _MOST_LOOKS = 0.25, 0.011, 6, 400
_LENGTH = struct.Struct(">i")


def measure(folder: Path, store: Path, index: Path, messages: int) -> Iterator[Figure]:
    """Measure a server for the log of `store` with the rebuilt indexes in `index`."""
    served = folder / "served"
    served.mkdir()
    try:
        (served / "commitlog").symlink_to((store / "commitlog").resolve())
        for name in ("consumequeue", "index", "checkpoint"):
            (served / name).symlink_to((index / name).resolve())
        chosen = random.Random(1).sample(range(messages), min(messages, 10_000))
        queries = [_query(topic_of(number), unique_key(number)) for number in chosen]
        with _server(served) as (port, process):
            yield from _queries(port, process, queries)
        yield from _console(served, chosen)
        with _server(served) as (port, process):
            yield from _pulls(port, process, topic_of(0), "380 bytes from 100 queues", 4_900, None)
            yield from _ordinary_pulls(port, process, topic_of(0), 4_900)
            yield _memory(port, process)
        with _server(folder / "sent", "--accept-sends") as (port, process):
            yield from _sends(port, process)
            yield from _pulls(port, process, _SENT, "1 KB from 4 queues", 9_000, 300)
    finally:
        shutil.rmtree(served)
        shutil.rmtree(folder / "sent", ignore_errors=True)


@contextmanager
def _server(store: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server. Yield the port for RocketMQ's clients, and the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reput = Path(sys.executable).with_name("reput")
    process = subprocess.Popen(
        [reput, "serve", store, "--listen", f"127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield port, process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _console(store: Path, chosen: Sequence[int]) -> Iterator[Figure]:
    """Measure the time until a new server prints its addresses, and the time of search pages over HTTP."""
    begun = time.perf_counter()
    with _server(store, "--http", "127.0.0.1:0") as (_, process):
        yield Figure(
            _GROUP,
            "start, until the addresses are printed",
            time.perf_counter() - begun,
            "s",
            most=1,
        )
        assert process.stdout is not None
        url = process.stdout.readline().split()[0]
        times = []
        for number in chosen[:_PAGES]:
            begun = time.perf_counter()
            with urllib.request.urlopen(
                f"{url}?topic={topic_of(number)}&key={unique_key(number)}"
            ) as page:
                if unique_key(number).encode() not in page.read():
                    raise RuntimeError(f"{url}: message {number} is not found")
            times.append((time.perf_counter() - begun) * 1e3)
        yield Figure(_GROUP, "search page, the first", times[0], "ms")
        yield Figure(
            _GROUP, "search page by unique key, median", statistics.median(times), "ms", most=100
        )


def _queries(port: int, process: subprocess.Popen[str], queries: list[bytes]) -> Iterator[Figure]:
    load = _Load(port, queries, _CONNECTIONS, _IN_FLIGHT)
    load.run(len(queries))  # This first run reads the needed pages from disk.
    _settle(process)
    with _core_time(process) as used:
        load.run(_QUERIES)
    yield Figure(_GROUP, f"queries by key, {_CONNECTIONS} connections", load.rate, "/s")
    yield Figure(_GROUP, "  processor time of the load generator", load.core_time, "cores")
    yield Figure(_GROUP, "  p50", load.percentile(50), "ms")
    yield Figure(_GROUP, "  p99", load.percentile(99), "ms")
    yield Figure(_GROUP, "  per second of the server's processor time", _QUERIES / used[0], "")
    yield _ratio("queries", queries, _IN_FLIGHT, _QUERIES / used[0])
    single = _Load(port, queries, 1, 1)
    single.run(_SINGLE)
    yield Figure(_GROUP, "queries, one after the other", single.rate, "/s", least=4_000)


_echoed: dict[str, float] = {}
"""Requests that an echo server answers per second of its processor time, by kind of load. Each is measured once."""


@contextmanager
def _echo() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start an echo server. Yield its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.echo", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield port, process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _echo_rate(frames: list[bytes], in_flight: int) -> float:
    """Return the requests per second of an echo server on one connection, with `in_flight` unanswered requests."""
    with _echo() as (port, _):
        load = _Load(port, frames, 1, in_flight)
        load.run(1000)
        load.run(_SENDS // 4)
        return load.rate


def _ratio(kind: str, frames: list[bytes], in_flight: int, per_core_second: float) -> Figure:
    """Compare the requests per second of processor time with an echo server in the same run."""
    if kind not in _echoed:
        with _echo() as (port, process):
            count = _ECHOED[kind]
            load = _Load(port, frames, _CONNECTIONS, in_flight)
            load.run(count // 10)
            with _core_time(process) as used:
                load.run(count)
            _echoed[kind] = count / used[0]
    ratio = per_core_second / _echoed[kind]
    return Figure(_GROUP, "  of an echo server's, per processor time", ratio, "times")


def _pulls(
    port: int,
    process: subprocess.Popen[str],
    topic: str,
    what: str,
    messages: int,
    least: int | None,
) -> Iterator[Figure]:
    """Measure pulls from queue 0, which begin at several offsets in its first `messages` messages."""
    fields = {
        "consumerGroup": "g", "topic": topic, "queueId": "0", "maxMsgNums": "1024", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    frames = [
        _frame(RequestCode.PULL_MESSAGE, {**fields, "queueOffset": str(offset)})
        for offset in range(0, messages, 700)
    ]
    load = _Load(port, frames, _CONNECTIONS, 2)
    load.run(_PULLS // 10)
    _settle(process)
    with _core_time(process) as used:
        load.run(_PULLS)
    rate = load.received / load.seconds / 1e6
    yield Figure(_GROUP, f"pulls of 256 KiB, {what}", rate, "MB/s", least=least)
    yield Figure(
        _GROUP, "  per second of the server's processor time", load.received / used[0] / 1e6, "MB"
    )
    yield _ratio("pulls", frames, 2, load.received / PULLED_BYTES / used[0])


def _ordinary_pulls(
    port: int, process: subprocess.Popen[str], topic: str, messages: int
) -> Iterator[Figure]:
    """Measure the pulls of an ordinary consumer: 32 messages without a tag, from the topic's queues in turn."""
    fields = {
        "consumerGroup": "g", "topic": topic, "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    frames = [
        _frame(
            RequestCode.PULL_MESSAGE,
            {**fields, "queueId": str(queue), "queueOffset": str(offset)},
        )
        for offset in range(0, messages - 32, 32)
        for queue in range(QUEUES)
    ]
    _check(port, frames[:8])
    for connections, in_flight, most in ((_CONNECTIONS, _IN_FLIGHT, 336), (1, 1, 336)):
        load = _Load(port, frames, connections, in_flight)
        load.run(_PULLS // 10)
        _settle(process)
        with _core_time(process) as used:
            load.run(2 * _PULLS)
        load_of = f"{connections} connections, {in_flight} in flight on each"
        what = f"pulls of 32 messages, {load_of}, processor time"
        yield Figure(_GROUP, what, 1e6 * used[0] / (2 * _PULLS), "µs", most=most)
        yield Figure(_GROUP, "  rate", load.rate, "/s")


def _sends(port: int, process: subprocess.Popen[str]) -> Iterator[Figure]:
    fields = {
        "a": "p", "b": _SENT, "c": "TBW102", "d": "4", "f": "0", "g": "1700000000000", "h": "0", "j": "0",
    }  # fmt: skip
    frames = [
        _frame(
            RequestCode.SEND_MESSAGE_V2,
            {**fields, "e": str(number % 4), "i": f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true"},
            bytes(_BODY_BYTES),
        )
        for number in range(1000)
    ]
    _check(port, frames[:8])
    load = _Load(port, frames, _CONNECTIONS, _IN_FLIGHT)
    load.run(1000)
    _settle(process)
    with _core_time(process) as used:
        load.run(_SENDS)
    yield Figure(_GROUP, "sends of 1 KB", load.rate, "/s", least=15_000)
    yield Figure(_GROUP, "  per second of the server's processor time", _SENDS / used[0], "")
    yield _ratio("sends", frames, _IN_FLIGHT, _SENDS / used[0])
    for in_flight in _THREADS:
        load = _Load(port, frames, 1, in_flight)
        load.run(1000)
        load.run(_SENDS // 4)
        threads = f"{in_flight} thread{'s'[: in_flight - 1]}"
        yield Figure(_GROUP, f"sends of 1 KB, one connection, {threads}", load.rate, "/s")
        yield Figure(_GROUP, "  p50", load.percentile(50), "ms")
        yield Figure(_GROUP, "  p99", load.percentile(99), "ms")
        yield Figure(
            _GROUP, "  of an echo server's", load.rate / _echo_rate(frames, in_flight), "times"
        )


def _check(port: int, frames: Sequence[bytes]) -> None:
    """Raise RuntimeError if the server refuses a request, because the time of refusals would mean nothing."""
    session = Session()
    with socket.create_connection(("127.0.0.1", port)) as client:
        for frame in frames:
            client.sendall(frame)
            while not (answers := session.receive(client.recv(1 << 20))):
                pass
            if answers[0].code != ResponseCode.SUCCESS:
                raise RuntimeError(f"the server refused a request: {answers[0].remark}")


@contextmanager
def _core_time(process: subprocess.Popen[str]) -> Iterator[list[float]]:
    """Measure the processor time (seconds) of a server during the `with` block.

    The yielded list has one element: the processor time, which is set at the end of the block.
    """
    begun, used = _cpu_s(process), [0.0]
    yield used
    used[0] = max(_cpu_s(process) - begun, 0.01)


def _settle(process: subprocess.Popen[str]) -> None:
    """Wait until a server is idle. After its start, it searches for the end of its log and loads kernels."""
    quiet = 0
    for _ in range(_MOST_LOOKS):
        begun = _cpu_s(process)
        time.sleep(_LOOK_S)
        quiet = quiet + 1 if _cpu_s(process) - begun <= _QUIET_S else 0
        if quiet == _QUIET_LOOKS:
            return
    raise RuntimeError("the server does not become idle")


def _cpu_s(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _memory(port: int, process: subprocess.Popen[str]) -> Figure:
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(_IDLE)]
    try:
        time.sleep(1)
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        private = sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", text, re.M))
        return Figure(
            _GROUP, f"private memory with {_IDLE:,} connections", private / 1e3, "MB", most=300
        )
    finally:
        for client in idle:
            client.close()


def _query(topic: str, key: str) -> bytes:
    fields = {
        "topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62),
    }  # fmt: skip
    return _frame(RequestCode.QUERY_MESSAGE, fields)


def _frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    return Session().send(Command(code, 1, 0, None, fields, body))


class _Connection:
    """A socket, and the times at which its unanswered requests were sent."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent: list[float] = []
        self._rest = bytearray()

    def answers(self) -> tuple[int, int]:
        """Receive bytes. Return the number of answers that are complete now, and the number of received bytes."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed a connection")
        self._rest += data
        count = position = 0
        while len(self._rest) - position >= _LENGTH.size:
            stop = position + _LENGTH.size + _LENGTH.unpack_from(self._rest, position)[0]
            if stop > len(self._rest):
                break
            count, position = count + 1, stop
        del self._rest[:position]
        return count, len(data)


class _Load:
    """Sends frames repeatedly, with at most `in_flight` unanswered requests on each connection."""

    def __init__(
        self, port: int, frames: Sequence[bytes], connections: int, in_flight: int
    ) -> None:
        self._frames, self._in_flight = frames, in_flight
        self._connections = [_Connection(port) for _ in range(connections)]
        self._next = 0
        self.times: list[float] = []
        self.received = 0
        self.seconds = self.core_time = 0.0

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def percentile(self, percent: int) -> float:
        """Return a percentile of the response times, in milliseconds."""
        return sorted(self.times)[len(self.times) * percent // 100] * 1e3

    def run(self, count: int) -> None:
        """Send `count` frames, and wait for all answers."""
        self.times, self.received, left = [], 0, count
        watch = select.epoll()
        by_number = {each.socket.fileno(): each for each in self._connections}
        for number in by_number:
            watch.register(number, select.EPOLLIN)
        begun, core_begun = time.perf_counter(), time.process_time()
        for connection in by_number.values():
            left -= self._send(connection, min(self._in_flight, left))
        while len(self.times) < count:
            for number, _ in watch.poll():
                connection = by_number[number]
                answers, size = connection.answers()
                self.received += size
                now = time.perf_counter()
                self.times += [now - at for at in connection.sent[:answers]]
                del connection.sent[:answers]
                left -= self._send(connection, min(answers, left))
        self.seconds = time.perf_counter() - begun
        self.core_time = (time.process_time() - core_begun) / self.seconds
        watch.close()

    def _send(self, connection: _Connection, count: int) -> int:
        frames = [self._frames[(self._next + n) % len(self._frames)] for n in range(count)]
        if frames:
            connection.sent += [time.perf_counter()] * count
            connection.socket.sendall(b"".join(frames))
            self._next += count
        return count
