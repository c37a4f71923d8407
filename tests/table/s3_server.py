"""A real S3 API server on the loopback interface."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs
from moto.server import ThreadedMotoServer


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Runs a server; its options for the data source."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield {
        "s3.endpoint_override": f"127.0.0.1:{port}",
        "s3.scheme": "http",
        "s3.access_key": "reput",
        "s3.secret_key": "reput",
        "s3.region": "us-east-1",
        "s3.allow_bucket_creation": "true",
    }
    server.stop()


def upload(store: Path, bucket: str, options: dict[str, str]) -> pyarrow.fs.FileSystem:
    given = {name[3:]: value for name, value in options.items()}
    arguments = {
        name: value == "true" if value == "true" else value for name, value in given.items()
    }
    arrow = pyarrow.fs.S3FileSystem(**arguments)
    arrow.create_dir(bucket)
    pyarrow.fs.copy_files(str(store / "commitlog"), f"{bucket}/b1/store/commitlog", None, arrow)
    return arrow
