"""Fixtures of the follower's tests."""

import pytest

from reput.follow import follower as followed_log


@pytest.fixture
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read at once, not only after it has been left alone for a while."""
    monkeypatch.setattr(followed_log, "_SETTLED_S", 0)
