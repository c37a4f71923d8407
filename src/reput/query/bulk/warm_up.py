"""Compiling the kernels of a look-up before workers need them: once, not in every worker at the same time."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from reput.config import StoreConfig
from reput.format.commit_log import encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.query.bulk.driver import look_up
from reput.query.bulk.key_parts import stage_parts
from reput.store.rebuild.driver import rebuild_store
from reput.store.rebuild.runner import SerialRunner
from reput.store.rebuild.warm_up import small_message
from reput.store.store_reader import StoreReader
from reput.table.schema import COLUMNS


@cache
def warm_up() -> None:
    """Look up the key of three messages, one of them through an IndexFile; see `reput.store.rebuild.warm_up`."""
    with tempfile.TemporaryDirectory(prefix="reput-warm-up-") as name:
        folder = Path(name)
        log = folder / COMMIT_LOG_FOLDER
        log.mkdir()
        message = small_message()
        size = len(encode(message))
        records = [encode(replace(message, physical_offset=n * size)) for n in range(3)]
        (log / offset_file_name(0)).write_bytes(b"".join(records))
        config = StoreConfig(queue_entries=1, hash_slots=1, index_items=4)
        rebuild_store(SerialRunner(), folder, config=config)
        keys = pa.RecordBatch.from_pydict({"topic": ["t"], "key": ["k"]})
        parts = list(stage_parts([keys], folder / "keys"))
        with StoreReader(folder, config=config) as store:
            answer = look_up(SerialRunner(), [store], parts, folder, tuple(COLUMNS.names[5:]))
        found = sum(batch.num_rows for batch in answer.batches(0))
        if found != len(records):
            raise RuntimeError(f"the look-up is broken: it found {found} of 3 messages")
