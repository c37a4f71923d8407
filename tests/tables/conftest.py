"""A golden store that a test may change; a server of S3."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.remote.s3_server import s3_server


@pytest.fixture
def golden_copy(golden: Callable[[str], GoldenStore], tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden("orders").path, tmp_path / "orders"))


@pytest.fixture(scope="session")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options
