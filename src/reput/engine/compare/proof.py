"""Prove which part of the log an IndexFile covers.

A range of the log is covered if a look-up reaches an item for every key of every message in it. Two steps prove this:

1. The file: follow its slots and links, to see whether a look-up reaches each item.
2. The log: compare messages with items. Items can be missing, for example because indexing was off for a time. Items
   can lead to messages that were truncated and overwritten, because a broker never removes an item.

If a file covers at most 64 MiB of log, all of it is compared. Otherwise samples are compared: the widest gaps between
neighbouring items, a thousand ranges at equal distances, and both ends. A sample begins at a message to which an item
leads. If this message lacks the item of one of its keys, the IndexFile may belong to another log, so all of the log is
compared after all. Messages with a missing item become gaps in the file's coverage.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import counted, usable_cpus
from reput.core import (
    CommitLogFile,
    CommitLogReader,
    FileScan,
    IndexEntries,
    IndexFileReader,
    ListedLog,
    LogListing,
    OffsetRange,
    Proof,
    ProofCache,
    ScanBuffers,
    ScanMode,
    ScannedPiece,
    Stamps,
    Verdict,
)
from reput.engine.compare.columns import Column, key_pairs
from reput.errors import StoreNotFoundError
from reput.format.dtypes import RawEntries, item_hashes, item_offsets
from reput.format.index_file import IndexHeader
from reput.io import Stamp
from reput.kernels.index_proof import (
    check_items,
    check_slots,
    count_falls,
    find_lost_items,
    find_wide_gaps,
)

# If a range of items covers at most this many bytes of log, all messages in these bytes are compared with the items. If
# the range covers more, only samples of the messages are compared.
_COMPARED_BYTES = 64 << 20
_CHECKED_GAPS = 1 << 11
_CHECKED_ITEMS = 1 << 10
# A gap between two items counts as wide if it is longer than this many average messages.
_GAP_MESSAGES = 4
# The items of a damaged file may state any offsets.
_MOST_LEAST = 1 << 40
_MOST_LOST = 1 << 10
# Up to so many items, one read and a comparison of all pairs are faster than a search.
_FEW_ITEMS = 16
_TIMED_ITEMS = 1 << 6
_MOST_LINES = 8
# Number of items to read on either side of an item, to find all items of its message. The items of a message are
# adjacent, one per key, and few messages have more keys than this number.
_NEIGHBOURS = 16
# Number of items per read, from the end of the file.
_PIECE_ITEMS = 1 << 16
_OFFSET_MAX, _INT32_MAX = 2**63 - 1, 2**31 - 1
_READS_OF_HEADER = 5


class OrderedEntries(IndexEntries):
    """The items of an IndexFile, ordered by their physical offsets."""

    def pieces_from_end(self, begin: int, end: int) -> Iterator[tuple[int, RawEntries]]:
        """Yield the items from `begin` to `end` - 1 in pieces, as pairs (number of the first item, items).

        The last piece comes first.
        """
        for stop in range(end, begin, -_PIECE_ITEMS):
            first = max(stop - _PIECE_ITEMS, begin)
            yield first, self.items(first, stop)

    def offset(self, number: int) -> int:
        """Return the physical offset of an item."""
        return self.file.offset(number)

    def first_at(self, offset: int, first: int, last: int) -> int:
        """Return the first of the items `first` to `last` whose physical offset is at least `offset`.

        The offsets of these items must ascend. If all are smaller, the result is `last` + 1.
        """
        return first + bisect_left(range(first, last + 1), offset, key=self.offset)

    def of_message(self, number: int, first: int, last: int) -> tuple[int, int]:
        """Return the range (begin, end) of the items that have the same physical offset as item `number`.

        The items from `first` to `last` must be ordered by offset.
        """
        low, high = max(number - _NEIGHBOURS, first), min(number + _NEIGHBOURS, last) + 1
        offsets = item_offsets(self.items(low, high))
        offset = int(offsets[number - low])
        begin, after = (low + int(each) for each in np.searchsorted(offsets, (offset, offset + 1)))
        # The message may have more items than were read.
        if begin == low:
            begin = self.first_at(offset, first, number)
        if after == high:
            after = self.first_at(offset + 1, number, last)
        return begin, after

    def decoded(self, begin: int, end: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Return physical offsets and key hashes of the items from `begin` to `end` - 1."""
        items = self.items(begin, end)
        return item_offsets(items), item_hashes(items).view(np.uint32)


