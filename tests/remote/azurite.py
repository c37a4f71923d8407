"""Azure's emulator of blob storage, if `make test-buckets` or the user has installed it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.waiting import wait_for

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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--inMemoryPersistence", "--skipApiVersionCheck", "--silent",
               "--blobHost", "127.0.0.1", "--blobPort", str(port)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _create_container(port, server)
            yield {
                "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
                "AZURE_ENDPOINT": f"http://127.0.0.1:{port}/{_ACCOUNT}", "AZURE_ALLOW_HTTP": "true",
            }  # fmt: skip
        finally:
            server.terminate()


def _create_container(port: int, server: subprocess.Popen[bytes]) -> None:
    path, date, version = f"/{_ACCOUNT}/objects", formatdate(usegmt=True), "2021-08-06"
    signed = "PUT" + "\n" * 12 + (
        f"x-ms-date:{date}\nx-ms-version:{version}\n/{_ACCOUNT}{path}\nrestype:container"
    )  # fmt: skip
    digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date, "x-ms-version": version, "Content-Length": "0",
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }  # fmt: skip

    def is_created() -> bool:
        connection = HTTPConnection("127.0.0.1", port)
        try:
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            answer = connection.getresponse()
        except ConnectionError:  # the emulator does not listen yet
            return False
        finally:
            connection.close()
        assert answer.status == 201, answer.read()
        return True

    wait_for(is_created, server)
