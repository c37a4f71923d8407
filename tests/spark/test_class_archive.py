"""Sessions with an archive of Spark's classes: a valid archive is used, and an invalid one never prevents a start."""

import json
import os
import random
from pathlib import Path

import pytest

from reput.spark.java import find_java_home
from reput.spark.local_session import archive_cache, archive_name, archive_options, spark_home
from tests.cli.running import reput_process
from tests.spark.standalone import run_python

SESSION = """
import json
from reput.spark.session import create_session
spark = create_session("local[1]")
jvm = spark.sparkContext._jvm
given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(json.dumps({
    "is_given": any("SharedArchiveFile" in option for option in given),
    "is_used": "sharing" in jvm.System.getProperty("java.vm.info"),
    "count": spark.range(10).count(),
}))
spark.stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    return tmp_path / "my cache"


def keep_archive(data: bytes) -> Path:
    cache, name = archive_cache(), archive_name(find_java_home(), spark_home())
    with cache.keeping(name) as path:
        path.write_bytes(data)
    return cache.folder / name


def session() -> dict[str, object]:
    ran = run_python(SESSION)
    assert (ran.returncode, ran.stderr) == (0, "")
    (line,) = ran.stdout.splitlines()  # the JVM prints no message about its archive
    answer: dict[str, object] = json.loads(line)
    return answer


@pytest.mark.usefixtures("cache")
def test_an_archive_is_an_option_of_the_jvm_until_it_is_cut_short() -> None:
    java_home, home = find_java_home(), spark_home()
    assert archive_options(java_home, home) == ""
    path = keep_archive(b"classes")
    assert f'"-XX:SharedArchiveFile={path}"' in archive_options(java_home, home)
    os.truncate(path, 1)
    assert archive_options(java_home, home) == ""


@pytest.mark.parametrize("name", ['a"quote', "a\\backslash", "a\nline", "{{PWD}}", "$HOME"])
def test_no_option_has_a_path_that_spark_would_read_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    keep_archive(b"classes")
    assert archive_options(find_java_home(), spark_home()) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "data", [b"", random.Random(1).randbytes(1 << 20)], ids=["empty", "random"]
)
def test_a_session_starts_and_says_nothing_with_an_archive_that_is_none(data: bytes) -> None:
    keep_archive(data)
    assert session() == {"is_given": True, "is_used": False, "count": 10}


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_a_session_uses_the_archive_that_warm_up_writes() -> None:
    ran = reput_process("warm-up", "--spark")
    assert (ran.code, ran.err) == (0, "")
    path = archive_cache().kept(archive_name(find_java_home(), spark_home()))
    assert path is not None
    assert f"Archived Spark's classes in {path}: {path.stat().st_size:,} bytes" in ran.out
    assert session() == {"is_given": True, "is_used": True, "count": 10}
