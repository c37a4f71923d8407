"""Compiling the kernels of a check before workers need them: once, not in every worker at the same time."""

from __future__ import annotations

from functools import cache

from reput.config import StoreConfig
from reput.files.scratch import scratch_file
from reput.format.commit_log import encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.pipeline.driver import rebuild_store
from reput.pipeline.warm_up import small_message
from reput.tasks import SerialRunner
from reput.verify.check import check_store


@cache
def warm_up() -> None:
    """Check a store of one message that was just rebuilt; see `reput.pipeline.warm_up`."""
    record = encode(small_message())
    with scratch_file(COMMIT_LOG_FOLDER, offset_file_name(0), record) as folder:
        config = StoreConfig(queue_entries=1, hash_slots=1, index_items=2)
        rebuild_store(SerialRunner(), folder, config=config)
        for finding in check_store(folder, config=config):
            raise RuntimeError(f"the check is broken: it finds in a new store: {finding}")
