"""A server between a client and an S3 server that loses connections, refuses, hangs or lists without end."""

from __future__ import annotations

import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

Fault = Literal["drop", "lost", "500", "503", "429", "hang", "stall", "truncated"]
_STALL_S = 3.0
_SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class FaultyServer(ThreadingHTTPServer):
    """A proxy that forwards requests, except those that `fail` or `fail_often` selects.

    requests    method and path of each request
    sent_bytes  total size of the answers' bodies
    delay_s     pause before each answer
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.requests: list[str] = []
        self.sent_bytes, self.delay_s = 0, 0.0
        self.ended = threading.Event()
        self._fault: Fault | None = None
        self._method, self._left = "", 0
        self._chosen: random.Random | None = None
        self._faults, self._chance = tuple[Fault, ...](), 0.0
        self._guard = threading.Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: clients that were killed reset their connections."""

    def fail(self, fault: Fault | None, method: str = "", count: int = 1 << 30) -> None:
        """Let the next `count` requests fail in this way, or only those with `method`. None ends the faults."""
        with self._guard:
            self._fault, self._method, self._left = fault, method, count
            self._chosen = None

    def fail_often(
        self, seed: int, faults: tuple[Fault, ...] = ("503", "drop", "lost"), chance: float = 0.125
    ) -> None:
        """Let a share of the requests fail: refused, or the connection is lost before or after they are carried out."""
        with self._guard:
            self._chosen, self._faults, self._chance = random.Random(seed), faults, chance

    def upstream_of(self, path: str) -> str:
        """Return HOST:PORT of the server that answers requests for this path."""
        return self.upstream

    def admit(self, method: str, path: str) -> Callable[[], None] | None:
        """Return a function to call after the server has answered, or None to drop the request."""
        return lambda: None

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._guard:
            self.requests.append(f"{method} {path}")
            if self._chosen is not None:
                is_hit = self._chosen.random() < self._chance
                return self._chosen.choice(self._faults) if is_hit else None
            if self._fault is None or self._left <= 0 or self._method not in ("", method):
                return None
            self._left -= 1
            return self._fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Collect head and body of an answer. If they are sent separately, the body may wait for an acknowledgement.
    wbufsize = -1
    server: FaultyServer

    def handle_expect_100(self) -> bool:
        """Let the client send its body, which it otherwise holds back."""
        is_expected = super().handle_expect_100()
        self.wfile.flush()
        return is_expected

    def _forward(self) -> None:
        body = self._body()
        fault = self.server.next_fault(self.command, self.path)
        if self.server.delay_s:
            self.server.ended.wait(self.server.delay_s)
        if fault == "hang":
            self.server.ended.wait()
        if fault == "stall":
            self.server.ended.wait(_STALL_S)
        if fault in ("drop", "hang", "stall"):
            self.close_connection = True
            return
        if fault in ("500", "503", "429"):
            self._answer(int(fault), {"Content-Type": "application/xml"}, _SLOW_DOWN)
            return
        answered = self.server.admit(self.command, self.path)
        if answered is None:
            self.close_connection = True
            return
        # The body has been read, and is sent at once, so the upstream server need not ask for it.
        del self.headers["Expect"]
        upstream = HTTPConnection(self.server.upstream_of(self.path))
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        answered()
        if fault == "lost":
            self.close_connection = True
            return
        if fault == "truncated":
            data = re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", data)
            data = data.replace(b"<IsTruncated>false<", b"<IsTruncated>true<")
        self._answer(answer.status, dict(answer.getheaders()), data)

    def _body(self) -> bytes:
        """Read the body; a chunked body is passed on in one piece."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        del self.headers["Transfer-Encoding"]
        chunks: list[bytes] = []
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        body = b"".join(chunks)
        self.headers["Content-Length"] = str(len(body))
        return body

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.server.sent_bytes += len(data)
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the requests are recorded."""


@contextmanager
def faulty_server(upstream: str) -> Iterator[FaultyServer]:
    """Run a faulty server in front of a server at HOST:PORT."""
    with FaultyServer(upstream) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            with suppress(OSError):
                server.shutdown()
            thread.join()


if __name__ == "__main__":
    with faulty_server(sys.argv[1]) as proxy:
        proxy.fail_often(int(sys.argv[2]))
        print(proxy.address, flush=True)
        sys.stdin.read()