class Compared(NamedTuple):
    """The result of comparing a range of the log with the items of an IndexFile.

    end: the end of the last message, which may lie after the end of the requested range
    holes: the ranges of messages that lack an item for a key, oldest first
    """

    end: int
    holes: list[OffsetRange]


class ItemComparison:
    """Compares ranges of a log with the items of one IndexFile. Raises StoreAccessError, StoreChangedError."""

    def __init__(self, log: CommitLogReader, entries: OrderedEntries) -> None:
        self._log, self._entries, self._buffers = log, entries, ScanBuffers()

    def compare(self, start: int, stop: int, first: int, last: int) -> Compared:
        """Compare the messages that begin in [start, stop) with the items [first, last) of the IndexFile.

        A message must begin at `start`.
        """
        position, holes = start, []
        for file in self._log.files_within(start, stop):
            if file.start > position:
                holes.append(OffsetRange(position, file.start))
                position = file.start
            items = self._items_within(position, file.end, first, last)
            end, gaps = self._in_file(file, position, min(stop, file.end), *items)
            holes += gaps
            position = max(end, position)
        if position < stop:
            holes.append(OffsetRange(position, stop))
        return Compared(max(position, stop), holes)

    def _items_within(
        self, start: int, stop: int, first: int, last: int
    ) -> tuple[Column, npt.NDArray[np.uint32]]:
        """Return physical offsets and key hashes of the items [first, last] whose messages begin in [start, stop)."""
        if last - first >= _FEW_ITEMS:
            first = self._entries.first_at(start, first, last)
            last = self._entries.first_at(stop, first, last) - 1
        # Most samples are one message with a few items: one read instead of one for each step of a search.
        offsets, hashes = self._entries.decoded(first, last + 1)
        begin, after = np.searchsorted(offsets, (start, stop)).tolist()
        return offsets[begin:after], hashes[begin:after]

    def _in_file(
        self,
        file: CommitLogFile,
        start: int,
        stop: int,
        offsets: Column,
        hashes: npt.NDArray[np.uint32],
    ) -> tuple[int, list[OffsetRange]]:
        """Compare the part [start, stop) of one log file with items.

        Return the end of its last message, and the ranges of messages that lack an item.
        """
        scan = FileScan(file, start, stop, ScanMode.SALVAGE, buffers=self._buffers)
        pairs = key_pairs(offsets, hashes, file.start)
        holes: list[OffsetRange] = []
        try:
            for piece in scan.pieces():
                holes += _missing(piece, pairs, file.start)
        except StoreNotFoundError:  # A broker deleted the expired file.
            return file.end, [OffsetRange(start, file.end)]
        end = scan.end.position
        # An item has the offset that its message states. A message at a different offset cannot be compared with its
        # items. If the range [start, stop) has such a message, report the whole range as not covered by the IndexFile.
        if scan.misplaced:
            return end, [OffsetRange(start, max(end, stop))]
        holes += OffsetRange.of(scan.damage)
        if scan.end.unreadable:
            holes.append(OffsetRange(end, max(end, stop)))
        return max(end, stop) if scan.end.unreadable else end, sorted(holes)


def _missing(
    piece: ScannedPiece, item_pairs: npt.NDArray[np.uint64], base: int
) -> list[OffsetRange]:
    """Return the ranges of messages that lack an item for a key. Messages without keys are ignored."""
    batch = piece.batch
    begins = piece.base + piece.positions
    if not len(batch.key_hash):
        return []
    batch_pairs = key_pairs(begins[batch.key_row], batch.key_hash.view(np.uint32), base)
    bounds = key_pairs(np.array((begins[0], begins[-1] + 1)), np.zeros(2, np.uint32), base)
    # A search in only the items of this piece is faster than in all items of the file.
    low, high = np.searchsorted(item_pairs, bounds)
    items = item_pairs[low:high]
    if len(items) <= _FEW_ITEMS >= len(batch_pairs):
        lacks = ~(batch_pairs[:, None] == items).any(axis=1)
    else:
        lacks = ~np.isin(batch_pairs, items)
    if not lacks.any():
        return []
    keyed = np.flatnonzero(batch.messages["key_count"])
    lacking = np.bincount(batch.key_row[lacks], minlength=len(batch))[keyed] > 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lacking, [False])).astype(np.int8)))
    firsts, lasts = keyed[edges[::2]], keyed[edges[1::2] - 1]
    ends = begins[lasts] + batch.messages["size"][lasts]
    return [OffsetRange(int(a), int(b)) for a, b in zip(begins[firsts], ends, strict=True)]


