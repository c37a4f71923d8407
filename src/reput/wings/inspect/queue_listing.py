"""List the entries of a queue: their place, their message, their tag or due time. See docs/format/consume-queue.md.

Entries of files are listed as they are stored, so gaps and pre-blank entries are visible. A run of such places is one
row. Entries in RocksDB have no place in a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reput import core
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError
from reput.format.consume_queue import PRE_BLANK, BatchEntry, ConsumeQueueEntry
from reput.format.consume_queue_ext import ExtensionUnit, is_address
from reput.format.file_names import EXTENSION_FOLDER
from reput.format.java_string import hash_code
from reput.format.properties import SCHEDULE_TOPIC, TAGS
from reput.io import OpenFiles, Storage

_BLOCK_ENTRIES = 1 << 14
_MOST_TAGS = 1 << 14
_HASHES = range(-(1 << 31), 1 << 31)
_NO_FIELDS = (None, None, None)
LAST_OFFSET = (1 << 63) - 1


class EntryRow(NamedTuple):
    """An entry of a queue, or a run of places that lead to no message.

    Attributes:
        queue_offset: queue offset of the entry; of a batch, of its first message. None in a gap of a batch queue
        messages: number of queue offsets in the row: 1, the size of the batch, or the length of the run
        logical_offset: byte of the entry in the queue: its number times the size of an entry
        file, position: file of the entry and byte in it; None in RocksDB
        state: "entry", "pre-blank", or "unwritten" for a gap
        physical_offset, size, tags_code: fields of the entry as they are stored; None in a gap
        tag: TAGS of the message, if the message is readable and has this tags code
        due: due time (ms) of a delayed message, which its tags code states
        unit: extension unit of the entry, if its tags code is the address of a unit
    """

    queue_offset: int | None
    messages: int
    logical_offset: int
    file: str | None
    position: int | None
    state: str
    physical_offset: int | None = None
    size: int | None = None
    tags_code: int | None = None
    tag: str | None = None
    due: int | None = None
    unit: ExtensionUnit | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the fields for JSON. Of a unit's bit map, only the length is stated."""
        unit = None
        if self.unit is not None:
            tags_code, store_timestamp, bit_map = self.unit
            unit = {
                "tags_code": tags_code,
                "store_timestamp": store_timestamp,
                "bit_map_bytes": len(bit_map),
            }
        return {**self._asdict(), "unit": unit}


