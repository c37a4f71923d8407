"""The Python examples of how-to pages run as they are."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT
from tests.docs.readme import python_examples
from tests.golden.stores import GoldenStore
from tests.lakes.exporting import GrowingStore, export


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("duckdb", "payments"),
        ("polars", "payments"),
        ("pandas", "count"),
        ("day-by-day", "payments"),
    ],
)
def test_the_examples_run(
    golden: Callable[[str], GoldenStore], tmp_path: Path, page: str, shown: str
) -> None:
    text = (CHECKOUT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    (tmp_path / "store").symlink_to(golden("orders").path)
    if "lake/" in text:
        growing = GrowingStore(tmp_path / "growing")
        for fields in (
            {"id": 1, "parts": [{"n": 1}]},
            {"id": 0.5, "parts": [{"n": 1, "x": 2}], "tip": 3},
        ):
            growing.add([fields])
            export(
                growing.path,
                tmp_path / "lake",
                incremental=True,
                json_body="infer",
                partition_by=("topic", "day"),
            )
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(python_examples(text))],
        cwd=tmp_path, capture_output=True, timeout=600, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    assert shown in ended.stdout.decode()
    if page == "polars":
        assert all(name in ended.stdout.decode() for name in ("id", "parts", "tip"))
