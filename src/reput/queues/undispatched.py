"""Queue entries that the log implies and a database on disk lacks: those of its newest messages.

A broker keeps new entries of RocksDB in memory, without a log of their own (`AbstractRocksDBStorage`, tag
rocketmq-all-5.3.3): on disk they appear when it writes a whole table, or stops. What is missing is dispatched again
from the CommitLog, as the broker does at its start.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter

from reput.format.commit_log import BLANK_BYTES
from reput.format.consume_queue import ConsumeQueueEntry
from reput.log.reader import CommitLogReader

NumberedEntry = tuple[int, ConsumeQueueEntry, int]
"""Queue offset, entry, store timestamp (ms)."""


class UndispatchedEntries:
    """Entries of the messages from a physical offset to the end of the log, by queue.

    Not for use from several threads at once.
    """

    def __init__(self, log: CommitLogReader, start: int, delays_ms: tuple[int, ...]) -> None:
        """`delays_ms` are those of the delay levels, level 1 first."""
        self._log, self._position, self._delays_ms = log, start, delays_ms
        self._queues: dict[tuple[str, int], list[NumberedEntry]] = {}

    def queues(self) -> set[tuple[str, int]]:
        """Topic and queue id of the queues that have some. Raises StoreError."""
        self._follow()
        return set(self._queues)

    def entries(self, topic: str, queue_id: int, queue_offset: int) -> list[NumberedEntry]:
        """Those of a queue from a queue offset on, ascending. Raises StoreError."""
        self._follow()
        found = self._queues.get((topic, queue_id), [])
        return found[bisect_left(found, queue_offset, key=itemgetter(0)) :]

    def _follow(self) -> None:
        """Take what was appended to the log since the last call."""
        self._log.refresh()
        self._position = max(self._position, self._log.min_offset)
        while (file := self._log.file_at(self._position)) is not None:
            length = min(BLANK_BYTES, file.end - self._position)
            if not any(self._log.read(file, self._position, length)):
                return
            before = self._position
            self._scan(file.end)
            if self._position == before:
                return

    def _scan(self, stop: int) -> None:
        from reput.log.scan import FileScan
        from reput.log.scan_mode import ScanMode
        from reput.queues.rocksdb_dispatch import dispatched_entries, rocksdb_rules

        file = self._log.file_at(self._position)
        assert file is not None
        scan = FileScan(
            file, self._position, stop, ScanMode(salvage=True, is_growing=True),
            rocksdb_rules(self._delays_ms), open_file=self._log.source.open,
        )  # fmt: skip
        for batch in scan.batches():
            for queue, rows, queue_offset in dispatched_entries(batch):
                columns = (queue_offset, *(rows[name] for name in _COLUMNS))
                self._add(queue, zip(*(c.tolist() for c in columns), strict=True))
        self._position = (
            file.end if scan.end.finished and not scan.end.unreadable else scan.end.position
        )

    def _add(self, queue: tuple[str, int], found: object) -> None:
        known = self._queues.setdefault(queue, [])
        for queue_offset, physical_offset, size, tags_code, timestamp in found:  # type: ignore[attr-defined]
            entry = ConsumeQueueEntry(physical_offset, size, tags_code)
            if known and queue_offset <= known[-1][0]:  # dispatched again: the newer one counts
                del known[bisect_left(known, queue_offset, key=itemgetter(0)) :]
            known.append((queue_offset, entry, timestamp))


_COLUMNS = ("physical_offset", "size", "tags_code", "store_timestamp")
