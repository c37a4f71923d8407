"""Queues in RocksDB of a store that is opened to be written: what is kept of them, and from where they are dispatched.

Mirrors `CommitLog.recoverNormally` and `.recoverAbnormally` as far as they concern RocksDB (tag rocketmq-all-5.3.3).
The database knows how far it reaches, and each of its writes is whole: what lies before that is not compared.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from reput.config import StoreConfig
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.files.storage import LOCAL
from reput.format.file_names import CONSUME_QUEUE_FOLDER
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import SALVAGE
from reput.log.sources import StoreLog
from reput.queues.rocksdb_database import is_database
from reput.queues.rocksdb_dispatch import rocksdb_rules
from reput.queues.rocksdb_writer import create_database
from reput.queues.set_writer import RocksQueueSetWriter
from reput.recovery.batch_queues import BatchSizes


class RecoveredDatabase(NamedTuple):
    """The queues, and the physical offset from which messages are to be dispatched for them."""

    queues: RocksQueueSetWriter
    dispatch_from: int


def recover_database(
    store: Path, batch_topics: frozenset[str], log_begin: int, log_end: int
) -> RecoveredDatabase:
    """Open the database of a store, or create one, and cut off the entries of messages that the log does not have.

    Args:
        store: has the queues, and the log.
        batch_topics: those with inner batches.
        log_begin: physical offset of the log's first message.
        log_end: where the log ends.

    Raises:
        MissingExtraError: rocksdict is not installed.
        FormatError, StoreAccessError: the database cannot be opened.
    """
    folder = store / CONSUME_QUEUE_FOLDER
    if not is_database(str(folder), LOCAL):
        create_database(folder, [], {})
    sizes = BatchSizes(store)
    queues = RocksQueueSetWriter(folder, sizes, sizes.close)
    try:
        queues.cut(log_end)
        queues.load_ends(batch_topics)
        begin = max(queues.checkpoint(), log_begin)
        return RecoveredDatabase(queues, _record_at(store, begin, log_end))
    except BaseException:
        queues.close(sync=False)
        raise


def dispatch_rest(store: Path, batch_topics: frozenset[str], config: StoreConfig) -> None:
    """Add the entries of messages that the log has and the database lacks, as a broker's recovery does after a crash.

    Raises as `recover_database` does.
    """
    files = StoreLog(store).list().files
    queues, begin = recover_database(store, batch_topics, files[0].start, files[-1].end)
    rules, buffers = rocksdb_rules(tuple(config.delay_table_ms())), ScanBuffers()
    try:
        for file in files:
            if file.end > begin:
                start = max(begin, file.start)
                scan = FileScan(file, start, file.end, SALVAGE, rules, buffers=buffers)
                for batch in scan.batches():
                    queues.append(batch)
    finally:
        queues.close(sync=True)


def _record_at(store: Path, physical_offset: int, log_end: int) -> int:
    """The same offset if a record begins there or the log ends, else that of the file that holds it.

    To dispatch messages twice writes the same entries; to begin within a record would pass over a file.
    """
    if physical_offset >= log_end:
        return log_end
    with closing(CommitLogReader(StoreLog(store))) as log:
        try:
            if log.get(physical_offset).physical_offset == physical_offset:
                return physical_offset
        except (MessageNotFoundError, CorruptMessageError):
            pass
        file = log.file_at(physical_offset)
        return log.min_offset if file is None else file.start
