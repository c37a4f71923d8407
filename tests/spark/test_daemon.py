import gc
import stat
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from reput.io import Scratch
from reput.spark import workers
from reput.spark.local_session import socket_settings
from reput.spark.runner import SparkRunner
from reput.spark.workers import Quiet, end_quietly
from tests.golden.stores import GoldenStore
from tests.spark.standalone import run_python

Golden = Callable[[str], GoldenStore]

_DIRECTORY = "spark.python.unix.domain.socket.dir"

STOPPED = """
import sys
import reput.spark
from reput.spark.session import create_session
spark = create_session("local[2]")
reput.spark.register(spark)
assert spark.read.format("rocketmq").load(sys.argv[1]).select("topic").distinct().count()
spark.stop()
"""


def test_sockets_are_in_a_folder_of_this_user_alone() -> None:
    folder = Path(socket_settings()[_DIRECTORY])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(("more", "is_set"), [(0, True), (1, False)])
def test_a_temporary_folder_with_a_name_too_long_for_sockets_leaves_them_to_tcp(
    more: int, is_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("/", "x" * (107 - len("/.sock") - 36 - 1 + more))
    monkeypatch.setattr(Scratch, "folder_until_exit", lambda prefix: folder)
    assert bool(socket_settings()) is is_set


def test_modules_are_set_aside_again_only_when_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append(len(sys.modules)))
    monkeypatch.setattr(workers, "_modules", 0)
    workers.set_modules_aside()
    workers.set_modules_aside()
    assert len(calls) == 1
    monkeypatch.setitem(sys.modules, "one more", sys)
    workers.set_modules_aside()
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


class _Socket:
    """The few members of a socket that a worker needs."""


def test_the_end_of_a_connection_is_an_exit_code_and_no_traceback() -> None:
    def broken(sock: object, authenticated: bool) -> int:
        raise BrokenPipeError

    assert Quiet(broken)(_Socket(), True) == 1  # type: ignore[arg-type]
    assert Quiet(lambda sock, authenticated: 0)(_Socket(), True) == 0  # type: ignore[arg-type]


def test_only_a_worker_of_pysparks_daemon_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, is_changed in (("pyspark.daemon", True), ("pytest", False)):
        program = ModuleType("__main__")
        program.__spec__ = ModuleSpec(name, None)
        program.worker = worker = lambda sock, authenticated: 0  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "__main__", program)
        end_quietly()
        changed = program.worker
        assert isinstance(changed, Quiet) is is_changed
        assert is_changed or changed is worker
        end_quietly()
        assert program.worker is changed, "only once"


@pytest.mark.slow
def test_workers_that_wait_when_their_session_stops_end_quietly(golden: Golden) -> None:
    run = run_python(STOPPED, str(golden("orders").path))
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
