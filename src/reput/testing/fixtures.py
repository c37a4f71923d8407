"""Fixtures for pytest; add `pytest_plugins = ["reput.testing.fixtures"]` to the conftest.py at the tests' root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reput.testing.broker import Broker


@pytest.fixture
def rocketmq() -> Iterator[Broker]:
    """Yield a broker with an empty store, for one test."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def shared_rocketmq() -> Iterator[Broker]:
    """Yield a broker that all tests of the session share; each test must use other topics."""
    with Broker() as broker:
        yield broker
