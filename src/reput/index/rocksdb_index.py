"""The index of keys that a 5.4 broker may keep in RocksDB (RIP-82), as a KeyIndex. Experimental.

The index covers the log from its first to its last indexed message. To verify this, reput samples messages of this
range. If the index lacks a key of one of them, the log is scanned instead. The index always lacks messages without a
unique key, because the broker does not index them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError, MissingExtraError
from reput.files.rocksdb import RocksFolder
from reput.findings import Finding, Kind
from reput.format.index_file import index_key, key_hash
from reput.format.rocksdb_index import (
    INDEX_FAMILY,
    LAST_OFFSET_KEY,
    IndexedKey,
    RocksIndexItem,
    decode_item,
    decode_offset,
    first_of_hour,
    hour_of,
    prefixes,
)
from reput.index.key_index import (
    Basis,
    BulkHits,
    BulkSearch,
    Candidate,
    CandidateArrays,
    IndexPart,
    KeyHashes,
)
from reput.log.keyed_record import KeyedRecord, read_keyed_record
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reput.index.key_index import TimeWindow

_NAME = "RocksDB"
# Number of log files whose first message is looked up in the database.
_SAMPLED_FILES = 16


@dataclass(frozen=True, slots=True)
class RocksIndexPart:
    """The database as an IndexPart."""

    database: RocksFolder
    start: int
    stop: int
    basis: Basis = Basis.SPOT_CHECKED

    @property
    def name(self) -> str:
        return _NAME

    @property
    def path(self) -> str:
        return self.database.folder

    def candidates(self, hashes: Collection[int], within: OffsetRange) -> Iterator[Candidate]:
        """See `IndexPart.candidates`. All items are read, unless `hashes` is a `KeyHashes`, which also has the keys."""
        names = list(hashes.names) if isinstance(hashes, KeyHashes) else None
        found = (
            _matches(all_items(self.database), frozenset(hashes))
            if names is None
            else _of_names(self.database, names)
        )
        inside = {one for one in found if within.start <= one.physical_offset < within.stop}
        yield from sorted(inside, reverse=True)

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """See `IndexPart.candidate_arrays`."""
        from reput.index.long_chain import in_arrays

        return in_arrays(self.candidates(hashes, within))

    def at_times(
        self, log: CommitLogReader, window: TimeWindow, within: OffsetRange
    ) -> OffsetRange:
        """See `IndexPart.at_times`.

        Return the whole range of physical offsets, even for a short window. If the clock was set back, messages of the
        window can lie anywhere in this range. The database does not show whether this has happened, because it sorts
        items by the hour of their store time.
        """
        return within

    def bulk(self, within: OffsetRange) -> BulkSearch:
        """See `IndexPart.bulk`."""
        return RocksIndexSearch(self.database.folder, within)


@dataclass(frozen=True, slots=True)
class RocksIndexSearch:
    """A BulkSearch of the database, in one pass over all items for each group of hashes."""

    folder: str
    within: OffsetRange

    def weight(self, keys: int) -> int:
        """See `BulkSearch.weight`. A search reads all items: about one per message of the range."""
        return self.within.size_bytes

    def find_each(self, groups: Iterable[npt.NDArray[np.int32]]) -> Iterator[tuple[int, BulkHits]]:
        """See `BulkSearch.find_each`."""
        return ((number, self._find(hashes)) for number, hashes in enumerate(groups))

    def _find(self, hashes: npt.NDArray[np.int32]) -> BulkHits:
        import numpy as np

        number = {int(one): at for at, one in enumerate(hashes.tolist())}
        with RocksFolder(self.folder, (INDEX_FAMILY,)) as database:
            found = sorted(
                {
                    (number[one.key_hash], -one.physical_offset)
                    for one in _matches(all_items(database), frozenset(number))
                    if self.within.start <= one.physical_offset < self.within.stop
                }
            )
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return BulkHits(pairs[:, 0].copy(), -pairs[:, 1], np.zeros(0, np.int64))


class RocksIndex:
    """The KeyIndex of the database. It does not show changes after the first call of `parts`.

    Newer messages are found by scans of the log.
    """

    def __init__(self, folder: str, log: CommitLogReader) -> None:
        self._folder, self._log = folder, log
        self._database: RocksFolder | None = None
        self._part: RocksIndexPart | None = None
        self._is_judged = False
        self.problems: list[Finding] = []
        self.newest_entry = -1

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        if not self._is_judged:
            self._is_judged = True
            try:
                self._part = self._judge()
            except FormatError as error:
                self._distrust(error.reason)
            except MissingExtraError as error:
                # The package for reading RocksDB is missing, so the log is scanned.
                self._distrust(str(error))
        return () if self._part is None else (self._part,)

    def _judge(self) -> RocksIndexPart | None:
        database = self._database = RocksFolder(self._folder, (INDEX_FAMILY,))
        last = decode_offset(database.family_value(INDEX_FAMILY, LAST_OFFSET_KEY))
        hours = list(_hours(database))
        if last is None or not hours:
            return None
        self.newest_entry = last
        # Within an hour, items are sorted by key. So all items of the first hour are read to find the least offset.
        begin = min(item.physical_offset for item in _of_hour(database, hours[0]))
        begin = max(begin, self._log.min_offset)
        try:
            stop = last + self._log.locate(last).layout.total_bytes
        except (MessageNotFoundError, CorruptMessageError):
            self._distrust(f"no message begins at {last}, the last offset that the database states")
            return None
        for record in self._samples(begin, last):
            if (lacking := self._lacking(database, record)) is not None:
                self._distrust(
                    f"the message at {record.physical_offset} is not in it under {lacking!r}"
                )
                return None
        return RocksIndexPart(database, begin, stop)

    def _samples(self, begin: int, last: int) -> Iterator[KeyedRecord]:
        """Yield the first and the last message of the covered range, and the first messages of some log files in it."""
        starts = [file.start + file.gap for file in self._log.files if begin <= file.start < last]
        step = max(len(starts) // _SAMPLED_FILES, 1)
        for offset in [begin, *starts[::step], last]:
            with suppress(MessageNotFoundError, CorruptMessageError):
                yield read_keyed_record(self._log.locate(offset))

    def _lacking(self, database: RocksFolder, record: KeyedRecord) -> str | None:
        """Return one of the record's keys that has no item in the database; None if all its keys have one."""
        for key in record.keys:
            items = _seek(database, hour_of(record.store_timestamp), IndexedKey(record.topic, key))
            if all(item.physical_offset != record.physical_offset for item in items):
                return key
        return None

    def _distrust(self, reason: str) -> None:
        self.problems.append(Finding(Kind.INDEX_HEADER, self._folder, reason))


