"""Decide for which ranges of the log an IndexFile can be trusted.

A broker never removes an entry from the index. If it cuts off a damaged end of its log, the index still points to the
lost part. Messages written over this part are not indexed until the log has grown past the old end
(`IndexService.buildIndex` skips messages before `endPhyOffset`). So a file covers only ranges in which its entries
match the records they point to (`reput.core.index.key_index`). `spot_check` examines a file's first and last entries,
some between them, and the widest gaps between two entries. If one entry is correct and the next checked entry is wrong,
bisection finds the first wrong entry between them. Damage shorter than the distance between two checked entries can go
unnoticed.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence

from reput.core.index.key_index import Candidate
from reput.core.index.proofs import ProofCache, Stamps, Verdict
from reput.core.index.reader import IndexFileReader
from reput.core.index.search import is_entry_of
from reput.core.index.spot_checks import FEW_ITEMS, find_gaps, lost_items
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError
from reput.format.file_names import ABORT_FILE
from reput.format.index_file import IndexItem, item_seconds

# Number of entries that are sampled and checked in each file.
_CHECKED_ENTRIES = 16
# Number of entries in a second sample, which is checked if the slots do not lead to all entries of the first sample.
_CHECKED_ENTRIES_IF_IN_DOUBT = 512
# One broken chain per this many checked chains is tolerated: a search that follows the broken chain detects it.
_CHAINS_PER_LOST_ONE = 50
# `find_gaps` examines fewer gaps per file if many files are checked together. For this number of files, it examines two
# gaps in each file instead of eight.
_FEW_GAPS = 400
# At most this many items between two trusted ranges of a file, or of one record, are compared with their records.
_MOST_BETWEEN = 32
_UNUSED_ITEM = IndexItem(0, 0, 0, 0)


def spot_check(
    file: IndexFileReader,
    log: CommitLogReader,
    last: int,
    before: Verdict | None = None,
    files: int = 1,
) -> Verdict:
    """Judge a file by some of its entries.

    If the file has more than `FEW_ITEMS` entries, and the earlier verdict `before` trusted the whole file, examine only
    the entries added since that verdict. If an added entry is wrong, or entries are missing, examine the whole file.
    """
    if not file.is_consistent():
        return Verdict(last, problem="header and entries differ in their beginning or end")
    if before is not None and before.last == last:
        return before
    # Even if a file seems only to have grown (it has more items than before), its old items may have been damaged. So a
    # file with few items is examined as a whole again, which is cheap. In a larger file, only new items are examined.
    has_grown = before is not None and before.is_whole and FEW_ITEMS < last > before.last
    if before is not None and has_grown and entry_holds(file, log, last):
        whole = OffsetRange(before.ranges[0].start, file.offset(last))
        if not find_gaps(file, log, before.last, last, _FEW_GAPS):
            return Verdict(last, (whole,), is_whole=True)
    lost = lost_items(file, last) if last <= FEW_ITEMS else []
    if len(lost) > last // _CHAINS_PER_LOST_ONE or not (lost or chains_hold(file, last)):
        return Verdict(last, problem="its slots do not lead to its entries")
    ranges = covered_ranges(file, log, last, lost=lost, files=files)
    is_whole = (
        len(ranges) == 1
        and ranges[0].stop == file.offset(last)
        and _begins_whole(file, log, ranges[0].start)
    )
    is_linked = last <= FEW_ITEMS and not lost
    return Verdict(last, tuple(ranges), is_whole=is_whole, is_linked=is_linked)


def _begins_whole(file: IndexFileReader, log: CommitLogReader, start: int) -> bool:
    """Return whether a range begins at the beginning of the log, or after the record of the file's first item."""
    if start == log.min_offset:
        return True
    try:
        return start == _end_of_message(log, file, 1)
    except (MessageNotFoundError, CorruptMessageError):
        return False


class RecallingJudge:
    """A Judge that trusts files with a remembered proof, and spot-checks all other files.

    It remembers the spot checks of files that do not grow.
    """

    def __init__(self) -> None:
        self._remembered = ProofCache()

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None = None,
        files: int = 1,
    ) -> Verdict:
        """See `Judge`."""
        proof = before.proof if before is not None else self._remembered.proof(file, log)
        if proof is None or last < proof.items or not file.is_consistent():
            return self._spot_check(file, log, last, before if proof is None else None, files)
        if before is not None and before.last == last:
            return before
        later = (
            covered_ranges(file, log, last, proof.items, files=files) if last > proof.items else []
        )
        return Verdict(last, tuple(later), proof)

    def _spot_check(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None,
        files: int,
    ) -> Verdict:
        if _may_grow(file):
            return spot_check(file, log, last, before, files)
        earlier = before or self._remembered.spot_check(file, log)
        stamps = Stamps.before(file, log)
        verdict = spot_check(file, log, last, earlier, files)
        if verdict is not earlier:
            self._remembered.keep_spot_check(file, log, verdict, stamps)
        return verdict


