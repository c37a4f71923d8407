"""The part of Cloud Storage's XML API that writers need, on the loopback interface.

Emulators that can be installed have only the JSON API, and obstore uses the XML API: objects with generations and
ETags, the condition `x-goog-if-generation-match` (0 for "none yet"), listings, and uploads in parts.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_MOST_LISTED = 1000
_GENERATION, _CONDITION = "x-goog-generation", "x-goog-if-generation-match"


class _Object(NamedTuple):
    data: bytes
    generation: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{hashlib.md5(self.data).hexdigest()}"', _GENERATION: str(self.generation),
            "Last-Modified": formatdate(1.7e9, usegmt=True), "Content-Type": "application/octet-stream",
        }  # fmt: skip


class GcsServer(ThreadingHTTPServer):
    """Objects of one bucket, `objects`, by name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.guard = threading.Lock()
        self._numbers = count(1_700_000_000_000_000)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def number(self) -> int:
        return next(self._numbers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: GcsServer

    def _serve(self) -> None:
        url = urlsplit(self.path)
        query = {
            name: each[0] for name, each in parse_qs(url.query, keep_blank_values=True).items()
        }
        bucket, _, name = unquote(url.path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.guard:
            if bucket != "objects":
                self._fail(404, "NoSuchBucket")
            elif not name:
                self._list(query)
            elif "uploads" in query or "uploadId" in query:
                self._upload(name, query, body)
            elif self.command == "PUT":
                self._put(name, body)
            elif (found := self.server.objects.get(name)) is None:
                self._fail(404, "NoSuchKey")
            elif self.command == "DELETE":
                del self.server.objects[name]
                self._answer(204)
            else:
                self._get(found)

    def _put(self, name: str, body: bytes) -> None:
        found, wanted = self.server.objects.get(name), self.headers.get(_CONDITION)
        if wanted is not None and int(wanted) != (0 if found is None else found.generation):
            self._fail(412, "PreconditionFailed")
            return
        made = self.server.objects[name] = _Object(body, self.server.number())
        self._answer(200, headers=made.headers)

    def _get(self, found: _Object) -> None:
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, found.data, found.headers)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start, size = int(first), len(found.data)
        if start >= size:
            self._fail(416, "InvalidRange")
            return
        stop = min(int(last or size) + 1, size)
        ranges = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"}
        self._answer(206, found.data[start:stop], {**found.headers, **ranges})

    def _upload(self, name: str, query: dict[str, str], body: bytes) -> None:
        number = query.get("uploadId", "")
        if "uploads" in query:
            number = str(self.server.number())
            self.server.uploads[number] = {}
            self._answer(
                200, _xml("InitiateMultipartUploadResult", f"<UploadId>{number}</UploadId>")
            )
        elif number not in self.server.uploads:
            self._fail(404, "NoSuchUpload")
        elif self.command == "PUT":
            self.server.uploads[number][int(query["partNumber"])] = body
            self._answer(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        elif self.command == "DELETE":
            del self.server.uploads[number]
            self._answer(204)
        else:
            parts = self.server.uploads.pop(number)
            data = b"".join(part for _, part in sorted(parts.items()))
            made = self.server.objects[name] = _Object(data, self.server.number())
            told = f"<ETag>{escape(made.headers['ETag'])}</ETag>"
            self._answer(200, _xml("CompleteMultipartUploadResult", told), made.headers)

    def _list(self, query: dict[str, str]) -> None:
        after = query.get("continuation-token") or query.get("start-after", "")
        names = sorted(
            name
            for name in self.server.objects
            if name.startswith(query.get("prefix", "")) and name > after
        )
        page = names[:_MOST_LISTED]
        text = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>e</ETag><Size>{len(self.server.objects[name].data)}</Size></Contents>"
            for name in page
        )
        if len(names) > len(page):
            text += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        self._answer(200, _xml("ListBucketResult", text))

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, _xml("Error", f"<Code>{code}</Code>"))

    def _answer(
        self, status: int, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def _xml(name: str, text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?><{name}>{text}</{name}>'.encode()


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    with GcsServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
