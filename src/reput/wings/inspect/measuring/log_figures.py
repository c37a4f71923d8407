"""Measure the messages of a log in one pass with the scan kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from reput.base import Finding
from reput.core import CommitLogReader, DispatchBatch, FileScan, Queue, ScanBuffers, ScanMode
from reput.errors import StoreError, StoreNotFoundError
from reput.format.commit_log import SYS_FLAG_INNER_BATCH, MessageExt
from reput.format.index_file import index_key, key_hash
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, index_keys
from reput.kernels.counting import count_messages
from reput.wings.inspect.measuring import figures

_MOST_EXACT = 1 << 16
# The counters take 16 MiB and 1 MiB, so they stay in the processor's cache.
_KEY_BITS, _TAG_BITS = 20, 16
_GAPS, _FREQUENT = 10, 20
# Store times of damaged records can be any int64. Differences of clipped times do not overflow.
_MOST_TIME = 1 << 61
TextsOf = Callable[[MessageExt], Iterable[tuple[int, str]]]


class FrequentHashes:
    """Counts hashes by their lower bits. Kernels of `reput.kernels.counting` fill the counters.

    counters: int64[2**bits, 2]; number of hashes with these lower bits, and physical offset of their newest message
    """

    def __init__(self, bits: int) -> None:
        self._mask = (1 << bits) - 1
        self.counters: npt.NDArray[np.int64] = np.zeros((1 << bits, 2), np.int64)

    def counter_of(self, hashed: int) -> int:
        """Return the row of `counters` that has the count of a hash."""
        return hashed & self._mask

    def top(self, most: int) -> list[tuple[int, int, int]]:
        """Return the largest counters above 1, each as (row of `counters`, count, offset of a counted message)."""
        counts = self.counters[:, 0].copy()
        rows = np.flatnonzero(counts >= _reached_by(most, counts))
        rows = rows[np.argsort(-counts[rows], kind="stable")][:most]
        return [(row, int(counts[row]), int(self.counters[row, 1])) for row in rows.tolist()]

    @property
    def error(self) -> int:
        """Return by how much a count is too high on average, rounded up. Several hashes share a counter."""
        return -(-int(self.counters[:, 0].sum()) // len(self.counters))


def _reached_by(most: int, counts: npt.NDArray[np.int64]) -> int:
    """Return a threshold, at least 2, such that the number of counters that reach it is about `most`.

    Only these counters need to be sorted.
    """
    with_count = np.bincount(np.minimum(counts, _MOST_EXACT))
    with_more = with_count[::-1].cumsum()[::-1]
    return max(int(np.count_nonzero(with_more >= most)) - 1, 2)


class LogFigures:
    """Counts messages batch by batch.

    Memory: a row of numbers per queue, a timeline per topic, and 17 MiB of counters.
    """

    def __init__(self, timeline: figures.Timeline) -> None:
        self.timeline = timeline
        self.messages = self.inner_batches = self.size_bytes = self.index_entries = 0
        self.damage: list[Finding] = []
        self._queues: dict[Queue, list[int]] = {}
        self._topics: dict[str, npt.NDArray[np.int64]] = {}
        self._keys, self._tags = FrequentHashes(_KEY_BITS), FrequentHashes(_TAG_BITS)
        self._gaps: list[tuple[int, int]] = []
        self._last_ms: int | None = None

    def read(self, log: CommitLogReader, log_end: int) -> None:
        """Read all files of a log, which ends at `log_end`. Files that a broker deletes meanwhile are not counted.

        Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
        """
        self.damage += log.holes()
        buffers = ScanBuffers()
        for file in log.files:
            # In salvage mode, the walk continues after damage, so that the messages after it are counted.
            scan = FileScan(
                file,
                file.start,
                file.end,
                ScanMode.READER_SALVAGE,
                buffers=buffers,
                open_file=log.source.open,
            )
            counters = _Cells(self.timeline.parts)
            try:
                for batch in scan.batches(by_window=True):
                    self._count(batch, counters)
            except StoreNotFoundError:
                # The broker deletes log files from the beginning of the log, so any other missing file was lost.
                log.refresh()
                if file.start >= log.min_offset:
                    raise
                continue
            self._add(counters.queues, counters.cells)
            self.damage += scan.unread(log_end)

    def _count(self, batch: DispatchBatch, counters: _Cells) -> None:
        messages, line = batch.messages, self.timeline
        counters.make_room(batch.queues)
        self.messages += len(messages)
        self.index_entries += len(batch.key_hash)
        self.inner_batches += int(np.count_nonzero(messages["sys_flag"] & SYS_FLAG_INNER_BATCH))
        # The first message of the log has no predecessor. Compare its time with itself, so that no gap is found.
        first_ms, before = int(messages["store_timestamp"][0]), self._last_ms
        begin_ms = min(max(line.begin_ms, -_MOST_TIME), _MOST_TIME)
        last_ms, longest = count_messages(
            messages, batch.key_hash, counters.has_tags, first_ms if before is None else before,
            begin_ms, line.part_ms, counters.cells, self._keys.counters, self._tags.counters,
        )  # fmt: skip
        # `_gaps` keeps the longest gaps. Look at the gaps of this batch only if its longest one would be kept.
        if longest > (self._gaps[-1][0] if len(self._gaps) == _GAPS else 0):
            self._note_gaps(messages["store_timestamp"])
        self._last_ms = int(last_ms)

    def _note_gaps(self, times: npt.NDArray[np.int64]) -> None:
        """Add the gaps between these store times, and keep the longest ones."""
        before = times[0] if self._last_ms is None else self._last_ms
        clipped = np.concatenate([[before], times]).clip(-_MOST_TIME, _MOST_TIME)
        gaps = np.diff(clipped)
        rows = np.flatnonzero(gaps > (self._gaps[-1][0] if len(self._gaps) == _GAPS else 0))
        rows = rows[np.argsort(-gaps[rows], kind="stable")][:_GAPS]
        self._gaps += [(int(gaps[row]), int(clipped[row])) for row in rows]
        self._gaps = sorted(self._gaps, reverse=True)[:_GAPS]

    def _add(self, queues: list[Queue], cells: npt.NDArray[np.int64]) -> None:
        sums = cells.sum(axis=1)
        for number in np.flatnonzero(sums[:, 0]).tolist():
            totals = self._queues.setdefault(queues[number], [0, 0])
            totals[0] += int(sums[number, 0])
            totals[1] += int(sums[number, 1])
            self.size_bytes += int(sums[number, 1])
            rows = self._topics.setdefault(
                queues[number].topic, np.zeros((2, self.timeline.parts), np.int64)
            )
            rows += cells[number].T

    def topics(self) -> list[figures.TopicFigures]:
        """Return the topics, largest first."""
        topics = [
            figures.TopicFigures(topic, rows[0].tolist(), rows[1].tolist())
            for topic, rows in self._topics.items()
        ]
        return sorted(topics, key=lambda topic: (-topic.all_bytes, topic.topic))

    def queues(self) -> list[figures.QueueFigures]:
        """Return the queues, largest first."""
        queues = [figures.QueueFigures(*queue, *totals) for queue, totals in self._queues.items()]
        return sorted(queues, key=lambda one: (-one.size_bytes, one.topic, one.queue_id))

    def gaps(self) -> list[figures.Gap]:
        """Return the longest periods without messages, longest first."""
        return [figures.Gap(begin, begin + length) for length, begin in self._gaps]

    def frequent_keys(self, log: CommitLogReader) -> list[figures.Frequent]:
        """Return keys that more than one message has, the most frequent first. Raises StoreAccessError."""
        return self._frequent(log, self._keys, _keys_of)

    def frequent_tags(self, log: CommitLogReader) -> list[figures.Frequent]:
        """Return the most frequent tags of all topics, each with the topic of one message that has the tag.

        Raises StoreAccessError.
        """
        return self._frequent(log, self._tags, _tags_of)

    def _frequent(
        self, log: CommitLogReader, hashes: FrequentHashes, texts_of: TextsOf
    ) -> list[figures.Frequent]:
        frequent = []
        for counter, count, offset in hashes.top(_FREQUENT):
            message = _read(log, offset)
            if count < 2 or message is None:  # A key that occurs once is not frequent.
                continue
            # The counter has only the hash of a key or tag. Take the text from the newest message with this hash.
            for hashed, text in texts_of(message):
                if hashes.counter_of(hashed) == counter:
                    # Several texts may share a counter. One of the counted messages was read and has this text, so at
                    # most `count - 1` of them have a different text.
                    frequent.append(
                        figures.Frequent(message.topic, text, count, min(hashes.error, count - 1))
                    )
                    break
        return frequent


class _Cells:
    """Messages and bytes of one log file by queue and time. Kernels of `reput.kernels.counting` fill the cells.

    cells: int64[n, parts, 2]; a row per queue, and a column per time interval. Each cell has two numbers: messages and
        bytes. Rows after the last queue are free.
    has_tags: bool[n]; whether tags codes are hashes of tags (in the schedule topic, they are times)
    """

    def __init__(self, parts: int) -> None:
        self.queues: list[Queue] = []
        self.cells: npt.NDArray[np.int64] = np.zeros((0, parts, 2), np.int64)
        self.has_tags: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)

    def make_room(self, queues: list[Queue]) -> None:
        """Make room for these queues. The list must begin with the queues of the previous call."""
        # Doubling keeps the number of copies small when queues appear one by one.
        more = 2 * len(queues) - len(self.cells)
        if len(queues) > len(self.cells):
            room = np.zeros((more, *self.cells.shape[1:]), np.int64)
            self.cells = np.concatenate([self.cells, room])
            self.has_tags = np.concatenate([self.has_tags, np.zeros(more, np.bool_)])
        for number in range(len(self.queues), len(queues)):
            self.has_tags[number] = queues[number].topic != SCHEDULE_TOPIC
        self.queues = queues


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
