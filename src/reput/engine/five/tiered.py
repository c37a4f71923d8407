"""Tiered storage (5.x): messages that a broker's plugin has uploaded to a POSIX file system or S3, by queue and by key.

Mirrors `FlatFileStore`, `FlatMessageFile`, `IndexStoreFile` and `PosixFileSegment` (tag rocketmq-all-5.3.3). Each queue
has a log of its own. The physical offset of a record is its position in this log.
"""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import NamedTuple

from reput.base import Finding, Kind
from reput.core import KeyPredicate, LocatedRecord
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, StoreNotFoundError
from reput.format import commit_log, tiered
from reput.format.consume_queue import ENTRY_BYTES, decode_entry
from reput.format.file_names import TIERED_FOLDER, TIERED_INDEX_FOLDER, parse_queue_id
from reput.format.message_id import spellings
from reput.io import FolderEntry, Storage, listed_size, storage_of

# The default number of slots of the broker's plugin for tiered storage. The number of slots of an index file has to be
# guessed, because the file does not state it.
_DEFAULT_SLOTS = 5_000_000
# To find the number of slots, every possible number is tested on an index file of at most this size. On a larger index
# file, only the default number is tested.
_MOST_SEARCHED_BYTES = 1 << 20
# To check a guess of the number of slots, this many items are read: each must be in the chain of its slot.
_CHECKED_ITEMS = 64
_CLUSTER = re.compile(r"[0-9a-f]{8}_.+")
# Maximum size of one slot's items. It bounds the memory for a damaged file.
_MOST_ITEM_BYTES = 1 << 24


class LocalIndexFile:
    """A local index file, which is open only while `items` runs.

    Raises StoreNotFoundError, StoreAccessError, and ValueError if the number of slots cannot be determined.
    """

    def __init__(self, entry: FolderEntry, storage: Storage) -> None:
        self._path, self._size, self._storage = entry.path, entry.stat().st_size, storage
        with storage.open(self._path) as reader:
            is_small = self._size <= _MOST_SEARCHED_BYTES
            self._data = reader.read(0, self._size if is_small else tiered.HEADER_BYTES)
            self._count = tiered.decode_local_items(self._data)
            self._slots = self._find_slots()

    def items(self, key_hash: int) -> Iterator[tiered.TieredItem]:
        """Yield the items with a key hash, newest first."""
        if key_hash < 0 or not self._count:
            return
        number = self._slot(key_hash % self._slots)
        while 0 < number <= self._count:
            item, previous = self._item(self._slots, number)
            if item.key_hash == key_hash:
                yield item
            # The previous item of a chain has a smaller number. If not, the chain is damaged, and may run in circles.
            if previous >= number:
                raise ValueError(
                    f"item {number} links to item {previous}, but must link to an item before itself"
                )
            number = previous

    def _find_slots(self) -> int:
        """Determine the number of slots from the file's size and its first items. Raises ValueError."""
        if not self._count:
            # Without items, any number of slots will do.
            return 1
        candidates = [_DEFAULT_SLOTS]
        if self._size <= _MOST_SEARCHED_BYTES:
            most = (
                self._size - tiered.HEADER_BYTES - (self._count + 1) * tiered.LOCAL_ITEM_BYTES
            ) // tiered.SLOT_BYTES
            candidates = [slots for slots in range(1, most + 1) if self._fits(slots)]
        slots_in_use = next(
            (slots for slots in candidates if self._fits(slots) and self._agree(slots)), 0
        )
        if not slots_in_use:
            raise ValueError(
                "the file's number of slots cannot be determined from its size and items"
            )
        return slots_in_use

    def _fits(self, slots: int) -> bool:
        rest = self._size - tiered.HEADER_BYTES - slots * tiered.SLOT_BYTES
        return rest % tiered.LOCAL_ITEM_BYTES == 0 and rest // tiered.LOCAL_ITEM_BYTES > self._count

    def _agree(self, slots: int) -> bool:
        """Test a guess of the number of slots: return whether the first items would be in the chains of their slots."""
        newest: dict[int, int] = {}
        for number in range(1, min(self._count, _CHECKED_ITEMS) + 1):
            item, previous = self._item(slots, number)
            if item.key_hash < 0:
                continue
            slot = item.key_hash % slots
            if previous != newest.get(slot, 0) or not number <= self._slot(slot) <= self._count:
                return False
            newest[slot] = number
        return bool(newest)

    def _slot(self, slot: int) -> int:
        data = self._read(tiered.HEADER_BYTES + slot * tiered.SLOT_BYTES, 4)
        return int.from_bytes(data, "big", signed=True)

    def _item(self, slots: int, number: int) -> tuple[tiered.TieredItem, int]:
        at = tiered.HEADER_BYTES + slots * tiered.SLOT_BYTES + number * tiered.LOCAL_ITEM_BYTES
        return tiered.decode_local_item(self._read(at, tiered.LOCAL_ITEM_BYTES))

    def _read(self, position: int, length: int) -> bytes:
        if position + length <= len(self._data):
            return self._data[position : position + length]
        if position + length > self._size:
            raise ValueError(f"{length} bytes at {position} reach past the end of the file")
        with self._storage.open(self._path) as reader:
            return reader.read(position, length)


