"""A real S3 API server on the loopback interface."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.fs

ENDPOINT = "s3.endpoint_override"
Options = dict[str, str]


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run a server; yield its options for the data source."""
    # Imported here, because it takes half a second in each process that collects tests.
    from moto.server import ThreadedMotoServer

    _write_one_at_a_time()
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    yield {
        ENDPOINT: f"127.0.0.1:{port}",
        "s3.scheme": "http",
        "s3.access_key": "reput",
        "s3.secret_key": "reput",
        "s3.region": "us-east-1",
        "s3.request_timeout": "60",
        "s3.connect_timeout": "60",
        "s3.allow_bucket_creation": "true",
    }
    server.stop()


@cache
def _write_one_at_a_time() -> None:
    """Make writes atomic: moto checks a condition and then writes, so another thread could write in between."""
    from moto.s3.responses import S3Response

    lock = threading.Lock()

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any) -> Any:
            with lock:  # the request's body has been read, so no slow client holds the lock
                return method(*args)

        return write

    for name in ("_key_response_put", "_key_response_post"):
        setattr(S3Response, name, locked(getattr(S3Response, name)))


@contextmanager
def s3_process() -> Iterator[dict[str, str]]:
    """Run an S3 server in a new process, because deltalake blocks all threads of its process while it waits."""
    with process_of("tests.remote.s3_server") as (_, line):
        yield json.loads(line)


@contextmanager
def faulty_process(options: dict[str, str], seed: int) -> Iterator[dict[str, str]]:
    """Run a proxy process that lets one request in eight fail. Yield options that lead to the server through it."""
    with process_of("tests.remote.faulty_server", options[ENDPOINT], str(seed)) as (_, line):
        yield {**options, ENDPOINT: line.strip()}


@contextmanager
def process_of(module: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a module in a new process. Yield the process, and the line that the module prints when it serves.

    At the end, close the process's input, which ends it.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server, server.stdout.readline()
        server.stdin.close()


def upload(store: Path, bucket: str, options: dict[str, str]) -> pyarrow.fs.FileSystem:
    """Put the CommitLog of a store into a new bucket, as BUCKET/b1/store."""
    arrow = _s3(options)
    arrow.create_dir(bucket)
    pyarrow.fs.copy_files(str(store / "commitlog"), f"{bucket}/b1/store/commitlog", None, arrow)
    return arrow


def upload_whole(store: Path, bucket: str, options: dict[str, str]) -> str:
    """Put all files of a store into a new bucket, one request each; return the store's URL."""
    host, _, port = options[ENDPOINT].partition(":")
    connection = HTTPConnection(host, int(port))
    bodies = {
        f"archive/store/{file.relative_to(store)}": file.read_bytes()
        for file in sorted(store.rglob("*"))
        if file.is_file()
    }
    for key, body in {"": b"", **bodies}.items():
        connection.request("PUT", f"/{bucket}/{quote(key)}", body, {"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, (key, answer.status)
    connection.close()
    return f"s3://{bucket}/archive/store"


def _s3(options: dict[str, str]) -> pyarrow.fs.S3FileSystem:
    given = {name[3:]: value for name, value in options.items()}
    arguments = {
        name: True if value == "true" else float(value) if name.endswith("_timeout") else value
        for name, value in given.items()
    }
    return pyarrow.fs.S3FileSystem(**arguments)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def counted_requests() -> Iterator[list[str]]:
    """Record the requests that servers of this process get during the `with` block, one line per request."""
    logger, lines = logging.getLogger("werkzeug"), _Lines()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    try:
        yield lines.lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


def make_bucket(name: str, options: dict[str, str]) -> None:
    _s3(options).create_dir(name)


if __name__ == "__main__":
    with s3_server() as served:
        print(json.dumps(served), flush=True)
        sys.stdin.read()