def _may_grow(file: IndexFileReader) -> bool:
    """Return whether items may still be added to an IndexFile.

    A file may grow if it is not full, and its store is open for writing or was not shut down cleanly. In a remote
    store, every file that is not full may grow.

    A wrong answer does no harm, because a stored result of spot checks is valid only while the file's stamp (inode,
    size, change time) is unchanged. The test only avoids storing results that will soon be outdated.
    """
    if file.next_item >= file.index_items:
        return False
    # A broker keeps an abort file in its store until it shuts down cleanly.
    store = os.path.dirname(os.path.dirname(file.path))
    return not file.storage.is_local or os.path.lexists(os.path.join(store, ABORT_FILE))


def covered_ranges(
    file: IndexFileReader,
    log: CommitLogReader,
    last: int,
    first: int = 1,
    *,
    lost: Collection[int] = (),
    files: int = 1,
) -> list[OffsetRange]:
    """Return ranges of the log whose keys are all in items `first` to `last`, oldest first.

    No look-up reaches the `lost` items, so the ranges exclude their messages. A range lies between the messages of two
    items and contains neither of these two messages, because some of their keys may be in a neighbouring file. If the
    item directly before the first of the two leads to an expired message, the range begins at the beginning of the log.

    Raises StoreAccessError.
    """
    if file.offset(first) < log.min_offset:
        first = bisect_left(range(last + 1), log.min_offset, lo=first, key=file.offset)
    missed = {n for n in (*lost, *find_gaps(file, log, first, last, files)) if n >= first}

    def holds(item: int) -> bool:
        in_order = file.is_in_order(item, last) and item not in missed
        return in_order and entry_holds(file, log, item)

    checked = _checked(first, last, missed)
    file.announce(checked)
    log.announce(map(file.offset, checked))
    ranges = []
    for begin, end in _runs(checked, last, holds):
        expired = begin > 1 and 0 <= file.offset(begin - 1) < log.min_offset
        try:
            start = log.min_offset if expired else _end_of_message(log, file, begin)
        except MessageNotFoundError:
            # The message has expired since its item was compared with it. Later runs cover the rest of the log.
            continue
        stop = file.offset(end)
        if start < stop:
            ranges.append(OffsetRange(start, stop))
    return ranges


def chains_hold(file: IndexFileReader, last: int) -> bool:
    """Examine a sample of the items, and return whether their slots lead to these items.

    The purpose is to find lost pages of slots. The sample may miss a single broken chain. Such a miss does no harm,
    because a search that follows a broken chain detects the damage.
    """
    few = _spread(last, _CHECKED_ENTRIES)
    file.announce_chains(few)
    if all(map(file.reaches, few)):
        return True
    more = _spread(last, _CHECKED_ENTRIES_IF_IN_DOUBT)
    file.announce_chains(more)
    lost = sum(not file.reaches(number) for number in more)
    return lost <= len(more) // _CHAINS_PER_LOST_ONE


