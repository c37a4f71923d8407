"""Skip syncs, which only matter for power cuts. Tests with the forgetful disk cover them."""

import os

import pytest


@pytest.fixture
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
