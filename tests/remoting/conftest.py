"""Fixtures of the remoting port's tests."""

from collections.abc import Callable, Iterator

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
