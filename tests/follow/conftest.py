"""Fixtures of the follower's tests."""

import pytest

from reput.engine.rebuild.follow import follower as followed_log


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the log at once, without waiting until it has not changed for a while."""
    monkeypatch.setattr(followed_log, "_SETTLED_S", 0)
