"""Fork Spark's Python workers, in sessions that `create_session` starts on this machine.

This is pyspark's daemon, with two differences:

- It imports the modules that every worker needs before it forks. With pyspark's daemon, each worker imports them. The
  modules start no threads except jemalloc's, which support forks.
- A worker that is idle when its session ends exits without a traceback.
"""

from __future__ import annotations

import gc
from importlib import import_module

_NEEDED = (
    "pyspark.worker",
    "numpy",
    "numba",
    "pyarrow",
    "reput.spark.source",
    "reput.spark.runner",
    "reput.engine.lookup.driver",
)


def run() -> None:
    """Fork a worker for each connection, until standard input ends."""
    # Do not collect garbage during the imports: objects of modules live as long as the process.
    gc.disable()
    for name in _NEEDED:
        import_module(name)
    from pyspark import daemon

    from reput.spark.workers import Quiet, set_modules_aside

    daemon.worker = Quiet(daemon.worker)
    set_modules_aside()
    gc.enable()
    daemon.manager()


if __name__ == "__main__":
    run()
