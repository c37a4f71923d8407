"""Fixtures for tests on Spark: a cluster of real processes, and a machine without Java."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import reput.spark
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> SparkSession:
    """A Spark session that knows the data source."""
    reput.spark.register(spark)
    return spark


@pytest.fixture
def standalone_cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """Start a master and two workers only for this test, which may kill one."""
    cluster = StandaloneCluster(tmp_path)
    yield cluster
    cluster.stop()


@pytest.fixture
def java_free_environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine without Java: no JAVA_HOME, no `java` on the PATH, no cache.

    Needed programs may be in the same folder as `java`, so the PATH leads to a folder with links to all others.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.get_exec_path():
        for program in Path(folder).glob("*"):
            link = programs / program.name
            if program.name != "java" and not os.path.lexists(link):
                link.symlink_to(program)
    environment = os.environ | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAVA_HOME", None)
    return environment
