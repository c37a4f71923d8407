"""Check one IndexFile on its own: whether a look-up reaches each item, and into which log files the items lead.

`ChainCheck` checks slots and chains. If it finds damage, `index_inspection` locates it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from reput.base import Kind
from reput.engine.check.checking.checked_store import IndexTable
from reput.engine.check.checking.listings import index_file_size
from reput.engine.check.index_inspection import inspect_index_file, item_count, slot_count
from reput.engine.compare import ChainCheck, LogEdges, Spans
from reput.errors import ReputError, raise_if_refused
from reput.format.dtypes import RawEntries, item_fields, item_offsets, new_entries
from reput.format.index_file import HEADER, HEADER_BYTES, ITEM_BYTES, decode_header, item_position
from reput.io import FileReader

_PIECE_ITEMS = 1 << 18


@dataclass(frozen=True, slots=True)
class IndexJob:
    """The common arguments of all tasks on IndexFiles. `is_live`: a broker is writing the newest file."""

    hash_slots: int
    index_items: int
    edges: LogEdges
    newest: str
    is_live: bool


def read_index_table(job: IndexJob, path: str) -> IndexTable:
    """Check one IndexFile. Unreadable parts become findings."""
    table = IndexTable(path)
    try:
        with FileReader(path) as reader:
            _Reading(job, reader, table).run()
    except ReputError as error:
        raise_if_refused(error)
        # A file that has expired since it was listed is no problem.
        if Path(path).exists():
            table.note(Kind.INDEX_HEADER, f"cannot be read: {error}", None)
    return table


def _offset_of(items: RawEntries, row: int) -> int:
    return int(item_offsets(items[row : row + 1])[0])


class _Reading:
    def __init__(self, job: IndexJob, reader: FileReader, table: IndexTable) -> None:
        self._job, self._reader, self._table = job, reader, table
        self._is_live = job.is_live and table.name == job.newest

    def run(self) -> None:
        job, table, size = self._job, self._table, self._reader.size
        whole = item_position(job.hash_slots, job.index_items)
        table.findings += index_file_size(
            table.path, size, job.hash_slots, job.index_items, self._is_live
        )
        if size < item_position(job.hash_slots, 1):
            return
        table.header = decode_header(self._reader.read(0, HEADER_BYTES))
        slots = self._slots()
        # A file of the wrong size may have fewer items than its header states.
        room = min(job.index_items, (size - item_position(job.hash_slots, 0)) // ITEM_BYTES)
        table.items = max(min(table.header.next_item, room) - 1, 0)
        if self._is_live:
            slots = self._at_header(slots, room)
        is_sound = self._read_items(slots)
        if size == whole:
            self._look_closer(is_sound, slots)

    def _slots(self) -> RawEntries:
        slots = np.empty(self._job.hash_slots, np.uint32)
        self._reader.read_into(slots.view(np.uint8), HEADER_BYTES)
        return slots

    def _items(self, first: int, stop: int) -> RawEntries:
        items = new_entries(stop - first)
        at = item_position(self._job.hash_slots, first)
        self._reader.read_into(items.reshape(-1).view(np.uint8), at)
        return items

    def _at_header(self, slots: RawEntries, room: int) -> RawEntries:
        """Return the slots as they were when the header was read, by following links from newer items to older ones."""
        numbers = slots.byteswap().view(np.int32).astype(np.int64)
        late = np.flatnonzero((numbers > self._table.items) & (numbers < room))
        if len(late):
            newer = self._items(self._table.items + 1, int(numbers[late].max()) + 1)
            previous = item_fields(newer)["previous"].astype(np.int64)
            while len(late):
                older = previous[numbers[late] - self._table.items - 1]
                # A link to a newer item is damage. Following it could take forever.
                numbers[late] = np.where(older < numbers[late], older, 0)
                late = late[numbers[late] > self._table.items]
        return numbers.astype(np.int32).view(np.uint32).byteswap()

    def _read_items(self, slots: RawEntries) -> bool:
        """Fill the table. Return whether a look-up reaches each item and the items are in order."""
        table, spans = self._table, Spans(self._job.edges)
        chains = ChainCheck(slots)
        for first in range(1, table.items + 1, _PIECE_ITEMS):
            items = self._items(first, min(first + _PIECE_ITEMS, table.items + 1))
            # The bisection of `add_ordered` needs ascending offsets.
            if chains.add(items, first, table.items):
                spans.add_ordered(len(items), first, partial(_offset_of, items))
            else:
                spans.add(item_offsets(items), first)
            if first == 1:
                table.first = _offset_of(items, 0)
            table.last = _offset_of(items, len(items) - 1)
        table.spans = spans.by_file
        return chains.is_valid

    def _look_closer(self, is_sound: bool, slots: RawEntries) -> None:
        job, table, header = self._job, self._table, self._table.header
        if not is_sound and not self._is_live:
            inspected = inspect_index_file(table.path, job.hash_slots, job.index_items)
            table.findings += inspected.findings
        if not is_sound and not table.findings:
            table.note(
                Kind.INDEX_ITEM,
                "its items are not in the order of the log, or look-ups do not reach them",
                None,
            )
        # In a live store, the header and the slots change while they are read, so they cannot be compared.
        if self._is_live:
            return
        if is_sound:  # Otherwise, the inspection has compared the counts.
            table.findings += slot_count(table.path, header, int(np.count_nonzero(slots)))
            table.findings += item_count(table.path, header, job.index_items)
        if table.items and (table.first, table.last) != header[2:4]:
            detail = (
                f"the header states offsets {header.begin_physical_offset} to "
                f"{header.end_physical_offset}, but its items lead to {table.first} to {table.last}"
            )
            table.note(Kind.INDEX_HEADER, detail, HEADER.positions["begin_physical_offset"])
        # If the last change of the header was not synced, its count is too low, and look-ups miss the last items.
        next_item = table.items + 1
        if next_item < job.index_items and self._items(next_item, next_item + 1).any():
            detail = f"the header counts {table.items} items, but more are written"
            table.note(Kind.INDEX_HEADER, detail, HEADER.positions["index_count"])