class ChainCheck:
    """Checks whether a look-up reaches each item of an IndexFile, and whether the items are in the order of the log.

    Slots and items contain pointers to items. A pointer has the hash of the item to which it points. The kernels add
    the hashes of all pointers, and subtract the hashes of all items. The result is 0 if look-ups reach every item.
    Nobody can forge a file with this result, because the seed of the hashes is random.

    Attributes:
        used_slots: Number of used slots.
        newest: Number of the newest item to which a slot leads.
        messages: Number of messages to which the items lead.
    """

    def __init__(self, slots: npt.NDArray[np.uint32]) -> None:
        """Begin with the slots as they are stored, uint32[n]."""
        self._seed = np.uint64(int.from_bytes(os.urandom(8), "little"))
        self._slots, self._before, self._wrong, self.messages = len(slots), -1, 0, 0
        self._total, self.used_slots, self.newest = check_slots(slots, self._seed)

    def add(self, items: npt.NDArray[np.uint32], first: int, last: int) -> bool:
        """Add the next items, from number `first` on. Return whether they are in order.

        Items after `last`, which the header does not count yet, may have any order.
        """
        self._total, forwards, disordered, messages, self._before = check_items(
            items, first, last, self._slots, self._seed, np.uint64(self._total), self._before
        )
        self._wrong += forwards + disordered
        self.messages += messages
        return not disordered

    @property
    def is_valid(self) -> bool:
        # Without numba, the kernel returns a NumPy integer, and the comparison a NumPy bool.
        return bool(self._wrong == 0 and int(self._total) == 0)


class _WideGaps:
    """The widest gaps between neighbouring items, at most _CHECKED_GAPS.

    Attributes:
        least: The gaps are wider than this number of bytes. It grows if there are too many.
    """

    def __init__(self, least: int) -> None:
        self.least = max(least, 1)
        self._numbers, self._widths = np.empty((2, _CHECKED_GAPS), np.int64)
        self._count = 0

    def add(self, items: npt.NDArray[np.uint32], first: int) -> None:
        """Take the next items, from number `first` on. The first of them is the last one of the previous call."""
        self._count, self.least = find_wide_gaps(
            items, first, self.least, self._numbers, self._widths, self._count
        )

    def wider_than(self, least: int) -> list[int]:
        """Return the numbers of the items before gaps of more than `least` bytes."""
        is_wider = self._widths[: self._count] > least
        numbers: list[int] = self._numbers[: self._count][is_wider].tolist()
        return numbers


class _ItemRange(NamedTuple):
    """The items `first` to `last`. Look-ups reach them, they are in order, and their messages have not expired."""

    first: int
    last: int


def prove(file: IndexFileReader, log: CommitLogReader, earlier: Proof | None = None) -> Proof:
    """Prove the coverage of a file, up to its last item.

    Args:
        file: The IndexFile.
        log: The log of its store.
        earlier: An earlier proof; the log that it covers is not compared again.

    Raises:
        StoreAccessError, StoreChangedError.
    """
    header, problem = _settled_header(file)
    last = header.last_item(file.index_items)
    if problem or last == 0:
        return Proof(last, problems=(problem,) if problem else ())
    if earlier is not None and not 0 < earlier.items <= last:
        earlier = None
    return _Prover(file, log, last).proof(header.hash_slot_count, earlier)


def _settled_header(file: IndexFileReader) -> tuple[IndexHeader, str]:
    """Return the header, and how it contradicts the items ("" if both agree).

    A broker updates count, end and timestamp one after the other, so the header is read until these values agree.
    """
    for _ in range(_READS_OF_HEADER):
        header = file.header()
        problem = _contradiction(file, header)
        if not problem:
            break
    return header, problem


