"""Find the places of messages with a key through the index of a store."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Self

from reput.errors import StoreError, UsageError
from reput.findings import Finding
from reput.format.index_file import index_key, key_hash
from reput.format.properties import may_be_replaced_id
from reput.index.key_index import UntrustedIndexError
from reput.index.plan import Planner, Segment
from reput.index.search import IndexSearch
from reput.log.ends import find_log_end
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.scan import ScanBuffers
from reput.log.sources import LogListing
from reput.store.store_reader import StoreReader
from reput.table.found_records import FoundRecords

_CANDIDATE_BYTES = 128 << 10
"""Bytes of a log that a scan reads in the time in which the driver verifies one candidate of an index."""


@dataclass(frozen=True, slots=True)
class KeyedStretch:
    """A range of physical offsets, and the requested messages that begin in it.

    records      the requested messages; None if the whole range must be read to find them
    is_frequent  whether there are so many of them that reading the whole range is faster
    """

    range: OffsetRange
    records: FoundRecords | None = None
    is_frequent: bool = False


class IndexBesideLog:
    """IndexFiles and checkpoint of a log's store, opened on first use; a context manager.

    Without a readable store beside the log, methods return nothing, and the table reads the log.

    Attributes:
        log_end: physical offset after the last complete record, after a call of `find_lost_end`
    """

    def __init__(self, source: LogListing) -> None:
        self.source = source
        self.log_end: int | None = None
        self._store: StoreReader | None = None
        self._planner: Planner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()

    def find_by_key(
        self,
        topics: Collection[str] | None,
        keys: Collection[str],
        *,
        with_replaced_ids: bool = False,
    ) -> list[KeyedStretch] | None:
        """Return stretches of the log, oldest first, with every message of these topics with one of these keys.

        Keys are unique keys and the keys in KEYS.

        Args:
            topics: the topics, or None for all that have ConsumeQueues
            keys: the keys
            with_replaced_ids: whether to find also ids that a later UNIQ_KEY of the same record replaces (5.x)
        """
        with suppress(StoreError, UsageError):
            if (opened := self._opened()) is not None:
                store, planner = opened
                named = store.queues.topics() if topics is None else topics
                hashes = {key_hash(index_key(topic, key)) for topic in named for key in keys}
                found = [_look_up(store.commit_log, each, hashes) for each in planner.segments()]
                if with_replaced_ids and any(map(may_be_replaced_id, keys)):
                    found = [_with_replaced_ids(store, each, hashes) for each in found]
                return _joined(sorted(found, key=lambda each: each.range))
        return None

    def find_lost_end(self) -> list[Finding]:
        """Return a finding if index or checkpoint show that the newest messages of the log are lost."""
        if self.source.folder is None:  # elsewhere, this would cost requests in every query
            return []
        with suppress(StoreError, UsageError):
            if (opened := self._opened()) is not None:
                planner = opened[1]
                planner.segments()
                self.log_end = find_log_end(self.source, ScanBuffers())
                lost = planner.lost_end(self.log_end)
                return [] if lost is None else [lost]
        return []

    def _opened(self) -> tuple[StoreReader, Planner] | None:
        """Open the store. Raises StoreError, UsageError."""
        place, options = self.source.elsewhere or (self.source.folder, None)
        if place is None:
            return None
        if self._store is None:
            self._store = StoreReader(place, storage_options=options)
        if self._planner is None:
            self._planner = self._store.key_planner()
        return self._store, self._planner


def _joined(stretches: list[KeyedStretch]) -> list[KeyedStretch]:
    """Join adjacent stretches that are read as a whole, because finding the first record of a range takes time."""
    joined: list[KeyedStretch] = []
    for each in stretches:
        last = joined[-1] if joined else None
        is_whole = last is not None and last.records is None and each.records is None
        if last is not None and is_whole and last.range.stop == each.range.start:
            both = OffsetRange(last.range.start, each.range.stop)
            joined[-1] = KeyedStretch(both, None, last.is_frequent or each.is_frequent)
        else:
            joined.append(each)
    return joined


def _look_up(log: CommitLogReader, segment: Segment, hashes: Collection[int]) -> KeyedStretch:
    """Return the index's entries of a segment; None if it has no trusted index or a scan costs less."""
    if segment.part is None:
        return KeyedStretch(segment.range)
    most = max((segment.stop - segment.start) // _CANDIDATE_BYTES, 1)
    try:
        # Counting candidates is fast, because it reads none of them.
        counted = islice(segment.part.candidates(hashes, segment.range), most + 1)
        if sum(1 for _ in counted) > most:
            return KeyedStretch(segment.range, is_frequent=True)
        search = IndexSearch(log, segment.part, hashes, segment.range)
        places = sorted((record.physical_offset, record.size_bytes) for _, record in search)
    except UntrustedIndexError:
        return KeyedStretch(segment.range)
    return KeyedStretch(segment.range, FoundRecords.of(places, segment.stop))


def _with_replaced_ids(
    store: StoreReader, stretch: KeyedStretch, hashes: Collection[int]
) -> KeyedStretch:
    """Add the records with replaced ids to a stretch; if a part is unreadable, return it to be read as a whole."""
    if stretch.records is None or not store.may_have_replaced_ids:
        return stretch
    log, (start, stop) = store.commit_log, stretch.range
    places = dict(
        zip(stretch.records.physical_offset.tolist(), stretch.records.size.tolist(), strict=True)
    )
    for file in log.files:
        if file.start >= stop or file.end <= start:
            continue
        known = store.known_ranges.learn(file, with_ids=True)
        if known.ids is None or any(
            lost.start < stop and start < lost.stop for lost in known.damage
        ):
            return KeyedStretch(stretch.range)
        for offset in known.ids.places(hashes, stretch.range):
            try:
                places[offset] = log.locate(offset).layout.total_bytes
            except StoreError:
                return KeyedStretch(stretch.range)
    return KeyedStretch(stretch.range, FoundRecords.of(sorted(places.items()), stop))
