"""A fixture that skips syncs, which only matter in a power cut. Tests with `ForgetfulDisk` simulate power cuts."""

import os

import pytest


@pytest.fixture
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