class TieredSegment(NamedTuple):
    """One file of a FlatFile: the offset of its first byte, its size, and its path."""

    start: int
    size: int
    path: str


class FlatFile:
    """Consecutive segments, read as one file.

    start, stop  offset of its first byte, and offset after its last byte
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        """List the segments. Segments after a gap are ignored. Raises StoreAccessError."""
        self._storage, self.folder = storage, folder
        segments = sorted(filter(None, map(_segment, storage.list(folder))))
        self.segments: list[TieredSegment] = []
        for segment in segments:
            if self.segments and segment.start != self.stop:
                break
            self.segments.append(segment)
        self._starts = [segment.start for segment in self.segments]

    @property
    def start(self) -> int:
        return self.segments[0].start if self.segments else 0

    @property
    def stop(self) -> int:
        return self.segments[-1].start + self.segments[-1].size if self.segments else 0

    def read(self, position: int, length: int) -> bytes:
        """Return the bytes at an offset, up to the end of the file. Raises StoreNotFoundError, StoreAccessError."""
        data = b""
        number = bisect_right(self._starts, position) - 1
        while length > len(data) and 0 <= number < len(self.segments):
            segment = self.segments[number]
            at = position + len(data) - segment.start
            count = min(length - len(data), segment.size - at)
            if count <= 0:
                break
            with self._storage.open(segment.path) as reader:
                data += reader.read(at, count)
            number += 1
        return data


def _segment(entry: FolderEntry) -> TieredSegment | None:
    start = tiered.parse_segment_name(entry.name)
    size = listed_size(entry)
    return None if start is None or size is None else TieredSegment(start, size, entry.path)


@dataclass
class TieredQueue:
    """One queue: its records, and their places by queue offset."""

    topic: str
    queue_id: int
    log: FlatFile
    entries: FlatFile

    @property
    def min_offset(self) -> int:
        return self.entries.start // ENTRY_BYTES

    @property
    def max_offset(self) -> int:
        """Return the queue offset after the last uploaded message."""
        return self.entries.stop // ENTRY_BYTES

    def get(self, queue_offset: int) -> LocatedRecord:
        """Return the record of a queue offset. Raises MessageNotFoundError, CorruptMessageError, StoreAccessError."""
        data = self.entries.read(queue_offset * ENTRY_BYTES, ENTRY_BYTES)
        if queue_offset < 0 or len(data) < ENTRY_BYTES:
            raise MessageNotFoundError(
                f"{self.entries.folder}: queue offset {queue_offset}: not uploaded, or expired"
            )
        entry = decode_entry(data)
        return self.record(entry.physical_offset, entry.size)

    def record(self, position: int, size: int) -> LocatedRecord:
        """Return the record of this size at `position`. Raises CorruptMessageError, StoreAccessError."""
        size = min(size, self.log.stop - position)
        if size < commit_log.MIN_RECORD_BYTES or position < self.log.start:
            raise self._corrupt(position, f"there is no record of {size} bytes here")
        data = self.log.read(position, size)
        try:
            layout = commit_log.locate(data, 0, len(data))
        except commit_log.RecordError as error:
            raise self._corrupt(position, str(error)) from None
        offset = commit_log.read_size_and_physical_offset(data, 0)[1]
        if layout.total_bytes != size or offset != position:
            raise self._corrupt(position, f"the record there states offset {offset}")
        return LocatedRecord(position, data, layout)

    def records(self, damage: list[Finding]) -> Iterator[LocatedRecord]:
        """Yield all records, oldest first. At an unreadable record, add a finding to `damage` and stop."""
        position = self.log.start
        while position < self.log.stop:
            head = self.log.read(position, commit_log.MIN_RECORD_BYTES)
            size = commit_log.read_size_and_physical_offset(
                head.ljust(commit_log.MIN_RECORD_BYTES, b"\0"), 0
            )[0]
            try:
                record = self.record(position, size)
            except CorruptMessageError as error:
                damage.append(Finding.of_error(Kind.UNREADABLE_RECORD, error))
                return
            yield record
            position += record.layout.total_bytes

    def _corrupt(self, position: int, reason: str) -> CorruptMessageError:
        return CorruptMessageError(self.log.folder, position, reason, position)


class TieredStore:
    """The uploads of one or several brokers below a path.

    Attributes:
        root: the folder that contains the clusters' folders, or a cluster's folder
        damage: the unreadable parts found so far
    """

    def __init__(
        self, path: str | PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> None:
        """Open the broker's `tieredStoreFilePath`, or a cluster's folder in it. `path` is a local path or a URL.

        Raises StoreAccessError, and StoreNotFoundError for a path without segments.
        """
        self._storage, root = storage_of(path, storage_options)
        inside = posixpath.join(root, TIERED_FOLDER)
        self.root = inside if self._storage.entry(inside) is not None else root
        self._local_index = posixpath.join(root, TIERED_INDEX_FOLDER)
        self.damage: list[Finding] = []
        self._brokers = list(self._find_brokers())
        if not self._brokers:
            raise StoreNotFoundError(
                f"{root}: has no tiered storage; pass the broker's tieredStoreFilePath"
            )

    def queues(self) -> list[TieredQueue]:
        """Return all queues, by topic and queue id. Raises StoreAccessError."""
        queues = [
            self._queue(topic.name, queue_id, queue.path)
            for broker in self._brokers
            for topic in self._storage.list(broker)
            if topic.is_dir() and topic.name != tiered.INDEX_TOPIC
            for queue in self._storage.list(topic.path)
            if queue.is_dir() and (queue_id := parse_queue_id(queue.name)) is not None
        ]
        return sorted(queues, key=lambda flat: (flat.topic, flat.queue_id, flat.log.folder))

    def queue(self, topic: str, queue_id: int) -> TieredQueue:
        """Return one queue. Raises StoreAccessError, and MessageNotFoundError for an unknown queue."""
        for broker in self._brokers:
            path = posixpath.join(broker, topic, str(queue_id))
            if self._storage.entry(path) is not None:
                return self._queue(topic, queue_id, path)
        raise MessageNotFoundError(f"{self.root}: no queue {queue_id} of topic {topic!r}")

    def pull(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[LocatedRecord]:
        """Return messages of a queue from a queue offset on.

        Raises MessageNotFoundError, CorruptMessageError, StoreAccessError.
        """
        queue = self.queue(topic, queue_id)
        stop = min(queue_offset + count, queue.max_offset)
        return [queue.get(offset) for offset in range(max(queue_offset, queue.min_offset), stop)]

    def query(self, topic: str, key: str, scan: bool = False) -> list[LocatedRecord]:
        """Return messages of a topic that have this key or unique key, newest first, through the uploaded index.

        An id may be in lower case.

        The newest file of the index is not uploaded: it exists only in the broker's own folder. So the newest messages
        may be missed. With `scan`, all messages of the topic are compared instead, and no uploaded message is missed.

        Raises StoreAccessError.
        """
        predicate = KeyPredicate((topic,), (key,))
        queues = {
            (posixpath.dirname(posixpath.dirname(q.log.folder)), q.queue_id): q
            for q in self.queues()
            if q.topic == topic
        }
        if scan:
            records = (record for queue in queues.values() for record in queue.records(self.damage))
            return _newest_first([data for data in records if predicate.matches(data.keyed())])
        unique: dict[tuple[str, int, int], LocatedRecord] = {}
        for broker in self._brokers:
            folder = posixpath.join(broker, topic)
            hashes = {tiered.tiered_key_hash(topic, spelling) for spelling in spellings(key)}
            for item in chain.from_iterable(self._items(broker, each) for each in hashes):
                queue = queues.get((folder, item.queue_id))
                place = folder, item.queue_id, item.position
                if queue is None or place in unique:
                    continue
                try:
                    record = queue.record(item.position, item.size)
                # The item belongs to another topic, or has expired.
                except CorruptMessageError:
                    continue
                if predicate.matches(record.keyed()):
                    unique[place] = record
        return _newest_first(list(unique.values()))

    def _items(self, broker: str, key_hash: int) -> Iterator[tiered.TieredItem]:
        folder = posixpath.join(broker, tiered.INDEX_TOPIC, "0", tiered.INDEX)
        for entry in self._storage.list(folder):
            segment = _segment(entry)
            if segment is None:
                continue
            try:
                yield from self._items_of(segment, key_hash)
            except (ValueError, StoreError) as error:
                self._note_index(segment.path, error)
        for entry in self._storage.list(self._local_index):
            if not entry.is_file():
                continue
            try:
                yield from LocalIndexFile(entry, self._storage).items(key_hash)
            except (ValueError, StoreError) as error:
                self._note_index(entry.path, error)

    def _note_index(self, path: str, error: Exception) -> None:
        detail = f"this index file of tiered storage was not used: {error}"
        note = Finding(Kind.FOREIGN_FILE, path, detail)
        if note not in self.damage:
            self.damage.append(note)

    def _items_of(self, segment: TieredSegment, key_hash: int) -> Iterator[tiered.TieredItem]:
        with self._storage.open(segment.path) as reader:
            head = reader.read(0, min(tiered.HEADER_BYTES, segment.size))
            header = tiered.decode_tiered_header(head, segment.size)
            # The slot of a negative hash would be before the first slot, so a broker cannot store such an item.
            if key_hash < 0:
                return
            slot_at = tiered.HEADER_BYTES + tiered.SLOT_BYTES * (key_hash % header.slots)
            position, length = tiered.decode_tiered_slot(reader.read(slot_at, tiered.SLOT_BYTES))
            if position + length > segment.size:
                raise ValueError("the items of a slot reach past the end of the segment")
            length = min(length, _MOST_ITEM_BYTES)
            items = tiered.decode_tiered_items(reader.read(position, length) if length else b"")
        yield from (item for item in items if item.key_hash == key_hash)

    def _queue(self, topic: str, queue_id: int, path: str) -> TieredQueue:
        log = FlatFile(self._storage, posixpath.join(path, tiered.COMMIT_LOG))
        entries = FlatFile(self._storage, posixpath.join(path, tiered.CONSUME_QUEUE))
        return TieredQueue(topic, queue_id, log, entries)

    def _find_brokers(self) -> Iterator[str]:
        """Yield the folders of brokers, one level below each cluster's folder.

        The root may itself be a cluster's folder.
        """
        if _CLUSTER.fullmatch(posixpath.basename(self.root.rstrip("/"))):
            clusters = [self.root]
        else:
            entries = self._storage.list(self.root)
            clusters = sorted(e.path for e in entries if e.is_dir() and _CLUSTER.fullmatch(e.name))
        for cluster in clusters:
            yield from sorted(entry.path for entry in self._storage.list(cluster) if entry.is_dir())


def _newest_first(records: list[LocatedRecord]) -> list[LocatedRecord]:
    def age(record: LocatedRecord) -> tuple[int, int]:
        return record.keyed().store_timestamp, record.physical_offset

    return sorted(records, key=age, reverse=True)
