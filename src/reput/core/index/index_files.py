"""Search the IndexFiles of a store, through the interface `reput.core.index.key_index.KeyIndex`.

Each file covers the ranges of the log for which it can be trusted (`reput.core.index.proofs`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

from reput.base import Finding, Kind, late
from reput.core.index.key_index import (
    FEW_HASHES,
    Basis,
    BulkSearch,
    Candidate,
    CandidateArrays,
    IndexPart,
    KeyHashes,
    KeyIndex,
    NamedKey,
    TimeWindow,
)
from reput.core.index.proofs import Judge, Verdict
from reput.core.index.reader import IndexFileReader
from reput.core.index.set_reader import IndexFileSetReader
from reput.core.index.spot_checks import SlotPages
from reput.core.index.trust import compared, lost_record, spot_check
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.format.index_file import item_seconds
from reput.io import Stamp

if TYPE_CHECKING:
    from reput.core.index.forms import IndexOf

# Only searches for many keys load the kernels.
_bulk_search = late("reput.engine.lookup.index_file_search", "IndexFileSearch")


@dataclass(frozen=True, slots=True)
class IndexFilePart:
    """An IndexFile and a range that it covers.

    slots  the object that checks the pages of the slot table before a chain is followed; None if every link of the
           chains was already checked
    timed  number of an item: from item 2 to this item, times never decrease; 0 if unknown. Item 1 is excluded: its
           time, unlike the times of other items, is not relative to the file's begin timestamp
    """

    file: IndexFileReader
    start: int
    stop: int
    basis: Basis
    slots: SlotPages | None = None
    timed: int = 0

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def path(self) -> str:
        return self.file.path

    def candidates(self, hashes: Collection[int], within: OffsetRange) -> Iterator[Candidate]:
        """See `IndexPart.candidates`."""
        chains = [self._chain(key_hash, within) for key_hash in self._worth_following(hashes)]
        return chains[0] if len(chains) == 1 else _each_once(merge(*chains, reverse=True))

    def _worth_following(self, hashes: Collection[int]) -> Collection[int]:
        if not isinstance(hashes, KeyHashes) or len(hashes) < FEW_HASHES:
            return set(hashes)
        # Imported here, because it loads NumPy, which a search for few keys does not need.
        from reput.core.index.many_hashes import worth_following

        return worth_following(self.file, hashes.array, self.slots)

    def _chain(self, key_hash: int, within: OffsetRange) -> Iterator[Candidate]:
        if self.slots is not None:
            self.slots.check(key_hash)
        start, stop = within
        previous = -1
        for offset in self.file.offsets(key_hash):
            # Offsets descend along a chain, so all further items lie before the range.
            if offset < start:
                return
            if offset < stop and offset != previous:
                yield Candidate(offset, key_hash)
                previous = offset

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """See `IndexPart.candidate_arrays`."""
        # Imported here, because these functions load NumPy and the kernels.
        from reput.core.index.long_chain import chain_pieces, in_arrays

        hashes = self._worth_following(hashes)
        if len(hashes) != 1:
            return in_arrays(self.candidates(hashes, within))
        (key_hash,) = hashes
        if self.slots is not None:
            self.slots.check(key_hash)
        return chain_pieces(self.file, key_hash, within)

    def at_times(
        self, log: CommitLogReader, window: TimeWindow, within: OffsetRange
    ) -> OffsetRange:
        """See `IndexPart.at_times`."""
        return at_times(self.file, log, self.timed, window, within) if self.timed else within

    def lost_record(self, log: CommitLogReader, physical_offset: int) -> OffsetRange | None:
        """See `IndexPart.lost_record`."""
        return lost_record(self.file, log, self.file.next_item - 1, physical_offset)

    def bulk(self, within: OffsetRange) -> BulkSearch:
        """See `IndexPart.bulk`."""
        file = self.file
        search: BulkSearch = _bulk_search()(
            self.path, file.hash_slots, file.index_items, within, file.storage
        )
        return search


def _each_once(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yield candidates without adjacent duplicates."""
    return (candidate for candidate, _ in groupby(candidates))