class JoinedIndex:
    """Several indexes of one log as one KeyIndex."""

    def __init__(self, *indexes: Any) -> None:
        self._indexes = indexes

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        found = [part for index in self._indexes for part in index.parts()]
        return tuple(sorted(found, key=lambda part: (part.start, part.stop)))

    @property
    def problems(self) -> list[Finding]:
        """See `KeyIndex.problems`."""
        return [problem for index in self._indexes for problem in index.problems]

    @property
    def newest_entry(self) -> int:
        """See `KeyIndex.newest_entry`."""
        return max(int(index.newest_entry) for index in self._indexes)


def all_items(database: RocksFolder) -> Iterator[RocksIndexItem]:
    """Yield every item of the index. Skip other entries of the database. Raises FormatError."""
    for key, _ in database.family_items(INDEX_FAMILY):
        if (item := decode_item(key)) is not None:
            yield item


def _matches(items: Iterator[RocksIndexItem], hashes: frozenset[int]) -> Iterator[Candidate]:
    for item in items:
        for topic, key in item.names:
            value = key_hash(index_key(topic, key))
            if value in hashes:
                yield Candidate(item.physical_offset, value)


def _of_names(database: RocksFolder, names: Collection[tuple[str, str]]) -> Iterator[Candidate]:
    for hour in list(_hours(database)):
        for topic, key in names:
            value = key_hash(index_key(topic, key))
            for item in _seek(database, hour, IndexedKey(topic, key)):
                yield Candidate(item.physical_offset, value)


def _seek(database: RocksFolder, hour: int, name: IndexedKey) -> Iterator[RocksIndexItem]:
    for prefix in prefixes(hour, name):
        for key, _ in database.family_items(INDEX_FAMILY, prefix):
            if not key.startswith(prefix):
                break
            item = decode_item(key)
            # A key may contain the separator, so the items of another key can share the prefix.
            if item is not None and name in item.names:
                yield item


def _hours(database: RocksFolder) -> Iterator[int]:
    """Yield the hours that have items, ascending."""
    first: bytes | None = None
    while True:
        for key, _ in database.family_items(INDEX_FAMILY, first):
            if key != LAST_OFFSET_KEY and decode_item(key) is not None:
                break
        else:
            return
        hour = int.from_bytes(key[:8], "big", signed=True)
        yield hour
        # The database sorts hours as unsigned numbers, so negative hours come last. End at the first negative hour:
        # after -1, the loop would begin again at 0. Also end at the hour 2**63 - 1, because 2**63 does not fit in a
        # signed number of eight bytes.
        if hour < 0 or hour >= (1 << 63) - 1:
            return
        first = first_of_hour(hour + 1)


def _of_hour(database: RocksFolder, hour: int) -> Iterator[RocksIndexItem]:
    prefix = first_of_hour(hour)
    for key, _ in database.family_items(INDEX_FAMILY, prefix):
        if not key.startswith(prefix):
            return
        if (item := decode_item(key)) is not None:
            yield item
