"""Fixtures of the rebuild's tests."""

from pathlib import Path

import pytest

from tests.recovery.replaced import store_of_another_log


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_of_another_log(tmp_path)
