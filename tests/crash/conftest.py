"""Skip syncs, which only matter in a power cut: the forgetful disk tests these."""

import os

import pytest


@pytest.fixture
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
