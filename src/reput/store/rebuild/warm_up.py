"""Compiling the kernels before workers need them: once, not in every worker at the same time."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from reput.config import StoreConfig
from reput.format.commit_log import MessageExt, encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.host import Host
from reput.store.rebuild.driver import rebuild_store
from reput.store.rebuild.runner import SerialRunner


@cache
def warm_up() -> None:
    """Rebuild a store of one message, which compiles every kernel that a rebuild calls, or loads it from the cache.

    Takes some ten seconds the first time after an installation, half a second later, nothing in a process that
    has done it.
    """
    with tempfile.TemporaryDirectory(prefix="reput-warm-up-") as folder:
        log = Path(folder) / COMMIT_LOG_FOLDER
        log.mkdir()
        (log / offset_file_name(0)).write_bytes(encode(small_message()))
        rebuild_store(
            SerialRunner(), folder, config=StoreConfig(queue_entries=1, hash_slots=1, index_items=2)
        )


def small_message() -> MessageExt:
    """One message with a key, at the beginning of a log."""
    host = Host("127.0.0.1", 0)
    return MessageExt(
        topic="t", queue_id=0, queue_offset=0, physical_offset=0, size_bytes=0, flag=0, sys_flag=0,
        body_crc=0, born_timestamp=0, born_host=host, store_timestamp=0, store_host=host,
        reconsume_times=0, prepared_transaction_offset=0, body=b"",
        properties_bytes=b"UNIQ_KEY\x01k",
    )  # fmt: skip
