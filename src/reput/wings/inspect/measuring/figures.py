"""Define the figures of a store, which `reput stats` prints and a report draws."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from reput.base import Finding
from reput.core import Basis, MessageStore, Segment


@dataclass(frozen=True, slots=True)
class Timeline:
    """A span of time, divided into equal parts.

    Messages stored before the span are counted in the first part, and messages stored after it in the last part.

    Attributes:
        begin_ms: Beginning of the first part, ms since 1970.
        part_ms: Length of each part, ms.
        parts: Number of parts.
    """

    begin_ms: int
    part_ms: int
    parts: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The figures of one topic: number of messages and bytes of their records, per part of the timeline."""

    topic: str
    messages: list[int]
    size_bytes: list[int]

    @property
    def all_messages(self) -> int:
        return sum(self.messages)

    @property
    def all_bytes(self) -> int:
        return sum(self.size_bytes)


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue: messages and bytes of records in the log."""

    topic: str
    queue_id: int
    messages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A period without messages, between the store times (ms) of two successive messages."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Frequent:
    """A key or tag that many messages have.

    Keys and tags are counted by hash, so `count` may include messages with a different key or tag. `error` is an
    estimate of the number of such messages. Tags are counted over all topics, so `topic` is the topic of one message
    with the tag.
    """

    topic: str
    text: str
    count: int
    error: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Number of records in the retry and dead letter topics of a consumer group."""

    group: str
    retries: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class IndexFileFigures:
    """One IndexFile.

    Attributes:
        entries: Number of used items. A file is full at `index_items - 1`, because item 0 is never used.
        used_slots: Number of slots with at least one entry.
        chains: Distribution of chain lengths, as rows (fewest entries, most entries, number of slots).
        longest_chain: Number of entries in the longest chain.
        mean_steps: Average number of entries that a look-up reads up to the entry of its key.
        false_positive_rate: Estimated share of absent keys for which the file has an entry with the same hash.
    """

    name: str
    hash_slots: int
    index_items: int
    entries: int
    used_slots: int
    chains: list[tuple[int, int, int]]
    longest_chain: int
    mean_steps: float
    false_positive_rate: float

    @property
    def slot_load(self) -> float:
        return self.used_slots / self.hash_slots


@dataclass(frozen=True, slots=True)
class CoveredRange:
    """A range of the log.

    `basis` states how a query finds the keys in the range:

    proven        in IndexFiles; a proof has shown that the IndexFiles have every key of the range
    spot-checked  in IndexFiles; spot checks have found no error in the IndexFiles
    scanned       by reading the range
    """

    begin: int
    end: int
    basis: str


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """The parts of the log that IndexFiles cover, and the other parts, which a query scans.

    `ranges` lists all parts of the log, covered or not, in ascending order. Adjacent parts with the same
    `CoveredRange.basis` are joined.
    """

    log_bytes: int
    indexed_bytes: int
    spot_checked_files: int
    files: int
    ranges: list[CoveredRange]


@dataclass(frozen=True, slots=True)
class Sizing:
    """Advice on file sizes, derived from the store's rates. Rates are None if the log spans less than a minute.

    Attributes:
        keys_per_day, log_bytes_per_day: Averages over the whole log.
        store_bytes_per_log_byte: Bytes of the store, including ConsumeQueues and IndexFiles, per byte of the log.
            Unallocated parts of sparse files do not count.
        index_items, hash_slots: Sizes with which one IndexFile has room for the keys of one day.
        hours_per_index_file: Hours until an IndexFile of the store's current sizes is full.
        used_bytes, free_bytes: Bytes of the store's disk; None if the store is not local.
        days_until_full: Days until the disk is full if the log and its indexes keep the growth of the log's last day,
            and nothing expires.
    """

    keys_per_day: float | None
    log_bytes_per_day: float | None
    store_bytes_per_log_byte: float
    index_items: int | None
    hash_slots: int | None
    hours_per_index_file: float | None
    used_bytes: int | None
    free_bytes: int | None
    days_until_full: float | None


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """All figures of a store. Messages in unreadable ranges, which `damage` lists, are not counted.

    Attributes:
        messages: Number of records; an inner batch (5.x) is one record, however many messages it holds.
        inner_batches: Number of inner batches among these records.
        newest_ms: Store time of the newest message.
    """

    store: str
    log_begin: int
    log_end: int
    messages: int
    inner_batches: int
    size_bytes: int
    index_entries: int
    newest_ms: int
    timeline: Timeline
    topics: list[TopicFigures]
    queues: list[QueueFigures]
    gaps: list[Gap]
    keys: list[Frequent]
    tags: list[Frequent]
    groups: list[GroupFigures]
    coverage: IndexCoverage
    index_files: list[IndexFileFigures]
    sizing: Sizing
    damage: list[Finding]

    def as_json(self) -> dict[str, Any]:
        """Return all figures, for json.dumps."""
        fields = asdict(self)
        fields["damage"] = [finding.as_json() for finding in self.damage]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StoreFigures:
        """Return the figures from the result of `as_json`. Raises KeyError, msgspec.ValidationError."""
        figures = msgspec.convert({**fields, "damage": []}, cls)
        return replace(figures, damage=[Finding.from_json(finding) for finding in fields["damage"]])


def index_coverage(store: MessageStore) -> IndexCoverage:
    """Return for each range of the log whether a query by key uses IndexFiles or scans the range.

    Raises StoreAccessError.
    """
    segments = store.key_planner().segments()
    indexed = [(segment, segment.part) for segment in segments if segment.part is not None]
    bases = {part.name: part.basis for _, part in indexed}
    end = store.end_offset()
    return IndexCoverage(
        end - store.begin_offset(),
        sum(segment.stop - segment.start for segment, _ in indexed),
        sum(basis is Basis.SPOT_CHECKED for basis in bases.values()),
        len(bases),
        covered_log(segments, end),
    )


def covered_log(segments: Iterable[Segment], log_end: int) -> list[CoveredRange]:
    """Convert the segments of a look-up to ranges of the log, oldest first. The last range ends at `log_end`.

    Adjacent segments with the same basis (see `CoveredRange`) become one range.
    """
    ranges: list[CoveredRange] = []
    for segment in sorted(segments, key=lambda item: item.start):
        basis = "scanned" if segment.part is None else str(segment.part.basis)
        begin, stop = segment.start, min(segment.stop, log_end)
        if begin >= stop:
            continue
        if ranges and (ranges[-1].basis, ranges[-1].end) == (basis, begin):
            begin = ranges.pop().begin
        ranges.append(CoveredRange(begin, stop, basis))
    return ranges
