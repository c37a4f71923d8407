"""Search the key index of an archive, through the interface `reput.core.index.key_index.KeyIndex`.

It covers the log files that were read completely when they were archived. The archiver wrote an entry for every key of
these files. Archived bytes are verified whenever they are read. So this index is trusted as if it were proved
(`Basis.PROVEN`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reput.base import Finding
from reput.core import (
    Basis,
    BulkHits,
    BulkSearch,
    Candidate,
    CandidateArrays,
    CommitLogFile,
    CommitLogReader,
    IndexPart,
    KeyIndex,
    OffsetRange,
    UntrustedIndexError,
)
from reput.errors import CorruptMessageError, FormatError, MessageNotFoundError
from reput.format.archive import IndexObject, LogFile
from reput.io import Archive, ArchiveFiles, ArchiveStorage, JoinedStorage, ParquetIndex, Storage

if TYPE_CHECKING:
    from reput.core import IndexOf, NamedKey, TimeWindow

_Offsets = npt.NDArray[np.int64]
# Reading one row of the index takes as long as scanning this many bytes of the log.
_SCANNED_BYTES_PER_ROW = 64
# A search for at most this many keys reads few row groups. They are fetched in parallel before the search, and cached.
_PREFETCHED_KEYS = 64
# Number of row groups in memory at once, in a search that needs many of them.
_GROUPS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class ArchiveIndexPart:
    """An IndexPart: consecutive log files, and the index object that has all of their keys."""

    storage: ArchiveStorage
    part: IndexObject
    log: tuple[LogFile, ...]
    basis: Basis = Basis.PROVEN

    @property
    def start(self) -> int:
        return self.log[0].begin

    @property
    def stop(self) -> int:
        return self.log[-1].messages_end

    @property
    def name(self) -> str:
        return self.part.object

    @property
    def path(self) -> str:
        return self.storage.archive.path(self.part.object)

    def candidates(self, hashes: Collection[int], within: OffsetRange) -> Iterator[Candidate]:
        """See `IndexPart.candidates`."""
        for arrays in self.candidate_arrays(hashes, within):
            yield from map(Candidate, arrays.offsets.tolist(), arrays.hashes.tolist())

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """See `IndexPart.candidate_arrays`."""
        if within.start >= within.stop:
            return
        ascending = np.array(sorted(set(hashes)), np.int64)
        try:
            rows = _rows_of(self.storage.archive, self.part, ascending, within)
        except FormatError as error:
            raise UntrustedIndexError(error.path, error.offset, error.reason) from None
        # Sort by offset, newest message first, as `candidate_arrays` promises.
        order = np.lexsort((rows[0], rows[1]))[::-1]
        yield CandidateArrays(rows[1][order], rows[0][order].astype(np.int32))

    def at_times(
        self, log: CommitLogReader, window: TimeWindow, within: OffsetRange
    ) -> OffsetRange:
        """See `IndexPart.at_times`: the log files that have messages of the window."""
        # Files without times have no messages.
        inside = [
            file
            for file in self.log
            if file.times is not None
            and file.times.least <= window.end
            and window.begin <= file.times.greatest
        ]
        if not inside:
            return OffsetRange(within.start, within.start)
        start, stop = max(within.start, inside[0].begin), min(within.stop, inside[-1].end)
        return OffsetRange(start, max(start, stop))

    def lost_record(self, log: CommitLogReader, physical_offset: int) -> OffsetRange | None:
        """See `IndexPart.lost_record`. The digest of an archived index shows that it belongs to its log."""
        try:
            size = log.locate(physical_offset).layout.total_bytes
        except (MessageNotFoundError, CorruptMessageError):
            return None
        return OffsetRange(physical_offset, physical_offset + size)

    def bulk(self, within: OffsetRange) -> BulkSearch:
        """See `IndexPart.bulk`."""
        return ArchiveSearch(self.storage.open_file, self.part, within)


@dataclass(frozen=True, slots=True)
class ArchiveSearch:
    """A BulkSearch of one index object of an archive."""

    files: ArchiveFiles
    part: IndexObject
    within: OffsetRange

    def weight(self, keys: int) -> int:
        """See `BulkSearch.weight`."""
        return self.part.rows * _SCANNED_BYTES_PER_ROW

    def find_each(self, groups: Iterable[npt.NDArray[np.int32]]) -> Iterator[tuple[int, BulkHits]]:
        """See `BulkSearch.find_each`."""
        archive = self.files.archive
        for number, hashes in enumerate(groups):
            wanted = hashes.astype(np.int64)
            none = np.empty(0, np.int64)
            try:
                found, offsets = _rows_of(archive, self.part, wanted, self.within)
            except FormatError:
                # The index object is damaged, so the log is scanned for all of these keys.
                yield number, BulkHits(none, none, np.arange(len(hashes), dtype=np.int64))
                continue
            which = np.searchsorted(wanted, found)
            order = np.lexsort((-offsets, which))
            yield number, BulkHits(which[order], offsets[order], none)


def _rows_of(
    archive: Archive, part: IndexObject, ascending: _Offsets, within: OffsetRange
) -> tuple[_Offsets, _Offsets]:
    """Return hashes and offsets of the index rows that have a wanted hash, and an offset in the range.

    The hashes in `ascending` must ascend. Raises FormatError, StoreNotFoundError, StoreAccessError.
    """
    index = archive.index(part)
    groups, is_kept = _groups(index, ascending), len(ascending) <= _PREFETCHED_KEYS
    hashes, offsets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        some = groups[at : at + _GROUPS_AT_ONCE]
        for table in archive.each(partial(archive.group, index, is_kept=is_kept), some):
            rows = table.column("key_hash").to_numpy()
            if not len(rows):
                continue
            # Rows are sorted by hash. Skip wanted hashes below the first row's hash or above the last row's hash.
            low, high = (
                np.searchsorted(ascending, rows[0]),
                np.searchsorted(ascending, rows[-1], "right"),
            )
            near = ascending[low:high]
            first = np.searchsorted(rows, near)
            is_hit = rows[np.minimum(first, len(rows) - 1)] == near
            near, first = near[is_hit], first[is_hit]
            counts = np.searchsorted(rows, near, "right") - first
            starts = np.cumsum(counts) - counts
            places = np.arange(counts.sum()) + np.repeat(first - starts, counts)
            found = table.column("physical_offset").to_numpy()[places]
            inside = (within.start <= found) & (found < within.stop)
            offsets.append(found[inside])
            hashes.append(np.repeat(near, counts)[inside])
    return np.concatenate(hashes), np.concatenate(offsets)


def _groups(index: ParquetIndex, hashes: _Offsets) -> list[int]:
    """Return the row groups whose range of hashes contains one of the ascending wanted hashes."""
    # The last bound belongs to no row group: it is above all hashes.
    least, greatest = index.least_hashes[:-1], index.greatest_hashes[:-1]
    is_between = np.searchsorted(hashes, least) < np.searchsorted(hashes, greatest, "right")
    return np.flatnonzero(is_between).tolist()


class _ArchiveForm:
    """The index of an archive as a form of the register."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        return archive_index(source.storage, source.log)


