"""Find out whether a light queue (%LMQ%) that does not exist was lost.

Messages name further queues in the property INNER_MULTI_DISPATCH. The map of known ranges has only the queues of the
messages themselves, because the properties of all messages take much longer to read. So a question about a light topic
without queues scans the messages of its window.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from reput.base import Finding, Kind
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.scan_mode import ScanMode
from reput.core.log.walk import sampled_records
from reput.core.queues.kinds import is_light
from reput.errors import StoreNotFoundError
from reput.format.file_names import CONSUME_QUEUE_FOLDER

if TYPE_CHECKING:
    from reput.core.query.message_store import MessageStore
    from reput.core.store.store_reader import StoreReader

# A scan of this many bytes takes about a second.
_MOST_BYTES = 256 << 20
# In a longer log, messages at this many places are read.
_PLACES = 64
# Number of topics that are remembered, which bounds the memory.
_MOST_TOPICS = 1 << 16


def lost_light_queue(
    store: MessageStore, topic: str, ranges: Sequence[OffsetRange]
) -> Finding | None:
    """Return a finding if messages in ranges of the log name a queue of a light topic, or may name one.

    Each range lies in one file and begins at a record. Raises StoreAccessError, StoreChangedError.
    """
    folder = os.path.join(store.path, CONSUME_QUEUE_FOLDER, topic)
    if sum(part.size_bytes for part in ranges) > _MOST_BYTES:
        unknown = "there is no such queue, and too much of the log to search for its messages"
        return Finding(Kind.MISSING_QUEUE, folder, unknown)
    if any(topic in named for named in _topics_in(store, ranges)):
        return Finding(Kind.MISSING_QUEUE, folder, "the log has messages of this queue")
    return None


def _topics_in(store: StoreReader, ranges: Sequence[OffsetRange]) -> Iterator[set[str]]:
    """Yield the topics of the further queues of messages in ranges of the log, batch by batch."""
    # Import this late, because most questions need no kernels.
    from reput.core.log.scan import FileScan
    from reput.core.log.scan_mode import DispatchRules

    log, rules = store.commit_log, DispatchRules(multi_dispatch=True, lmq=True)
    for start, stop in ranges:
        if (file := log.file_at(start)) is None:
            continue
        scan = FileScan(
            file, start, stop, ScanMode.READER_SALVAGE, rules, open_file=log.source.open
        )
        with suppress(StoreNotFoundError):  # The file has expired meanwhile.
            for batch in scan.batches():
                yield {batch.queues[number].topic for number in batch.multi["queue"].tolist()}


class LightTopics:
    """The light topics that messages of a log name. Each part of the log is scanned once; a long log is sampled."""

    def __init__(self, store: StoreReader) -> None:
        self._store, self._until = store, 0
        self._topics: set[str] = set()
        self._sampled: tuple[CommitLogFile, ...] = ()

    def has(self, topic: str) -> bool:
        """Return whether the log is known to name this light topic.

        If too much of the log would have to be scanned, only messages at some places are read.

        Raises StoreAccessError, StoreChangedError.
        """
        store, log = self._store, self._store.commit_log
        if not is_light(topic) or store.has_all_entries or not log.files:
            return False
        end = store.known_ranges.end()
        ranges = [
            OffsetRange(max(file.start, self._until), min(file.end, end))
            for file in log.files
            if file.end > self._until and file.start < end
        ]
        if sum(part.size_bytes for part in ranges) > _MOST_BYTES:
            if self._sampled != log.files:
                self._sampled = log.files
                self._add(_topics_at(log, OffsetRange(log.min_offset, end)))
            return topic in self._topics
        for topics in _topics_in(store, ranges):
            self._add(topics)
        self._until = max(self._until, end)
        return topic in self._topics

    def _add(self, topics: set[str]) -> None:
        if len(self._topics) < _MOST_TOPICS:
            self._topics |= topics


def _topics_at(log: CommitLogReader, within: OffsetRange) -> set[str]:
    """Return the topics of the further queues of messages at some places."""
    # Each place of a remote log takes a request over the network.
    if not log.source.is_local:
        return set()
    records = sampled_records(log, within, _PLACES)
    return {topic for record in records for topic, *_ in record.further_places()}
