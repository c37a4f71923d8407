"""Python's garbage collection in Spark's workers.

After each task pyspark's daemon has the worker look for garbage among all objects that it has. Nearly all belong to
modules (numba, pyarrow, pyspark), which live as long as the process: that costs 40 to 80 ms of processor time per task.
"""

from __future__ import annotations

import gc
import sys

_modules = 0
"""How many this process had imported when objects were last set aside."""


def set_modules_aside() -> None:
    """Exclude everything that this process has made so far from garbage collection, where modules have come since.

    Call it at the beginning of a task, before it has data: frozen objects that become cyclic garbage are kept.
    """
    global _modules
    if len(sys.modules) > _modules:
        gc.freeze()
        _modules = len(sys.modules)
