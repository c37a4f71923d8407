"""How much a rebuild will write, guessed from the first messages of a log."""

from __future__ import annotations

from collections.abc import Sequence

from reput.config import StoreConfig
from reput.format.consume_queue import ENTRY_BYTES
from reput.format.index_file import ITEM_BYTES
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan
from reput.log.scan_mode import SALVAGE, DispatchRules

_SAMPLE_BYTES = 4 << 20


def rebuilt_bytes(files: Sequence[CommitLogFile], end: int, config: StoreConfig) -> tuple[int, int]:
    """Bytes of all ConsumeQueues, and of all IndexFiles, as far as their first messages tell.

    Raises StoreAccessError.
    """
    read = messages = keys = 0
    for file in files:
        stop = min(file.start + _SAMPLE_BYTES - read, file.end, end)
        if stop <= file.start:
            break
        scan = FileScan(file, file.start, stop, SALVAGE, DispatchRules.of(config))
        for batch in scan.batches():
            messages += len(batch)
            keys += len(batch.key_hash)
        read += stop - file.start
    if not read:
        return 0, 0
    share = (end - files[0].start) / read
    entries, items = int(messages * share), int(keys * share)
    index_files = items // (config.index_items - 1) + (items > 0)
    return entries * ENTRY_BYTES, items * ITEM_BYTES + index_files * 4 * config.hash_slots