@dataclass(slots=True)
class QueueListing:
    """The places of a queue's entries, and where their messages and extension units are.

    Attributes:
        kind: kind of the queue
        topic: topic of the queue; None for a file outside of its store
        storage: storage of the files
        files: files of the queue, oldest first; empty for other queues
        reader: reader of a queue that is not in files
        log: the store's log; None if it is missing
        units: the queue's extension files, if it has any
    """

    kind: core.QueueKind
    topic: str | None
    storage: Storage
    files: Sequence[core.QueueFile] = ()
    reader: core.QueueReader | None = None
    log: core.CommitLogReader | None = None
    units: core.ExtensionFiles | None = None
    _tags: dict[int, str | None] = field(default_factory=dict)
    _mismatches: int = 0

    def rows(self, first: int = 0, stop: int = LAST_OFFSET) -> Iterator[EntryRow]:
        """Yield the rows of the queue offsets from `first` to before `stop`, in order.

        Raises StoreAccessError, StoreChangedError, and in RocksDB FormatError.
        """
        if self.reader is not None:
            return self._of_reader(self.reader, first, stop)
        return self._of_files(first, stop)

    def rows_at(self, logical_offset: int) -> Iterator[EntryRow]:
        """Yield the row of the entry that contains a byte of the queue, if there is one. Raises as `rows` does."""
        if self.reader is not None:
            number = logical_offset // core.CONSUME_QUEUE.entry_bytes
            if number < LAST_OFFSET:
                yield from self._of_reader(self.reader, number, number + 1)
            return
        number = logical_offset // self.kind.entry_bytes
        for file in self.files:
            if file.start <= number < file.stop:
                for _, block in self._blocks(file, number, number + 1):
                    for row in self._of_block(file, number, block, -LAST_OFFSET, LAST_OFFSET):
                        if row.state != "unwritten" or self._continues(row):
                            yield row

    def close(self) -> None:
        """Close the log."""
        if self.log is not None:
            self.log.close()

    def _of_reader(self, reader: core.QueueReader, first: int, stop: int) -> Iterator[EntryRow]:
        for number, entry in reader.numbered(first, min(stop, reader.max_queue_offset())):
            at = number * core.CONSUME_QUEUE.entry_bytes
            yield self._row(number, reader.after(number, entry) - number, at, None, None, entry)

    def _of_files(self, first: int, stop: int) -> Iterator[EntryRow]:
        run: EntryRow | None = None
        is_numbered = self.kind.numbering is core.Numbering.PLACE
        for file in self.files:
            begin = max(first, file.start) if is_numbered else file.start
            end = min(stop, file.stop) if is_numbered else file.stop
            for number, block in self._blocks(file, begin, end):
                for row in self._of_block(file, number, block, first, stop):
                    if run is not None and (run.state, run.file) == (row.state, row.file):
                        run = run._replace(messages=run.messages + row.messages)
                        continue
                    if run is not None and self._is_still(run):
                        yield run
                    elif run is not None:
                        yield from self._appended(run, first, stop)
                    run = row if row.state != "entry" else None
                    if run is None:
                        yield row
        # Unwritten places after the last entry are the free part of the queue.
        if run is not None and (run.state == "pre-blank" or self._continues(run)):
            yield run

    def _appended(self, run: EntryRow, first: int, stop: int) -> Iterator[EntryRow]:
        """Yield the entries that were appended at the places of a gap since it was read."""
        begin = run.logical_offset // self.kind.entry_bytes
        for file in self.files:
            if file.path == run.file:
                for number, block in self._blocks(file, begin, begin + run.messages):
                    rows = self._of_block(file, number, block, first, stop)
                    yield from (row for row in rows if row.state == "entry")

    def _is_still(self, run: EntryRow) -> bool:
        """Return whether nothing was appended at the place of a gap since it was read."""
        if run.state != "unwritten" or run.file is None or run.position is None:
            return True
        with self.storage.open(run.file) as reader:
            data = reader.read(run.position, self.kind.entry_bytes)
        return not self.kind.decode(data).is_written

    def _continues(self, gap: EntryRow) -> bool:
        """Return whether the queue has an entry after a gap."""
        if not self._is_still(gap):
            return False
        for file in self.files:
            if gap.file is not None and gap.position is not None and file.path >= gap.file:
                begin = gap.position if file.path == gap.file else 0
                with self.storage.open(file.path) as reader:
                    if reader.has_data(begin, file.count * self.kind.entry_bytes):
                        return True
        return False

    def _blocks(
        self, file: core.QueueFile, first: int, stop: int
    ) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        size = self.kind.entry_bytes
        with self.storage.open(file.path) as reader:
            for number in range(first, stop, _BLOCK_ENTRIES):
                count = min(_BLOCK_ENTRIES, stop - number)
                data = reader.read((number - file.start) * size, count * size)
                yield number, np.frombuffer(data, self.kind.dtype)

    def _of_block(
        self, file: core.QueueFile, first: int, block: npt.NDArray[np.void], low: int, high: int
    ) -> Iterator[EntryRow]:
        """Yield a row per entry, and per run of places without a message, for the queue offsets [low, high)."""
        size, is_batch = self.kind.entry_bytes, self.kind.numbering is core.Numbering.BASE
        written = (block["physical_offset"] >= 0) & (block["size"] > 0)
        blank = (
            np.zeros(len(block), bool)
            if is_batch
            else block == np.array(tuple(PRE_BLANK), self.kind.dtype)
        )
        state = np.where(blank, 1, np.where(written, 0, 2))
        # A run ends where the state changes; every entry is a run of its own.
        begins = np.flatnonzero((state == 0) | (np.diff(state, prepend=-1) != 0)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(block)], strict=True):
            number, at = first + begin, (first + begin - file.start) * size
            if state[begin] == 0:
                entry = self.kind.decode(block[begin : begin + 1].tobytes())
                offset, count = number, 1
                if isinstance(entry, BatchEntry):
                    offset, count = entry.base_offset, entry.batch_size
                    if not (offset < high and low < offset + max(count, 1)):
                        continue
                yield self._row(offset, count, number * size, file.path, at, entry)
                continue
            is_blank, place = state[begin] == 1, None if is_batch else number
            name, fields = ("pre-blank", PRE_BLANK) if is_blank else ("unwritten", _NO_FIELDS)
            yield EntryRow(place, end - begin, number * size, file.path, at, name, *fields)

    def _row(
        self,
        queue_offset: int,
        messages: int,
        logical_offset: int,
        path: str | None,
        position: int | None,
        entry: ConsumeQueueEntry,
    ) -> EntryRow:
        unit, code, due = None, entry.tags_code, None
        if self.units is not None and is_address(code):
            unit = self.units.unit(code)
            code = code if unit is None else unit.tags_code
        # The tags code of a delayed message is its due time. Without a delay, it is the hash of its tags.
        if self.topic == SCHEDULE_TOPIC and code not in _HASHES:
            due = code
        tag = self._tag(entry, code) if code in _HASHES else None
        return EntryRow(
            queue_offset, messages, logical_offset, path, position, "entry", *entry[:3], tag, due, unit
        )  # fmt: skip

    def _tag(self, entry: ConsumeQueueEntry, code: int) -> str | None:
        """Return the TAGS of the entry's message, if they have this tags code. Each code's message is read once."""
        if self.log is None or not code:
            return None
        if code not in self._tags and len(self._tags) + self._mismatches < _MOST_TAGS:
            tag = None
            with suppress(MessageNotFoundError, CorruptMessageError):
                message = self.log.get(entry.physical_offset)
                tag = message.properties.get(TAGS)
                is_of_queue = message.topic == self.topic or core.is_light(self.topic or "")
                if not is_of_queue or hash_code(tag or "") != code:
                    self._mismatches += 1
                    return None
            self._tags[code] = tag
        return self._tags.get(code)


