"""A read-only S3 server for a folder: ranges of large, sparse files, which moto would read whole for each request."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.remote.s3_server import ENDPOINT, Options

_LISTED = "<Contents><Key>{}</Key><Size>{}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"


class RangeServer(ThreadingHTTPServer):
    """Serve files as objects of the bucket `local`.

    requests    number of answers
    sent_bytes  of their bodies
    most_open   most requests in flight at the same time
    delay_s     before each answer
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.delay_s = folder, 0.0
        self.requests = self.sent_bytes = self.most_open = self._open = 0
        self.ended = threading.Event()
        self._guard = threading.Lock()

    @property
    def options(self) -> Options:
        """The options of a store that is read from here."""
        return {
            ENDPOINT: f"127.0.0.1:{self.server_address[1]}",
            "s3.scheme": "http",
            "s3.access_key": "reput",
            "s3.secret_key": "reput",
            "s3.region": "us-east-1",
        }

    def begin(self) -> None:
        """Count a request in flight."""
        with self._guard:
            self._open += 1
            self.most_open = max(self.most_open, self._open)
        self.ended.wait(self.delay_s)

    def end(self, sent: int) -> None:
        """Count an answer."""
        with self._guard:
            self._open -= 1
            self.requests += 1
            self.sent_bytes += sent

    def reset(self) -> None:
        """Count from here."""
        self.requests = self.sent_bytes = self.most_open = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: RangeServer

    def do_GET(self) -> None:
        self.server.begin()
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        _, _, name = unquote(url.path).lstrip("/").partition("/")
        path = self.server.folder / name
        if "list-type" in query:
            data = self._listing(query.get("prefix", [""])[0])
            self._answer(200, {"Content-Type": "application/xml"}, data)
        elif not path.is_file():
            self._answer(404, {}, b"")
        else:
            self._range(path)

    do_HEAD = do_GET

    def _range(self, path: Path) -> None:
        size = path.stat().st_size
        headers = {"ETag": '"1"', "Last-Modified": formatdate(1.7e9, usegmt=True)}
        if self.command == "HEAD":
            self._answer(200, headers | {"Content-Length": str(size)}, b"")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(last + 1 - begin)
        self._answer(206, headers | {"Content-Range": f"bytes {begin}-{last}/{size}"}, data)

    def _listing(self, prefix: str) -> bytes:
        folder = self.server.folder
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = {str(path.relative_to(folder)): path.stat().st_size for path in files}
        listed = "".join(
            _LISTED.format(name, size) for name, size in names.items() if name.startswith(prefix)
        )
        start = "<ListBucketResult><Name>local</Name><IsTruncated>false</IsTruncated>"
        return f"{start}{listed}</ListBucketResult>".encode()

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.server.end(len(data))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are counted."""


@contextmanager
def range_server(folder: Path) -> Iterator[RangeServer]:
    """Run a server."""
    server = RangeServer(folder)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