class _Judged(NamedTuple):
    """The state of an IndexFile when its `Verdict` was decided.

    A `Verdict` states for which ranges of the log the file is trusted. If the file has another state later, the verdict
    is outdated.

    last   number of the last item that the header counts
    stamp  the file's inode, size and change time; None if it changed so recently that another change could leave the
           stamp the same
    """

    file: IndexFileReader
    last: int
    stamp: Stamp | None


class _Span(NamedTuple):
    """The physical offsets of the first and the last item of an IndexFile."""

    first: int
    last: int
    file: IndexFileReader


class IndexFiles:
    """The KeyIndex of a folder of IndexFiles, which may grow together with the log.

    Callers refresh the log first. A verdict (the ranges for which a file is trusted) is kept until the file, or
    a log file with which it was compared, changes.

    `_spans` are sorted, and `_reaches` has for each of them the highest offset of its and all earlier spans.
    """

    def __init__(
        self, files: IndexFileSetReader, log: CommitLogReader, judge: Judge = spot_check
    ) -> None:
        self._files, self._log, self._judge = files, log, judge
        self._log_files: tuple[CommitLogFile, ...] = ()
        self._verdicts: dict[IndexFileReader, Verdict] = {}
        self._judged: dict[IndexFileReader, _Judged] = {}
        self._newest = -1
        self._slots: dict[IndexFileReader, SlotPages] = {}
        self._parts: tuple[IndexPart, ...] = ()
        self._spans: list[_Span] = []
        self._reaches: list[int] = []

    @property
    def problems(self) -> list[Finding]:
        """Return one finding for each file that is not trusted at all."""
        return self._files.problems + [
            Finding(Kind.INDEX_HEADER, file.path, verdict.problem)
            for file, verdict in self._verdicts.items()
            if verdict.problem
        ]

    @property
    def newest_entry(self) -> int:
        """See `KeyIndex.newest_entry`."""
        return self._newest

    def parts(self) -> tuple[IndexPart, ...]:
        """See `KeyIndex.parts`."""
        files = [_as_it_is(file) for file in self._files.current()]
        # Verdicts result from comparisons with the log, so they are valid only for the compared log files.
        if self._log.files != self._log_files:
            self._verdicts.clear()
            self._judged = {}
        changed = self._changed(files)
        if changed or len(files) != len(self._judged):
            before, self._verdicts = self._verdicts, {}
            # Forget the old verdicts first: if an error interrupts the loop, the next call examines all files again.
            self._judged = {}
            for one in files:
                verdict = before.get(one.file)
                if verdict is not None and one.file in changed:
                    # The file has changed, so an old proof does not cover its state. But if the file has passed spot
                    # checks, only the items that were added after these checks must be examined.
                    has_grown = verdict.last < one.last and verdict.proof is None
                    verdict = verdict if has_grown else None
                self._verdicts[one.file] = self._judge(
                    one.file, self._log, one.last, verdict, len(files)
                )
            # A change may have damaged any page of slots, so the pages of a changed file are checked again.
            self._slots = {
                file: SlotPages(file)
                if file in changed
                else self._slots.get(file) or SlotPages(file)
                for file, verdict in self._verdicts.items()
                if not verdict.is_linked
            }
            self._newest = max((self._newest_of(one.file, one.last) for one in files), default=-1)
            self._parts = tuple(sorted(self._all_parts(), key=lambda part: (part.start, part.stop)))
            spans = (
                _Span(file.offset(1), file.offset(verdict.last), file)
                for file, verdict in self._verdicts.items()
                if verdict.ranges or verdict.proof is not None
            )
            self._spans = sorted(spans, key=lambda span: span[:2])
            self._reaches = list(accumulate((span.last for span in self._spans), max))
            self._judged, self._log_files = {one.file: one for one in files}, self._log.files
        return self._parts

    def compared(self, within: OffsetRange) -> Iterator[tuple[int, OffsetRange | None]]:
        """See `KeyIndex.compared`."""
        begin = bisect_left(self._reaches, within.start)
        end = bisect_left(self._spans, within.stop, key=lambda span: span.first)
        for span in self._spans[begin:end]:
            last = self._verdicts[span.file].last
            yield from compared(span.file, self._log, last, within)

    def lost_records(
        self, names: Collection[NamedKey], window: TimeWindow | None
    ) -> Iterator[tuple[NamedKey, OffsetRange]]:
        """See `KeyIndex.lost_records`. There are none: `compared` needs no keys."""
        return iter(())

    def _changed(self, files: Collection[_Judged]) -> set[IndexFileReader]:
        """Return the files that have changed, or whose log files have changed, since their `Verdict` was decided."""
        are_same: dict[str, bool] = {}
        changed = set()
        for one in files:
            if one.stamp is None or one != self._judged.get(one.file):
                changed.add(one.file)
                continue
            verdict = self._verdicts.get(one.file)
            for path, stamp in verdict.proof.seen if verdict and verdict.proof else ():
                if path not in are_same:
                    are_same[path] = stamp.is_of(path)
                if not are_same[path]:
                    changed.add(one.file)
        return changed

    def _newest_of(self, file: IndexFileReader, last: int) -> int:
        """Return the offset of the file's last entry, or -1 if the file's header contradicts its items."""
        believable = last > 0 and file.is_consistent()
        return file.offset(last) if believable else -1

    def _all_parts(self) -> Iterator[IndexPart]:
        for file, verdict in self._verdicts.items():
            slots = self._slots.get(file)
            for start, stop in verdict.ranges:
                yield IndexFilePart(file, start, stop, Basis.SPOT_CHECKED, slots)
            if verdict.proof is not None:
                timed = verdict.proof.items if verdict.proof.is_timed else 0
                for start, stop in verdict.proof.ranges:
                    yield IndexFilePart(file, start, stop, Basis.PROVEN, None, timed)


