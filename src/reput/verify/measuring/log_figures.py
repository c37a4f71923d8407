"""One pass over the log with the scan kernel: what can be counted from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from reput.errors import StoreError
from reput.findings import Finding
from reput.format.commit_log import MessageExt
from reput.format.index_file import index_key, key_hash
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, index_keys
from reput.kernels.counting import count_messages
from reput.log.dispatch_batch import DispatchBatch, Queue
from reput.log.reader import CommitLogReader
from reput.log.scan import FileScan, ScanBuffers
from reput.log.scan_mode import SALVAGE
from reput.verify.checking.unread import unread
from reput.verify.measuring.figures import (
    Frequent,
    Gap,
    QueueFigures,
    Timeline,
    TopicFigures,
)
from reput.verify.measuring.frequent import FrequentHashes

_KEY_BITS, _TAG_BITS = 22, 16
_GAPS, _FREQUENT = 10, 20
_MOST_TIME = 1 << 61
TextsOf = Callable[[MessageExt], Iterable[tuple[int, str]]]


class LogFigures:
    """Counts batch by batch. Memory: a row of numbers per queue, the timeline per topic, 60 MiB of counters."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.messages = self.size_bytes = self.index_entries = 0
        self.damage: list[Finding] = []
        self._queues: dict[Queue, list[int]] = {}
        self._topics: dict[str, npt.NDArray[np.int64]] = {}
        self._keys, self._tags = FrequentHashes(_KEY_BITS), FrequentHashes(_TAG_BITS)
        self._gaps: list[tuple[int, int]] = []
        self._last_ms: int | None = None

    def read(self, log: CommitLogReader, log_end: int) -> None:
        """All files of a log, which ends at `log_end`.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        self.damage += log.holes()
        buffers = ScanBuffers()
        for file in log.files:
            scan = FileScan(
                file, file.start, file.end, SALVAGE, buffers=buffers, open_file=log.source.open
            )
            for batch in scan.batches():
                self._count(batch)
            self.damage += unread(scan, file, log_end)

    def _count(self, batch: DispatchBatch) -> None:
        messages = batch.messages
        size = messages["size"]
        self.messages += len(messages)
        self.size_bytes += int(size.sum(dtype=np.int64))
        self.index_entries += len(batch.key_hash)
        self._note_gaps(messages["store_timestamp"])
        line, queues = self.timeline, batch.queues
        cells = np.zeros((len(queues), line.parts, 2), np.int64)
        has_tags = np.array([queue.topic != SCHEDULE_TOPIC for queue in queues])
        begin_ms = min(max(line.begin_ms, -_MOST_TIME), _MOST_TIME)
        count_messages(
            messages, batch.key_hash, has_tags, begin_ms, line.part_ms, cells,
            self._keys.counters, self._tags.counters,
        )  # fmt: skip
        self._add(queues, cells)

    def _note_gaps(self, times: npt.NDArray[np.int64]) -> None:
        """Keep the longest times without a message."""
        before = times[0] if self._last_ms is None else self._last_ms
        known = np.concatenate([[before], times]).clip(-_MOST_TIME, _MOST_TIME)
        gaps = np.diff(known)
        rows = np.flatnonzero(gaps > (self._gaps[-1][0] if len(self._gaps) == _GAPS else 0))
        rows = rows[np.argsort(-gaps[rows], kind="stable")][:_GAPS]
        self._gaps += [(int(gaps[row]), int(known[row])) for row in rows]
        self._gaps = sorted(self._gaps, reverse=True)[:_GAPS]
        self._last_ms = int(times[-1])

    def _add(self, queues: list[Queue], cells: npt.NDArray[np.int64]) -> None:
        sums = cells.sum(axis=1)
        for number in np.flatnonzero(sums[:, 0]).tolist():
            known = self._queues.setdefault(queues[number], [0, 0])
            known[0] += int(sums[number, 0])
            known[1] += int(sums[number, 1])
            rows = self._topics.setdefault(
                queues[number].topic, np.zeros((2, self.timeline.parts), np.int64)
            )
            rows += cells[number].T

    def topics(self) -> list[TopicFigures]:
        """Largest first."""
        found = [
            TopicFigures(topic, rows[0].tolist(), rows[1].tolist())
            for topic, rows in self._topics.items()
        ]
        return sorted(found, key=lambda one: (-one.all_bytes, one.topic))

    def queues(self) -> list[QueueFigures]:
        """Largest first."""
        found = [QueueFigures(*queue, *known) for queue, known in self._queues.items()]
        return sorted(found, key=lambda one: (-one.size_bytes, one.topic, one.queue_id))

    def gaps(self) -> list[Gap]:
        """Longest first."""
        return [Gap(begin, begin + length) for length, begin in self._gaps]

    def frequent_keys(self, log: CommitLogReader) -> list[Frequent]:
        """Most frequent first; a key that one message has is not among them. Raises StoreAccessError."""
        return self._frequent(log, self._keys, _keys_of)

    def frequent_tags(self, log: CommitLogReader) -> list[Frequent]:
        """Most frequent first; of all topics together, the topic is that of an example. Raises StoreAccessError."""
        return self._frequent(log, self._tags, _tags_of)

    def _frequent(
        self, log: CommitLogReader, hashes: FrequentHashes, texts_of: TextsOf
    ) -> list[Frequent]:
        found = []
        for counter, count, offset in hashes.top(_FREQUENT):
            message = _read(log, offset)
            if count < 2 or message is None:
                continue
            for hashed, text in texts_of(message):
                if hashes.counter_of(hashed) == counter:
                    found.append(Frequent(message.topic, text, count, min(hashes.error, count - 1)))
                    break
        return found


def _keys_of(message: MessageExt) -> Iterator[tuple[int, str]]:
    for key in index_keys(message.properties):
        yield key_hash(index_key(message.topic, key)), key


def _tags_of(message: MessageExt) -> Iterator[tuple[int, str]]:
    if message.tags:
        yield hash_code(message.tags), message.tags


def _read(log: CommitLogReader, offset: int) -> MessageExt | None:
    try:
        return log.get(offset)
    except StoreError:
        return None
