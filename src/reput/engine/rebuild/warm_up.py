"""Compile the kernels before workers need them: once, instead of in every worker at the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from reput.base import SerialRunner, StoreConfig
from reput.core import FileScan, PassedRange, ScanBuffers, ScanMode, StoreLog
from reput.engine.rebuild.driver import rebuild_store
from reput.engine.rebuild.growing import first_record
from reput.format.commit_log import MessageExt, encode
from reput.format.file_names import COMMIT_LOG_FOLDER, offset_file_name
from reput.format.host import Host
from reput.io import FileReader, Scratch

SMALL = StoreConfig(queue_entries=1, hash_slots=1, index_items=4)
"""The smallest possible file sizes, so that the rebuild writes little."""


@cache
def warm_up() -> None:
    """Rebuild a store of three messages, which compiles every kernel of a rebuild or loads it from the cache.

    The first call after an installation takes about ten seconds. In later processes, the first call takes half a
    second. Further calls in one process do nothing.
    """
    with Scratch.file(COMMIT_LOG_FOLDER, offset_file_name(0), small_log()) as folder:
        rebuild_store(SerialRunner(), folder, config=SMALL)
        (file,) = StoreLog(folder).list().files
        # Also compile the search for a record. Only tasks for the middle of a large file need it.
        first_record(FileReader, file, 1, file.end, ScanBuffers())
        # And the facts that only scans of long files collect.
        long_file = replace(file, size=file.LEAST_KEPT_BYTES)
        facts = PassedRange.begin(long_file, file.start)
        scan = FileScan(file, file.start, file.end, ScanMode.BROKER, buffers=ScanBuffers())
        for batch in scan.batches():
            if facts is not None:
                facts.add(batch)


def small_log() -> bytes:
    """Return a log of three messages.

    One message is not enough: arrays of length 1 have another memory layout, for which other kernels are compiled.
    """
    message = small_message()
    size = len(encode(message))
    return b"".join(
        encode(replace(message, physical_offset=n * size, queue_offset=n)) for n in range(3)
    )


def small_message() -> MessageExt:
    """Return a message with one key, for the beginning of a log."""
    host = Host("127.0.0.1", 0)
    return MessageExt(
        topic="t", queue_id=0, queue_offset=0, physical_offset=0, size_bytes=0, flag=0, sys_flag=0,
        body_crc=0, born_timestamp=0, born_host=host, store_timestamp=0, store_host=host,
        reconsume_times=0, prepared_transaction_offset=0, body=b"",
        properties_bytes=b"UNIQ_KEY\x01k",
    )  # fmt: skip
