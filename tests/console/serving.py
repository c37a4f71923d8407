"""The console over stores of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from reput.engine.writer.shared_store import SharedStore
from reput.wings.console.app import create_app


@contextmanager
def console(stores: Mapping[str, Path], **how: Any) -> Iterator[TestClient]:
    """A client of a console over these stores. Errors of the server are responses, not exceptions."""
    with ExitStack() as stack:
        opened = {}
        for name, path in stores.items():
            opened[name] = SharedStore(path)
            stack.callback(opened[name].close)
        app = create_app(opened, **how)
        client = TestClient(
            app, "http://localhost", raise_server_exceptions=False, follow_redirects=False
        )
        yield stack.enter_context(client)


def lines_of(text: str) -> list[dict[str, Any]]:
    """JSON lines, parsed."""
    return [json.loads(line) for line in text.splitlines()]
