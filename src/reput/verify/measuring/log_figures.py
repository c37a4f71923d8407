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
        part = self._parts(messages["store_timestamp"])
        self._count_queues(batch, part, size)
        offsets = messages["physical_offset"]
        self._keys.add(batch.key_hash, np.repeat(offsets, messages["key_count"]))
        scheduled = [queue.topic == SCHEDULE_TOPIC for queue in batch.queues]
        tagged = messages["tags_code"] != 0
        if any(scheduled):
            tagged &= ~np.array(scheduled)[messages["queue"]]
        self._tags.add(messages["tags_code"][tagged], offsets[tagged])

    def _parts(self, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The part of the timeline of each message; notes the longest gaps on the way."""
        before = times[0] if self._last_ms is None else self._last_ms
        known = np.concatenate([[before], times]).clip(-_MOST_TIME, _MOST_TIME)
        gaps = np.diff(known)
        rows = np.argpartition(gaps, -min(_GAPS, len(gaps)))[-min(_GAPS, len(gaps)) :]
        self._gaps += [(int(gaps[row]), int(known[row])) for row in rows if gaps[row] > 0]
        self._gaps = sorted(self._gaps, reverse=True)[:_GAPS]
        self._last_ms = int(times[-1])
        line = self.timeline
        return ((known[1:] - line.begin_ms) // line.part_ms).clip(0, line.parts - 1)

    def _count_queues(
        self,
        batch: DispatchBatch,
        part: npt.NDArray[np.int64],
        size: npt.NDArray[np.int32],
    ) -> None:
        queues, parts = batch.queues, self.timeline.parts
        cell = batch.messages["queue"].astype(np.int64) * parts + part
        counts = np.bincount(cell, minlength=len(queues) * parts).reshape(len(queues), parts)
        sums = np.bincount(cell, weights=size, minlength=len(queues) * parts)
        sizes = sums.astype(np.int64).reshape(len(queues), parts)
        for number in np.flatnonzero(counts.any(axis=1)).tolist():
            queue = queues[number]
            known = self._queues.setdefault(queue, [0, 0])
            known[0] += int(counts[number].sum())
            known[1] += int(sizes[number].sum())
            rows = self._topics.setdefault(queue.topic, np.zeros((2, parts), np.int64))
            rows[0] += counts[number]
            rows[1] += sizes[number]

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
