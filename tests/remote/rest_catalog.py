"""A REST catalog of Iceberg tables on the loopback interface: the requests of its specification that writers make.

It answers from pyiceberg's SQL catalog, so conflicts are decided by the same rules as there: a commit states what it
requires of the table, and of two commits that require the same, one gets the answer 409.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.remote.s3_server import process_of

FIRST = "/v1/"
"""How paths begin."""
_SEPARATOR = "\x1f"
_CODES = {
    "NoSuchNamespaceError": 404,
    "NoSuchTableError": 404,
    "NamespaceAlreadyExistsError": 409,
    "TableAlreadyExistsError": 409,
    "CommitFailedException": 409,
    "ValidationError": 400,
}


def io_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return pyiceberg's options for the S3 server that Arrow's `options` name."""
    return {
        "s3.endpoint": f"http://{options['s3.endpoint_override']}",
        "s3.access-key-id": "reput",
        "s3.secret-access-key": "reput",
        "s3.region": "us-east-1",
    }


class CatalogServer(ThreadingHTTPServer):
    """Answer requests for tables.

    requests    method and path of each
    """

    daemon_threads = True

    def __init__(self, database: str, properties: Mapping[str, str]) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{database}", **properties)
        self.requests: list[str] = []
        self.guard = (
            threading.Lock()
        )  # SQLite refuses the second of two writers; a catalog would not

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Send the head and the body together: a separate body may wait for the client's delayed ACK.
    wbufsize = -1
    server: CatalogServer

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        try:
            with self.server.guard:
                found = self._answer(path, json.loads(body) if body else {})
            code, text = (204, "") if found is None else (200, found)
        except Exception as error:
            name = type(error).__name__
            code = _CODES.get(name, 500)
            text = json.dumps({"error": {"message": str(error), "type": name, "code": code}})
        self._send(code, text.encode())

    do_GET = do_HEAD = do_POST = do_DELETE = _serve

    def _answer(self, path: str, given: dict[str, Any]) -> str | None:
        names = [unquote(part) for part in path.removeprefix(FIRST).split("/")]
        match self.command, names:
            case "GET", ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                self.server.catalog.create_namespace(tuple(given["namespace"]))
                return json.dumps({"namespace": given["namespace"], "properties": {}})
            case ("GET" | "HEAD") as method, ["namespaces", space]:
                found = self.server.catalog.load_namespace_properties(_identifier(space))
                answer = {"namespace": _identifier(space), "properties": found}
                return None if method == "HEAD" else json.dumps(answer)
            case "POST", ["namespaces", space, "tables"]:
                return self._create(_identifier(space), given)
            case "GET", ["namespaces", space, "tables", table]:
                return _result(self.server.catalog.load_table((*_identifier(space), table)))
            case "HEAD", ["namespaces", space, "tables", table]:
                self.server.catalog.load_table((*_identifier(space), table))
                return None
            case "POST", ["namespaces", space, "tables", table]:
                return self._commit((*_identifier(space), table), given)
        raise ValueError(f"no such request: {self.command} {path}")

    def _create(self, space: tuple[str, ...], given: dict[str, Any]) -> str:
        from pyiceberg.catalog.rest import CreateTableRequest

        asked = CreateTableRequest.model_validate(given)
        optional = {"partition_spec": asked.partition_spec, "sort_order": asked.write_order}
        arguments: dict[str, Any] = {name: one for name, one in optional.items() if one is not None}
        catalog = self.server.catalog
        create = catalog._create_staged_table if asked.stage_create else catalog.create_table
        return _result(
            create(
                (*space, asked.name), asked.table_schema, asked.location,
                properties=asked.properties, **arguments,
            )
        )  # fmt: skip

    def _commit(self, identifier: tuple[str, ...], given: dict[str, Any]) -> str:
        from pyiceberg.table import CommitTableRequest, Table

        asked = CommitTableRequest.model_validate({**given, "identifier": _names(identifier)})
        catalog = self.server.catalog
        table = Table(identifier, None, "", None, catalog)  # type: ignore[arg-type]  # its name alone
        done = catalog.commit_table(table, asked.requirements, asked.updates)
        return json.dumps(
            {
                "metadata-location": done.metadata_location,
                "metadata": json.loads(done.metadata.model_dump_json()),
            }
        )

    def _send(self, code: int, body: bytes) -> None:
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        if code != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and code != 204:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the requests are recorded."""


def _identifier(space: str) -> tuple[str, ...]:
    return tuple(space.split(_SEPARATOR))


def _names(identifier: tuple[str, ...]) -> dict[str, Any]:
    return {"namespace": identifier[:-1], "name": identifier[-1]}


def _result(table: Any) -> str:
    location = getattr(table, "metadata_location", None)
    metadata = json.loads(table.metadata.model_dump_json())
    return json.dumps({"metadata-location": location, "metadata": metadata, "config": {}})


@contextmanager
def catalog_server(database: Path, options: Mapping[str, str]) -> Iterator[CatalogServer]:
    """Run a catalog in a thread. Its tables are on the S3 server that Arrow's `options` name."""
    with CatalogServer(str(database), io_properties(options)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def catalog_process(database: Path, options: Mapping[str, str]) -> Iterator[str]:
    """Run a catalog in a new process. Yield its HOST:PORT."""
    arguments = [str(database), json.dumps(dict(options))]
    with process_of("tests.remote.rest_catalog", *arguments) as (_, line):
        yield line.strip()


if __name__ == "__main__":
    with catalog_server(Path(sys.argv[1]), json.loads(sys.argv[2])) as served:
        print(served.address, flush=True)
        sys.stdin.read()
