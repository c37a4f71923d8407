"""Syncs are free here, where nothing but a power cut could tell, and that is a matter of the forgetful disk."""

import os

import pytest


@pytest.fixture
def free_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
