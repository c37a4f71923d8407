"""Recover the RocksDB queues of a store that is opened for writing.

Mirrors the parts of `CommitLog.recoverNormally` and `.recoverAbnormally` that concern RocksDB (tag rocketmq-all-5.3.3).
The database states up to which message it is complete, and its writes are atomic. So earlier messages are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from reput import core
from reput.base import Finding, StoreConfig
from reput.engine.compare import dispatched_entries, rocksdb_rules
from reput.engine.five.rocksdb_database import RocksDatabase
from reput.engine.five.rocksdb_queues import RocksQueueSetWriter
from reput.engine.five.rocksdb_writer import create_database
from reput.engine.writer import BatchSizes, Count, out_of_order
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.io import LOCAL


class DatabaseRecovery:
    """The recovery of a store's database, as a QueueRecovery.

    Args:
        store: Folder with the queues and the log.
        config: The broker's settings.
        batch_topics: Topics with inner batches.
    """

    def __init__(self, store: Path, config: StoreConfig, batch_topics: frozenset[str]) -> None:
        self._store, self._batch_topics = store, batch_topics
        # If the database is gone, create it anew where it was.
        lost = core.facts_of(store).lost_database
        self._folder = store / lost if lost else Path(core.queue_database(str(store), LOCAL))
        self._rules = rocksdb_rules(tuple(config.delay_table_ms()))

    def look(self, files: Sequence[core.CommitLogFile], log_end: int) -> list[Finding]:
        """Check the messages that have no entry. Return a finding for each queue with misnumbered messages.

        A message is misnumbered if its queue offset is not higher than the queue offset of the queue's previous
        message. Damage can change a queue offset unnoticed, because no checksum covers the queue offset in a record. A
        broker would write the entry all the same, and so replace the entry of an earlier message.

        Raises as `run` does.
        """
        if not files or core.facts_of(self._store).queue_form is None:
            return []
        with closing(RocksDatabase(str(self._folder))) as database:
            checkpoint = database.checkpoint()
            ends = {
                core.Queue(end.topic, end.queue_id): end.queue_offset for end in database.ends()
            }
        begin = _record_at(self._store, max(checkpoint, files[0].start), log_end)
        wrong: dict[core.Queue, Count] = {}
        last: dict[core.Queue, int] = {}
        for batch in self._batches(files, begin, log_end):
            for queue, messages, numbers in dispatched_entries(batch):
                new = messages["physical_offset"] >= checkpoint
                # Messages of a light queue (LMQ) may repeat a queue offset. Then a broker replaces the entry.
                if core.is_light(queue.topic) or not new.any():
                    continue
                numbers, offsets = numbers[new], messages["physical_offset"][new]
                before = np.append(last.get(queue, ends.get(queue, -1)), numbers[:-1])
                # The queue offsets of a topic that was deleted and created again begin at 0. The database states
                # no last queue offset for such a queue.
                is_anew = (numbers == 0) & (np.append(numbers[1:], 1) == 1) & (queue not in ends)
                falls = np.flatnonzero((numbers <= before) & ~is_anew)
                last[queue] = int(numbers[-1])
                if len(falls):
                    wrong.setdefault(queue, Count()).add(len(falls), int(offsets[falls[0]]))
        return [
            out_of_order(str(self._folder), queue, count) for queue, count in sorted(wrong.items())
        ]

    def run(self, log_begin: int, log_end: int) -> core.RecoveredQueues:
        """Open or create the database, and remove the entries of messages that the log does not contain.

        Raises:
            MissingExtraError: rocksdict is not installed.
            FormatError, StoreAccessError: The database cannot be opened.
        """
        if core.facts_of(self._store).queue_form is None:
            create_database(self._folder, [], {})
        sizes = BatchSizes(self._store)
        queues = RocksQueueSetWriter(self._folder, sizes, sizes.close)
        try:
            queues.cut(log_end)
            queues.load_ends(self._batch_topics)
            begin = max(queues.checkpoint(), log_begin)
            queues.begin = _record_at(self._store, begin, log_end)
            return core.RecoveredQueues(queues, self._rules, queues.begin)
        except BaseException:
            # The caller does not get the database, so close it here.
            queues.close(sync=False)
            raise

    def _batches(
        self, files: Sequence[core.CommitLogFile], begin: int, end: int
    ) -> Iterator[core.DispatchBatch]:
        buffers = core.ScanBuffers()
        for file in files:
            start, stop = max(begin, file.start), min(file.end, end)
            if start < stop:
                scan = core.FileScan(
                    file, start, stop, core.ScanMode.SALVAGE, self._rules, buffers=buffers
                )
                yield from scan.batches()


def _record_at(store: Path, physical_offset: int, log_end: int) -> int:
    """Return `physical_offset` if a record begins there or the log ends there, otherwise the start of its file.

    An earlier start is harmless: dispatching a message twice writes the same entries. A scan that starts inside a
    record would find no record in the whole file.
    """
    if physical_offset >= log_end:
        return log_end
    with closing(core.CommitLogReader(core.StoreLog(store))) as log:
        try:
            if log.get(physical_offset).physical_offset == physical_offset:
                return physical_offset
        except (MessageNotFoundError, CorruptMessageError):
            pass
        file = log.file_at(physical_offset)
        return log.min_offset if file is None else file.start
