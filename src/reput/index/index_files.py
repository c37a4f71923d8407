"""The IndexFiles of a store as a KeyIndex: each covers the stretches of the log that it may be believed for."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby

from reput.findings import Finding, Kind
from reput.index.key_index import Basis, BulkSearch, Candidate, CandidateArrays, IndexPart
from reput.index.reader import IndexFileReader
from reput.index.set_reader import IndexFileSetReader
from reput.index.spot_checks import SlotPages
from reput.index.times import TimeWindow, at_times
from reput.index.trust import spot_check
from reput.index.verdict import Judge, Verdict
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader


@dataclass(frozen=True, slots=True)
class IndexFilePart:
    """An IndexFile and a stretch that it covers.

    slots  checked before a chain is followed; None where every link was
    timed  the seconds of items 2 to this one never fall; 0 where they do, or nobody knows
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
        chains = [self._chain(key_hash, within) for key_hash in set(hashes)]
        return chains[0] if len(chains) == 1 else _each_once(merge(*chains, reverse=True))

    def _chain(self, key_hash: int, within: OffsetRange) -> Iterator[Candidate]:
        if self.slots is not None:
            self.slots.check(key_hash)
        start, stop = within
        previous = -1
        for offset in self.file.offsets(key_hash):
            if offset < start:
                return
            if offset < stop and offset != previous:
                yield Candidate(offset, key_hash)
                previous = offset

    def candidate_arrays(
        self, hashes: Collection[int], within: OffsetRange
    ) -> Iterator[CandidateArrays]:
        """See `IndexPart.candidate_arrays`."""
        # And with them numpy and the kernels.
        from reput.index.long_chain import chain_pieces, in_arrays

        if len(hashes) > 1:
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

    def bulk(self, within: OffsetRange) -> BulkSearch:
        """See `IndexPart.bulk`."""
        from reput.index.bulk import IndexFileSearch  # and with it the kernels

        return IndexFileSearch(
            self.path, self.file.hash_slots, self.file.index_items, within, self.file.storage
        )


def _each_once(candidates: Iterator[Candidate]) -> Iterator[Candidate]:
    return (candidate for candidate, _ in groupby(candidates))


class IndexFiles:
    """A KeyIndex that may be growing, and so may its log: whoever asks has refreshed that."""

    def __init__(
        self, files: IndexFileSetReader, log: CommitLogReader, judge: Judge = spot_check
    ) -> None:
        self._files, self._log, self._judge = files, log, judge
        self._log_files: tuple[CommitLogFile, ...] = ()
        self._verdicts: dict[IndexFileReader, Verdict] = {}
        self._judged: list[tuple[IndexFileReader, int]] | None = None
        self._newest = -1
        self._slots: dict[IndexFileReader, SlotPages] = {}
        self._parts: tuple[IndexPart, ...] = ()

    @property
    def problems(self) -> list[Finding]:
        """One finding for each file that is not believed at all."""
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
        files = [(file, file.next_item - 1) for file in self._files.current()]
        if self._log.files != self._log_files:
            self._verdicts.clear()
            self._judged = None
        if files != self._judged:
            self._judged = None  # until all are judged
            before, self._verdicts = self._verdicts, {}
            for file, last in files:
                self._verdicts[file] = self._judge(
                    file, self._log, last, before.get(file), len(files)
                )
            self._slots = {
                file: self._slots.get(file) or SlotPages(file)
                for file, verdict in self._verdicts.items()
                if not verdict.is_linked
            }
            self._newest = max((self._newest_of(*each) for each in files), default=-1)
            self._parts = tuple(sorted(self._all_parts(), key=lambda part: (part.start, part.stop)))
            self._judged, self._log_files = files, self._log.files
        return self._parts

    def _newest_of(self, file: IndexFileReader, last: int) -> int:
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
