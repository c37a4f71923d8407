"""Compare two stores: messages, ConsumeQueue entries, index entries, headers.

Copies of one log, for instance a master's and a replica's, are compared by physical offset. Log files with identical
bytes are skipped. Other stores are compared by topic, queue and queue offset, and physical offsets may differ.

The comparison uses arrays of bounded size (`logs.MOST_ROWS`, `MOST_ITEMS`), so large stores are read in several
passes. Each pass compares one part of the rows, chosen so that equal rows of both stores are in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from reput import core
from reput.base import counted
from reput.engine.compare import Column, unmatched
from reput.errors import MessageNotFoundError
from reput.format.consume_queue import ENTRY_BYTES, ConsumeQueueEntry
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.index_file import IndexHeader
from reput.wings.inspect.comparing.difference import Difference, Example, Extent, Part, Way, What
from reput.wings.inspect.comparing.logs import LogComparison, find_way

_CHUNK_ENTRIES = 1 << 16
Queue = tuple[str, int]
Entries = npt.NDArray[np.void]
MOST_ITEMS = 4 << 20  # Maximum number of index items of one store in memory.
# If a store has more items, they are compared in several passes. All items that point into one block of 2**16 bytes of
# the log are in the same pass. With smaller blocks, neighbouring differences would be found in different passes.
_OFFSETS_A_PART = 16
Stores = tuple[core.MessageStore, core.MessageStore]


def compare_queues(
    stores: tuple[core.MessageStore, core.MessageStore], difference: Difference
) -> None:
    """Compare the ConsumeQueue entries of both stores, and add their differences to `difference`.

    If the stores are not copies of one log, entries are equal if their sizes and tags codes are equal.

    Raises StoreNotFoundError, StoreAccessError.
    """
    fields = ["size", "tags_code"]
    if difference.way is Way.BY_OFFSET:
        fields.append("physical_offset")
    for queue in sorted({queue for store in stores for queue in store.list_queues()}):
        readers = [_reader(store, queue) for store in stores]
        ranges = [_range(store, reader) for store, reader in zip(stores, readers, strict=True)]
        start, stop = max(part.start for part in ranges), min(part.stop for part in ranges)
        shared = range(start, max(stop, start)) if all(ranges) else range(0)
        for side, side_range in enumerate(ranges):
            what = What.ONLY_IN_B if side else What.ONLY_IN_A
            _note(
                difference, what, queue, len(side_range) - len(shared), _outside(side_range, shared)
            )
        left, right = readers
        if left is not None and right is not None and shared:
            _compare(difference, queue, left, right, shared, fields)


def _reader(store: core.MessageStore, queue: Queue) -> core.QueueReader | None:
    try:
        return store.queues.queue(*queue)
    except MessageNotFoundError:
        return None


def _range(store: core.MessageStore, reader: core.QueueReader | None) -> range:
    if reader is None:
        return range(0)
    return range(reader.min_queue_offset(store.commit_log.min_offset), reader.max_queue_offset())


def _outside(numbers: range, shared: range) -> int:
    """Return the first queue offset of `numbers` that is not in `shared`."""
    return shared.stop if shared and numbers.start == shared.start else numbers.start


def _compare(
    difference: Difference,
    queue: Queue,
    left: core.QueueReader,
    right: core.QueueReader,
    shared: range,
    fields: list[str],
) -> None:
    for first in shared[::_CHUNK_ENTRIES]:
        part = range(first, min(first + _CHUNK_ENTRIES, shared.stop))
        pair = _entries(left, part), _entries(right, part)
        differ = np.any([pair[0][name] != pair[1][name] for name in fields], axis=0)
        if any(reader.kind.numbering is not core.Numbering.PLACE for reader in (left, right)):
            differ &= _note_holes(difference, queue, pair, first)
        rows = np.flatnonzero(differ)
        if len(rows):
            row = int(rows[0])
            detail = f"{_words(pair[0][row])}, but {_words(pair[1][row])}"
            _note(difference, What.DIFFERENT, queue, len(rows), first + row, detail)


def _note_holes(
    difference: Difference, queue: Queue, pair: tuple[Entries, Entries], first: int
) -> npt.NDArray[np.bool_]:
    """Add to `difference` the entries that only one store has. Return which queue offsets have an entry in both stores.

    Batch queues and queues in RocksDB may lack entries in the middle.
    """
    has_entry = pair[0]["size"] > 0, pair[1]["size"] > 0
    for side, what in enumerate((What.ONLY_IN_A, What.ONLY_IN_B)):
        rows = np.flatnonzero(has_entry[side] & ~has_entry[1 - side])
        if len(rows):
            _note(difference, what, queue, len(rows), first + int(rows[0]))
    return has_entry[0] & has_entry[1]


def _entries(reader: core.QueueReader, part: range) -> Entries:
    """Return the entries at these queue offsets, with zeros for missing entries."""
    entries = np.zeros(len(part), ENTRY_DTYPE)
    if reader.kind.numbering is core.Numbering.PLACE:
        for first, data in _runs(reader, part):
            entries[first - part.start :][: len(data)] = data
        return entries
    for number, entry in _numbered(reader, part):
        if number in part:  # A batch may begin before this part of the queue.
            entries[number - part.start] = entry[:3]
    return entries


def _numbered(reader: core.QueueReader, part: range) -> Iterator[tuple[int, ConsumeQueueEntry]]:
    """Yield the readable entries with their queue offsets. Lost entries are skipped."""
    position = part.start
    while position < part.stop:
        try:
            yield from reader.numbered(position, part.stop)
            return
        except core.LostEntriesError as error:
            position = max(error.resume_offset, position + 1)


def _runs(reader: core.QueueReader, part: range) -> Iterator[tuple[int, Entries]]:
    position = part.start
    for data in reader.entry_bytes(part.start, part.stop):
        run = np.frombuffer(data[: len(data) // ENTRY_BYTES * ENTRY_BYTES], ENTRY_DTYPE)
        yield position, run[: part.stop - position]
        position += len(run)


def _words(entry: np.void) -> str:
    return (
        f"offset {entry['physical_offset']}, {entry['size']} bytes, tags code {entry['tags_code']}"
    )


def _note(
    difference: Difference, what: What, queue: Queue, count: int, number: int, detail: str = ""
) -> None:
    if count <= 0:
        return
    if difference.room(Part.QUEUE_ENTRY, what) > 0:
        more = (
            f"{counted(count, 'entry', 'entries')} from there on"
            if what is not What.DIFFERENT
            else detail
        )
        place = f"{queue[0]}, queue {queue[1]}, queue offset {number}"
        difference.examples.append(Example(Part.QUEUE_ENTRY, what, place, detail=more))
    difference.add(Part.QUEUE_ENTRY, what, count)


def compare_index(stores: Stores, difference: Difference) -> None:
    """Compare the index entries of both stores, and add their differences to `difference`.

    Entries are paired by key hash, and in copies of one log also by physical offset.

    Raises StoreAccessError, StoreChangedError.
    """
    items = max(sum(file.next_item - 1 for file in store.index.current()) for store in stores)
    passes = max(-(-items // MOST_ITEMS), 1)
    for number in range(passes):
        _compare_items(stores, difference, number, passes)
    _compare_headers(stores, difference)


def _compare_items(stores: Stores, difference: Difference, number: int, passes: int) -> None:
    tables = [_table(store, difference.way, number, passes) for store in stores]
    columns = [(offset, key_hash) for offset, key_hash in tables]
    if difference.way is Way.BY_QUEUE:
        # The stores are not copies of one log, so their physical offsets differ. Compare only the key hashes. They are
        # passed twice, because the type of `columns` requires pairs.
        columns = [(key_hash, key_hash) for _, key_hash in tables]
    alone = unmatched(columns[0], columns[1])
    for side, rows in enumerate(alone):
        what = What.ONLY_IN_B if side else What.ONLY_IN_A
        difference.add(Part.INDEX_ENTRY, what, len(rows))
        for row in rows[: difference.room(Part.INDEX_ENTRY, what)].tolist():
            offset, key_hash = (int(column[row]) for column in tables[side])
            places = (None, offset) if side else (offset, None)
            difference.examples.append(
                Example(Part.INDEX_ENTRY, what, f"key hash {key_hash}", *places)
            )


def _table(store: core.MessageStore, way: Way, number: int, passes: int) -> tuple[Column, Column]:
    """Return the physical offsets and key hashes of the index entries to compare in pass `number` (from 0) of `passes`.

    Several passes save memory. Each pass compares one part of the entries.
    """
    offsets, hashes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for file in store.index.current():
        for block in core.IndexEntries(file).rows():
            offset = block["physical_offset"].astype(np.int64)
            key_hash = block["key_hash"].astype(np.int64)
            if passes > 1:
                part = key_hash if way is Way.BY_QUEUE else offset >> _OFFSETS_A_PART
                in_pass = part % passes == number
                offset, key_hash = offset[in_pass], key_hash[in_pass]
            offsets.append(offset)
            hashes.append(key_hash)
    return np.concatenate(offsets), np.concatenate(hashes)


def _compare_headers(stores: Stores, difference: Difference) -> None:
    """Compare the headers of the n-th IndexFiles. Names are creation times, so they differ between stores."""
    files = [store.index.current() for store in stores]
    if len(files[0]) != len(files[1]):
        difference.add(Part.HEADER, What.DIFFERENT, 1)
        detail = f"{counted(len(files[0]), 'IndexFile')}, but {len(files[1])}"
        difference.examples.append(Example(Part.HEADER, What.DIFFERENT, "index/", detail=detail))
        return
    for left, right in zip(*files, strict=True):
        detail = _differing(left, right, difference.way)
        if detail:
            if difference.room(Part.HEADER, What.DIFFERENT) > 0:
                place = f"index/{left.name} and {right.name}"
                difference.examples.append(
                    Example(Part.HEADER, What.DIFFERENT, place, detail=detail)
                )
            difference.add(Part.HEADER, What.DIFFERENT, 1)


def _differing(left: core.IndexFileReader, right: core.IndexFileReader, way: Way) -> str:
    if (left.hash_slots, left.index_items) != (right.hash_slots, right.index_items):
        return (
            f"{left.hash_slots} slots and {left.index_items} items, but {right.hash_slots} and "
            f"{right.index_items}"
        )
    a, b = left.header(), right.header()
    names = [
        name
        for name in IndexHeader._fields
        if getattr(a, name) != getattr(b, name)
        and not (way is Way.BY_QUEUE and name.endswith("physical_offset"))
    ]
    return ", ".join(f"{name} {getattr(a, name)}, but {getattr(b, name)}" for name in names)


def diff(a: core.MessageStore, b: core.MessageStore) -> Difference:
    """Compare two open stores.

    Raises:
        StoreAccessError, StoreChangedError: a file cannot be read, or became shorter.
        StoreNotFoundError: files expired during the comparison.
    """
    stores = a, b
    extents = [Extent(store.begin_offset(), store.end_offset()) for store in stores]
    difference = Difference(find_way(stores), (extents[0], extents[1]))
    LogComparison(stores, difference).run()
    compare_queues(stores, difference)
    compare_index(stores, difference)
    # Checkpoints depend on when each broker flushed, so a different checkpoint is only noted.
    if a.checkpoint() != b.checkpoint():
        difference.notes.append(f"checkpoints differ: {a.checkpoint()}, but {b.checkpoint()}")
    return difference
