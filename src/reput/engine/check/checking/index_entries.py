"""Find wrong IndexFile items that lead into one log file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.engine.check.checking.next_start import of_missing_keys
from reput.engine.check.checking.tally import Tally
from reput.engine.compare import FoundItems, IndexRun, IndexSpan, LogStretch, key_pairs, unmatched
from reput.format.index_file import HEADER, item_position

Offsets = npt.NDArray[np.int64]
_INT32_MAX = 2**31 - 1


class IndexFindings:
    """Explains the differences between IndexFile items and the messages of one log file, stretch by stretch.

    A stretch is a part of the log file that is compared in one step. A run contains the items of one IndexFile for the
    messages in a stretch.

    without_index  number of keys of messages; counted only if the store has no IndexFiles
    """

    def __init__(
        self,
        files: tuple[IndexSpan, ...],
        indexed: tuple[tuple[int, int], ...],
        indexed_to: int | None,
        dispatched_to: int,
        indexed_again: int | None,
        folder: str,
        tally: Tally,
        with_tags: Callable[[LogStretch], tuple[Offsets, Offsets]],
    ) -> None:
        """Prepare to compare the index with one log file. `LogTask` describes the arguments.

        `with_tags` returns the items of a stretch with those for tags.
        """
        self._with_tags = with_tags
        self._files, self._indexed, self._folder = files, indexed, folder
        self._indexed_to = indexed_to
        self._dispatched_to, self._indexed_again = dispatched_to, indexed_again
        self._tally = tally
        self.without_index = 0

    def explain(self, runs: list[IndexRun], stretch: LogStretch) -> None:
        """Add a finding for each wrong or missing item of the messages in a stretch of the log."""
        if self._indexed_to is None:
            self.without_index += len(stretch.key_hashes)
        else:
            self._explain_keys(stretch, runs)
        for run in runs:
            self._compare_times(stretch, run)

    def _explain_keys(self, stretch: LogStretch, runs: list[IndexRun]) -> None:
        none = np.empty(0, np.int64)
        offsets = np.concatenate([none, *(run.found.offsets for run in runs)])
        hashes = np.concatenate([none, *(run.found.hashes for run in runs)])
        keys, begin = stretch.key_hashes.astype(np.int64), stretch.start
        if np.array_equal(offsets, stretch.key_offsets) and np.array_equal(hashes, keys):
            return
        expected = key_pairs(stretch.key_offsets, keys, begin)
        actual = key_pairs(offsets, hashes & _INT32_MAX, begin)
        missing, extra = unmatched([expected], [actual])
        self._note_missing(stretch, stretch.key_offsets[missing])
        # Exclude items that lead into a damaged range of the log, because the finding for this range covers them. Also
        # exclude items with a negative hash, because the check of the IndexFile has already reported them.
        extra = extra[~(stretch.in_damage(offsets[extra]) | (hashes[extra] < 0))]
        # A surplus item repeats another item, or leads to a message that does not have its key.
        repeats = np.isin(actual[extra], expected)
        stale = extra[~repeats]
        if len(stale):
            # An item for tags is not wrong, even if messages there need none: a broker of 5.4 has put it, and then the
            # broker was rolled back to 5.3.
            tags = key_pairs(*self._with_tags(stretch), begin)
            stale = stale[~np.isin(actual[stale], tags)]
        of_runs = np.repeat(np.arange(len(runs)), [len(run.found.numbers) for run in runs])
        numbers = np.concatenate([none, *(run.found.numbers for run in runs)])
        for kind, rows in (
            (Kind.DUPLICATE_INDEX_ENTRY, extra[repeats]),
            (Kind.STALE_INDEX_ENTRY, stale),
        ):
            for number in np.unique(of_runs[rows]).tolist():
                of_run = rows[of_runs[rows] == number]
                place = runs[number].place
                self._note_surplus(kind, stretch, place, numbers[of_run], offsets[of_run])

    def _note_missing(self, stretch: LogStretch, offsets: Offsets) -> None:
        late = offsets >= self._dispatched_to
        within = np.zeros(len(offsets), np.bool_)
        for first, last in self._indexed:
            within |= (offsets >= first) & (offsets <= last)
        before_last = offsets < (self._indexed_to or 0)
        # If a message lies before the end of the last IndexFile, but in the range of no IndexFile, a whole file is
        # missing.
        kinds = (
            (Kind.INDEX_FILE_LOST, ~late & ~within & before_last),
            (Kind.MISSING_INDEX_ENTRY, ~late & (within | ~before_last)),
        )
        for kind, mask in kinds:
            if not mask.any():
                continue
            of_kind = offsets[mask]
            at = int(of_kind[0])
            finding = Finding(
                kind, self._file_for(at), f"no entry for a key of the message at {at}", None, at,
                at_next_start=of_missing_keys(self._indexed_again, at, int(of_kind[-1])),
            )  # fmt: skip
            times = stretch.times_of(of_kind)
            self._tally.add(finding, len(of_kind), times)

    def _file_for(self, offset: int) -> str:
        """Return the path of the IndexFile that should have an entry for the message at this physical offset.

        If all IndexFiles with items for this log file end before the message, return the last of them. If no IndexFile
        has such items, return index/.
        """
        for span in self._files:
            if offset <= span.header.end_physical_offset:
                return span.path
        return self._files[-1].path if self._files else self._folder

    def _note_surplus(
        self, kind: Kind, stretch: LogStretch, place: IndexSpan, numbers: Offsets, offsets: Offsets
    ) -> None:
        is_repeat = kind is Kind.DUPLICATE_INDEX_ENTRY
        claim = "repeats an entry for" if is_repeat else "has the hash of a key that is not in"
        detail = f"item {numbers[0]} {claim} the message at {offsets[0]}"
        times = stretch.times_of(offsets[np.isin(offsets, stretch.offsets)])
        finding = Finding(
            kind, place.path, detail, item_position(place.hash_slots, int(numbers[0])),
            int(offsets[0]), at_next_start="does not notice it",
        )  # fmt: skip
        self._tally.add(finding, len(numbers), times if is_repeat else None)

    def _compare_times(self, stretch: LogStretch, run: IndexRun) -> None:
        items, place = run.found, run.place
        row = np.searchsorted(stretch.offsets, items.offsets)
        row[row == len(stretch.offsets)] = 0
        has_message = stretch.offsets[row] == items.offsets if len(stretch.offsets) else row > 0
        items, times = items.at(has_message), stretch.times[row[has_message]]
        header = place.header
        expected = _seconds(times, header.begin_timestamp)
        is_first = items.numbers == 1
        # `IndexService` creates a file with the end time of the previous file as its begin time. So the time of the
        # first item is relative to that end time. The first `putKey` then replaces the header's begin time.
        if is_first.any():
            base = place.first_base
            first = items.seconds[is_first] if base is None else _seconds(times[is_first], base)
            expected[is_first] = first
        wrong = np.flatnonzero(items.seconds != expected)
        if len(wrong):
            number, stated_s = int(items.numbers[wrong[0]]), items.seconds[wrong[0]]
            finding = Finding(
                Kind.INDEX_TIME, place.path,
                f"item {number} states {stated_s} s, but {expected[wrong[0]]} s would match its message",
                item_position(place.hash_slots, number), int(items.offsets[wrong[0]]),
                at_next_start="does not notice it",
            )  # fmt: skip
            self._tally.add(finding, len(wrong), times[wrong])
        # The header of the newest file changes while the check reads it.
        if not place.is_growing:
            ends = (
                (1, header.begin_physical_offset, header.begin_timestamp, "begin_timestamp"),
                (
                    header.last_item(1 << 31),
                    header.end_physical_offset,
                    header.end_timestamp,
                    "end_timestamp",
                ),
            )
            for number, offset, stated_ms, field in ends:
                at = HEADER.positions[field]
                self._compare_end(place, items, times, number, offset, stated_ms, at)

    def _compare_end(
        self,
        place: IndexSpan,
        items: FoundItems,
        times: Offsets,
        number: int,
        offset: int,
        stated_ms: int,
        at: int,
    ) -> None:
        """Check that the header's begin (end) time is the store time of the message of the first (last) item."""
        row = np.flatnonzero((items.numbers == number) & (items.offsets == offset))
        if not len(row) or times[row[0]] == stated_ms:
            return
        detail = (
            f"the header states {stated_ms} ms for the message at {offset}, which states "
            f"{times[row[0]]}"
        )
        reaction = "does not notice it; queries by key may skip the file"
        self._tally.add(
            Finding(Kind.INDEX_HEADER, place.path, detail, at, offset, at_next_start=reaction)
        )


def _seconds(times: Offsets, base: int) -> Offsets:
    """Return the seconds from `base` to each time (both in ms), as `IndexFile.putKey` (4.9.3) stores them: 31 bits."""
    if base <= 0:
        return np.zeros(len(times), np.int64)
    with np.errstate(over="ignore"):  # Java's subtraction wraps around as well.
        elapsed = times - np.int64(base)
    seconds: Offsets = np.clip(elapsed // 1000, 0, _INT32_MAX)
    return seconds
