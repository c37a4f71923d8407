"""The interface of an index of keys for queries, look-ups and tables, and the rule for trusting it.

An index is a set of parts. Each part covers a range of the log: it has an entry for every key of every message that
begins in this range. An entry is only a candidate. It counts if the record at its offset exists, states this offset,
and has a key with the entry's hash. If an entry fails this test, its part is damaged or belongs to another log. Then
the part is not trusted for keys with the entry's hash, and its range is scanned for them. `reput.core.index.search`
implements this rule for one query, `reput.kernels.key_match.match_keys` for millions of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from reput.base import Finding, Kind
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.errors import FormatError, StoreError
from reput.format.index_file import HashedTopics, index_key, key_hash

# Only for annotations: loading NumPy would slow down every small query.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


ARCHIVED_KEYS = "keys/"
"""Prefix of the names of index parts that belong to an archive."""
FEW_HASHES = 1 << 9
"""Fewer hashes than this are computed and looked up one by one, without NumPy."""


class Basis(StrEnum):
    """The reason why a part of an index is trusted to have every key of its range: a proof or spot checks.

    In both cases, every entry that a search follows is verified. A proof compares all items with the log. Spot checks
    compare only some items, so they can overlook missing entries.
    """

    PROVEN = "proven"
    SPOT_CHECKED = "spot-checked"


class UntrustedIndexError(FormatError):
    """A part of an index contradicts itself or the log. `offset` is a position in the index's file."""

    kind = Kind.BROKEN_INDEX_CHAIN


class StaleEntryError(UntrustedIndexError):
    """The record of an index entry is missing or does not match. `offset` is the record's physical offset.

    Attributes:
        damaged: range of the record if its properties are damaged, according to the entries around; else None
    """

    kind = Kind.STALE_INDEX_ENTRY

    def __init__(
        self, path: str, offset: int, reason: str, damaged: OffsetRange | None = None
    ) -> None:
        super().__init__(path, offset, reason)
        self.damaged = damaged


class TimeWindow(NamedTuple):
    """Store timestamps in milliseconds, both inclusive."""

    begin: int
    end: int


class NamedKey(NamedTuple):
    """A unique key, or a part of KEYS, in a topic; in all topics if the topic is None."""

    topic: str | None
    key: str


def names_of(topics: Iterable[str] | None, keys: Iterable[str]) -> list[NamedKey]:
    """Return each key in each topic. `topics` None stands for all topics."""
    named: Iterable[str | None] = (None,) if topics is None else topics
    return [NamedKey(topic, key) for topic in named for key in keys]


class Candidate(NamedTuple):
    """An entry of an index: the hash of a key, and the offset of a message that should have the key."""

    physical_offset: int
    key_hash: int


_StoreErrorT = TypeVar("_StoreErrorT", bound=StoreError)


def next_candidates(
    candidates: Iterator[Candidate], count: int, expected: type[_StoreErrorT]
) -> tuple[list[Candidate], _StoreErrorT | None]:
    """Return up to `count` candidates, and the expected error that ended the iteration, if any.

    So callers can use the candidates before the error, and then raise it.
    """
    ahead: list[Candidate] = []
    try:
        for candidate in islice(candidates, count):
            ahead.append(candidate)
    except expected as error:
        return ahead, error
    return ahead, None


class KeyHashes(Collection[int]):
    """The hashes of some keys in some topics. Many hashes are computed as an array."""

    def __init__(self, topics: Sequence[str], keys: Collection[str]) -> None:
        self._array: npt.NDArray[np.int32] | None = None
        if len(topics) * len(keys) < FEW_HASHES:
            self._hashes: Collection[int] = frozenset(
                key_hash(index_key(topic, key)) for topic in topics for key in keys
            )
        else:
            import numpy as np

            hashed = topics if isinstance(topics, HashedTopics) else HashedTopics(topics)
            hashes = np.sort(hashed.key_hashes(keys))
            # Different keys may have the same hash.
            self._array = hashes[np.diff(hashes, prepend=-1) > 0]
            self._hashes = self._array.tolist()

    @property
    def array(self) -> npt.NDArray[np.int32]:
        """Return the hashes as an ascending array."""
        import numpy as np

        return np.array(sorted(self._hashes), np.int32) if self._array is None else self._array

    def __contains__(self, value: object) -> bool:
        return value in self._hashes

    def __iter__(self) -> Iterator[int]:
        return iter(self._hashes)

    def __len__(self) -> int:
        return len(self._hashes)


