"""Walk over short ranges of the CommitLog in plain Python, without loading a library.

The rules are those of `reput.core.log.scan`, which walks millions of messages per second. A blank leads to the next
file. A record whose TOTALSIZE is not the sum of its parts is skipped. At other unreadable bytes, the rest of the file
is skipped. In the last file with data, these bytes are the end of the log, unless a verifiable record follows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from reput.base import Finding, Kind
from reput.core.log.files import CommitLogFile, add_out_of_place, find_record, lost_end
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import LocatedRecord
from reput.core.log.sources import has_data
from reput.core.log.verdict import WalkVerdict
from reput.errors import CorruptMessageError, MessageNotFoundError, StoreError, StoreNotFoundError
from reput.format.commit_log import (
    BLANK_BYTES,
    BLANK_MAGIC,
    RecordError,
    ShortBufferError,
    SizeMismatchError,
    locate,
    read_size_and_magic,
)
from reput.format.java_string import encode_utf8
from reput.format.properties import SCHEDULE_TOPIC, tags_code

_SCHEDULE_TOPIC = encode_utf8(SCHEDULE_TOPIC)
# The delay levels do not matter here, only whether DELAY is a number.
_NO_DELAYS: list[int] = []
# Bytes of the log per read.
_FIRST_WINDOW_BYTES, _MOST_WINDOW_BYTES = 4 << 10, 256 << 10
# The last messages are searched for in the last 4 KiB of the log, and in a longer range if there is no message.
_LAST_BYTES = (4 << 10, 64 << 10, 1 << 20)
# A walk holds a window (bytes of the log) in memory. It reads a new window if fewer than this many bytes of the window
# follow its position. Most records are shorter, so they are complete in the window.
_ENOUGH_BYTES = 4 << 10
WALKED_BYTES = 8 << 20
"""Maximum number of bytes of a log that are walked in plain Python. Longer walks continue in compiled functions.

