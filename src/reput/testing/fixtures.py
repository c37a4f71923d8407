"""Fixtures of pytest; add `pytest_plugins = ["reput.testing.fixtures"]` to the conftest.py at the root of the tests."""

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
    """Yield a broker for all tests of the session, which use topics of their own."""
    with Broker() as broker:
        yield broker
