"""Compile all kernels of an operation at once, on all processors, before they are needed one by one.

`python -m reput.kernels.ahead MODULE…` finds these kernels. With NUMBA_DISABLE_JIT=1, it calls each module's
`warm_up()`, which processes one message in plain Python, and records the called kernels and the types of their
arguments.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import active_children
from typing import Any, NamedTuple

from reput.base import WITHOUT_SCRIPT, usable_cpus
from reput.kernels.compile_cache import compiling, shipped

PLANNING_VARIABLE = "REPUT_PLANS_KERNELS"
"""Environment variable that marks the planning process (see `plan`). There, kernels record their calls in `planned`."""

Progress = Callable[[int, int], None]
"""A function that is called with the number of kernels compiled so far, and the number of all kernels to compile."""


class Form(NamedTuple):
    """A kernel and the numba types of its arguments.

    Attributes:
        module: module that defines the kernel.
        name: name of the kernel in the module.
        types: types of its arguments.
    """

    module: str
    name: str
    types: tuple[Any, ...]


planned: dict[Form, None] = {}
"""The kernels called in the planning process, in the order of their first calls."""


def plan(modules: Sequence[str]) -> list[Form]:
    """Return the kernels that `warm_up()` of these modules calls; empty if they cannot be determined."""
    environment = {"NUMBA_DISABLE_JIT": "1", PLANNING_VARIABLE: "1"}
    # numba reads NUMBA_DISABLE_JIT when it is imported, so start a new process in which this variable is set.
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
    """Compile the kernels that `plan` finds, with one process per processor.

    A second caller that needs the same kernels waits for the first, and then finds them compiled. Kernels that fail to
    compile here are compiled by their first caller. If the package ships compiled kernels for this
    processor, do nothing: the few other kernels are compiled by their first callers.
    """
    if find_spec("numba") is None or shipped() is not None or usable_cpus() < 2:
        return
    # The kernel's first caller will get the same error.
    with compiling("all"), suppress(Exception):
        forms = plan(modules)
        processes = min(len(forms), usable_cpus())
        if not forms:
            return
        progress(0, len(forms))
        # A forked process would inherit the locks of other threads, so processes are spawned.
        others = active_children()
        with ProcessPoolExecutor(processes, mp_context=WITHOUT_SCRIPT) as pool:
            try:
                with _without_interrupts():
                    tasks = [pool.submit(_compile, form) for form in forms]
                for done, task in enumerate(as_completed(tasks), 1):
                    task.result()
                    progress(done, len(forms))
            except BaseException:
                # Without `shutdown`, leaving the `with` block would wait until all kernels are compiled. But Ctrl-C
                # must stop the compilation at once.
                pool.shutdown(wait=False, cancel_futures=True)
                for child in set(active_children()).difference(others):
                    child.kill()
                raise


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Make child processes ignore Ctrl-C if this thread starts them in the `with` block.

    A terminal sends Ctrl-C to all processes of a command. This process handles Ctrl-C, and ends its child processes.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # A process inherits the signal mask of the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _compile(form: Form) -> None:
    # numba creates millions of objects. Collecting garbage among them would take a fifth of the time.
    gc.disable()
    getattr(import_module(form.module), form.name).compile(form.types)


def main(modules: Sequence[str]) -> None:
    # This file runs as `__main__`. Kernels import it again as `reput.kernels.ahead`, and record their calls in that
    # second copy, so read the calls there.
    from reput.kernels import ahead

    for module in modules:
        import_module(module).warm_up()
    sys.stdout.buffer.write(pickle.dumps(list(ahead.planned)))


if __name__ == "__main__":
    main(sys.argv[1:])
