"""Compile the kernels of a check before workers need them: once, instead of in every worker at the same time."""

from __future__ import annotations

from functools import cache

from reput.files.scratch import scratch_file
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.pipeline.driver import rebuild_store
from reput.pipeline.warm_up import SMALL, small_log
from reput.tasks import SerialRunner
from reput.verify.check import check_store


@cache
def warm_up() -> None:
    """Check a newly rebuilt store of three messages. See `reput.pipeline.warm_up`."""
    with scratch_file(COMMIT_LOG_FOLDER, offset_file_name(0), small_log()) as folder:
        rebuild_store(SerialRunner(), folder, config=SMALL)
        for finding in check_store(folder, config=SMALL):
            raise RuntimeError(
                f"reput's check is broken: it reports a problem in a new store: {finding}"
            )
