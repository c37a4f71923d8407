"""Verify the candidates of one part of an index, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from reput.base import Finding
from reput.core.index.key_index import (
    Candidate,
    IndexPart,
    StaleEntryError,
    UntrustedIndexError,
    next_candidates,
)
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord, LocatedRecord
from reput.errors import CorruptMessageError, MessageNotFoundError

# Only for annotations: loading NumPy would slow down every small query.
if TYPE_CHECKING:
    from reput.core.index.key_index import TimeWindow

# A query with a time window always reads the first candidates, up to this number, one by one. If at least _FEW more
# candidates follow, compiled code first removes the candidates outside the window.
_READ_FIRST = 1 << 8
_FEW = 1 << 12
_MOST_ANNOUNCED = 1 << 6


class IndexSearch:
    """The records of a range that have a key with one of the given hashes, newest first, without duplicates.

    Iteration yields each record with the fields that a query needs. Every candidate is read once and verified.
    Candidates whose log file has expired or is lost are skipped. With a time window and many candidates, compiled code
    verifies them in bulk and skips the candidates outside the window (`reput.core.index.window_search`).

    Attributes:
        followed: physical offsets of the candidates examined so far, newest first, except those outside the window

    Raises StoreAccessError, and UntrustedIndexError if the range must not be trusted. Some records may then already
    have been yielded.
    """

    def __init__(
        self,
        log: CommitLogReader,
        part: IndexPart,
        hashes: Collection[int],
        within: OffsetRange,
        window: TimeWindow | None = None,
    ) -> None:
        self._log, self._part, self._hashes, self._within = log, part, hashes, within
        self._window, self._largest_bytes = window, 0
        self.followed: list[int] = []

    def __iter__(self) -> Iterator[tuple[LocatedRecord, KeyedRecord]]:
        record: KeyedRecord | None = None
        candidates = self._part.candidates(self._hashes, self._within)
        if self._window is not None:
            candidates = self._in_window(candidates, self._window)
        for candidate in candidates if self._log.source.is_local else self._announced(candidates):
            if not self.followed or candidate.physical_offset != self.followed[-1]:
                self.followed.append(candidate.physical_offset)
                located = self._locate(candidate.physical_offset)
                record = None
                if located is not None:
                    record = located.keyed()
                    self._largest_bytes = max(self._largest_bytes, record.size_bytes)
                    self._verify(candidate, record)
                    yield located, record
            elif record is not None:  # The candidate points to the same record as the previous one.
                self._verify(candidate, record)

    def _announced(self, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates. Their records are requested in advance, in batches of growing size."""
        count, error = 1, None
        while error is None:
            ahead, error = next_candidates(candidates, count, UntrustedIndexError)
            if not ahead and error is None:
                return
            self._log.announce(candidate.physical_offset for candidate in ahead)
            yield from ahead
            count = min(2 * count, _MOST_ANNOUNCED)
        raise error

    def _in_window(
        self, candidates: Iterator[Candidate], window: TimeWindow
    ) -> Iterator[Candidate]:
        """Yield the candidates. If there are many, skip those known to be outside the window."""
        yield from islice(candidates, _READ_FIRST)
        ahead, error = next_candidates(candidates, _FEW, UntrustedIndexError)
        if error is not None or len(ahead) < _FEW:
            yield from ahead
            if error is not None:
                raise error
            return
        # Imported only here: loading the kernels takes as long as reading a few thousand records.
        from reput.core.index.window_search import to_be_read

        older = OffsetRange(self._within.start, ahead[0].physical_offset + 1)
        arrays = self._part.candidate_arrays(self._hashes, older)
        yield from to_be_read(self._log, arrays, window, self._largest_bytes)

    def _locate(self, physical_offset: int) -> LocatedRecord | None:
        try:
            return self._log.locate(physical_offset)
        except MessageNotFoundError:
            if self._log.file_at(physical_offset) is None:
                # The log file that contained this offset has expired or is lost.
                return None
            reason = "an entry points there, but no message begins there"
        except CorruptMessageError as error:
            reason = f"an entry's message: {error.reason}"
        raise StaleEntryError(self._part.path, physical_offset, reason)

    def _verify(self, candidate: Candidate, record: KeyedRecord) -> None:
        if not is_entry_of(candidate, record):
            reason = "an entry points to a message without the entry's key"
            start = candidate.physical_offset
            lost = self._part.lost_record(self._log, start)
            raise StaleEntryError(self._part.path, start, reason, lost)


def lost_keys(log: CommitLogReader, error: UntrustedIndexError) -> list[Finding]:
    """Return a finding about the record that has lost a key, if this is why a search by key failed."""
    damaged = error.damaged if isinstance(error, StaleEntryError) else None
    return [] if damaged is None else without_keys(log, [damaged])


def without_keys(log: CommitLogReader, damaged: Iterable[OffsetRange]) -> list[Finding]:
    """Return a finding for each record that has lost a key for which an index has an entry."""
    reason = "the record's properties are damaged: an index has a key of it that it lacks"
    return [
        file.lost(start, stop, reason)
        for start, stop in damaged
        if (file := log.file_at(start)) is not None
    ]


def is_entry_of(candidate: Candidate, record: KeyedRecord) -> bool:
    """Return whether the record states the entry's offset, and has a key with the entry's hash."""
    in_place = record.stated_offset == candidate.physical_offset
    return in_place and record.has_key_hash(candidate.key_hash)
