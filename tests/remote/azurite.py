"""Azure's emulator of blob storage, if `make test-buckets` or the user has installed it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path

import pytest

_INSTALLED = Path(__file__).parents[2] / "build" / "buckets" / "node_modules" / ".bin"
_ACCOUNT = "devstoreaccount1"
# The emulator's account and key, from its documentation.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azurite() -> Iterator[dict[str, str]]:
    """Run the emulator with a container `objects`; return the environment for its clients. Skip if it is missing."""
    program = shutil.which("azurite-blob", path=f"{_INSTALLED}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        if os.environ.get("REPUT_BUCKETS") == "required":
            pytest.fail("azurite is not installed: run make test-buckets")
        pytest.skip("azurite is not installed: make test-buckets")
    command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry",
               "--blobHost", "127.0.0.1", "--blobPort", "0"]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            port = _port_of(server)
            _create_container(port)
            yield {
                "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
                "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{_ACCOUNT}", "AZURE_ALLOW_HTTP": "true",
            }  # fmt: skip
        finally:
            server.terminate()


def _port_of(server: subprocess.Popen[str]) -> int:
    """Wait until the emulator listens; return the port that it has chosen."""
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        if match := re.search(r"listens on http://127\.0\.0\.1:(\d+)$", line.rstrip()):
            return int(match[1])
        lines.append(line)
    pytest.fail(f"azurite has ended: {lines}")


def _create_container(port: int) -> None:
    path, date, version = f"/{_ACCOUNT}/objects", formatdate(usegmt=True), "2021-08-06"
    signed = "PUT" + "\n" * 12 + (
        f"x-ms-date:{date}\nx-ms-version:{version}\n/{_ACCOUNT}{path}\nrestype:container"
    )  # fmt: skip
    digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date, "x-ms-version": version, "Content-Length": "0",
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }  # fmt: skip

    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