class _JoinedForm:
    """The index of a store that is joined with its archive, as a form of the register."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        return ContinuedIndex(source.storage, others[0], source.log, source.own_log)


ARCHIVE_INDEX, JOINED_INDEX = _ArchiveForm(), _JoinedForm()


def archive_index(storage: Storage, log: CommitLogReader) -> ArchiveIndex:
    """Return the key index of an archived store. Raises TypeError for any other storage."""
    return ArchiveIndex(_archived(storage), log)


def may_have_replaced_ids(storage: Storage) -> bool:
    """Return whether records of an archived log may have ids that its key index lacks."""
    archive = storage.older if isinstance(storage, JoinedStorage) else _archived(storage)
    log = archive.archive.manifest.log
    return any(file.has_replaced_ids or not file.is_indexed for file in log)


def _archived(storage: Storage) -> ArchiveStorage:
    if not isinstance(storage, ArchiveStorage):
        raise TypeError(f"{storage!r} is not an archive")
    return storage


class ArchiveIndex:
    """The KeyIndex of an archive. It does not show changes of the archive after it was opened."""

    def __init__(self, storage: ArchiveStorage, log: CommitLogReader) -> None:
        manifest = storage.archive.manifest
        self._storage, self._log = storage, log
        self._log_files, self._keys = manifest.log, manifest.keys
        self._parts: tuple[IndexPart, ...] | None = None
        self.problems: list[Finding] = []
        self.newest_entry = -1

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        if self._parts is None:
            self._parts = tuple(self._all())
        return self._parts

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """See `KeyIndex.compared`. Nothing is compared: an archive's index covers whole log files."""
        return iter(())

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """See `KeyIndex.lost_records`. There are none: all entries are in parts."""
        return iter(())

    def _all(self) -> Iterator[IndexPart]:
        read = {file.start for file in self._log.files if file.known is not None}
        for part in self._keys:
            files = [
                one
                for one in self._log_files
                if part.begin <= one.begin and one.end <= part.end and one.begin in read
            ]
            # The index lacks the end of a log file that was copied before it was full, and log files that were never
            # archived.
            runs: list[list[LogFile]] = []
            for one in files:
                if not one.is_indexed:
                    continue
                if runs and runs[-1][-1].messages_end == one.begin:
                    runs[-1].append(one)
                else:
                    runs.append([one])
            yield from (ArchiveIndexPart(self._storage, part, tuple(run)) for run in runs)


