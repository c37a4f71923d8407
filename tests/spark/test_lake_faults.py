"""Exports into buckets while executors die, stand still or run tasks twice: the table has every row once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.spark.standalone import StandaloneCluster

pytest.importorskip("obstore")

_RUNS = int(os.environ.get("REPUT_CLUSTER_RUNS", "3"))
"""Runs per kind of fault. Run n exports to format n modulo 3."""
_TIMEOUT_S = 3600


@pytest.mark.slow
@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("kind", ["killed", "stopped", "speculation"])
def test_every_row_is_there_once_whatever_happens_to_executors(
    standalone_cluster: StandaloneCluster,
    golden: Callable[[str], GoldenStore],
    tmp_path: Path,
    kind: str,
) -> None:
    arguments = [golden("orders").path, tmp_path, _RUNS]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.lake_faults", kind, standalone_cluster.url, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"{kind} ") == _RUNS
