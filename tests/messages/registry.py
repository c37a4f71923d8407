"""A schema registry on loopback that answers like Confluent's, counts requests, and fails on request."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class FakeRegistry:
    """Schemas by id and by subject.

    Attributes:
        answers: Documents by path.
        faults: Statuses of the next answers, before any document.
        requests: Paths that were asked for.
        passwords: The Authorization headers that came.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.faults: list[int] = []
        self.requests: list[str] = []
        self.passwords: set[str | None] = set()
        self.url = ""

    def add(self, number: int, schema: Any, **further: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.answers[f"/schemas/ids/{number}"] = {"schema": text, **further}


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    """Serve a registry during the `with` block."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append(self.path)
            registry.passwords.add(self.headers["Authorization"])
            status = registry.faults.pop(0) if registry.faults else 200
            document = registry.answers.get(self.path)
            if status == 200 and document is None:
                status, document = 404, {"error_code": 40403, "message": "Schema not found"}
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{registry.url}/elsewhere")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