Loading the compiled functions (`reput.kernels`) takes about as long as walking this many bytes in plain Python.
"""
# Remote file systems do not report holes. There, the log ends at this many zeros, which no message can contain.
_REMOTE_ZEROS_BYTES = 8 << 20


class LogWalk:
    """An iterator over the records that begin in [start, stop). A record or a file must begin at `start`.

    position  physical offset of the first byte not taken
    damage    the skipped ranges
    at_end    whether the walk has met the end of the log, which is then `position`
    blank     physical offset of the blank record that ended the last file of the walk; None if the file has none

    The attributes are valid after the iteration. Raises StoreAccessError, StoreChangedError.
    """

    def __init__(
        self,
        log: CommitLogReader,
        start: int,
        stop: int | None = None,
        *,
        in_place: bool = True,
    ) -> None:
        """Prepare a walk. With `in_place`, records that state another offset than their place are damage."""
        self._log, self._in_place = log, in_place
        self._stop = log.files_end if stop is None else stop
        self._start = self.position = max(start, log.min_offset)
        self.damage: list[Finding] = []
        self.at_end = False
        self.blank: int | None = None
        self._window, self._first_window, self._window_start = b"", b"", 0
        self._window_bytes = _FIRST_WINDOW_BYTES

    def __iter__(self) -> Iterator[LocatedRecord]:
        files = self._log.files
        first = bisect_right(files, self.position, key=lambda file: file.end)
        for file in (files[number] for number in range(max(first - 1, 0), len(files))):
            if self.at_end or self.position >= self._stop:
                return
            if file.end <= self.position:
                continue
            if file.start > self.position:
                self.damage.append(file.missing_before(self.position))
                self.position = file.start
            self._forget_window()
            self.blank = None
            try:
                if file.gap:
                    self._pass_header(file)
                yield from self._walk_file(file)
            # The file has expired since the files were listed.
            except StoreNotFoundError:
                self.position = file.end
        self.at_end = self.at_end or self.position >= self._log.files_end

    def whole_window(self) -> bytes | None:
        """Return all bytes that a finished walk read, if one window was enough to find the log's end; else None."""
        window = self._window
        if self._window_start != self._start:
            # A walk asks for more bytes than the last records have. If nothing has changed, the first window has them.
            self._forget_window()
            window = self._first_window
        is_whole = len(window) >= self.position - self._start + BLANK_BYTES
        return window if self.at_end and is_whole else None

    def verdict(self) -> WalkVerdict:
        """Return the result of the walk. Call this after the walk has yielded its last record."""
        return WalkVerdict(self.position, self.damage, blank=self.blank)

    def _lose(
        self, file: CommitLogFile, stop: int, reason: str, kind: Kind = Kind.UNREADABLE_RECORD
    ) -> None:
        self.damage.append(file.lost(self.position, stop, reason, kind))
        self.position = stop

    def _walk_file(self, file: CommitLogFile) -> Iterator[LocatedRecord]:
        stop = min(self._stop, file.end)
        # Positions of damage after the last record read.
        tail: list[int] = []
        while self.position < stop:
            try:
                record = self._read(file)
            except SizeMismatchError as error:
                tail.append(self.position)
                # In this record, TOTALSIZE differs from the sum of the parts. The broker continues after the parts,
                # because `CommitLog.checkMessageAndReturnSize` has read them from its buffer. TOTALSIZE changes only a
                # counter of the broker, not its position.
                behind = self.position + error.part_bytes
                self._lose(file, behind, str(error), Kind.RECORD_SIZE_MISMATCH)
            except RecordError as error:
                if self._is_blank(file):
                    self.blank, self.position = self.position, file.end
                    return None
                if self._is_end(file, [*tail, self.position]):
                    return None
                # Data follows these bytes, so they are damage, unless a broker has completed the record here meanwhile.
                if not self._is_written_now(file):
                    return self._lose(file, file.end, str(error))
            # An archive raises this error for bytes that it lacks.
            except CorruptMessageError as error:
                return self._lose(file, file.end, error.reason)
            else:
                tail, size = [], record.layout.total_bytes + file.gap
                if self._in_place and not record.is_in_place():
                    add_out_of_place(self.damage, file, self.position, size)
                else:
                    yield record
                self.position += size
        return None

    def _pass_header(self, file: CommitLogFile) -> None:
        """Skip the header of the first record of a DLedger log. A walk may begin at the header or at the record."""
        with self._log.source.open(file.path) as reader:
            self.position = file.after_header(reader, self.position)

    def _read(self, file: CommitLogFile) -> LocatedRecord:
        """Return the record at the walk's position. Raises RecordError if a broker's reader would stop there."""
        needed = min(_ENOUGH_BYTES, file.end - self.position)
        while True:
            at = self._at(file, needed)
            try:
                layout = locate(self._window, at, len(self._window))
                break
            except ShortBufferError as error:
                needed = error.needed_bytes
                if needed > file.end - self.position or needed <= len(self._window) - at:
                    raise
        record = LocatedRecord(self.position, self._window, layout)
        _check_delay(record)
        return record

    def _at(self, file: CommitLogFile, needed: int) -> int:
        """Return the index of the walk's position in the window.

        If fewer than `needed` bytes of the window follow this position, read a new window first.
        """
        at = self.position - self._window_start
        if not 0 <= at <= len(self._window) - needed:
            # A record may have 2 GiB, so the memory is freed before the next read.
            self._forget_window()
            self._window_start, at = self.position, 0
            stop = min(self._stop + _ENOUGH_BYTES, file.end)
            length = max(min(self._window_bytes, stop - self.position), needed)
            self._window_bytes = min(2 * self._window_bytes, _MOST_WINDOW_BYTES)
            self._window = self._read_from(file, length, needed)
        return at

    def _read_from(self, file: CommitLogFile, length: int, needed: int) -> bytes:
        """Read up to `length` bytes from the walk's position on.

        In an archive, bytes may be missing. Then return only the bytes before the first missing byte. Raise
        CorruptMessageError if fewer than `needed` bytes precede the first missing byte.
        """
        try:
            return self._log.read(file, self.position, length)
        except CorruptMessageError as error:
            readable = error.physical_offset - self.position
            if readable < needed:
                raise
            return self._log.read(file, self.position, readable)

    def _forget_window(self) -> None:
        again = self._window_start - self._start
        if not self._window:
            return
        if not again and len(self._window) <= _FIRST_WINDOW_BYTES:
            self._first_window = self._window
        elif again < 0 or not self._window.startswith(self._first_window[again:]):
            self._first_window = b""
        self._window = b""

    def _is_blank(self, file: CommitLogFile) -> bool:
        if file.gap:
            with self._log.source.open(file.path) as reader:
                return file.is_ledger_end(reader, self.position)
        head = self._head(file, self.position)
        return len(head) == BLANK_BYTES and read_size_and_magic(head, 0)[1] == BLANK_MAGIC

    def _is_written_now(self, file: CommitLogFile) -> bool:
        """Return whether the record at the walk's position became readable since the window was read."""
        self._forget_window()
        try:
            self._read(file)
        except SizeMismatchError:
            return True
        except RecordError:
            return self._is_blank(file)
        return True

    def _is_end(self, file: CommitLogFile, tail: list[int]) -> bool:
        """Return whether the log ends at one of the positions in `tail`. If not, the bytes there are damage."""
        for end in tail:
            if self._is_seen_end(file, end) or not self._data_follows(file, end):
                # Finding the end of the log takes a search through the rest of the file. So the next walk first tests
                # whether this end is still the end.
                self._log.seen_ends[file.path] = end, self._head(file, end)
                self.at_end, self.position = True, end
                self.damage = [lost for lost in self.damage if lost.start < end]
                return True
        return False

    def _is_seen_end(self, file: CommitLogFile, end: int) -> bool:
        """Return whether the end that an earlier walk found is still the end.

        A log grows from its end, so the first new bytes are written at the known end. If the bytes there are unchanged,
        the log still ends there, and the rest of the file need not be searched for a record.
        """
        seen, head = self._log.seen_ends.get(file.path, (end + 1, b""))
        now = self._head(file, end)
        return now == head if seen == end else seen < end and not any(now)

    def _head(self, file: CommitLogFile, physical_offset: int) -> bytes:
        at = physical_offset - self._window_start
        if 0 <= at <= len(self._window) - BLANK_BYTES:
            return self._window[at : at + BLANK_BYTES]
        return self._log.read(file, physical_offset, BLANK_BYTES)

    def _data_follows(self, file: CommitLogFile, tail: int) -> bool:
        stop = file.end
        if not self._log.source.is_local and not any(self._head(file, tail)):
            # A remote file has no holes that could be skipped, so the search would fetch the whole rest of the file.
            stop = min(stop, tail + _REMOTE_ZEROS_BYTES)
        with self._log.source.open(file.path) as reader:
            if find_record(reader, file, tail + 1, stop) is not None:
                return True
        return any(self._has_data(later) for later in self._log.files if later.start >= file.end)

    def _has_data(self, file: CommitLogFile) -> bool:
        source = self._log.source
        try:
            return has_data(source.open, file, is_local=source.is_local)
        except StoreNotFoundError:
            return False


