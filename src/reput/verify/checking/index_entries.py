"""Items of IndexFiles held against the keys of the messages in one file of the log."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.files.reader import FileReader
from reput.findings import Finding, Kind
from reput.format.dtypes import ITEM_DTYPE
from reput.format.index_file import IndexHeader, item_position
from reput.verify.checking.spans import Span
from reput.verify.checking.tally import Tally

if TYPE_CHECKING:
    from reput.verify.checking.log_check import Chunk

Offsets = npt.NDArray[np.int64]
_HASH_BITS = 31
_INT32_MAX = 2**31 - 1
_NEVER = "does not notice it, and never adds an entry to an index that lacks it"


class IndexPiece(NamedTuple):
    """The items of one IndexFile that are of messages in one file of the log.

    first_base  what the time of the file's first item is counted from, ms; None where nobody knows
    is_growing  the file is being put to, and its header not to be compared
    """

    path: str
    hash_slots: int
    header: IndexHeader
    span: Span
    first_base: int | None
    is_growing: bool


class _Items(NamedTuple):
    """Columns of items of one file."""

    numbers: Offsets
    offsets: Offsets
    hashes: Offsets
    seconds: Offsets

    def at(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Items:
        return _Items(*(column[rows] for column in self))


def _read(piece: IndexPiece) -> _Items:
    """Raises StoreError."""
    count = piece.span.last - piece.span.first + 1
    data = np.empty(count, ITEM_DTYPE)
    with FileReader(piece.path) as reader:
        at = item_position(piece.hash_slots, piece.span.first)
        reader.read_into(data.view(np.uint8), at)
    names = ("physical_offset", "key_hash", "time_diff_s")
    numbers = np.arange(piece.span.first, piece.span.last + 1)
    return _Items(numbers, *(data[name].astype(np.int64) for name in names))


class LoggedIndex:
    """What the IndexFiles hold of one file of the log, chunk by chunk."""

    def __init__(
        self,
        pieces: tuple[IndexPiece, ...],
        indexed: tuple[tuple[int, int], ...],
        dispatched_to: int,
        indexed_again: int | None,
        folder: str,
        tally: Tally,
    ) -> None:
        """Raises StoreError."""
        self._pieces, self._indexed, self._folder = pieces, indexed, folder
        self._items = [_read(piece) for piece in pieces]
        self._dispatched_to, self._indexed_again = dispatched_to, indexed_again
        self._tally = tally
        self.without_index = 0

    def compare(self, chunk: Chunk) -> None:
        """Note what is wrong with the items of a chunk's messages."""
        items = [one.at(_inside(one.offsets, chunk)) for one in self._items]
        if not self._indexed:
            self.without_index += len(chunk.key_hashes)
        else:
            self._compare_keys(chunk, items)
        for piece, one in zip(self._pieces, items, strict=True):
            self._compare_times(chunk, piece, one)

    def _compare_keys(self, chunk: Chunk, items: list[_Items]) -> None:
        none = np.empty(0, np.int64)
        offsets = np.concatenate([none, *(one.offsets for one in items)])
        hashes = np.concatenate([none, *(one.hashes for one in items)])
        if np.array_equal(offsets, chunk.key_offsets) and np.array_equal(hashes, chunk.key_hashes):
            return
        expected = _pairs(chunk, chunk.key_offsets, chunk.key_hashes.astype(np.int64))
        found = _pairs(chunk, offsets, hashes)
        self._note_missing(chunk, _surplus(expected, found))
        of_items = np.repeat(np.arange(len(items)), [len(one.numbers) for one in items])
        numbers = np.concatenate([none, *(one.numbers for one in items)])
        extra = _surplus(found, expected)
        is_lost = chunk.in_damage(offsets[extra]) | (hashes[extra] < 0)
        extra = extra[~is_lost]
        repeats = np.isin(found[extra], expected)
        for kind, rows in (
            (Kind.DUPLICATE_INDEX_ENTRY, extra[repeats]),
            (Kind.STALE_INDEX_ENTRY, extra[~repeats]),
        ):
            for number in np.unique(of_items[rows]).tolist():
                chosen = rows[of_items[rows] == number]
                self._note_surplus(
                    kind, chunk, self._pieces[number], numbers[chosen], offsets[chosen]
                )

    def _note_missing(self, chunk: Chunk, rows: Offsets) -> None:
        offsets = chunk.key_offsets[rows]
        late = offsets >= self._dispatched_to
        within = np.zeros(len(offsets), np.bool_)
        for first, last in self._indexed:
            within |= (offsets >= first) & (offsets <= last)
        before_last = offsets < max(last for _, last in self._indexed)
        kinds = (
            (Kind.INDEX_FILE_LOST, ~late & ~within & before_last),
            (Kind.MISSING_INDEX_ENTRY, ~late & (within | ~before_last)),
        )
        for kind, chosen in kinds:
            if not chosen.any():
                continue
            at = int(offsets[chosen][0])
            path = self._file_for(at)
            made = Finding(
                kind, path, f"no entry for a key of the message at {at}", None, at,
                at_next_start=self._at_next_start(at, int(offsets[chosen][-1])),
            )  # fmt: skip
            times = chunk.times[np.searchsorted(chunk.offsets, offsets[chosen])]
            self._tally.add(kind, path, int(chosen.sum()), partial(replace, made), times)

    def _at_next_start(self, first: int, last: int) -> str:
        again = self._indexed_again
        if again is None or last < again:
            return _NEVER
        return "indexes them" if first >= again else f"indexes those from {again} on"

    def _file_for(self, offset: int) -> str:
        """The IndexFile that should have the entry, or the last that this file of the log has items in."""
        for piece in self._pieces:
            if offset <= piece.header.end_physical_offset:
                return piece.path
        return self._pieces[-1].path if self._pieces else self._folder

    def _note_surplus(
        self, kind: Kind, chunk: Chunk, piece: IndexPiece, numbers: Offsets, offsets: Offsets
    ) -> None:
        place = item_position(piece.hash_slots, int(numbers[0]))
        is_repeat = kind is Kind.DUPLICATE_INDEX_ENTRY
        what = "repeats an entry for" if is_repeat else "has the hash of no key of"
        detail = f"item {numbers[0]} {what} the message at {offsets[0]}"
        known = np.isin(offsets, chunk.offsets)
        times = chunk.times[np.searchsorted(chunk.offsets, offsets[known])]
        self._tally.add(
            kind, piece.path, len(numbers),
            lambda: Finding(
                kind, piece.path, detail, place, int(offsets[0]), at_next_start="does not notice it"
            ),
            times if is_repeat else None,
        )  # fmt: skip

    def _compare_times(self, chunk: Chunk, piece: IndexPiece, items: _Items) -> None:
        row = np.searchsorted(chunk.offsets, items.offsets)
        row[row == len(chunk.offsets)] = 0
        known = chunk.offsets[row] == items.offsets if len(chunk.offsets) else row > 0
        items, times = items.at(known), chunk.times[row[known]]
        header = piece.header
        expected = _seconds(times, header.begin_timestamp)
        is_first = items.numbers == 1
        if is_first.any():
            base = piece.first_base
            first = items.seconds[is_first] if base is None else _seconds(times[is_first], base)
            expected[is_first] = first
        wrong = np.flatnonzero(items.seconds != expected)
        self._tally.add(
            Kind.INDEX_TIME, piece.path, len(wrong),
            lambda: Finding(
                Kind.INDEX_TIME, piece.path,
                f"item {items.numbers[wrong[0]]} says {items.seconds[wrong[0]]} s, its message "
                f"{expected[wrong[0]]} s", item_position(piece.hash_slots, int(items.numbers[wrong[0]])),
                int(items.offsets[wrong[0]]), at_next_start="does not notice it",
            ),
            times[wrong],
        )  # fmt: skip
        if not piece.is_growing:
            ends = (
                (1, header.begin_physical_offset, header.begin_timestamp, 0),
                (header.last_item(1 << 31), header.end_physical_offset, header.end_timestamp, 8),
            )
            for number, offset, stated, at in ends:
                self._compare_end(piece, items, times, number, offset, stated, at)

    def _compare_end(
        self,
        piece: IndexPiece,
        items: _Items,
        times: Offsets,
        number: int,
        offset: int,
        stated: int,
        at: int,
    ) -> None:
        """Whether the header says the time of the message of its first, or last, item."""
        row = np.flatnonzero((items.numbers == number) & (items.offsets == offset))
        if not len(row) or times[row[0]] == stated:
            return
        detail = (
            f"the header says {stated} ms of the message at {offset}, which says {times[row[0]]}"
        )
        self._tally.add(
            Kind.INDEX_HEADER, piece.path, 1,
            lambda: Finding(
                Kind.INDEX_HEADER, piece.path, detail, at, offset,
                at_next_start="does not notice it; queries by key may pass over the file",
            ),
        )  # fmt: skip


