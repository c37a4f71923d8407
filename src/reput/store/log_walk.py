"""The walk over the CommitLog in plain Python, for short ranges: no library to load.

The same walk as `reput.store.scan`, which does millions of messages a second: a blank leads to the
next file, a record whose TOTALSIZE is not the sum of its parts is passed over, anything else
unreadable costs the rest of the file. In the last file that has data it is the end of the log,
unless a record proves itself behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from reput.errors import StoreNotFoundError
from reput.files.reader import FileReader
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    RecordError,
    SizeMismatchError,
    locate,
    read_size_and_magic,
)
from reput.format.java_string import encode_utf8
from reput.format.properties import SCHEDULE_TOPIC, tags_code
from reput.store.commit_log import CommitLog, LocatedRecord
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.keyed_record import read_properties
from reput.store.record_search import find_record, first_nonzero

_SCHEDULE_TOPIC = encode_utf8(SCHEDULE_TOPIC)
_NO_DELAYS: list[int] = []


class LogWalk:
    """Iterate over the records that begin in [start, stop); one, or a file, begins at `start`.

    position  physical offset of the first byte not taken
    damage    bytes skipped
    at_end    the walk has met the end of the log, which is `position`

    All three are right once the iteration is exhausted. A record's bytes are good until the next
    one is asked for. Raises StoreAccessError, StoreChangedError.
    """

    def __init__(self, log: CommitLog, start: int, stop: int | None = None) -> None:
        self._log = log
        self._stop = log.files_end if stop is None else stop
        self.position = max(start, log.min_offset)
        self.damage: list[Damage] = []
        self.at_end = False

    def __iter__(self) -> Iterator[LocatedRecord]:
        files = self._log.files
        first = bisect_right(files, self.position, key=lambda file: file.end)
        for file in (files[number] for number in range(max(first - 1, 0), len(files))):
            if self.at_end or self.position >= self._stop:
                return
            if file.end <= self.position:
                continue
            if file.start > self.position:
                self._lose(file.start, file.path, "no file holds these offsets")
            try:
                yield from self._walk_file(file)
            except StoreNotFoundError:  # expired since the files were listed
                self.position = file.end
        self.at_end = self.at_end or self.position >= self._log.files_end

    def _lose(self, stop: int, path: str, reason: str) -> None:
        self.damage.append(Damage(self.position, stop - self.position, path, reason))
        self.position = stop

    def _walk_file(self, file: CommitLogFile) -> Iterator[LocatedRecord]:
        stop = min(self._stop, file.end)
        tail: list[int] = []  # damage that no record has followed yet
        while self.position < stop:
            try:
                record = self._read(file)
            except SizeMismatchError as error:
                tail.append(self.position)
                self._lose(self.position + error.part_bytes, file.path, str(error))
            except RecordError as error:
                if self._is_blank(file):
                    self.position = file.end
                    return None
                if self._is_end(file, [*tail, self.position]):
                    return None
                # What follows proves that the log went on: by now, perhaps, from here.
                if not self._is_written_now(file):
                    return self._lose(file.end, file.path, str(error))
            else:
                tail = []
                yield record
                self.position += record.layout.total_bytes
        return None

    def _read(self, file: CommitLogFile) -> LocatedRecord:
        """The record at the position. Raises RecordError where a broker's reader gives up."""
        data = self._log.file_data(file)
        layout = locate(data, self.position - file.start, len(data))
        record = LocatedRecord(self.position, data, layout)
        _check_delay(record)
        return record

    def _is_blank(self, file: CommitLogFile) -> bool:
        data, position = self._log.file_data(file), self.position - file.start
        return (
            position + BLANK_BYTES <= len(data)
            and read_size_and_magic(data, position)[1] == BLANK_MAGIC
        )

    def _is_written_now(self, file: CommitLogFile) -> bool:
        try:
            self._read(file)
        except SizeMismatchError:
            return True
        except RecordError:
            return self._is_blank(file)
        return True

    def _is_end(self, file: CommitLogFile, tail: list[int]) -> bool:
        """Whether the log ends somewhere in `tail`, and does not merely go on behind damage."""
        for end in tail:
            if self._is_seen_end(file, end) or not self._data_follows(file, end):
                self._log.seen_ends[file.path] = end, self._head(file, end)
                self.at_end, self.position = True, end
                self.damage = [lost for lost in self.damage if lost.physical_offset < end]
                return True
        return False

    def _is_seen_end(self, file: CommitLogFile, end: int) -> bool:
        """A log grows from its end: nothing comes behind an end that was seen before it is written to.

        So where zeros stand behind one, it is the end now; to search the whole file for a record would take long.
        """
        seen, head = self._log.seen_ends.get(file.path, (end + 1, b""))
        now = self._head(file, end)
        return now == head if seen == end else seen < end and not any(now)

    def _head(self, file: CommitLogFile, physical_offset: int) -> bytes:
        position = physical_offset - file.start
        return bytes(self._log.file_data(file)[position : position + BLANK_BYTES])

    def _data_follows(self, file: CommitLogFile, tail: int) -> bool:
        with FileReader(file.path) as reader:
            if find_record(reader, file, tail + 1, file.end) is not None:
                return True
        return any(_has_data(later) for later in self._log.files if later.start >= file.end)


def _check_delay(record: LocatedRecord) -> None:
    """Raises RecordError where the broker's reader gives up: a DELAY that is no number."""
    _, data, layout = record
    topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    if layout.topic_bytes == len(_SCHEDULE_TOPIC) and topic == _SCHEDULE_TOPIC:
        try:
            tags_code(SCHEDULE_TOPIC, read_properties(record), 0, _NO_DELAYS)
        except ValueError as error:
            raise RecordError(str(error)) from None


def _has_data(file: CommitLogFile) -> bool:
    try:
        with FileReader(file.path) as reader:
            return first_nonzero(reader, file, file.start) is not None
    except StoreNotFoundError:
        return False