def _contradiction(file: IndexFileReader, header: IndexHeader) -> str:
    last = header.last_item(file.index_items)
    if last == 0:
        return ""
    first_item, last_item = file.item(1), file.item(last)
    if header.begin_physical_offset != first_item.physical_offset:
        return "the header's begin offset is not the first item's"
    if header.end_physical_offset != last_item.physical_offset:
        return "the header's end offset is not the last item's"
    # The broker limits time differences to these bounds, so a value at a bound proves nothing.
    if last > 1 and header.begin_timestamp > 0 and 0 < last_item.time_diff_s < _INT32_MAX:
        passed_ms = header.end_timestamp - header.begin_timestamp
        if passed_ms // 1000 != last_item.time_diff_s:
            return "the header's timestamps are not as far apart as the items'"
    return ""


class _Prover:
    def __init__(self, file: IndexFileReader, log: CommitLogReader, last: int) -> None:
        self._log, self._last, self._most = log, last, file.index_items - 1
        self._entries = OrderedEntries(file)
        self._comparison = ItemComparison(log, self._entries)
        self._problems: list[str] = []
        self._messages = 0
        self._gap_bytes = 0
        self._file = file
        self._is_timed = False
        self._gaps: _WideGaps | None = None

    def proof(self, used_slots: int, earlier: Proof | None) -> Proof:
        ranges: list[OffsetRange] = []
        lost = self._lost_items(used_slots)
        if lost is not None:
            self._gap_bytes = 0 if earlier is None or lost else earlier.gap_bytes
            for run in self._runs(lost):
                ranges += self._covered(run, None if lost else earlier)
            if any(one.stop > other.start for one, other in pairwise(ranges)):
                self._problems.append("its entries do not have the order of the log")
                ranges = []
        is_timed = bool(ranges) and self._is_timed and self._say_when()
        problems = tuple(self._problems)
        return Proof(self._last, OffsetRange.merged(ranges), problems, self._gap_bytes, is_timed)

    def _say_when(self) -> bool:
        """Return whether the times of some items match the store times of their messages.

        The compared items are spread evenly from the first item whose message has not expired to the file's last item.
        """
        begin_ms = self._file.header().begin_timestamp
        first = max(self._entries.first_at(self._log.min_offset, 1, self._last), 2)
        items = np.linspace(first, self._last, _TIMED_ITEMS, dtype=np.int64)
        return all(
            self._file.agrees_on_time(self._log, number, begin_ms)
            for number in sorted(set(items.tolist()))
            if first <= number <= self._last
        )

    def _lost_items(self, used_slots: int) -> list[int] | None:
        """Return the items that a look-up does not reach or that are out of order; None if the file is invalid."""
        last, slots = self._last, self._entries.slots()
        chains = ChainCheck(slots)
        used = chains.used_slots
        # A broker may have put items that the file's header does not count yet.
        newest = min(max(chains.newest, last), self._most)
        if self._are_linked(newest, chains):
            # Items that the header does not count yet may use slots that it does not count either.
            if used_slots <= used <= used_slots + newest - last:
                return []
            self._problems.append(
                f"{counted(used, 'slot', verb='is')} used, but the header states {used_slots}"
            )
            return None
        lost, count = self._find_lost(newest, slots)
        if count > _MOST_LOST:
            self._problems.append(f"its slots do not lead to {count} of its {last} entries")
            return None
        numbers = sorted(set(lost[:count].tolist()))
        if numbers:
            self._problems.append(
                f"its slots do not lead to item {numbers[0]}{_and_others(len(numbers) - 1)}"
            )
        return numbers

    def _are_linked(self, newest: int, chains: ChainCheck) -> bool:
        """Return whether look-ups reach all items up to `newest`, and the items are in order.

        Also find the wide gaps, so that they need no second pass over the file.
        """
        seconds, falls = 0, 0
        self._gaps = self._narrow_gaps() if newest == self._last else None
        for first, items in self._entries.pieces(1, newest + 1, overlap=1):
            # The previous piece has had this piece's first item.
            new = items[first > 1 :]
            begin = first + len(items) - len(new)
            fallen, seconds = count_falls(new, begin, self._last, seconds)
            falls += fallen
            # Only items in order have gaps.
            if not chains.add(new, begin, self._last):
                self._gaps = None
            if self._gaps is not None:
                self._gaps.add(items, first)
        self._messages = chains.messages
        self._is_timed = bool(falls == 0)
        return chains.is_valid

    def _narrow_gaps(self) -> _WideGaps:
        """Return room for gaps that are wide for items. Gaps that are wide for messages, which are fewer, are wider."""
        mean = (self._entries.offset(self._last) - self._entries.offset(1)) // self._last
        return _WideGaps(min(_GAP_MESSAGES * mean, _MOST_LEAST))

    def _find_lost(
        self, newest: int, slots: npt.NDArray[np.uint32]
    ) -> tuple[npt.NDArray[np.int64], int]:
        lost, count, after = np.empty(2 * _MOST_LOST, np.int64), 0, _OFFSET_MAX
        leads_to = slots.byteswap().view(np.int32)
        for first, items in self._entries.pieces_from_end(1, newest + 1):
            count, after = find_lost_items(items, first, self._last, leads_to, after, lost, count)
        return lost, count

    def _runs(self, lost: Sequence[int]) -> Iterator[_ItemRange]:
        for before, after in pairwise([0, *lost, self._last + 1]):
            first = self._entries.first_at(self._log.min_offset, before + 1, after - 1)
            if first < after:
                yield _ItemRange(first, after - 1)

    def _covered(self, run: _ItemRange, earlier: Proof | None) -> list[OffsetRange]:
        """Return the log ranges that a range of items covers, oldest first.

        The first and the last message are excluded if some of their keys are in another IndexFile.
        """
        entries, begin = self._entries, self._log.min_offset
        first, last = run
        start, stop = entries.offset(first), min(entries.offset(last) + 1, self._log.files_end)
        if first > 1 and entries.offset(first - 1) < begin:
            # The message of the item before `first` has expired, so the items cover the log from its beginning.
            start = begin
        ranges: list[OffsetRange] = []
        if earlier is not None and first < earlier.items:
            edge = entries.offset(earlier.items)
            # Reuse the earlier proof up to its last item, and compare only the log after it.
            ranges = [OffsetRange(max(a, start), min(b, edge)) for a, b in earlier.ranges]
            ranges = [part for part in ranges if part.start < part.stop]
            first, start = entries.first_at(edge, first, earlier.items), edge
        if start >= stop:
            return ranges
        sample = None
        if stop - start > _COMPARED_BYTES:
            sample = self._sampled(first, last, start, stop)
        end, holes = sample or self._comparison.compare(start, stop, first, last)
        # The comparison ends after the last message, or at the end of its log file if only a blank record follows.
        edges = start, entries.offset(last)
        inner = (hole for hole in holes if hole.stop != end)
        self._tell(
            [gap for gap in inner if not any(gap.start <= edge < gap.stop for edge in edges)]
        )
        return [*ranges, *OffsetRange(start, end).without(holes)]

    def _sampled(
        self, first: int, last: int, start: int, stop: int
    ) -> tuple[int, list[OffsetRange]] | None:
        """Compare sampled ranges. Return the end of the last one, and the ranges of messages without an item.

        If the first message of a sample lacks an item, return None: all messages must then be compared.
        """
        entries, mean = self._entries, (stop - start) // max(self._messages, 1)
        least, gaps = max(_GAP_MESSAGES * mean, 1), self._gaps
        if gaps is None or gaps.least > least or (first, last) != (1, self._last):
            gaps = _WideGaps(least)
            for number, items in entries.pieces(first, last + 1, overlap=1):
                gaps.add(items, number)
        least = max(least, gaps.least)
        # Sample the widest gaps between items, because lost items usually leave wide gaps. Sample also evenly spread
        # items, to detect an index that belongs to another log.
        spread = np.linspace(first, last, _CHECKED_ITEMS, dtype=np.int64)
        sampled = {*gaps.wider_than(least), *spread.tolist()}
        samples = sorted({entries.of_message(item, first, last) for item in sampled})
        end, holes = self._comparison.compare(start, entries.offset(first), first, first)
        for begin, after in samples:
            offset = entries.offset(begin)
            next_offset = entries.offset(after) if after <= last else stop
            end, lacking = self._comparison.compare(offset, next_offset, begin, after - 1)
            is_edge = begin == first or after > last
            if lacking and lacking[0].start == offset and not is_edge:
                return None
            holes += lacking
        self._gap_bytes = max(self._gap_bytes, least)
        return end, holes

    def _tell(self, holes: Sequence[OffsetRange]) -> None:
        for hole in holes[:_MOST_LINES]:
            self._problems.append(f"its entries do not cover offsets {hole.start} to {hole.stop}")
        if len(holes) > _MOST_LINES:
            self._problems.append(
                f"its entries do not cover {counted(len(holes) - _MOST_LINES, 'further range')}"
            )


