"""Tasks in processes: results in order, errors as they were raised, and no process remains."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reput.base.tasks.processes import ProcessRunner
from reput.errors import FormatError, UsageError, WorkerLostError
from tests.waiting import wait_for


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def refuse(number: int) -> int:
    if number == 2:
        raise FormatError("00000000000000000000", 7, "is not a record")
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_results_come_in_order_and_from_other_processes() -> None:
    told: list[tuple[int, int]] = []
    with ProcessRunner(2) as runner:
        results = runner.run(square, range(20), [1] * 20, lambda *done: told.append(done))
        again = runner.run(square, [3], [5], lambda *done: None)
    assert [result for result, _ in results] == [number * number for number in range(20)]
    assert os.getpid() not in {process for _, process in results}
    assert again[0][1] in {process for _, process in results}, "the processes are kept"
    assert told == [(done, 20) for done in range(21)]


def test_an_error_is_the_one_that_the_task_raised() -> None:
    with ProcessRunner(2) as runner:
        with pytest.raises(FormatError, match="is not a record") as raised:
            runner.run(refuse, range(5), [1] * 5, lambda *done: None)
        assert raised.value.offset == 7
        assert runner.run(refuse, [3, 4], [1, 1], lambda *done: None) == [3, 4]


def test_a_worker_that_is_killed_is_told_of_and_the_next_run_has_others() -> None:
    with ProcessRunner(1) as runner:
        with pytest.raises(WorkerLostError, match="run it again"):
            runner.run(die, [1], [1], lambda *done: None)
        assert runner.run(refuse, [1], [1], lambda *done: None) == [1]


def test_what_is_prepared_is_prepared_once_and_only_where_there_is_work() -> None:
    calls: list[int] = []
    with ProcessRunner(1, lambda: calls.append(os.getpid())) as runner:
        assert calls == []
        runner.run(refuse, [1], [1], lambda *done: None)
        runner.run(refuse, [1], [1], lambda *done: None)
    assert calls == [os.getpid()]


def test_there_is_at_least_one_process() -> None:
    with pytest.raises(UsageError, match="processes must be at least 1, not 0"):
        ProcessRunner(0)


TASK = """
import os, time

def wait(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""
PROGRAM = """
import sys
from task import wait
from reput.base.tasks.processes import ProcessRunner

ProcessRunner(1).run(wait, [sys.argv[1]], [1], lambda *done: None)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_whoever_started_them(tmp_path: Path, number: int) -> None:
    program, told = tmp_path / "program.py", tmp_path / "worker"
    (tmp_path / "task.py").write_text(TASK)
    program.write_text(PROGRAM)
    with subprocess.Popen([sys.executable, program, told]) as started:
        worker = wait_for(lambda: int(told.read_text() or 0) if told.exists() else 0)
        started.send_signal(number)
        started.wait()
    wait_for(lambda: not _is_running(worker))  # the worker does not outlive its parent


SCRIPT = """
import sys
from reput.base.tasks.processes import ProcessRunner

print("script", __file__)
print(sorted(ProcessRunner(2).run(abs, [-1, -2, -3], [1, 1, 1], lambda *done: None)))
print(__file__, __spec__)
"""


def test_workers_do_not_run_the_script_that_starts_them(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert ended.stdout == f"script {program}\n[1, 2, 3]\n{program} None\n"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
