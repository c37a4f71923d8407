"""Find the places of messages with a key through the indexes of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from reput.base import Finding
from reput.core import (
    Basis,
    BulkSearch,
    Candidate,
    CandidateArrays,
    CommitLogReader,
    IndexPart,
    IndexSearch,
    KeyHashes,
    LogListing,
    OffsetRange,
    Planner,
    ScanBuffers,
    Segment,
    StoreReader,
    TimeWindow,
    UntrustedIndexError,
    lost_keys,
    names_of,
)
from reput.engine.rebuild import find_log_end
from reput.engine.tables.found_records import FoundRecords
from reput.errors import StoreError, UsageError
from reput.format.properties import may_be_replaced_id
from reput.io import storage_of

_CANDIDATE_BYTES = 128 << 10
"""Verifying a candidate (an index entry with the key's hash) takes about as long as scanning this many bytes of log."""
_FEW_HASHES = 1 << 10
"""A search for fewer keys times topics is never slower than a scan."""
_MOST_HASHES = 1 << 22
"""With more keys times topics, the log is scanned."""
_NO_TIME = TimeWindow(2**63 - 1, -(2**63))
"""A search with this window verifies all entries, but returns few or no records if there are many."""


@dataclass(frozen=True, slots=True)
class KeyedStretch:
    """A range of the log, and the requested messages that begin in it.

    records: the requested messages; None if the whole range must be read to find them
    is_frequent: whether the whole range must be read because too many index entries have a requested key's hash
    has_many_keys: whether the whole range must be read because a search for so many keys takes longer
    damage: the records that have lost a requested key, according to the index
    """

    range: OffsetRange
    records: FoundRecords | None = None
    is_frequent: bool = False
    has_many_keys: bool = False
    damage: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyedLog:
    """The stretches of a log, oldest first, and what their search by key has to report.

    damage: records that may have a requested key, but have lost it
    notes: remarks on the evidence
    """

    stretches: list[KeyedStretch]
    damage: list[Finding]
    notes: tuple[str, ...]


class IndexBesideLog:
    """The IndexFiles and the checkpoint of the store that a log belongs to. A context manager.

    The store is opened on first use. If it cannot be read, methods find nothing, and the table scans the log.

    Attributes:
        log_end: Physical offset after the last complete record; set by `find_lost_end`.
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
        with_rolled_back: bool = False,
        within: OffsetRange | None = None,
    ) -> KeyedLog | None:
        """Find all messages that have one of these topics and keys.

        Return None if the log is not part of a store, for example a single file, or if the store cannot be read.

        Args:
            topics: The topics; None for all topics of the log.
            keys: Unique keys, or keys in KEYS.
            with_replaced_ids: Whether to search also for ids that are in no index, because a later UNIQ_KEY of the same
                record replaces them (5.x).
            with_rolled_back: Whether to return also rolled-back messages, which are in no index. All of them are
                returned, with any key. Ranges of which no scan has remembered these messages are not searched, and
                neither are ranges whose index is only spot-checked.
            within: The range of the log to search; None for the whole log.
        """
        with suppress(StoreError, UsageError):
            if (opening := self._opened()) is not None:
                store, planner = opening
                named = set(store.all_topics() if topics is None else topics)
                if with_rolled_back and topics is None:
                    named |= _known_topics(store)
                if len(named) * len(keys) > _MOST_HASHES:
                    return None
                hashes = KeyHashes(sorted(named), keys)
                segments = planner.segments()
                if within is not None:
                    segments = tuple(_clipped(segments, within))
                if with_rolled_back:
                    segments = tuple(_with_known_rollbacks(store, segments))
                pieces = [_look_up(store.commit_log, each, hashes) for each in segments]
                damage = [lost for each in pieces for lost in each.damage]
                for each in segments:
                    damage += [] if each.part is not None else planner.without_keys(*each.range)
                names = names_of(topics, keys)
                damage += [lost for _, lost in planner.lost_records(names)]
                notes = store.notes_on_topics() if topics is None else ()
                if with_rolled_back:
                    # A scan would not report a record that has lost its key, either.
                    damage = []
                if with_replaced_ids and any(map(may_be_replaced_id, keys)):
                    pieces = [_with_replaced_ids(store, each, hashes) for each in pieces]
                if with_rolled_back:
                    pieces = [_with_rolled_back(store, each) for each in pieces]
                stretches = _joined(sorted(pieces, key=lambda each: each.range))
                return KeyedLog(stretches, damage, notes)
        return None

    def find_lost_end(self, topics: Collection[str] | None) -> list[Finding]:
        """Return a finding if the index, the checkpoint or a queue shows that the log has lost its newest messages.

        `topics` are the topics whose queues are read; None for all topics.
        """
        # Do not check whether a remote log has lost messages, because the check would add requests to every query. A
        # store that is joined with its archive has its end in the store.
        elsewhere = self.source.elsewhere
        is_joined = elsewhere is not None and storage_of(*elsewhere)[0].is_joined
        if self.source.folder is None and not is_joined:
            return []
        with suppress(StoreError, UsageError):
            if (opening := self._opened()) is not None:
                store, planner = opening
                # Plan before the end of the log is found. Planning reads the newest entry of the index, and `lost_end`
                # compares this entry with the end. In the other order, the newest entry could belong to a message that
                # was appended after the end was found.
                planner.segments()
                self.log_end = find_log_end(self.source, ScanBuffers())
                lost = planner.lost_end(self.log_end)
                lost = lost or store.lost_end_of_queues(self.log_end, topics)
                return [] if lost is None else [lost]
        return []

    def _opened(self) -> tuple[StoreReader, Planner] | None:
        """Return the log's store and its planner; None if the log is in no store. Raises StoreError, UsageError."""
        place, options = self.source.elsewhere or (self.source.folder, None)
        if place is None:
            return None
        if self._store is None:
            self._store = StoreReader(place, storage_options=options)
        if self._planner is None:
            self._planner = self._store.key_planner()
        return self._store, self._planner


def _clipped(segments: Iterable[Segment], within: OffsetRange) -> Iterator[Segment]:
    for segment in segments:
        start, stop = max(segment.start, within.start), min(segment.stop, within.stop)
        if start < stop:
            yield replace(segment, start=start, stop=stop)


def _joined(stretches: list[KeyedStretch]) -> list[KeyedStretch]:
    """Join adjacent stretches if all their records must be read.

    Without joining, a reader would have to search for the first record of each stretch.
    """
    joined: list[KeyedStretch] = []
    for stretch in stretches:
        last = joined[-1] if joined else None
        is_whole = last is not None and last.records is None and stretch.records is None
        if last is not None and is_whole and last.range.stop == stretch.range.start:
            whole = OffsetRange(last.range.start, stretch.range.stop)
            joined[-1] = KeyedStretch(
                whole,
                None,
                last.is_frequent or stretch.is_frequent,
                last.has_many_keys or stretch.has_many_keys,
            )
        else:
            joined.append(stretch)
    return joined


class _Hits:
    """The candidates of many hashes in a part of an index, found in one pass. `IndexSearch` verifies them.

    Raises UntrustedIndexError if a chain is broken, so that candidates may be missing.
    """

    def __init__(self, part: IndexPart, bulk: BulkSearch, hashes: KeyHashes) -> None:
        self.path, self._part = part.path, part
        array = hashes.array
        rows = [np.empty((0, 2), np.int64)]
        for _, hits in bulk.find_each([array]):
            if len(hits.broken):
                raise UntrustedIndexError(part.path, 0, "a chain of items is broken")
            rows.append(np.column_stack((hits.offsets, array[hits.which].astype(np.int64))))
        # Newest message first, each pair once.
        self._rows = np.unique(np.concatenate(rows), axis=0)[::-1]

    def candidates(self, hashes: Collection[int], within: OffsetRange) -> Iterator[Candidate]:
        """See `IndexPart.candidates`."""
        return (Candidate(*row) for row in self._inside(within).tolist())

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """See `IndexPart.candidate_arrays`."""
        rows = self._inside(within)
        yield CandidateArrays(rows[:, 0].copy(), rows[:, 1].astype(np.int32))

    def lost_record(self, log: CommitLogReader, physical_offset: int) -> OffsetRange | None:
        """See `IndexPart.lost_record`."""
        return self._part.lost_record(log, physical_offset)

    def _inside(self, within: OffsetRange) -> npt.NDArray[np.int64]:
        offsets = self._rows[:, 0]
        return self._rows[(within.start <= offsets) & (offsets < within.stop)]


def _look_up(log: CommitLogReader, segment: Segment, hashes: Collection[int]) -> KeyedStretch:
    """Find the requested messages in a segment, which is a range of the log.

    The result has the places of these messages (`records`). If no trusted index covers the segment, or if a scan is
    faster, the result has no `records`, and the caller scans the whole segment.
    """
    if segment.part is None:
        return KeyedStretch(segment.range)
    size, part = segment.stop - segment.start, segment.part
    most = max(size // _CANDIDATE_BYTES, 1)
    is_frequent = False
    try:
        if isinstance(hashes, KeyHashes) and len(hashes) >= _FEW_HASHES:
            bulk = part.bulk(segment.range)
            if bulk.weight(len(hashes)) > size:
                return KeyedStretch(segment.range, has_many_keys=True)
            part = cast("IndexPart", _Hits(part, bulk, hashes))
        # Counting candidates reads only the index, not the messages, and so is fast.
        candidates = islice(part.candidates(hashes, segment.range), most + 1)
        is_frequent = sum(1 for _ in candidates) > most
        if is_frequent and not log.source.is_local:
            return KeyedStretch(segment.range, is_frequent=True)
        # A scan does not notice that a record has lost its key. So the entries of a frequent key are verified, too.
        window = _NO_TIME if is_frequent else None
        search = IndexSearch(log, part, hashes, segment.range, window)
        places = [(record.physical_offset, record.size_bytes) for _, record in search]
    except UntrustedIndexError as error:
        damage = tuple(lost_keys(log, error))
        return KeyedStretch(segment.range, is_frequent=is_frequent, damage=damage)
    if is_frequent:
        return KeyedStretch(segment.range, is_frequent=True)
    places.sort()
    return KeyedStretch(segment.range, FoundRecords.of(places, segment.stop))


def _known_topics(store: StoreReader) -> set[str]:
    """Return all topics of the log files whose facts are remembered."""
    facts_of_files = map(store.known_ranges.known, store.commit_log.files)
    return {queue.topic for facts in facts_of_files for queue in (facts and facts.queues) or ()}


def _with_known_rollbacks(store: StoreReader, segments: Iterable[Segment]) -> Iterator[Segment]:
    """Divide segments by log files. The index is used only where all rolled-back messages are remembered.

    It must also be proven there: spot checks can overlook missing entries.
    """
    for segment in segments:
        if segment.part is None or segment.part.basis is not Basis.PROVEN:
            yield replace(segment, part=None)
            continue
        for file, (begin, end) in store.commit_log.parts(*segment.range):
            facts, stop = store.known_ranges.known(file), begin
            if facts is not None and not facts.damage and facts.queues is not None:
                is_usable = facts.rolled_back is not None and facts.start <= begin
                stop = max(begin, min(facts.stop, end)) if is_usable else begin
            if begin < stop:
                yield replace(segment, start=begin, stop=stop)
            if stop < end:
                yield replace(segment, start=stop, stop=end, part=None)


def _with_rolled_back(store: StoreReader, stretch: KeyedStretch) -> KeyedStretch:
    """Add all rolled-back messages of a stretch, which are remembered (see `_with_known_rollbacks`)."""
    if stretch.records is None:
        return stretch
    log, (start, stop) = store.commit_log, stretch.range
    places = stretch.records.places()
    for file in log.files_within(start, stop):
        facts = store.known_ranges.known(file)
        if facts is None or facts.rolled_back is None:
            return KeyedStretch(stretch.range)
        inside = [offset for offset in facts.rolled_back if start <= offset < stop]
        if len(inside) * _CANDIDATE_BYTES > stop - start:
            return KeyedStretch(stretch.range)
        for offset in inside:
            try:
                places[offset] = log.locate(offset).layout.total_bytes
            except StoreError:
                return KeyedStretch(stretch.range)
    return KeyedStretch(stretch.range, FoundRecords.of(sorted(places.items()), stop))


def _with_replaced_ids(
    store: StoreReader, stretch: KeyedStretch, hashes: Collection[int]
) -> KeyedStretch:
    """Find more requested messages in a stretch of the log: records with a requested id that no index contains.

    If a record has several UNIQ_KEYs, a broker indexes only the last one. A scan of the log finds the other ids. If
    damage may hide some of these ids, return the stretch with `records` None. The caller then reads the whole stretch.
    """
    if stretch.records is None or not store.may_have_replaced_ids:
        return stretch
    log, (start, stop) = store.commit_log, stretch.range
    places = stretch.records.places()
    for file in log.files_within(start, stop):
        facts = store.known_ranges.learn(file, with_ids=True)
        if facts.ids is None or any(
            lost.start < stop and start < lost.stop for lost in facts.damage
        ):
            return KeyedStretch(stretch.range)
        for offset in facts.ids.places(hashes, stretch.range):
            try:
                places[offset] = log.locate(offset).layout.total_bytes
            except StoreError:
                return KeyedStretch(stretch.range)
    return KeyedStretch(stretch.range, FoundRecords.of(sorted(places.items()), stop))
