"""The figures of a store, which `reput stats` prints and a report draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reput.errors import StoreAccessError
from reput.files.disk import Disk
from reput.files.storage import LOCAL
from reput.findings import Finding
from reput.index.key_index import Basis
from reput.index.plan import Segment
from reput.query.message_store import MessageStore

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """Time in equal parts. A message whose store time lies outside counts in the first or the last part.

    Attributes:
        begin_ms: Of the first part.
        part_ms: Length of each.
        parts: How many there are.
    """

    begin_ms: int
    part_ms: int
    parts: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """One topic. `messages` and `size_bytes` per interval of the timeline; bytes are sizes of records."""

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
    """A time without messages, in ms: from one message's store time to the next one's."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Frequent:
    """A key or tag that many messages have: at most `count`, of which on average `error` belong to others.

    `topic` is the key's topic. A tag counts in all topics together; its `topic` is that of one message.
    """

    topic: str
    text: str
    count: int
    error: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Records in the retry and dead letter topics of a consumer group."""

    group: str
    retries: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class IndexFileFigures:
    """One IndexFile.

    Attributes:
        entries: Used items; the file is full at `index_items - 1`.
        used_slots: Slots with at least one entry.
        chains: Slots by chain length: from (inclusive), to (inclusive), slots.
        longest_chain: Entries of the longest one.
        mean_steps: Entries that a look-up of a key in the file reads on average, half of its chain and itself.
        false_positive_rate: Share of keys that are not in the file for which it has an entry with the same hash,
            from the different hashes in a sixteenth of all.
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
    """A range of the log; `basis` says how its keys are found: `proven` or `spot-checked` IndexFiles, or `scanned`."""

    begin: int
    end: int
    basis: str


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """How much of the log the IndexFiles cover; a query scans the rest.

    `ranges` are all of the log in order, neighbours of one basis joined.
    """

    log_bytes: int
    indexed_bytes: int
    spot_checked_files: int
    files: int
    ranges: list[CoveredRange]


@dataclass(frozen=True, slots=True)
class Sizing:
    """Sizes derived from the store's own rates. Rates are unknown (None) if the log spans less than a minute.

    Attributes:
        keys_per_day, log_bytes_per_day: Over the whole log.
        store_bytes_per_log_byte: ConsumeQueues and IndexFiles included; holes in files do not count.
        index_items, hash_slots: For IndexFiles of a day each.
        hours_per_index_file: How long an IndexFile of the store's geometry lasts.
        used_bytes, free_bytes: Of the disk; None if it is not a local one.
        days_until_full: At this rate if nothing expires.
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
    """Everything measured of a store; `damage` could not be read and is not in the figures.

    Attributes:
        messages: Records: an inner batch (5.x) is one of them, however many messages it holds.
        inner_batches: How many of them are inner batches.
    """

    store: str
    log_begin: int
    log_end: int
    messages: int
    inner_batches: int
    size_bytes: int
    index_entries: int
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
        fields["damage"] = [one.as_json() for one in self.damage]
        return fields


def index_coverage(store: MessageStore) -> IndexCoverage:
    """Return how much of the log queries find through the IndexFiles. Raises StoreAccessError."""
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
    """Return ascending ranges up to the log's end; a look-up searches the newest first."""
    found: list[CoveredRange] = []
    for segment in sorted(segments, key=lambda one: one.start):
        basis = "scanned" if segment.part is None else str(segment.part.basis)
        begin, stop = segment.start, min(segment.stop, log_end)
        if begin >= stop:
            continue
        if found and (found[-1].basis, found[-1].end) == (basis, begin):
            begin = found.pop().begin
        found.append(CoveredRange(begin, stop, basis))
    return found


def disk_usage(store: MessageStore) -> tuple[int, int] | tuple[None, None]:
    """Return how many bytes of the store's disk are used and free; None of a store elsewhere."""
    if store.storage is not LOCAL and not store.storage.is_local:
        return None, None
    try:
        return Disk().usage(Path(store.path))
    except StoreAccessError:
        return None, None
