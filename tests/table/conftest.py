"""A golden store that a test may change."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore


@pytest.fixture
def golden_copy(golden: Callable[[str], GoldenStore], tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden("orders").path, tmp_path / "orders"))