def _inside(offsets: Offsets, chunk: Chunk) -> npt.NDArray[np.bool_]:
    return (offsets >= chunk.start) & (offsets < chunk.stop)


def _pairs(chunk: Chunk, offsets: Offsets, hashes: Offsets) -> Offsets:
    """One number for offset and hash: a chunk is far smaller than what is left of 63 bits."""
    return (offsets - chunk.start) << _HASH_BITS | (hashes & _INT32_MAX)


def _surplus(ours: Offsets, theirs: Offsets) -> npt.NDArray[np.intp]:
    """Rows of `ours` that are not in `theirs`, each as often as there are more of it."""
    order = np.argsort(ours, kind="stable")
    ours_sorted, theirs_sorted = ours[order], np.sort(theirs)
    rank = np.arange(len(ours)) - np.searchsorted(ours_sorted, ours_sorted)
    there = np.searchsorted(theirs_sorted, ours_sorted, side="right") - np.searchsorted(
        theirs_sorted, ours_sorted
    )
    return np.sort(order[rank >= there])


def _seconds(times: Offsets, base: int) -> Offsets:
    """What `IndexFile.putKey` (4.9.3) stores for messages of these times: whole seconds from `base`, within 31 bits."""
    if base <= 0:
        return np.zeros(len(times), np.int64)
    with np.errstate(over="ignore"):  # Java wraps, too
        elapsed = times - np.int64(base)
    seconds: Offsets = np.clip(elapsed // 1000, 0, _INT32_MAX)
    return seconds
