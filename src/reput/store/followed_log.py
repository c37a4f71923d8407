"""A log that another process writes: where it ends for those who read it, and what tells that it is still the same.

What is at the end of the log counts when it has been there for a moment, for a broker copies a record into its file
while others read. When a broker recovers, it may cut the last file of its log, and what is behind the cut stays there
until it is written over.
"""

from __future__ import annotations

import time
from itertools import takewhile
from pathlib import Path

from reput.config import StoreConfig
from reput.files.reader import FileReader
from reput.format.commit_log import BLANK_BYTES, MIN_RECORD_BYTES, read_size_and_magic
from reput.store.commit_log_files import CommitLogFile, list_commit_log_files
from reput.store.damage import Damage
from reput.store.follow_state import MARKED_BYTES, Mark
from reput.store.record_search import is_copied_whole
from reput.store.scan import FileScan, ScanBuffers

_SETTLED_S = 0.2


class FollowedLog:
    """The log of `store`, as it was when it was looked at last.

    files  of that moment
    seen   physical offset behind the last record that can be read
    """

    def __init__(self, store: Path, config: StoreConfig, buffers: ScanBuffers) -> None:
        """Nothing is seen before `look`. Raises StoreNotFoundError, StoreAccessError."""
        self._store, self._config, self._buffers = store, config, buffers
        self._seen_at = 0.0
        self.seen = 0
        self.list_files()

    @property
    def begin(self) -> int:
        return self.files[0].start

    def list_files(self) -> None:
        """Look which files there are now. Raises StoreNotFoundError, StoreAccessError."""
        self.files = list_commit_log_files(self._store)

    def look(self, start: int) -> None:
        """Look how far the log can be read from `start` on, at which a record or a file begins."""
        self._seen_at = time.monotonic()
        self.seen = self._visible_end(start)

    def settle(self) -> None:
        """Wait until what was seen last has been there for a moment."""
        time.sleep(max(self._seen_at + _SETTLED_S - time.monotonic(), 0))

    def last_with_data(self) -> CommitLogFile:
        for file in reversed(self.files):
            with FileReader(file.path) as reader:
                if any(reader.read(0, min(BLANK_BYTES, file.size))):
                    return file
        return self.files[0]

    def held(self, marks: list[Mark]) -> list[Mark]:
        """Marks of this log, oldest first, up to the first that is not; those of expired messages are left out."""
        there = (mark for mark in marks if mark.physical_offset >= self.begin)
        return list(takewhile(self.holds, there))

    def holds(self, mark: Mark) -> bool:
        head = self.head_at(mark.physical_offset)
        return head is not None and Mark.of(mark.physical_offset, head) == mark

    def head_at(self, offset: int) -> bytes | None:
        """The first bytes of the record there, None where no file has it."""
        for file in self.files:
            if file.start <= offset < file.end - MIN_RECORD_BYTES:
                with FileReader(file.path) as reader:
                    return reader.read(offset - file.start, MIN_RECORD_BYTES)
        return None

    def end_of(self, mark: Mark) -> int:
        """Physical offset behind the message of a mark that holds."""
        head = self.head_at(mark.physical_offset)
        return mark.physical_offset + (read_size_and_magic(head, 0)[0] if head else 0)

    def settled_before(self, marks: list[Mark]) -> int:
        """A place, of a record or a file, before which no cut can hide from these marks, which all hold.

        Behind a cut in the last file marks may hold for a while, until the broker has written there.
        """
        last = self.last_with_data().start
        if not marks:
            return last
        newest = marks[-1].physical_offset
        offsets = [mark.physical_offset for mark in marks]
        return max([min(last, newest), *(at for at in offsets if at + MARKED_BYTES <= newest)])

    def _visible_end(self, start: int) -> int:
        last = self.last_with_data()
        position = start
        for file in self.files:
            if file.end <= position or file.start > last.start:
                continue
            position = (
                file.end if file != last else self._end_within(file, max(position, file.start))
            )
        return position

    def _end_within(self, file: CommitLogFile, start: int) -> int:
        scan = FileScan(file, start, file.end, self._config, buffers=self._buffers, live=True)
        begin = end = start
        for piece in scan.pieces():
            begin = piece.base + int(piece.positions[-1])
            end = begin + int(piece.batch.messages["size"][-1])
        position = scan.end.position
        while scan.end.unreadable and scan.damage and _end(scan.damage[-1]) == position:
            position = scan.damage.pop().physical_offset  # may be half of a record
        if scan.end.unreadable and begin < end == position:
            with FileReader(file.path) as reader:
                if not is_copied_whole(reader.read(begin - file.start, end - begin)):
                    return begin
        return position


def _end(damage: Damage) -> int:
    return damage.physical_offset + damage.length