def _and_others(count: int) -> str:
    return f" and {counted(count, 'other')}" if count else ""


def prove_all(
    log: CommitLogReader,
    files: Iterable[IndexFileReader],
    *,
    afresh: bool = False,
    threads: int | None = None,
) -> list[Proof]:
    """Prove for each IndexFile of a local store which part of the log it covers. Return the proofs in order.

    Threads do the work, as many as given, in the log files that `log` has listed. The stored proof of an unchanged file
    is reused, except with `afresh`.

    Raises StoreError.
    """
    if threads == 1:
        return [_prove(log, file, afresh) for file in files]
    # Threads must not share a reader. Each thread has its own, because a reader per IndexFile would cost as much as the
    # log has files.
    readers: SimpleQueue[CommitLogReader] = SimpleQueue()

    def one(file: IndexFileReader) -> Proof:
        try:
            reader = readers.get_nowait()
        except Empty:
            reader = reader_of(log.source.name, log.files)
        try:
            return _prove(reader, file, afresh)
        finally:
            readers.put(reader)

    try:
        # More threads than processors, because some wait for the disk.
        with ThreadPoolExecutor(threads or min(usable_cpus() + 4, 32)) as pool:
            return list(pool.map(one, files))
    finally:
        while not readers.empty():
            readers.get().close()


