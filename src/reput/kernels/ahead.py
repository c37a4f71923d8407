"""Compile all kernels of an operation at once, on all processors, before it needs them one after the other.

`python -m reput.kernels.ahead MODULE…` finds these kernels. With NUMBA_DISABLE_JIT=1 it calls each module's
`warm_up()`, which processes one message in plain Python, and records the kernels called and the types of their
arguments.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any, NamedTuple

from reput.kernels.compile_cache import compiling, shipped

PLANNING_VARIABLE = "REPUT_PLANS_KERNELS"
"""Set in the process that plans: kernels record there the types of their arguments."""

Progress = Callable[[int, int], None]
"""Called with the number of kernels compiled so far, and the total."""


class Form(NamedTuple):
    """A kernel and the numba types of its arguments.

    Attributes:
        module: where the kernel is defined.
        name: name of the kernel there.
        types: types of its arguments.
    """

    module: str
    name: str
    types: tuple[Any, ...]


planned: dict[Form, None] = {}
"""In the planning process: the forms that were called, in order."""


def plan(modules: Sequence[str]) -> list[Form]:
    """Return the kernels that `warm_up()` of these modules calls; empty if they cannot be determined."""
    environment = {"NUMBA_DISABLE_JIT": "1", PLANNING_VARIABLE: "1"}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "reput.kernels.ahead", *modules],
        env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if ended.returncode:
        return []
    forms: list[Form] = pickle.loads(ended.stdout)
    return forms


def compile_all(modules: Sequence[str], progress: Progress = lambda done, count: None) -> None:
    """Compile what `plan` finds, each kernel in one of as many processes as there are processors.

    A second process that asks for the same kernels waits, and then finds them compiled. Kernels that cannot be compiled
    here are left to their first caller. So are all kernels if the package ships compiled ones, because few are missing
    then.
    """
    if find_spec("numba") is None or shipped() is not None or (os.cpu_count() or 1) < 2:
        return
    # The caller gets the same error when it compiles the kernel.
    with compiling("all"), suppress(Exception):
        forms = plan(modules)
        processes = min(len(forms), os.cpu_count() or 1)
        if not forms:
            return
        progress(0, len(forms))
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            tasks = [pool.submit(_compile, form) for form in forms]
            for done, task in enumerate(as_completed(tasks), 1):
                task.result()
                progress(done, len(forms))


def _compile(form: Form) -> None:
    # numba creates millions of objects; searching them for garbage takes a fifth of the time.
    gc.disable()
    getattr(import_module(form.module), form.name).compile(form.types)


def main(modules: Sequence[str]) -> None:
    from reput.kernels import ahead  # not `__main__`, into which kernels note nothing

    for module in modules:
        import_module(module).warm_up()
    sys.stdout.buffer.write(pickle.dumps(list(ahead.planned)))


if __name__ == "__main__":
    main(sys.argv[1:])