def prefetch(parts: Iterable[tuple[IndexPart, OffsetRange]], hashes: Collection[int]) -> None:
    """Fetch all parts of archive indexes that a search will read, in parallel.

    The search itself would fetch one part after the other.

    Args:
        parts: Parts of any index, with the ranges to search.
        hashes: Hashes of the keys.
    """
    ascending = np.array(sorted(set(hashes)), np.int64)
    chosen = [part for part, within in parts if within.start < within.stop]
    by_archive: dict[int, list[ArchiveIndexPart]] = {}
    for part in chosen:
        if isinstance(part, ArchiveIndexPart):
            by_archive.setdefault(id(part.storage.archive), []).append(part)
    for some in by_archive.values():
        archive = some[0].storage.archive

        def read(part: ArchiveIndexPart, archive: Archive = archive) -> None:
            try:
                _groups_of(archive, part.part, ascending)
            except (FormatError, CorruptMessageError):
                # Ignore the error here: a search that reads this part of the index meets the same error and reports it.
                return

        if len(ascending) <= _PREFETCHED_KEYS:
            archive.each(read, some)


def _groups_of(archive: Archive, part: IndexObject, hashes: _Offsets) -> list[pa.Table]:
    index = archive.index(part)
    return [archive.group(index, group) for group in _groups(index, hashes)]


class ContinuedIndex:
    """One KeyIndex for a store and its archive. Messages before the store's log are found by the archive's index."""

    def __init__(
        self, storage: Storage, newer: KeyIndex, log: CommitLogReader, own_log: CommitLogReader
    ) -> None:
        """Join the indexes of a store and its archive.

        `own_log` is the log of the store alone; `log` also contains the archived files.
        """
        if not isinstance(storage, JoinedStorage):
            raise TypeError(f"{storage!r} is not the JoinedStorage of a store and its archive")
        self._storage, self._newer, self._log, self._own_log = storage, newer, log, own_log
        self._older: tuple[tuple[CommitLogFile, ...], ArchiveIndex] | None = None

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        self._own_log.refresh()
        if self._older is None or self._older[0] != self._log.files:
            self._older = self._log.files, ArchiveIndex(self._storage.older, self._log)
        begin = self._own_log.min_offset
        # IndexFiles may still cover log files that have expired in the store. For these log files, the archive's index
        # is used.
        newer = [_clipped(part, begin) for part in self._newer.parts() if part.stop > begin]
        parts: list[IndexPart] = [*self._older[1].parts(), *newer]
        return tuple(sorted(parts, key=lambda part: (part.start, part.stop)))

    @property
    def problems(self) -> list[Finding]:
        """See `KeyIndex.problems`."""
        return self._newer.problems

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """See `KeyIndex.compared`."""
        return self._newer.compared(within)

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """See `KeyIndex.lost_records`."""
        return self._newer.lost_records(names, window)

    @property
    def newest_entry(self) -> int:
        """See `KeyIndex.newest_entry`."""
        return self._newer.newest_entry


def _clipped(part: IndexPart, begin: int) -> IndexPart:
    """Return the part, limited to messages from the offset `begin` on."""
    if part.start >= begin:
        return part
    clipped: IndexPart = replace(cast("Any", part), start=begin)
    return clipped