class _FileIndex:
    """IndexFiles as a form of the register."""

    def open(self, source: IndexOf, others: Sequence[KeyIndex]) -> KeyIndex:
        return IndexFiles(source.files, source.own_log, source.judge)


FILE_INDEX = _FileIndex()


def _as_it_is(file: IndexFileReader) -> _Judged:
    """Return a file's current state.

    The file's stamp (inode, size, change time) is taken before the item count is read. If an item is added between
    these two steps, the file's next stamp will differ, so the file will be judged again.
    """
    stamp = Stamp.present(file.path) if file.storage.is_local else Stamp()
    return _Judged(file, file.next_item - 1, stamp)


_SECOND = 2
"""Number of the first item whose seconds count from the header's begin timestamp.

The seconds of item 1 count from the end timestamp of the previous file.
"""


def at_times(
    file: IndexFileReader, log: CommitLogReader, last: int, window: TimeWindow, within: OffsetRange
) -> OffsetRange:
    """Return a part of `within`. The rest of `within` has no messages that were stored in the time window.

    Args:
        file: The IndexFile. The seconds of its items 2 to `last` must never decrease; item 1 is not used.
        log: The log that it indexes.
        last: Number of the last item that a `Proof` of the IndexFile compared with the log.
        window: Requested times.
        within: Range of the log that items 1 to `last` cover.

    Raises StoreAccessError, StoreChangedError.
    """
    begin_ms = file.header().begin_timestamp
    if begin_ms <= 0 or last < _SECOND:
        return within
    least, most = (item_seconds(time, begin_ms) for time in window)
    numbers = range(_SECOND, last + 1)
    first = _SECOND + bisect_left(numbers, least, key=file.seconds)
    after = _SECOND + bisect_right(numbers, most, key=file.seconds)
    edges = {number for number in (first - 1, first, after - 1, after) if number in numbers}
    if not all(file.agrees_on_time(log, number, begin_ms) for number in edges):
        return within
    start = file.offset(first - 1) if first > _SECOND else within.start
    stop = file.offset(after) + 1 if after <= last else within.stop
    return OffsetRange(max(start, within.start), min(stop, within.stop))
