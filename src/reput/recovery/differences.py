"""Every difference between a store's indexes and its log, in one pass over the log and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from reput.config import StoreConfig
from reput.log.files import CommitLogFile
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import BROKER, DispatchRules
from reput.recovery.difference import Difference
from reput.recovery.index_differences import IndexDifferences
from reput.recovery.queue_differences import QueueDifferences


def differences(
    folder: Path, files: Sequence[CommitLogFile], end: int, config: StoreConfig
) -> Iterator[Difference]:
    """Compare ConsumeQueues and IndexFiles in `folder` with what dispatch makes of a log, to the end of both.

    For each run of messages come the entries of ConsumeQueues that are not as they should be, then the items of
    IndexFiles, each in the order of the messages; what is wrong with a file's slots and header follows its last
    item. What is too many comes last. Nothing is written. In memory is a batch of messages, a window of
    entries, and the slots of one IndexFile.

    Args:
        folder: holds `consumequeue/` and `index/`.
        files: of the log, oldest first.
        end: physical offset at which the log ends.
        config: the sizes of the files.

    Raises:
        StoreError: a ConsumeQueue file is larger than `config` says.
        StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    begin = files[0].start if files else 0
    queues = QueueDifferences(folder, config, begin)
    index = IndexDifferences(folder, config, begin)
    rules = DispatchRules.of(config)
    buffers, indexed_to = ScanBuffers(), 0
    for file in files:
        if file.start >= end:
            break
        scan = FileScan(
            file, file.start, min(end, file.end), BROKER, rules,
            end_offset=indexed_to, buffers=buffers,
        )  # fmt: skip
        for batch in scan.batches():
            yield from queues.of_batch(batch)
            yield from index.of_batch(batch)
        indexed_to = scan.end_offset
    yield from queues.rest()
    yield from index.rest()
