"""Compile all kernels of a piece of work at once, on all processors, before it needs them one after the other.

`python -m reput.kernels.ahead MODULE…` plans that: with NUMBA_DISABLE_JIT=1 it calls `warm_up()` of each module, which
does the work on one message in plain Python, and notes which kernels were called with arguments of which types.
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
"""Set in the process that plans: kernels note there what they are called with."""

Progress = Callable[[int, int], None]
"""Called with the number of kernels that are compiled, and of all."""


class Form(NamedTuple):
    """A kernel and the numba types of its arguments.

    Attributes:
        module: where the kernel is defined.
        name: of the kernel there.
        types: of its arguments.
    """

    module: str
    name: str
    types: tuple[Any, ...]


planned: dict[Form, None] = {}
"""In the planning process: the forms that were called so far, in order."""


def plan(modules: Sequence[str]) -> list[Form]:
    """Return the kernels that `warm_up()` of these modules calls; empty if that cannot be found out."""
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

    A second process that asks for the same waits, and then finds everything compiled. What cannot be compiled here is
    left to its first caller, as is all where the package ships kernels: then few are missing.
    """
    if find_spec("numba") is None or shipped() is not None or (os.cpu_count() or 1) < 2:
        return
    with compiling("all"), suppress(Exception):  # the caller meets the error again, in its place
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
    gc.disable()  # numba makes millions of objects; looking for garbage among them takes a fifth of the time
    getattr(import_module(form.module), form.name).compile(form.types)


def main(modules: Sequence[str]) -> None:
    from reput.kernels import ahead  # not `__main__`, into which kernels note nothing

    for module in modules:
        import_module(module).warm_up()
    sys.stdout.buffer.write(pickle.dumps(list(ahead.planned)))


if __name__ == "__main__":
    main(sys.argv[1:])
