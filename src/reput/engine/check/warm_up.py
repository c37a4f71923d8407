"""Compile the kernels of a check before workers need them: once, instead of in every worker at the same time."""

from __future__ import annotations

from functools import cache

from reput.base import SerialRunner
from reput.engine.check.run import check_store
from reput.engine.rebuild import SMALL, rebuild_store, small_log
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.io import Scratch


@cache
def warm_up() -> None:
    """Check a newly rebuilt store of three messages. See `reput.engine.rebuild.warm_up`."""
    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), small_log()) as folder:
        rebuild_store(SerialRunner(), folder, config=SMALL)
        for finding in check_store(folder, config=SMALL):
            raise RuntimeError(
                f"reput's check is broken: it reports a problem in a new store: {finding}"
            )
