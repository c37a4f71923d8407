"""ConsumeQueue, the reading side: where the n-th message of a queue lies.

Mirrors `ConsumeQueue.getIndexBuffer`, `.getMinOffsetInQueue`, `.getMaxOffsetInQueue` (tag
rocketmq-all-4.9.3). The entries are a run without gaps from the first file to the first that is
not written, so both ends are found by bisection; what lies between is not checked before it is
read.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import PathLike, fspath

from reput.errors import MessageNotFoundError, StoreAccessError, StoreNotFoundError
from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK, ConsumeQueueEntry, decode_entry
from reput.format.file_names import CONSUME_QUEUE_FOLDER, is_folder_name, parse_offset_file_name

_READ_ENTRIES = 512
_BULK_ENTRIES = 1 << 15


class ConsumeQueueReader:
    """The files of one queue, as they are when it is opened; they may grow and expire meanwhile.

    Raises StoreAccessError.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._list()

    def _list(self) -> None:
        found = []
        for entry in _entries(self.folder):
            start = parse_offset_file_name(entry.name)
            if start is not None and start % ENTRY_BYTES == 0 and entry.is_file():
                with suppress(FileNotFoundError):  # expired since it was listed
                    count = entry.stat().st_size // ENTRY_BYTES
                    found.append((start // ENTRY_BYTES, count, entry.path))
        self._files = sorted(found)
        self._starts = [start for start, _, _ in self._files]

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """The entry with that number.

        Raises MessageNotFoundError where none was written, or it has expired; StoreAccessError.
        """
        place = bisect_right(self._starts, queue_offset) - 1
        start, count, path = self._files[place] if place >= 0 else (0, 0, self.folder)
        if not start <= queue_offset < start + count:
            raise MessageNotFoundError(f"{self.folder}: no file holds queue offset {queue_offset}")
        try:
            with FileReader(path) as reader:
                entry = decode_entry(reader.read((queue_offset - start) * ENTRY_BYTES, ENTRY_BYTES))
        except StoreNotFoundError as error:
            raise MessageNotFoundError(str(error)) from None
        if not entry.is_written or entry == PRE_BLANK:
            raise MessageNotFoundError(f"{path}: queue offset {queue_offset}: no entry there")
        return entry

    def entries(self, queue_offset: int, stop: int) -> Iterator[ConsumeQueueEntry]:
        """Entries from that number on to `stop`, as far as they follow each other and were written.

        Raises StoreNotFoundError for a file that has expired, StoreAccessError.
        """
        position = queue_offset
        for start, count, path in self._files:
            if not start <= position < min(stop, start + count):
                continue
            with FileReader(path) as reader:
                last = min(stop, start + count)
                for begin in range(position, last, _READ_ENTRIES):
                    length = min(_READ_ENTRIES, last - begin)
                    data = reader.read((begin - start) * ENTRY_BYTES, length * ENTRY_BYTES)
                    for at in range(0, len(data), ENTRY_BYTES):
                        entry = decode_entry(data, at)
                        if not entry.is_written:
                            return
                        yield entry
            position = last

    def entry_bytes(self, queue_offset: int, stop: int) -> Iterator[bytes]:
        """The stored bytes of the entries from that number to `stop`, written or not, some thousand at a time.

        Raises StoreNotFoundError for a file that has expired, StoreAccessError.
        """
        for start, count, path in self._files:
            first, last = max(queue_offset, start), min(stop, start + count)
            if first >= last:
                continue
            with FileReader(path) as reader:
                for begin in range(first, last, _BULK_ENTRIES):
                    length = min(_BULK_ENTRIES, last - begin)
                    yield reader.read((begin - start) * ENTRY_BYTES, length * ENTRY_BYTES)

    def max_queue_offset(self) -> int:
        """Queue offset that the next message gets."""
        return self._settled(self._max)

    def min_queue_offset(self, min_physical_offset: int = 0) -> int:
        """Queue offset of the first message at or behind that physical offset, else the maximum."""
        return self._settled(lambda: self._min(min_physical_offset))

    def files_before(self, min_physical_offset: int) -> list[str]:
        """Files, oldest first and never the last, all of whose entries are of messages before that offset."""
        found: list[str] = []
        for _, count, path in self._files[:-1]:
            with FileReader(path) as reader:
                last = _read(reader, count - 1) if count else None
            if last is None or not last.is_written or last.physical_offset >= min_physical_offset:
                break
            found.append(path)
        return found

    def _settled(self, look: Callable[[], int]) -> int:
        """What `look` finds; where a file has expired under it, what it finds in those that are there then."""
        while True:
            before = self._files
            try:
                return look()
            except StoreNotFoundError:
                self._list()
                if self._files == before:
                    raise

    def _max(self) -> int:
        for start, count, path in reversed(self._files):
            with FileReader(path) as reader:
                written = bisect_left(
                    range(count), True, key=lambda n: not _read(reader, n).is_written
                )
            if written:
                return start + written
        return self._starts[0] if self._starts else 0

    def _min(self, min_physical_offset: int) -> int:
        for start, count, path in self._files:
            with FileReader(path) as reader:
                first = bisect_left(
                    range(count),
                    True,
                    key=lambda n: _is_left(_read(reader, n), min_physical_offset),
                )
                if first < count and _read(reader, first).is_written:
                    return start + first
        return self._max()


class ConsumeQueues:
    """All queues of a store."""

    def __init__(self, store: str | PathLike[str]) -> None:
        self.folder = os.path.join(fspath(store), CONSUME_QUEUE_FOLDER)

    def topics(self) -> list[str]:
        """Topics that have a folder, sorted. Raises StoreAccessError."""
        return sorted(entry.name for entry in _entries(self.folder) if entry.is_dir())

    def list(self) -> list[tuple[str, int]]:
        """(topic, queue id) of every queue, sorted. Raises StoreAccessError."""
        return sorted(
            (topic, int(entry.name))
            for topic in self.topics()
            for entry in _entries(os.path.join(self.folder, topic))
            if entry.name.isascii() and entry.name.isdigit() and entry.is_dir()
        )

    def queue(self, topic: str, queue_id: int) -> ConsumeQueueReader:
        """Raises MessageNotFoundError where there is no such queue, StoreAccessError."""
        folder = os.path.join(self.folder, topic, str(queue_id))
        if not is_folder_name(topic) or queue_id < 0 or not _is_there(folder):
            raise MessageNotFoundError(f"{self.folder}: no queue {queue_id} of topic {topic!r}")
        return ConsumeQueueReader(folder)


def _is_there(folder: str) -> bool:
    try:
        os.stat(folder)
    except (FileNotFoundError, NotADirectoryError, UnicodeEncodeError):
        return False
    except OSError as error:
        raise StoreAccessError(f"{folder}: cannot be read: {error.strerror}") from error
    return True


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreAccessError(f"{folder}: cannot be read: {error.strerror}") from error


def _read(reader: FileReader, number: int) -> ConsumeQueueEntry:
    return decode_entry(reader.read(number * ENTRY_BYTES, ENTRY_BYTES))


def _is_left(entry: ConsumeQueueEntry, min_physical_offset: int) -> bool:
    """Whether this entry is the first of a message that has not expired, or behind it."""
    if not entry.is_written:
        return True
    return entry != PRE_BLANK and entry.physical_offset >= min_physical_offset
