"""On a cluster with faults, a rebuild writes the broker's bytes. `make test-cluster` runs this many times."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.spark.faults import SETTINGS
from tests.spark.standalone import StandaloneCluster

Golden = Callable[[str], GoldenStore]
_RUNS = int(os.environ.get("REPUT_CLUSTER_RUNS", "6"))
_TIMEOUT_S = 3600


@pytest.mark.slow
@pytest.mark.timeout(_TIMEOUT_S)
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_byte_is_the_brokers_whatever_happens_to_executors(
    standalone_cluster: StandaloneCluster, golden: Golden, tmp_path: Path, kind: str
) -> None:
    store, runs = golden("lmq"), -(-_RUNS // len(SETTINGS))
    arguments = [store.path, store.root / "config.properties", tmp_path, runs]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.faults", kind, standalone_cluster.url, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    print(ended.stdout)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"{kind} ") == runs
