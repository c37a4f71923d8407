import os
from pathlib import Path

import py4j
import pyspark
import pytest
from pyspark.sql import SparkSession

from reput.spark.local_session import spark_home

PYSPARK = Path(pyspark.__file__).parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "reput"


def test_workers_import_sparks_packages_from_files_and_not_from_an_archive(
    spark: SparkSession,
) -> None:
    def where(_: int) -> tuple[str, str]:
        import py4j
        import pyspark

        return os.path.realpath(pyspark.__file__), os.path.realpath(py4j.__file__)

    here = (os.path.realpath(pyspark.__file__), os.path.realpath(py4j.__file__))
    assert set(spark.sparkContext.parallelize(range(2), 2).map(where).collect()) == {here}


def test_the_home_has_sparks_programs_and_both_packages_in_place_of_the_archive(
    cache: Path,
) -> None:
    home = spark_home()
    assert home.parent == cache
    assert (home / "bin" / "spark-submit").samefile(PYSPARK / "bin" / "spark-submit")
    assert (home / "jars").samefile(PYSPARK / "jars")
    archive = home / "python" / "lib" / "pyspark.zip"
    assert {path.name for path in archive.iterdir()} == {"pyspark", "py4j"}
    assert (archive / "pyspark").samefile(PYSPARK)
    assert (archive / "py4j").samefile(py4j.__path__[0])


def test_the_home_is_made_once(cache: Path) -> None:
    home = spark_home()
    (home / "stays").touch()
    assert spark_home() == home
    assert (home / "stays").exists()
    assert [path for path in cache.iterdir() if path != home] == []  # no failed attempt is left


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_in_which_others_may_write_is_no_place_for_a_home(cache: Path, mode: int) -> None:
    cache.mkdir()
    cache.chmod(mode)
    assert spark_home() == PYSPARK


def test_without_a_cache_folder_the_home_is_pysparks_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert spark_home() == PYSPARK
