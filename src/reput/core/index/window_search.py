"""Use kernels to find the candidates outside a query's time window. The query examines only the other candidates.

The kernels read the record of each candidate, because only the record has the store time. A candidate is skipped if its
record is whole, states the candidate's offset, has a key with the candidate's hash, and was stored outside the window.
All other candidates, including damaged ones, are left to `reput.core.index.search.IndexSearch`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput.core.index.key_index import Candidate, CandidateArrays, TimeWindow
from reput.core.index.long_chain import chain_pieces
from reput.core.index.reader import IndexFileReader
from reput.core.log.files import CommitLogFile
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.windows import Window
from reput.errors import StoreNotFoundError
from reput.format.index_file import index_key, key_hash
from reput.kernels import key_match as kernel
from reput.kernels.jit import new_rows

_LEAST_READ_BYTES = 128
# Records with more bytes than this are left to `IndexSearch`.
_MOST_BYTES = 64 << 10
# Number of bytes that are read at once. They fit in the processor's cache.
_WINDOW_BYTES = 1 << 20
# If the ranges have at most this many bytes on average, they are read together and copied, which is faster than
# separate reads.
_SHORT_RANGE_BYTES = 8 << 10

_Offsets = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def to_be_read(
    log: CommitLogReader,
    candidates: Iterator[CandidateArrays],
    window: TimeWindow,
    likely_bytes: int,
) -> Iterator[Candidate]:
    """Yield the candidates that `IndexSearch` must read, newest first: all except those known to be outside the window.

    likely_bytes  number of bytes in the first read of each record; most records are not longer

    Raises StoreAccessError, StoreChangedError, and the errors of `candidates`.
    """
    # Limit the window to int64 values, because the kernels compare int64 values.
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    window = TimeWindow(*(min(max(time, int(least)), int(most)) for time in window))
    likely_bytes = min(max(likely_bytes, _LEAST_READ_BYTES), _MOST_BYTES)
    for offsets, hashes in candidates:
        # `_outside` takes ascending offsets.
        is_inside = ~_outside(log, offsets[::-1], hashes[::-1], window, likely_bytes)[::-1]
        yield from map(Candidate, offsets[is_inside].tolist(), hashes[is_inside].tolist())


def _outside(
    log: CommitLogReader,
    offsets: _Offsets,
    hashes: npt.NDArray[np.int32],
    window: TimeWindow,
    likely_bytes: int,
) -> _Flags:
    """Return for each candidate whether the query can skip it.

    A candidate can be skipped if the record at its offset has a key with its hash, and was stored outside the window.
    Offsets must ascend.
    """
    outside = np.zeros(len(offsets), np.bool_)
    for file in log.files:
        first, stop = np.searchsorted(offsets, (file.start, file.end))
        if first < stop:
            part = _FilePart(log, file, offsets[first:stop].copy(), hashes[first:stop].copy())
            try:
                outside[first:stop] = part.outside(window, likely_bytes)
            except StoreNotFoundError:  # The file expired after the log was listed.
                continue
    return outside


class _FilePart:
    """The candidates whose messages lie in one log file."""

    def __init__(
        self,
        log: CommitLogReader,
        file: CommitLogFile,
        offsets: _Offsets,
        hashes: npt.NDArray[np.int32],
    ) -> None:
        self._log, self._file = log, file
        self._offsets, self._hashes = offsets, hashes
        self._nothing, self._at = np.empty(0, np.uint8), np.zeros(len(offsets) + 1, np.int64)
        # Look-ups pass read-only arrays to these kernels. For other arrays, the kernels would be compiled again.
        for array in (offsets, hashes, self._nothing, self._at):
            array.flags.writeable = False

    def outside(self, window: TimeWindow, likely_bytes: int) -> _Flags:
        is_outside = np.zeros(len(self._offsets), np.bool_)
        pending = np.arange(len(self._offsets))
        needed = np.full(len(pending), likely_bytes)
        while len(pending):
            unread, still_needed = [], []
            for part in Window.group(self._offsets[pending], needed, self._file, _WINDOW_BYTES):
                rows = pending[part.first : part.first + len(part.begins)]
                records = self._records(part)
                is_entry = self._are_entries(part, records, rows)
                timestamps = records["store_timestamp"]
                is_outside[rows] = is_entry & (
                    (timestamps < window.begin) | (window.end < timestamps)
                )
                # A record that is longer than expected is read again with its full length.
                more = records["status"] == kernel.MORE_BYTES
                more &= records["needed"] <= _MOST_BYTES
                unread.append(rows[more])
                still_needed.append(records["needed"][more])
            pending, needed = np.concatenate(unread), np.concatenate(still_needed)
        return is_outside

    def _records(self, part: Window) -> npt.NDArray[np.void]:
        """Return the fields of each record, RECORD_DTYPE."""
        self._read(part)
        records = new_rows(len(part.begins), kernel.RECORD_DTYPE)
        at_file_end = (part.ends_at >= self._file.end).astype(np.uint8)
        kernel.locate_records(part.data, part.begins, part.ends, at_file_end, records)
        return records

    def _read(self, part: Window) -> None:
        """Read the bytes of a window. Raises StoreNotFoundError, StoreAccessError, StoreChangedError."""
        # Each long range is read directly into the buffer. Short ranges are read together with one call.
        if len(part.data) > len(part.ranges) * _SHORT_RANGE_BYTES:
            for position, offset, length in part.ranges:
                self._log.read_into(self._file, part.data[position : position + length], offset)
            return
        _, offsets, lengths = zip(*part.ranges, strict=True)
        data = b"".join(self._log.read_each(self._file, offsets, lengths))
        part.data[:] = np.frombuffer(data, np.uint8)

    def _are_entries(self, part: Window, records: npt.NDArray[np.void], rows: _Offsets) -> _Flags:
        """Return for each candidate (an index entry) whether its offset leads to a record with its key hash.

        The record must state the candidate's offset, and have a key with the candidate's hash.
        """
        # Only hashes are passed, not keys. So for each record that has a key with the candidate's hash, the kernel
        # returns OTHER (same hash, other key).
        verdicts = np.empty(len(rows), np.uint8)
        kernel.match_keys(
            part.data, records, rows, np.arange(len(rows)), self._offsets, self._hashes,
            self._nothing, self._at, self._nothing, self._at, verdicts,
        )  # fmt: skip
        are_entries: _Flags = verdicts == kernel.OTHER
        return are_entries


def warm_up_window_search(file: IndexFileReader, log: CommitLogReader) -> None:
    """Run the steps of a query for a frequent key in a time window, so that their kernels are compiled."""
    everywhere = OffsetRange(log.min_offset, log.files_end)
    chain = chain_pieces(file, key_hash(index_key("t", "k")), everywhere)
    for _ in to_be_read(log, chain, TimeWindow(0, 0), 0):
        raise RuntimeError("the query found a message outside its time window")
