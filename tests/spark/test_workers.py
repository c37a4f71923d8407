"""The workers of a user's own session: they use the notebook's Python if theirs has no reput."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from pyspark_reput import DefaultSource
from reput.errors import SparkJobError
from reput.spark import workers
from reput.spark.java import find_java_home
from reput.spark.options import NAME
from reput.spark.workers import finds_reput, use_this_python
from tests.golden.stores import GoldenLibrary
from tests.spark.loading import load


def context(python: str, **conf: str) -> Any:
    return SimpleNamespace(pythonExec=python, getConf=lambda: conf)


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """A Python without reput's dependencies."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_workers_without_reput_become_this_python(
    bare_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert not finds_reput(bare_python)
    assert not finds_reput("/no/such/python")
    own = context(bare_python)
    use_this_python(own)
    assert own.pythonExec == sys.executable


def test_a_python_that_was_chosen_stays_and_is_named_where_it_lacks_reput(
    bare_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = context(bare_python, **{"spark.pyspark.python": bare_python})
    with pytest.raises(SparkJobError, match=f"workers run {bare_python}, which lacks reput .*: in"):
        use_this_python(chosen)
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python)
    with pytest.raises(SparkJobError, match=f"set PYSPARK_PYTHON={sys.executable}"):
        use_this_python(context(bare_python))
    monkeypatch.setattr(workers, "finds_reput", lambda python: True)
    use_this_python(chosen)
    assert chosen.pythonExec == bare_python


def test_what_spark_finds_by_itself_is_the_data_source() -> None:
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == NAME
    looked = (
        "import pyspark_reput, sys; print([m for m in ('numba', 'pyarrow') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True)
    assert "numba" not in ran.stdout, "every session with any Python source imports it"


@pytest.mark.slow
def test_the_format_is_there_without_register_and_with_it(
    spark: SparkSession, golden_library: GoldenLibrary
) -> None:
    path = golden_library.store("basic").path
    assert load(spark, path, "topic string").count() == 5000


OWN_SESSION = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = spark.sparkContext.pythonExec
import reput.spark
reput.spark.register(spark)
rows = spark.read.format("rocketmq").schema("topic string").load(sys.argv[1]).count()
print(json.dumps([before, rows]))
"""


@pytest.mark.slow
def test_a_session_of_ones_own_in_an_environment_that_is_not_active(
    golden_library: GoldenLibrary, bare_python: str
) -> None:
    path = golden_library.store("basic").path
    folder = str(Path(bare_python).parent)
    environment = os.environ | {
        "PATH": f"{folder}:/usr/bin:/bin", "JAVA_HOME": str(find_java_home()),
    }  # fmt: skip
    environment.pop("PYSPARK_PYTHON", None)
    ran = subprocess.run(
        [sys.executable, "-c", OWN_SESSION, str(path)],
        env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == ["python3", 5000]