def listing_of_file(path: str, kind: core.QueueKind, storage: Storage) -> QueueListing:
    """Return the listing of one file of a queue. If the file lies in its store, tags and units are known.

    A file whose name states no offset is listed from number 0 on.

    Raises StoreNotFoundError, StoreAccessError.
    """
    folder, name = os.path.split(os.path.realpath(path) if storage.is_local else path)
    topic_folder, queue_id = os.path.split(folder)
    queues, topic = os.path.split(topic_folder)
    store, kind_folder = os.path.split(queues)
    with storage.open(path) as reader:
        count = reader.size // kind.entry_bytes
    file = core.QueueFile(kind.first_entry(name) or 0, count, path, 0)
    if kind_folder != kind.folder:
        return QueueListing(kind, None, storage, (file,))
    extension = os.path.join(store, EXTENSION_FOLDER, topic, queue_id)
    return QueueListing(
        kind, topic, storage, (file,),
        log=_log_of(store, storage), units=_units_of(extension, kind, storage),
    )  # fmt: skip


def listing_of_queue(
    queue: core.QueueReader, topic: str, log: core.CommitLogReader, extension: str, storage: Storage
) -> QueueListing:
    """Return the listing of a queue of an open store.

    Args:
        queue: The queue.
        topic: Its topic.
        log: The store's log.
        extension: Folder of the queue's extension files, which may be missing.
        storage: Storage of the store.

    Raises StoreAccessError.
    """
    kind = queue.kind
    files = (
        []
        if kind.numbering is core.Numbering.KEY
        else core.list_queue_files(queue.folder, storage, kind)
    )
    units = _units_of(extension, kind, storage)
    if files:
        return QueueListing(kind, topic, storage, files, log=log, units=units)
    return QueueListing(kind, topic, storage, reader=queue, log=log)


def _units_of(folder: str, kind: core.QueueKind, storage: Storage) -> core.ExtensionFiles | None:
    if kind is not core.CONSUME_QUEUE or storage.entry(folder) is None:
        return None
    return core.ExtensionFiles(folder, OpenFiles(storage.open), storage)


def _log_of(store: str, storage: Storage) -> core.CommitLogReader | None:
    try:
        log = core.CommitLogReader(core.StoreLog(store, storage))
    except StoreError:
        return None
    return log if log.files else None