class CandidateArrays(NamedTuple):
    """Candidates as arrays.

    Attributes:
        offsets: int64[n], physical offsets
        hashes: int32[n], hashes of keys
    """

    offsets: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.int32]


class BulkHits(NamedTuple):
    """Candidates for a group of requested hashes.

    Attributes:
        which: int64[n], for each candidate: which hash of the group it has, from 0 on
        offsets: int64[n], physical offsets
        broken: int64[m]: which hashes of the group have a broken chain, so that candidates may be missing
    """

    which: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    broken: npt.NDArray[np.int64]


class BulkSearch(Protocol):
    """A search for many hashes in one part of an index; small and picklable, for a task in another process."""

    def weight(self, keys: int) -> int:
        """Return the cost of a search for `keys` keys: the bytes of log that a scan reads in about the same time."""
        ...

    def find_each(self, groups: Iterable[npt.NDArray[np.int32]]) -> Iterator[tuple[int, BulkHits]]:
        """Yield the hits of each group of ascending hashes, as pairs (index of the group, hits).

        A group may have several pairs. The next group is taken from `groups` only after the last pair of the previous
        group. Raises StoreChangedError, StoreAccessError.
        """
        ...


class IndexPart(Protocol):
    """A part of an index, such as an IndexFile, that covers messages at physical offsets [start, stop).

    Attributes:
        name, path: name and path of the file or folder with the part
        basis: why the part is trusted to have every key of the range
    """

    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def basis(self) -> Basis: ...

    def candidates(self, hashes: Collection[int], within: OffsetRange) -> Iterator[Candidate]:
        """Yield entries with one of these hashes that point into the range, newest first, without duplicates.

        Raises UntrustedIndexError if the entries of the part contradict each other. Then candidates may be missing.
        """
        ...

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """Yield the same candidates as `candidates`, some thousands at a time.

        If an error occurs, the candidates found before it are yielded first.
        """
        ...

    def at_times(
        self, log: CommitLogReader, window: TimeWindow, within: OffsetRange
    ) -> OffsetRange:
        """Return the subrange that contains all messages of a window; the whole range if the index cannot limit it.

        Raises StoreAccessError, StoreChangedError.
        """
        ...

    def lost_record(self, log: CommitLogReader, physical_offset: int) -> OffsetRange | None:
        """Return the range of a record if it has lost the key of an entry; None if the entry may be wrong.

        The entries before and after those of the record show which of the two is wrong. An index of another state of
        the log has several wrong entries in a row, or states other times. Between right entries, a record of the right
        time has lost the key: its properties are damaged. No checksum covers them before 5.x.

        Raises StoreAccessError, StoreChangedError.
        """
        ...

    def bulk(self, within: OffsetRange) -> BulkSearch:
        """Return a search for many hashes, which can run in another process."""
        ...


class KeyIndex(Protocol):
    """An index from hashes of keys to messages of one log."""

    def parts(self) -> tuple[IndexPart, ...]:
        """Return the current parts, oldest range first; ranges may overlap. Raises StoreAccessError, UsageError."""
        ...

    @property
    def problems(self) -> list[Finding]:
        """Return one finding for each part that the last call of `parts` excluded."""
        ...

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """Compare the entries that lead to a range outside of all parts with their records.

        Yield the physical offset of each record and, if it has lost a key of an entry (`IndexPart.lost_record`), its
        range. The entries are those at the last call of `parts`, and the records are read now. A range with many
        entries has entries of another state of the log, so nothing is yielded for it.

        Raises StoreAccessError, StoreChangedError.
        """
        ...

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """Yield keys, and the ranges of records that have lost them, according to entries that no part has.

        Args:
            names: The keys.
            window: The store times of the records; None for all times.

        Raises StoreAccessError, StoreChangedError.
        """
        ...

    @property
    def newest_entry(self) -> int:
        """Return the physical offset of the newest entry at the last call of `parts`; -1 if there was no entry.

        Entries that are not trusted count as well.
        """
        ...
