"""Compile the kernels of a look-up before workers need them. Otherwise every worker would compile them."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from reput.base import SerialRunner
from reput.core import StoreReader
from reput.engine.lookup.driver import look_up
from reput.engine.lookup.key_parts import stage_parts
from reput.engine.messages import COLUMNS
from reput.engine.rebuild import SMALL, rebuild_store, small_log
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.io import Scratch


@cache
def warm_up_look_up(*, with_kernels: bool = True) -> None:
    """Look up a key that three messages have, to compile the kernels or load them from the cache.

    In a worker, `with_kernels` is false: only modules are imported. Tasks load kernels on the first call, because most
    tasks need only few of them.
    """
    if not with_kernels:
        return
    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), small_log()) as folder:
        rebuild_store(SerialRunner(), folder, config=SMALL)
        keys = pa.RecordBatch.from_pydict({"topic": ["t"], "key": ["k"]})
        parts = list(stage_parts([keys], folder / "keys"))
        with StoreReader(folder, config=SMALL) as store:
            answer = look_up(SerialRunner(), [store], parts, str(folder), tuple(COLUMNS.names[5:]))
        messages = sum(batch.num_rows for batch in answer.batches(0))
        if messages != 3:
            raise RuntimeError(f"the look-up is broken: it found {messages} of 3 messages")


# The name by which commands call each module that compiles kernels.
warm_up = warm_up_look_up
