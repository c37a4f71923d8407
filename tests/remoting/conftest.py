"""Fixtures of the remoting port's tests."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.remoting.client import Client, Serving


@pytest.fixture(scope="module")
def orders(golden: Callable[[str], GoldenStore]) -> GoldenStore:
    return golden("orders")


@pytest.fixture
def client(server: Serving) -> Iterator[Client]:
    """A client of the server that the test's module defines."""
    with Client(server.address) as made:
        yield made


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem and key.pem for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder
