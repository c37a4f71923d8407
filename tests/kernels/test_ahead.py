"""The kernels of a task are known before it begins, and are compiled in parallel."""

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from reput.kernels.ahead import plan
from reput.kernels.llvm import INTERPRETED
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")
MODULES = (
    "reput.engine.rebuild.warm_up",
    "reput.engine.check.run",
    "reput.engine.stores.warm_up",
    "reput.engine.lookup.warm_up",
)
COMPILING = """
import sys
from importlib import import_module
from reput.kernels import ahead, jit, on_compile
ahead.shipped = jit.shipped = lambda: None
seen = []
ahead.compile_all(sys.argv[1:], lambda done, count: seen.append((done, count)))
on_compile.append(print)
for module in sys.argv[1:]:
    import_module(module).warm_up()
assert seen == [(done, seen[0][1]) for done in range(seen[0][1] + 1)], seen
assert len(seen) > 10
"""

# Compile the kernels even if they are compiled already. The processes that compile also import this module.
ALL_MISSING = """
from reput.kernels import kernel_cache
kernel_cache.folders = list
"""
INTERRUPTED = """
from reput.kernels import ahead, jit
ahead.shipped = jit.shipped = lambda: None
try:
    ahead.compile_all(["reput.engine.rebuild.warm_up"], lambda done, count: done == 1 and print(count, flush=True))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("module", MODULES)
def test_what_is_planned_is_what_the_work_calls(module: str) -> None:
    forms = plan([module])
    assert len(forms) > 10
    import_module(module).warm_up()
    for form in forms:
        assert form.types in getattr(import_module(form.module), form.name).overloads


def test_work_that_fails_in_plain_python_is_not_planned() -> None:
    assert plan(["reput.no_such_module"]) == []


@pytest.mark.slow
def test_nothing_is_left_to_compile(tmp_path: Path) -> None:
    script = tmp_path / "compile.py"
    script.write_text(COMPILING)
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, script, "reput.engine.check.run"], env=os.environ | cache, timeout=800,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_ctrl_c_ends_the_compilation(tmp_path: Path) -> None:
    script, cache = tmp_path / "compile.py", tmp_path / "cache"
    script.write_text(INTERRUPTED)
    (tmp_path / "sitecustomize.py").write_text(ALL_MISSING)
    own = {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, script], env=os.environ | own, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        kernels = int(process.stdout.readline())
        wait_for(lambda: any(cache.rglob("*.nbi")), process)
        # A terminal sends the signal to all processes of the command.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate()
    assert (process.returncode, output, errors) == (0, "interrupted\n", "")
    assert 0 < len(list(cache.rglob("*.nbi"))) < kernels / 2
