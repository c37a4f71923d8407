"""Define pytest fixtures. Enable them with `pytest_plugins = ["reput.testing.fixtures"]` in the top conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reput.testing.broker import Broker


@pytest.fixture
def rocketmq() -> Iterator[Broker]:
    """Yield a new broker with an empty store, for one test."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def shared_rocketmq() -> Iterator[Broker]:
    """Yield a broker that all tests of the session share. Each test must use topics of its own."""
    with Broker() as broker:
        yield broker
