"""Match the entries of queues with the messages of the log, by the rule of `reput.engine.compare.placement`.

The number of an entry is the queue offset at which consumers find it. `QueueMatching` matches the entries of all forms
of queues. The forms differ in the layout of an entry (`EntryLayout`), and in what decides its number:

    PlacedMatching    its position: ConsumeQueues. All positions before the last entry need an entry
    NumberedMatching  the entry states it: batch queues, and other forms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reput.base import Finding, Kind
from reput.core import DispatchBatch, EntriesOfQueue, OffsetRange, Queue, is_light
from reput.engine.compare import (
    Offsets,
    Placement,
    ascending,
    between,
    entry_of_each,
    fitting,
    in_ranges,
    neighbours,
)
from reput.engine.writer.recovery.entry_layout import Entries, EntryLayout, Flags
from reput.engine.writer.recovery.queue_files import BLANK_WORDS, is_blank, physical_offsets, sizes
from reput.engine.writer.recovery.queue_survey import QueueSurvey, RankedEntries
from reput.format.commit_log import MIN_RECORD_BYTES
from reput.format.dtypes import RawEntries, new_entries


class Missing(NamedTuple):
    """Messages without an entry: their physical offsets, the queue offsets that they state, and the entries to write.

    low   position in the queue of the entry that precedes the message in the log; -1 if unknown
    high  position in the queue of the entry that follows the message in the log; -1 if unknown
    """

    offsets: Offsets
    queue_offsets: Offsets
    entries: Entries
    low: Offsets
    high: Offsets

    @classmethod
    def of(cls, offsets: Offsets, queue_offsets: Offsets, entries: Entries) -> Missing:
        """Return messages without known neighbours."""
        return cls(offsets, queue_offsets, entries, *2 * [np.full(len(offsets), -1, np.int64)])

    @classmethod
    def joined(cls, parts: Sequence[Missing]) -> Missing:
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    def at(self, rows: npt.NDArray[np.intp] | Flags) -> Missing:
        columns: list[Any] = [column[rows] for column in self]
        return Missing(*columns)


_NO_NUMBERS: Offsets = np.empty(0, np.int64)
_NO_WORDS = new_entries(0)
_UNLIMITED = 2**62


@dataclass
class Count:
    """A number of messages, and the physical offset of the first one."""

    count: int = 0
    first: int = -1

    def add(self, count: int, first: int) -> None:
        if count and not self.count:
            self.first = first
        self.count += count


def out_of_order(folder: str, queue: Queue, unplaced: Count) -> Finding:
    """Return the finding for messages that have no entry, because no free position of the queue fits them.

    The queue is in `folder`.
    """
    return Finding(
        Kind.QUEUE_OFFSET_DISORDER, folder,
        f"no place for this message in queue {queue.queue_id} of {queue.topic}",
        physical_offset=unplaced.first, count=unplaced.count,
    )  # fmt: skip


@dataclass
class Tail:
    """The messages of a queue that follow its last entry. They will be dispatched.

    begin        physical offset of the first message
    first, last  queue offsets that the first and the last message state
    fall         physical offset of the first message whose queue offset is not higher than that of the previous
                 message; None if there is no such message
    """

    begin: int
    first: int
    last: int
    fall: int | None = None

    @classmethod
    def of(cls, offsets: Offsets, queue_offsets: Offsets) -> Tail:
        falls = np.flatnonzero((queue_offsets[1:] <= queue_offsets[:-1]) & (queue_offsets[1:] != 0))
        fall = int(offsets[falls[0] + 1]) if len(falls) else None
        return cls(int(offsets[0]), int(queue_offsets[0]), int(queue_offsets[-1]), fall)

    def followed_by(self, next_tail: Tail) -> Tail:
        fall = self.fall
        if fall is None:
            fall = next_tail.begin if 0 < next_tail.first <= self.last else next_tail.fall
        return Tail(self.begin, self.first, next_tail.last, fall)


@dataclass
class QueuePart:
    """The result of matching a queue's messages in one or several log files.

    rank      rank of the next entry to compare (see RankedEntries)
    solid     position in the queue of the last entry before `rank` that leads to a message or to unreadable bytes; -1
              if there is none
    moved     count of entries whose position in the queue is not the queue offset of their message
    unreadable  count of entries that lead to unreadable bytes
    right     whether any entry leads to a message
    unplaced  messages that have no entry and get none: no free position of the queue fits their queue offset
    older     messages that lie before the first entry and need none: their topic was deleted, and created again later
    missing   messages that have no entry yet; the queue may have a free position for each of them
    wrong     positions of entries with a wrong size or tags code, and the entries that replace them
    matched   only if not `is_ordered` (see RankedEntries): ranks of entries that lead to messages; several entries may
              lead to the same message
    queue_offsets  those that the messages of matched entries state
    expected  only of a NumberedMatching: the entries that dispatch would write for the messages of matched entries
    unread    only if not `is_ordered`: ranks of entries that lead to unreadable bytes
    """

    rank: int
    solid: int = -1
    moved: Count = field(default_factory=Count)
    unreadable: int = 0
    right: bool = False
    unplaced: Count = field(default_factory=Count)
    older: Count = field(default_factory=Count)
    missing: list[Missing] = field(default_factory=list)
    wrong: list[tuple[Offsets, Entries]] = field(default_factory=list)
    matched: list[Offsets] = field(default_factory=list)
    queue_offsets: list[Offsets] = field(default_factory=list)
    expected: list[Entries] = field(default_factory=list)
    unread: list[Offsets] = field(default_factory=list)
    tail: Tail | None = None

    def add(self, part: QueuePart) -> None:
        """Append the part for the next log file."""
        self.rank, self.solid = part.rank, part.solid
        self.moved.add(part.moved.count, part.moved.first)
        self.unplaced.add(part.unplaced.count, part.unplaced.first)
        self.older.add(part.older.count, part.older.first)
        self.unreadable += part.unreadable
        self.right |= part.right
        for name in ("missing", "wrong", "matched", "queue_offsets", "expected", "unread"):
            getattr(self, name).extend(getattr(part, name))
        self._add_tail(part.tail)

    def _add_tail(self, tail: Tail | None) -> None:
        if tail is not None:
            self.tail = tail if self.tail is None else self.tail.followed_by(tail)


class QueueMatching:
    """Matches the entries of one queue with its messages. `survey` is None for a queue without entries.

    A subclass decides which entries the queue has afterwards.
    """

    def __init__(self, queue: Queue, survey: RankedEntries | None) -> None:
        self.queue, self.survey = queue, survey
        self._is_light = is_light(queue.topic)

    def start(self, physical_offset: int) -> QueuePart:
        """Return the result before a comparison of the whole queue, which begins at `physical_offset`."""
        survey = self.survey
        if survey is None or survey.is_ordered:
            return self.begin(physical_offset)
        # Entries out of order may lead to messages before `physical_offset`, which are not read, for example because
        # they have expired. So keep these entries without a comparison.
        part = QueuePart(0)
        self.skip_to(part, physical_offset, [OffsetRange(0, physical_offset)])
        return part

    def has_before(self, physical_offset: int) -> bool:
        """Return whether an entry leads to a message before `physical_offset`."""
        survey = self.survey
        return survey is not None and survey.rank_at(physical_offset, survey.begin) > survey.begin

    def begin(self, physical_offset: int) -> QueuePart:
        """Return an empty result, to be filled from the first entry whose message is at or after `physical_offset`."""
        survey = self.survey
        return QueuePart(0 if survey is None else survey.rank_at(physical_offset, survey.begin))

    def compare(
        self,
        part: QueuePart,
        batch: DispatchBatch,
        of_queue: EntriesOfQueue,
        scanned: OffsetRange,
        unread: Sequence[OffsetRange],
        placed: Placement | None,
    ) -> None:
        """Match the messages of a batch.

        Args:
            part: Receives the result.
            batch: The batch that contains the messages.
            of_queue: The messages of this queue.
            scanned: Log range of the batch.
            unread: Unreadable ranges within it, and ranges in which records state a wrong physical offset.
            placed: Which messages are at the physical offset that they state; None if all are.
        """
        rows, queue_offsets = of_queue.rows, of_queue.queue_offset
        if placed is not None:
            good = placed.is_good[rows]
            self._leave_misplaced(part, rows[~good], queue_offsets[~good], placed)
            rows, queue_offsets = rows[good], queue_offsets[good]
        if not len(rows):
            return
        offsets = batch.messages["physical_offset"][rows]
        survey = self.survey
        last = -1 if survey is None else survey.last
        if offsets[-1] > last:
            # Messages after the last entry were not dispatched yet. That is not damage.
            after = int(np.searchsorted(offsets, last, side="right"))
            part._add_tail(Tail.of(offsets[after:], queue_offsets[after:]))
            rows, offsets, queue_offsets = rows[:after], offsets[:after], queue_offsets[:after]
        if survey is None or not len(offsets):
            return
        expected = survey.layout.expected(batch.messages, rows, queue_offsets)
        entries = survey.read(part.rank, len(offsets))
        # In nearly all batches of the scan, all entries of the queue are right, so one comparison of bytes suffices.
        is_equal = len(entries) == len(offsets) and survey.layout.agree(entries, expected)
        if is_equal and not survey.has_twice(part.rank + len(entries) - 1):
            self._take(part, survey, offsets, queue_offsets, expected)
        else:
            self._match(part, survey, offsets, queue_offsets, expected, scanned, unread)

    def _leave_misplaced(
        self, part: QueuePart, rows: Offsets, queue_offsets: Offsets, placed: Placement
    ) -> None:
        """Add what is known of messages whose records state a wrong physical offset."""

    def _take(
        self,
        part: QueuePart,
        survey: RankedEntries,
        offsets: Offsets,
        queue_offsets: Offsets,
        expected: Entries,
    ) -> None:
        """Match the next entries, one to one, with the messages at the physical offsets `offsets`."""
        numbers = survey.numbers(part.rank, len(offsets))
        if survey.is_ordered:
            self._count_moved(part, numbers, offsets, queue_offsets)
        else:
            ranks = np.arange(part.rank, part.rank + len(offsets))
            self._add_matches(part, ranks, queue_offsets, expected)
        part.rank += len(offsets)
        part.solid, part.right = int(numbers[-1]), True

    def _add_matches(
        self, part: QueuePart, ranks: Offsets, queue_offsets: Offsets, expected: Entries
    ) -> None:
        part.matched.append(ranks)
        part.queue_offsets.append(queue_offsets)

    def _count_moved(
        self, part: QueuePart, numbers: Offsets, offsets: Offsets, queue_offsets: Offsets
    ) -> None:
        rows = np.flatnonzero(numbers != queue_offsets)
        # Entries of a light queue (LMQ) have consecutive numbers, which may differ from the queue offsets in messages.
        if len(rows) and not self._is_light:
            part.moved.add(len(rows), int(offsets[rows[0]]))

    def _match(
        self,
        part: QueuePart,
        survey: RankedEntries,
        offsets: Offsets,
        queue_offsets: Offsets,
        expected: Entries,
        scanned: OffsetRange,
        unread: Sequence[OffsetRange],
    ) -> None:
        layout, stop = survey.layout, survey.rank_at(scanned.stop, part.rank)
        entries = survey.read(part.rank, stop - part.rank)
        numbers = survey.numbers(part.rank, len(entries))
        entry_offsets = layout.offsets(entries)
        place = np.minimum(np.searchsorted(offsets, entry_offsets), len(offsets) - 1)
        is_real = ~layout.is_blank(entries)
        # Match by physical offset, so that a lost or additional entry does not affect later entries.
        matches = (offsets[place] == entry_offsets) & is_real
        is_lost = is_real & ~matches & in_ranges(entry_offsets, unread)
        differs = matches & layout.differs(entries, expected[place])
        if differs.any():
            part.wrong.append((numbers[differs], expected[place[differs]]))
        part.unreadable += int(np.count_nonzero(is_lost))
        part.right |= bool(matches.any())
        right = place[matches]
        has_entry = np.zeros(len(offsets), np.bool_)
        has_entry[right] = True
        none = ~has_entry
        missing = Missing.of(offsets[none], queue_offsets[none], expected[none])
        solid = matches | is_lost
        self._add_missing(part, survey, missing, entry_offsets[solid], numbers[solid], stop)
        if survey.is_ordered:
            self._count_moved(part, numbers[matches], offsets[right], queue_offsets[right])
            part.solid = int(numbers[solid][-1]) if solid.any() else part.solid
        else:
            ranks = part.rank + np.flatnonzero(matches)
            self._add_matches(part, ranks, queue_offsets[right], expected[right])
            part.unread.append(part.rank + np.flatnonzero(is_lost))
        part.rank = stop

    def _add_missing(
        self,
        part: QueuePart,
        survey: RankedEntries,
        missing: Missing,
        solid: Offsets,
        numbers: Offsets,
        stop: int,
    ) -> None:
        """Add messages that have no entry.

        The compared entries that are right or lead to unreadable bytes have these physical offsets and numbers. `stop`
        is the rank after the last compared entry.
        """
        part.missing.append(missing)

    def skip_to(self, part: QueuePart, physical_offset: int, unread: Sequence[OffsetRange]) -> None:
        """Skip the entries before the first entry that leads to `physical_offset` or later.

        The skipped entries match no message. The queue keeps a skipped entry only if the entry leads into one of the
        ranges `unread`: the parts of the log whose messages cannot be compared.
        """
        survey = self.survey
        if survey is None:
            return
        stop = survey.rank_at(physical_offset, part.rank)
        if stop == part.rank:
            return
        layout, entries = survey.layout, survey.read(part.rank, stop - part.rank)
        lost = ~layout.is_blank(entries) & in_ranges(layout.offsets(entries), unread)
        part.unreadable += int(np.count_nonzero(lost))
        if not survey.is_ordered:
            part.unread.append(part.rank + np.flatnonzero(lost))
        elif lost.any():
            part.solid = int(survey.numbers(part.rank, len(entries))[lost][-1])
        part.rank = stop

    def outcome(self, part: QueuePart) -> KeptQueue:
        """Return the entries to keep and to write. Call this once, after the whole log was compared."""
        raise NotImplementedError


class PlacedMatching(QueueMatching):
    """Matches the entries of a ConsumeQueue, whose numbers are their positions."""

    survey: QueueSurvey | None

    def begin(self, physical_offset: int) -> QueuePart:
        """See QueueMatching."""
        part, survey = super().begin(physical_offset), self.survey
        if survey is not None and survey.is_ordered:
            part.solid = survey.found.last_before(part.rank)
        return part

    def _leave_misplaced(
        self,
        part: QueuePart,
        rows: npt.NDArray[np.int64],
        queue_offsets: Offsets,
        placed: Placement,
    ) -> None:
        """Of the messages whose records state a wrong physical offset, count those that have no entry.

        A batch contains only the offset that a record states, so the exact place of such a message is unknown. The
        message lies in the log between the nearest messages whose offsets are right. Any entry that leads into this
        range counts as an entry of the message.
        """
        survey = self.survey
        for row, number in zip(rows.tolist(), queue_offsets.tolist(), strict=True):
            start, stop = placed.range_of(row)
            if survey is None or start > survey.last:
                part._add_tail(Tail(start, number, number))
            elif survey.rank_at(start, part.rank) == survey.rank_at(stop, part.rank):
                part.unplaced.add(1, start)

    def _add_missing(
        self,
        part: QueuePart,
        survey: RankedEntries,
        missing: Missing,
        solid: Offsets,
        numbers: Offsets,
        stop: int,
    ) -> None:
        """See QueueMatching. In an ordered queue, add only the messages for which the queue has a free place."""
        if self.survey is not None and survey.is_ordered and len(missing.offsets):
            edges = part.solid, self.survey.found.next_entry(stop, survey.stop)
            missing = self._with_place(part, missing, solid, numbers, edges, survey.last)
        if len(missing.offsets):
            part.missing.append(missing)

    def _with_place(
        self,
        part: QueuePart,
        missing: Missing,
        solid: Offsets,
        numbers: Offsets,
        edges: tuple[int, int],
        last: int,
    ) -> Missing:
        """Return the messages of `missing` for which the queue has a free place. Count the other messages as unplaced.

        The place must be after the entry that precedes the message in the log, and before the entry that follows it.

        solid, numbers  physical offsets and positions of the existing entries
        edges           (before, after): the numbers to use as positions of the preceding and the following entry if
                        a message has no such entry
        last            physical offset of the queue's last message that has an entry
        """
        low, high = neighbours(missing.offsets, solid, numbers, *edges)
        missing = missing._replace(low=low, high=high)
        # `low` and `high` are positions of existing entries. A position between them is free only if they differ by
        # more than 1.
        fits = high - low > 1
        if not self._is_light:
            fits &= between(missing.queue_offsets, low, high)
            # Only a limited number of messages fit into the log between this message and the next message with an
            # entry. Reject a queue offset that implies more messages in between.
            next_offset = np.append(solid, last)[np.searchsorted(solid, missing.offsets)]
            room = (next_offset - missing.offsets) // MIN_RECORD_BYTES
            fits &= high - missing.queue_offsets <= np.maximum(room, 1)
            # A message that lies in the log before the first message with an entry needs no entry: its topic was
            # deleted together with the topic's queues, and created again later.
            for count, without in ((part.unplaced, low >= 0), (part.older, low < 0)):
                rows = np.flatnonzero(~fits & without)
                if len(rows):
                    count.add(len(rows), int(missing.offsets[rows[0]]))
        return missing.at(fits)

    def outcome(self, part: QueuePart) -> KeptQueue:
        """See QueueMatching."""
        if self.survey is None:
            return KeptQueue(None, 0, part.tail)
        if self.survey.is_ordered:
            return self._kept_ordered(part, self.survey)
        return self._kept_scattered(part, self.survey)

    def _kept_ordered(self, part: QueuePart, survey: QueueSurvey) -> KeptQueue:
        missing = _joined(part.missing, _NO_WORDS)
        numbers, words = self._placed(part, missing)
        written = len(numbers) + sum(len(wrong) for wrong, _ in part.wrong)
        if written and survey.found.has_units:
            again = self._kept_before_wrong(part, survey, numbers, words)
            if again is not None:
                return again
        first = survey.found.first
        if len(numbers) and numbers[0] < first:
            begin = survey.found.file_start(int(numbers[0]))
            numbers, words = _with_blanks(numbers, words, np.arange(begin, first))
        for wrong, right in part.wrong:
            numbers, words = np.concatenate([numbers, wrong]), np.concatenate([words, right])
        order = np.argsort(numbers)
        return KeptQueue(None, survey.stop, part.tail, numbers[order], words[order], written)

    def _kept_before_wrong(
        self, part: QueuePart, survey: QueueSurvey, numbers: Offsets, words: RawEntries
    ) -> KeptQueue | None:
        """In a queue with extension files, keep only the entries before the first missing or wrong one.

        Dispatch writes the other entries again. A missing entry of such a queue cannot be inserted: its unit (its
        record in the extension files) would be out of order.

        Returns None if dispatch would move an entry to another queue offset, or lose an entry or the bit map of a unit.
        The caller then keeps the right entries, and writes only the missing and wrong ones, without units.
        """
        for wrong, right in part.wrong:
            numbers, words = np.concatenate([numbers, wrong]), np.concatenate([words, right])
        first = int(np.argmin(numbers))
        number, offset = int(numbers[first]), int(physical_offsets(words[first : first + 1])[0])
        if survey.is_ordered:
            positions = number + np.flatnonzero(
                ~is_blank(survey.read(number, survey.stop - number))
            )
        else:
            positions = survey.numbers(0, survey.stop)
        after = np.unique(np.concatenate([positions[positions >= number], numbers]))
        # Dispatch gives entries consecutive numbers. So each entry gets its old number again only if the old numbers
        # have no gaps.
        is_certain = len(after) == int(after[-1]) + 1 - number and not part.moved.count
        if self._is_light or part.unreadable or not is_certain or survey.found.has_bit_maps(number):
            return None
        tail = Tail(offset, number, number)
        return KeptQueue(None, number, tail if part.tail is None else tail.followed_by(part.tail))

    def _kept_scattered(self, part: QueuePart, survey: QueueSurvey) -> KeptQueue:
        """Return the kept entries of a queue whose entries do not ascend by physical offset, or have gaps.

        Entries that lead to messages are kept. Of the entries that lead to unreadable bytes, the plausible ones are
        kept.
        """
        everything = survey.read(0, survey.stop)
        all_numbers, all_offsets = survey.numbers(0, survey.stop), physical_offsets(everything)
        matched = np.concatenate([_NO_NUMBERS, *part.matched])
        queue_offsets = np.concatenate([_NO_NUMBERS, *part.queue_offsets])
        rows = _consistent_rows(all_offsets[matched], all_numbers[matched], queue_offsets)
        matched, queue_offsets = matched[rows], queue_offsets[rows]
        self._count_moved(part, all_numbers[matched], all_offsets[matched], queue_offsets)
        unread = np.setdiff1d(np.concatenate([_NO_NUMBERS, *part.unread]), matched)
        unread = self._credible(
            unread, matched, all_numbers, all_offsets, sizes(everything), survey
        )
        solid = np.sort(np.concatenate([matched, unread]))
        numbers, offsets = all_numbers[solid], all_offsets[solid]
        missing = _joined(part.missing, _NO_WORDS)
        last = int(offsets[-1]) if len(offsets) else -1
        tail, late = part.tail, missing.offsets > last
        if late.any():
            before = Tail.of(missing.offsets[late], missing.queue_offsets[late])
            tail = before if tail is None else before.followed_by(tail)
        if not len(numbers):
            end = survey.position if survey.found.end_before(survey.position) >= 0 else 0
            return KeptQueue(None, end, tail)
        missing = missing.at(~late)
        floor = survey.position - 1 if survey.position > survey.found.first else -1
        missing = self._with_place(part, missing, offsets, numbers, (floor, -1), last)
        placed, words = self._placed(part, missing)
        for wrong, right in part.wrong:
            is_present = np.isin(wrong, numbers)
            placed = np.concatenate([placed, wrong[is_present]])
            words = np.concatenate([words, right[is_present]])
        written = len(placed)
        if written and survey.found.has_units:
            again = self._kept_before_wrong(part, survey, placed, words)
            if again is not None:
                return again
        first = min([int(numbers[0]), *placed[:1].tolist()])
        # If the comparison began at a recovery point, the entries before the point were not compared, so keep them. In
        # this case, fill all holes after the point, and delete no files. Otherwise, recovery deletes the files before
        # the first kept entry.
        has_more_before = floor >= 0
        first = survey.position if has_more_before else survey.found.file_start(first)
        # A broker ends a queue at an entry of zeros, so fill all positions without an entry with pre-blank entries.
        holes = np.setdiff1d(np.arange(first, int(numbers[-1]) + 1), numbers)
        placed, words = _with_blanks(placed, words, holes)
        begin = None if has_more_before else first
        return KeptQueue(begin, int(numbers[-1]) + 1, tail, placed, words, written)

    def _credible(
        self,
        unread: Offsets,
        matched: Offsets,
        numbers: Offsets,
        offsets: Offsets,
        lengths: Offsets,
        survey: QueueSurvey,
    ) -> Offsets:
        """Return the ranks of the plausible entries in `unread`. All entries in `unread` lead to unreadable bytes.

        An entry is plausible if its position in the queue lies between the positions of the matched entries before and
        after it in the log. If n positions of the queue lie between the preceding matched entry and this entry, the log
        must also have room for n messages between the messages of these two entries. The positions of the returned
        entries ascend.

        unread, matched            ranks of entries (see RankedEntries)
        numbers, offsets, lengths  by rank: position in the queue, physical offset and size
        """
        low, high = neighbours(
            offsets[unread], offsets[matched], numbers[matched], survey.position - 1, _UNLIMITED
        )
        before = np.searchsorted(offsets[matched], offsets[unread]) - 1
        ends = np.concatenate([[0], offsets[matched] + lengths[matched]])[before + 1]
        room = (offsets[unread] - ends) // MIN_RECORD_BYTES
        good = between(numbers[unread], low, high)
        good &= (numbers[unread] - low - 1 <= room) | (low < survey.found.first)
        unread = unread[good]
        return unread[ascending(numbers[unread])]

    def _placed(self, part: QueuePart, missing: Missing) -> tuple[Offsets, RawEntries]:
        """Choose which messages of `missing` get an entry. Return the queue offsets of these entries, and the entries.

        Each message of `missing` has a free place in the queue. But several messages may have the same place, or their
        places may not ascend.
        """
        if self._is_light:
            # Between two neighbouring entries, compare the number of free queue offsets with the number of messages. If
            # both are equal, the messages get the queue offsets in log order. Otherwise the messages get no entries,
            # because nothing shows which queue offset belongs to which message.
            _, inverse, counts = np.unique(missing.low, return_inverse=True, return_counts=True)
            within = np.arange(len(inverse)) - (np.cumsum(counts) - counts)[inverse]
            fits = counts[inverse] == missing.high - missing.low - 1
            return (missing.low + 1 + within)[fits], missing.entries[fits]
        # Queue offsets must ascend. Choose the largest set of messages with ascending queue offsets, so that few remain
        # without an entry.
        rows = ascending(missing.queue_offsets)
        refused = np.setdiff1d(np.arange(len(missing.queue_offsets)), rows)
        if len(refused):
            part.unplaced.add(len(refused), int(missing.offsets[refused[0]]))
        return missing.queue_offsets[rows], missing.entries[rows]


class KeptQueue(NamedTuple):
    """The kept entries of a queue.

    begin           position in the queue; files before it are deleted. None to keep all files
    end             position after the last kept entry
    tail            the messages to dispatch
    numbers, entries  positions of the entries to write, and these entries. They include pre-blank entries for positions
                    without a message. Of a NumberedMatching: all kept entries, in the order of the log
    written         number of entries that were missing or wrong
    """

    begin: int | None
    end: int
    tail: Tail | None
    numbers: Offsets = _NO_NUMBERS
    entries: Entries = _NO_WORDS
    written: int = 0


class NumberedMatching(QueueMatching):
    """Matches entries that state their queue offsets, all in memory.

    Args:
        queue: The queue.
        survey: Its entries; None without entries.
        redo_last: Whether the last record may have been incomplete when its entry was written.
    """

    def __init__(
        self, queue: Queue, survey: RankedEntries | None, *, redo_last: bool = False
    ) -> None:
        super().__init__(queue, survey)
        self._redo_last, self._expired = redo_last, 0

    def start(self, physical_offset: int) -> QueuePart:
        """See QueueMatching. Entries of messages before `physical_offset` count as right."""
        part = self.begin(physical_offset)
        self._expired = part.rank
        return part

    def _add_matches(
        self, part: QueuePart, ranks: Offsets, queue_offsets: Offsets, expected: Entries
    ) -> None:
        super()._add_matches(part, ranks, queue_offsets, expected)
        part.expected.append(expected)

    def outcome(self, part: QueuePart) -> KeptQueue:
        """See QueueMatching. Sets the counts of `part`, too."""
        survey = self.survey
        if survey is None:
            return KeptQueue(None, 0, part.tail)
        layout = survey.layout
        if not survey.stop:
            return KeptQueue(None, 0, part.tail, entries=layout.new(0))
        entries, numbers = survey.read(0, survey.stop).copy(), survey.numbers(0, survey.stop)
        offsets = layout.offsets(entries)
        none = np.empty(0, np.int64)
        ranks, stated = (
            np.concatenate([none, *part.matched]),
            np.concatenate([none, *part.queue_offsets]),
        )
        expected = np.concatenate([layout.new(0), *part.expected])
        # Several entries may lead to one message. Only one of them counts.
        messages, first = np.unique(offsets[ranks], return_index=True)
        rows = entry_of_each(messages, stated[first], offsets[ranks], numbers[ranks])
        ranks, stated, expected = ranks[rows], stated[rows], expected[rows]
        part.moved = Count(int(((stated >= 0) & (numbers[ranks] != stated)).sum()))
        differs = layout.differs(entries[ranks], expected)
        layout.correct(entries, ranks[differs], expected[differs])
        written = int(differs.sum())
        if self._redo_last and len(ranks) and ranks[-1] == survey.stop - 1:
            # The crash may have left an entry with wrong fields, because the record was incomplete.
            written += layout.redo(entries[-1:], expected[-1:])
        # The queue offsets of entries must ascend in log order. Remove the entries outside the longest ascending
        # sequence. Insert a removed entry again, with the queue offset that its record states, if this queue offset
        # lies between those of the neighbouring entries.
        right = np.concatenate([np.arange(self._expired), ranks])
        ordered = right[ascending(numbers[right])]
        kept = _Numbered(layout, numbers[ordered], entries[ordered])
        # Of the other entries, keep only those that lead into unreadable parts of the log.
        lost = np.concatenate([none, *part.unread])
        kept, fits = kept.insert(_Numbered(layout, numbers[lost], entries[lost]))
        part.unreadable = int(fits.sum())
        missing = _joined(part.missing, layout.new(0))
        missing = missing.at(~np.isin(missing.offsets, offsets[ranks]))
        layout.complete(missing.entries, missing.entries)
        misnumbered = ~np.isin(ranks, ordered) & (stated >= 0)
        again = entries[ranks[misnumbered]]
        layout.complete(again, expected[misnumbered])
        again_at = Missing.of(offsets[ranks[misnumbered]], stated[misnumbered], again)
        missing = Missing.joined([missing, again_at])
        missing = missing.at(np.argsort(missing.offsets, kind="stable"))
        kept, fits = kept.insert(_Numbered(layout, missing.queue_offsets, missing.entries))
        written += int(fits.sum())
        # Do not count a message that lies in the log before the first message with an entry. Such a message needs no
        # entry: its topic was deleted together with the topic's queues, and created again later.
        without = np.flatnonzero(~fits & (missing.offsets >= offsets[0]))
        if len(without):
            part.unplaced.add(len(without), int(missing.offsets[without[0]]))
        layout.number(kept.entries, kept.numbers)
        end = int(kept.lasts[-1]) + 1 if len(kept.numbers) else 0
        return KeptQueue(None, end, part.tail, kept.numbers, kept.entries, written)


class _Numbered(NamedTuple):
    """Entries and their queue offsets, in the order of the log."""

    layout: EntryLayout
    numbers: Offsets
    entries: Entries

    @property
    def lasts(self) -> Offsets:
        return self.numbers + self.layout.spans(self.entries) - 1

    def insert(self, more: _Numbered) -> tuple[_Numbered, Flags]:
        """Insert the entries of `more`, except those whose queue offsets do not fit.

        The queue offsets must fit between the queue offsets of the entries before and after them in the log. Returns
        all entries, and for each entry of `more` whether it fits.
        """
        layout = self.layout
        offsets, solid = layout.offsets(more.entries), layout.offsets(self.entries)
        # Exclude messages that already have an entry.
        rows = np.flatnonzero((layout.spans(more.entries) > 0) & ~np.isin(offsets, solid))
        numbers = self.numbers, self.lasts
        insertable = fitting(
            offsets[rows], more.numbers[rows], more.lasts[rows], solid, numbers, _UNLIMITED
        )
        fits = np.zeros(len(offsets), np.bool_)
        fits[rows[insertable]] = True
        joined = np.concatenate([self.entries, more.entries[fits]])
        order = np.argsort(layout.offsets(joined), kind="stable")
        numbers_of_all = np.concatenate([self.numbers, more.numbers[fits]])
        return _Numbered(layout, numbers_of_all[order], joined[order]), fits


def _joined(parts: Sequence[Missing], none: Entries) -> Missing:
    return Missing.joined([Missing.of(_NO_NUMBERS, _NO_NUMBERS, none), *parts])


def _consistent_rows(
    offsets: Offsets, numbers: Offsets, queue_offsets: Offsets
) -> npt.NDArray[np.intp]:
    """Return the largest set of entries that can all be right.

    Entries can all be right if each leads to a different message, and if their positions in the queue ascend in log
    order. The arrays have one row per entry: its physical offset, its number (the position in the queue), and the queue
    offset that its message states. The result has the indices of the chosen rows.

    Of several entries of one message, choose the one whose number is the queue offset that the message states, unless
    the numbers of the chosen entries would then no longer ascend.
    """
    # Sort the rows by physical offset, but the entries of one message by descending position in the queue. Then no
    # ascending sequence of positions can contain two entries of one message.
    order = np.lexsort((-numbers, offsets))
    rows = order[ascending(numbers[order])]
    agrees = numbers == queue_offsets
    for at in np.flatnonzero(~agrees[rows]).tolist():
        row = rows[at]
        low = numbers[rows[at - 1]] if at else -1
        high = numbers[rows[at + 1]] if at + 1 < len(rows) else _UNLIMITED
        first, stop = np.searchsorted(offsets[order], [offsets[row], offsets[row] + 1])
        for candidate in order[first:stop]:
            if agrees[candidate] and low < numbers[candidate] < high:
                rows[at] = candidate
    return rows


def _with_blanks(
    numbers: Offsets, words: RawEntries, positions: Offsets
) -> tuple[Offsets, RawEntries]:
    """Add a pre-blank entry for each of `positions` that has no entry. Return all entries in order of number."""
    holes = np.setdiff1d(positions, numbers)
    numbers = np.concatenate([numbers, holes])
    words = np.concatenate([words, np.tile(BLANK_WORDS, (len(holes), 1))])
    order = np.argsort(numbers)
    return numbers[order], words[order]
