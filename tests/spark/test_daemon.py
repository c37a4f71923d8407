import gc
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reput.spark import garbage
from reput.spark.runner import SparkRunner
from reput.spark.sockets import socket_settings
from tests.spark.standalone import run_python

_DIRECTORY = "spark.python.unix.domain.socket.dir"

STOPPED = """
from reput.spark.session import create_session
spark = create_session("local[2]")
spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()
spark.stop()
"""


def test_sockets_are_in_a_folder_of_this_user_alone() -> None:
    folder = Path(socket_settings()[_DIRECTORY])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_temporary_folder_with_a_name_too_long_for_sockets_leaves_them_to_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = 107 - len("/.sock") - 36 - len("/reput-spark-") - 8
    for name, is_set in (("/" + "x" * (fits - 1), True), ("/" + "x" * fits, False)):
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setattr("reput.spark.sockets.folder_until_exit", lambda prefix: tmp_path)
        assert bool(socket_settings()) is is_set


def test_modules_are_set_aside_again_only_when_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(len(sys.modules)))
    monkeypatch.setattr(garbage, "_modules", 0)
    garbage.set_modules_aside()
    garbage.set_modules_aside()
    assert len(calls) == 1
    monkeypatch.setitem(sys.modules, "one more", sys)
    garbage.set_modules_aside()
    assert len(calls) == 2


def _in_worker(_: int) -> tuple[int, int, bool]:
    return len(gc.get_objects()), gc.get_freeze_count(), "numba" in sys.modules


@pytest.mark.slow
def test_workers_are_born_with_what_they_need_and_collect_no_garbage_of_it(
    spark: SparkSession,
) -> None:
    watched, aside, has_numba = spark.sparkContext.parallelize(range(2), 2).map(_in_worker).first()
    assert has_numba
    assert aside > 10 * watched

    results = SparkRunner(spark).run(_in_worker, [1, 2], [1, 1], lambda done, total: None)
    assert all(aside > 10 * watched for watched, aside, *_ in results)


@pytest.mark.slow
def test_workers_that_wait_when_their_session_stops_end_quietly() -> None:
    run = run_python(STOPPED)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