def _check_delay(record: LocatedRecord) -> None:
    """Raise RecordError if DELAY is not a number. A broker's reader stops at such a record."""
    _, data, layout = record
    topic = data[layout.topic_position : layout.topic_position + layout.topic_bytes]
    if layout.topic_bytes == len(_SCHEDULE_TOPIC) and topic == _SCHEDULE_TOPIC:
        try:
            tags_code(SCHEDULE_TOPIC, record.properties(), 0, _NO_DELAYS)
        except ValueError as error:
            raise RecordError(str(error)) from None


def lost_before(log: CommitLogReader, log_end: int, newest: int, whose: str) -> Finding | None:
    """Return a finding if the log cannot be read from `log_end` to the message at `newest`, to which `whose` refers.

    The log may have lost its end. Or unreadable bytes lie between, which a reader takes for the unwritten rest of the
    file if they are zeros. Return None if a record begins at `log_end` now: it was appended after this end was found.

    Raises StoreAccessError, StoreChangedError.
    """
    try:
        log.locate(newest)
    except (MessageNotFoundError, CorruptMessageError):
        return lost_end(log.files, log_end, newest, whose)
    walk = LogWalk(log, log_end, log_end + 1)
    if next(iter(walk), None) is not None or walk.blank is not None:
        return None
    file = log.file_at(log_end) or log.files[-1]
    return Finding(
        Kind.LOST_LOG_END, file.path,
        f"no record begins here, but {whose} refers to a later message; messages from here on are not read",
        physical_offset=log_end, length=newest + 1 - log_end,
    )  # fmt: skip


def newest_timestamp(log: CommitLogReader, log_end: int) -> int | None:
    """Return the newest store timestamp (ms) of the messages in the last 4 KiB before the log's end.

    If no message begins there, read the last 64 KiB, then the last 1 MiB. Return None if none begins there either.

    Raises StoreAccessError, StoreChangedError.
    """
    file = log.file_at(log_end - 1)
    for size in _LAST_BYTES:
        if file is None:
            return None
        start: int | None = max(file.start, log_end - size)
        if start != file.start:
            with log.source.open(file.path) as reader:
                start = find_record(reader, file, log_end - size, log_end)
        if start is not None:
            times = [record.store_timestamp() for record in LogWalk(log, start, log_end)]
            if times:
                return max(times)
    return None


_LEAST_STEP_BYTES, _RECORDS = 64 << 10, 16


def sampled_records(
    log: CommitLogReader, within: OffsetRange, places: int, records: int = _RECORDS
) -> Iterator[LocatedRecord]:
    """Yield at most `records` consecutive records from each of several places at equal distances.

    The first place is the start of the range itself if a record begins there, as at the beginning of a log.

    Raises StoreAccessError.
    """
    step = max(within.size_bytes // places, _LEAST_STEP_BYTES)
    for at in range(within.start, within.stop, step):
        file = log.file_at(at)
        # The file has expired.
        if file is None:
            continue
        with suppress(StoreError), log.source.open(file.path) as reader:
            start: int | None = file.start + file.gap
            if at not in (start, log.min_offset):
                start = find_record(reader, file, at, file.end)
            if start is not None:
                yield from islice(LogWalk(log, start, within.stop), records)