def reader_of(name: str, files: Sequence[CommitLogFile]) -> CommitLogReader:
    """Return a reader of these files of a local log, which lists no others. The caller closes it."""
    return CommitLogReader(ListedLog(LogListing(name, tuple(files))))


def prove_new(store: str, files: Sequence[CommitLogFile], file: IndexFileReader) -> Proof:
    """Prove which part of the log a new IndexFile covers, without storing the proof.

    `files` are all log files with messages of the IndexFile. Raises StoreError.
    """
    if not files:
        return Proof(0)
    with closing(reader_of(store, files)) as log:
        return prove(file, log)


def remember(
    log: CommitLogReader, file: IndexFileReader, proof: Proof, log_before: dict[int, Stamp]
) -> None:
    """Store the proof of a file that this process wrote and moved to its final place.

    `log_before` has the stamps (identity, size and time) of the log files before the proof began. So the stored proof
    is invalid if a file changed during the proof. Raises StoreError.
    """
    before = Stamps(Stamp.settled(file.path), log_before)
    ProofCache().keep_proof(file, log, proof, before)


def _prove(log: CommitLogReader, file: IndexFileReader, afresh: bool) -> Proof:
    remembered = ProofCache()
    earlier = None if afresh else remembered.proof(file, log)
    if earlier is not None and earlier.items == file.next_item - 1:
        return earlier
    # Read the stamps (inode, size, change time) of the files before the proof. Otherwise, a stored proof would stay
    # valid although a file has changed during the proof.
    before = Stamps.before(file, log)
    proof = prove(file, log, earlier)
    is_kept = remembered.keep_proof(file, log, proof, before)
    return replace(proof, is_kept=is_kept)


class Proved:
    """A `Judge` of IndexFiles that trusts only proofs that it has made itself, with `prove_all`."""

    def __init__(
        self, log: CommitLogReader, files: Iterable[IndexFileReader], threads: int | None = None
    ) -> None:
        """Prove for each file which part of the log it covers, in threads. Raises StoreError."""
        every = tuple(files)
        self._proofs = dict(zip(every, prove_all(log, every, threads=threads), strict=True))

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None = None,
        files: int = 1,
    ) -> Verdict:
        """Return the verdict: the ranges of the log for which the file can be trusted. See `Judge`."""
        proof = self._proofs.get(file)
        if proof is None:  # The file was created after __init__.
            return Verdict(last)
        problem = "; ".join(proof.problems) if not proof.ranges else ""
        return Verdict(last, proof=proof, problem=problem)