def _spread(last: int, count: int) -> range:
    """Return about `count` items from 1 to `last`, at equal distances."""
    return range(last, 0, -max(last // count, 1))


def entry_holds(file: IndexFileReader, log: CommitLogReader, number: int) -> bool:
    """Return whether an item, and all others of the same record beside it, belong to the record at their offset.

    In a remote file, only the items directly before and after are compared, which are read together with the item.
    """
    before, item, after = file.around(number)
    offset = item.physical_offset
    try:
        record = log.locate(offset).keyed()
    except StoreError:
        return False
    items = [item]
    for neighbour, step in ((before, -1), (after, 1)):
        at = number
        while neighbour.physical_offset == offset and neighbour != _UNUSED_ITEM:
            items.append(neighbour)
            at += step
            is_inside = 0 < at + step < file.index_items
            if len(items) > _MOST_BETWEEN or not is_inside or not file.storage.is_local:
                break
            neighbour = file.item(at + step)
    return all(is_entry_of(Candidate(offset, one.key_hash), record) for one in items)


def lost_record(
    file: IndexFileReader, log: CommitLogReader, last: int, offset: int
) -> OffsetRange | None:
    """Return the range of a record that has lost the key of an item, according to the other items; else None.

    `last` is the number of the file's last item. See `IndexPart.lost_record`.
    """
    items = range(1, last + 1)
    first = bisect_left(items, offset, key=file.offset) + 1
    after = bisect_right(items, offset, lo=first - 1, key=file.offset) + 1
    if not 0 < after - first <= _MOST_BETWEEN:
        return None
    try:
        record = log.locate(offset).keyed()
    except (MessageNotFoundError, CorruptMessageError):
        return None
    wrong = [n for n in range(first, after) if not record.has_key_hash(file.item(n).key_hash)]
    if record.stated_offset != offset or not wrong:
        return None
    # A record that was written over the item's record, after a broker had cut its log, has another time.
    begin_ms = file.header().begin_timestamp
    if not all(_has_time(file, number, begin_ms, record.store_timestamp) for number in wrong):
        return None
    # A damaged item is not in the chain of its hash's slot, or not in the order of the offsets.
    if not all(file.reaches(number) and file.is_in_order(number, last) for number in wrong):
        return None
    around = (n for n in (first - 1, after) if 0 < n <= last and file.offset(n) >= log.min_offset)
    holds = all(entry_holds(file, log, number) for number in around)
    return OffsetRange(offset, offset + record.size_bytes) if holds else None


def _has_time(file: IndexFileReader, number: int, begin_ms: int, stored_ms: int) -> bool:
    # The seconds of item 1 count from another time than those of the other items (`index_files.at_times`).
    if number == 1 or begin_ms <= 0:
        return 0 < begin_ms == stored_ms
    return item_seconds(stored_ms, begin_ms) == file.seconds(number)


def compared(
    file: IndexFileReader, log: CommitLogReader, last: int, within: OffsetRange
) -> Iterator[tuple[int, OffsetRange | None]]:
    """Compare the items that lead to a range between two trusted ranges with their records. See `KeyIndex.compared`.

    Between two ranges, there are few items if a single record is damaged. Many items are of another state of the log.

    Raises StoreAccessError, StoreChangedError.
    """
    last_offset = -1
    for number in _items_within(file, last, within.start, within.stop):
        offset = file.offset(number)
        if offset != last_offset:
            last_offset = offset
            holds = entry_holds(file, log, number)
            yield offset, None if holds else lost_record(file, log, last, offset)


def _items_within(file: IndexFileReader, last: int, begin: int, end: int) -> range:
    """Return the numbers of the items that lead to a range of the log; none if there are many.

    In most files, all items are in one range. Then one read at each end of the file shows that there are no others.
    """
    if begin >= end or file.offset(1) >= end or file.offset(last) < begin:
        return range(0)
    # Otherwise, these are usually the first or the last few items.
    few, items = min(_MOST_BETWEEN, last - 1), range(1, last + 1)
    low = last - few - 1 if file.offset(last - few) < begin else 0
    high = few if file.offset(few + 1) >= end else last
    first, stop = (
        bisect_left(items, edge, low, high, key=file.offset) + 1 for edge in (begin, end)
    )
    return range(first, stop if stop - first <= _MOST_BETWEEN else first)


def _end_of_message(log: CommitLogReader, file: IndexFileReader, number: int) -> int:
    offset = file.offset(number)
    return offset + log.locate(offset).layout.total_bytes


def _checked(first: int, last: int, doubtful: Collection[int]) -> list[int]:
    """Return some items from `first` to `last`, at equal distances, and all `doubtful` items; ascending."""
    step = max((last - first) // _CHECKED_ENTRIES, 1)
    return sorted({*range(first, last, step), last, *doubtful} if first <= last else ())


def _runs(
    checked: Sequence[int], last: int, holds: Callable[[int], bool]
) -> Iterator[tuple[int, int]]:
    """Yield runs (begin, end) of correct items. The ends of a run are found by bisection between checked items."""
    begin: int | None = None
    before: int | None = None
    for number in checked:
        if holds(number):
            if begin is None:
                begin = number if before is None else _edge(before, number, holds)
        elif begin is not None and before is not None:
            yield begin, _edge(number, before, holds)
            begin = None
        before = number
    if begin is not None:
        yield begin, last


def _edge(bad: int, good: int, holds: Callable[[int], bool]) -> int:
    """Search, by bisection, from the correct item `good` towards the wrong item `bad`; return the last correct item."""
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if holds(middle):
            good = middle
        else:
            bad = middle
    return good
