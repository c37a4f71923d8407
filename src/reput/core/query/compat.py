"""Answer queries by key exactly as a 4.9.3 broker does.

The answers also reproduce what looks wrong: the broker's limit and order, times in whole seconds, searches that stop
early, and messages of other keys with the same hash. `BrokerView` is the CommitLog as a broker sees it after its start.
In its queries, the broker trusts a record's size, and checks neither its magic code nor its CRC. At its start, it ends
the log at the first record in the last three files that is unreadable or has a wrong CRC.

Mirrors `IndexService.queryOffset`, `IndexFile.selectPhyOffset`, `DefaultMessageStore.queryMessage`,
`CommitLog.lookMessageByOffset`, `.getData`, `.recoverNormally` and `MessageDecoder.decode` (tag rocketmq-all-4.9.3). A
chain that would keep the broker in an endless loop is cut off after as many steps as the file has items.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from threading import Lock

from reput.core.index.reader import IndexFileReader
from reput.core.log.ends import recovered_end
from reput.core.log.files import CommitLogFile
from reput.core.query.answers import (
    ANY_OFFSET,
    IndexQuestion,
    QueryMessageResult,
    QueryOffsetResult,
)
from reput.core.store.store_reader import StoreReader
from reput.errors import MessageNotFoundError, UsageError
from reput.format.commit_log import (
    BLANK_BYTES,
    HEAD,
    HEADS,
    MESSAGE_MAGIC_V2,
    PROPERTIES,
    SYS_FLAG_HOSTS_V6,
    TOPIC_V1,
    TOPIC_V2,
    RecordError,
    locate,
)
from reput.format.host import decode_host
from reput.format.index_file import IndexHeader, index_key, key_hash
from reput.format.java_string import wrap_int64

# A broker checks the records of the last three files at its start (`CommitLog.recoverNormally`).
_RECOVERED_FILES = 3
# Bytes per read. Most records are shorter.
_READ_BYTES = 1024
# `Effort` limits the number of steps of a search. Reading a record counts as one step for each full 4 KiB of it.
_STEP_BITS = 12
_SIZE = HEAD.reader("total_bytes")
_FLAG = HEAD.reader("sys_flag")
# The fields of a head that the decoder examines, by the flags of the record's hosts.
_DECODED = {
    flags: head.reader("magic", "born_host", "store_timestamp", "store_host", "body_bytes")
    for flags, head in HEADS.items()
}
_MAX_PORT = 65535
# DefaultMessageStore.queryMessage makes at most three passes.
_PASSES = 3


class UnreadableError(ValueError):
    """Raised where the broker's reader throws."""


class EffortError(Exception):
    """Raised if an answer takes more steps than its caller allows."""


class Effort:
    """The number of steps that an answer may still take. A step is an IndexFile, an item, or 4 KiB of records."""

    def __init__(self, most: int) -> None:
        self._steps = most

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises EffortError if too few are left."""
        self._steps -= steps
        if self._steps < 0:
            raise EffortError


class KnownEnd:
    """The end of a log. All readers of a store share it, because finding it takes a walk over the last files.

    Attributes:
        state: the log files at the time of the last search, and the end that it found
        guard: lock of the reader that searches for a later end
    """

    def __init__(self) -> None:
        self.state: tuple[tuple[CommitLogFile, ...], int] = ((), 0)
        self.guard = Lock()


class BrokerView:
    """Answers from a store as its broker would, and reads single messages of its log by physical offset.

    The end of the log and the last read bytes are remembered until `begin` is called.
    """

    def __init__(
        self,
        store: StoreReader,
        shared_end: KnownEnd | None = None,
    ) -> None:
        """View a store as a broker does. All readers of the store share `shared_end`."""
        self._store, self._log = store, store.commit_log
        self._shared_end = shared_end or KnownEnd()
        self._end: int | None = None
        self._last_read: tuple[int, bytes] = (-1, b"")
        self._effort: Effort | None = None

    def begin(self, effort: Effort | None = None) -> None:
        """Drop the results of earlier reads, because the log may have changed.

        `effort` limits the total number of steps of all later reads. With `effort`, the method `end` raises EffortError
        if it would have to search for the end of the log.
        """
        self._end, self._last_read, self._effort = None, (-1, b""), effort

    def end(self) -> int:
        """Return the offset at which a broker that starts now would end the log."""
        if self._end is None:
            self._end = self._find_end()
        return self._end

    def _find_end(self) -> int:
        now = self._log.files
        files, end = self._shared_end.state
        if (files is now or files == now) and self._is_unwritten(end):
            # Nothing was appended since the end was found. Later calls need not compare the files one by one.
            self._shared_end.state = now, end
            return end
        if self._effort is not None:
            # A search for the end takes an unknown number of steps. Do not begin it if steps are limited.
            raise EffortError
        with self._shared_end.guard:
            # Another reader may have found the end while this one waited for the lock.
            files, end = self._shared_end.state
            floor = now[-_RECOVERED_FILES:][0].start
            # If the files before `end` are the same as in the last search, check only the bytes after `end`, where
            # messages may have been appended.
            has_same_files = all(
                file in files for file in now if file.end > floor and file.start < end
            )
            start = max(floor, end) if has_same_files else floor
            end = recovered_end(self._log, start, whole_records=self._store.config.check_record_crc)
            self._shared_end.state = now, end
        return end

    def _is_unwritten(self, physical_offset: int) -> bool:
        """Return whether nothing is written at an offset yet. This takes only one small read."""
        file = self._log.file_at(physical_offset)
        blank = bytes(BLANK_BYTES)
        return file is not None and self._log.read(file, physical_offset, BLANK_BYTES) == blank

    def store_timestamp(self, physical_offset: int) -> int | None:
        """Return the store time of the message that `lookMessageByOffset` returns; None if that method returns null.

        If the beginning of the log has expired, offset 0 means the first remaining message. Raises UnreadableError,
        StoreAccessError.
        """
        place = self._place(physical_offset)
        if place is None and physical_offset == 0:
            physical_offset = self._log.min_offset
            place = self._place(physical_offset)
        if place is None:
            return None
        file, end = place
        if physical_offset + _SIZE.size > end:
            return None
        size = self._size(file, physical_offset)
        if size < 0:
            raise UnreadableError(f"impossible size of {size} bytes")
        if physical_offset + size > end:
            return None
        return _decoded_timestamp(self._read(file, physical_offset, size))

    def message_size(self, physical_offset: int) -> int | None:
        """Return the size of the message that `getData` returns; None if that method returns null.

        Raises UnreadableError, StoreAccessError.
        """
        place = self._place(physical_offset)
        if place is None:
            return None
        file, end = place
        if physical_offset + _SIZE.size > end:
            raise UnreadableError("too few bytes for the size field of a record")
        size = self._size(file, physical_offset)
        if not 0 <= size <= end - physical_offset:
            raise UnreadableError(f"impossible size of {size} bytes")
        return size

    def _place(self, physical_offset: int) -> tuple[CommitLogFile, int] | None:
        """Return the file that contains an offset, and the offset at which a broker stops reading this file.

        Return None if a broker reads nothing at the given offset.
        """
        file = self._log.file_at(physical_offset)
        if file is None:
            return None
        end = file.end
        if file in self._log.files[-_RECOVERED_FILES:]:
            end = min(end, self.end())
        return (file, end) if physical_offset < end else None

    def _size(self, file: CommitLogFile, physical_offset: int) -> int:
        size: int = _SIZE.unpack(self._read(file, physical_offset, _SIZE.size))[0]
        if self._effort is not None:
            self._effort.spend(max(size, 0) >> _STEP_BITS)
        return size

    def record(self, physical_offset: int) -> bytes:
        """Return the bytes of the record that begins at an offset. Raises as `CommitLogReader.get` does.

        A broker does not compare the physical offset that the record states.
        """
        begin, data = self._last_read
        if begin == physical_offset:
            with suppress(RecordError):
                layout = locate(data, 0, len(data))
                return data[: layout.total_bytes]
        return self._log.locate(physical_offset, in_place=False).record()

    def _read(self, file: CommitLogFile, physical_offset: int, length: int) -> bytes:
        """Return bytes of a file. Several calls for one record read the file once."""
        begin, data = self._last_read
        if begin != physical_offset or len(data) < length:
            data = self._log.read(file, physical_offset, max(length, _READ_BYTES))
            self._last_read = physical_offset, data
        return data if len(data) == length else data[:length]

    def query_offset(
        self, question: IndexQuestion, effort: Effort | None = None
    ) -> QueryOffsetResult:
        """Answer as IndexService.queryOffset does.

        Raises EffortError, and UsageError where the broker throws (a negative `max_num`).
        """
        topic, key, max_num, begin, end, before = question
        if max_num < 0:
            raise UsageError(f"max_num must be at least 0, not {max_num}", arguments=["max_num"])
        max_num = min(max_num, self._store.config.max_query_messages)
        target_hash = key_hash(index_key(topic, key))
        offsets: list[int] = []
        last: IndexHeader | None = None
        for file in reversed(self._store.index.current()):
            if effort is not None:
                effort.spend()
            header = file.header()
            last = last or header
            if is_time_matched(header, begin, end) and header.begin_physical_offset < before:
                selected = _selected(file, header, target_hash, begin, end, before, effort)
                offsets += islice(selected, max_num - len(offsets))
            # Older files cannot contain newer messages unless a clock was set back. The broker stops here even then.
            if header.begin_timestamp < begin or len(offsets) >= max_num:
                break
        if last is None:
            return QueryOffsetResult(())
        return QueryOffsetResult(tuple(offsets), last.end_timestamp, last.end_physical_offset)

    def query_message(
        self, question: IndexQuestion, effort: Effort | None = None
    ) -> QueryMessageResult:
        """Return the messages to which the index leads, including hash collisions (DefaultMessageStore.queryMessage).

        Raises StoreAccessError, EffortError, and UsageError where the broker throws.
        """
        self.begin(effort)
        answer = QueryMessageResult(())
        for _ in range(_PASSES):
            found = self.query_offset(question, effort)
            if not found.physical_offsets:
                break
            handed_out, size_bytes, end = self._hand_out(
                sorted(found.physical_offsets), question.end
            )
            answer = QueryMessageResult(
                answer.physical_offsets + tuple(handed_out),
                found.index_last_update_timestamp,
                found.index_last_update_physical_offset,
            )
            if size_bytes > 0 or end < question.begin:
                break
            question = question._replace(end=end)
        return answer

    def query_records(
        self, question: IndexQuestion, max_bytes: int, effort: Effort | None = None
    ) -> tuple[QueryMessageResult, list[bytes], bool]:
        """Return the stored records of the messages that `query_message` finds. Expired records are skipped.

        If all records together exceed `max_bytes`, only the newest records are returned, but at least one. The last
        value of the result states whether records were omitted for this reason. Raises CorruptMessageError, and the
        errors of `query_message`.
        """
        found = self.query_message(question, effort)
        records, budget_bytes = list[bytes](), max_bytes
        for offset in reversed(found.physical_offsets):
            with suppress(MessageNotFoundError):
                records.append(self.record(offset))
                budget_bytes -= len(records[-1])
                if budget_bytes < 0 and len(records) > 1:
                    return found, records[-2::-1], True
        return found, records[::-1], False

    def quick_records(
        self, question: IndexQuestion, max_bytes: int, most_steps: int
    ) -> tuple[QueryMessageResult, list[bytes], bool] | None:
        """Return the answer of `query_records`; None if it takes more than `most_steps` steps."""
        try:
            return self.query_records(question, max_bytes, Effort(most_steps))
        except EffortError:
            return None

    def _hand_out(self, offsets: list[int], end: int) -> tuple[list[int], int, int]:
        """Read the messages that one pass of the loop in `DefaultMessageStore.queryMessage` has found.

        Return the offsets of messages that belong to the answer, their total size, and the end of the time window for
        the next pass.
        """
        handed_out, size_bytes = [], 0
        for number, offset in enumerate(offsets):
            try:
                if number == 0:
                    timestamp = self.store_timestamp(offset)
                    if timestamp is None:
                        # `lookMessageByOffset` returns null here. The broker's loop catches the NullPointerException,
                        # and continues with the next offset.
                        continue
                    end = timestamp
                size = self.message_size(offset)
            except UnreadableError:
                continue
            if size is not None:
                handed_out.append(offset)
                size_bytes += size
        return handed_out, size_bytes, end


def _decoded_timestamp(data: bytes) -> int | None:
    """Return the STORETIMESTAMP of a message if MessageDecoder.decode could read the message from these bytes."""
    try:
        return _decode(data)
    except (struct.error, IndexError):
        return None


def _decode(data: bytes) -> int | None:
    head = _DECODED[_FLAG.unpack_from(data)[0] & SYS_FLAG_HOSTS_V6]
    magic, born_host, timestamp, store_host, body_bytes = head.unpack_from(data)
    # `InetSocketAddress` refuses ports that are negative or above 65535, so Java's MessageDecoder returns null.
    if any(not 0 <= decode_host(host).port <= _MAX_PORT for host in (born_host, store_host)):
        return None
    # The decoder treats a negative length of the body as 0.
    topic_at = head.size + max(body_bytes, 0)
    topic_length = TOPIC_V2 if magic == MESSAGE_MAGIC_V2 else TOPIC_V1
    topic_bytes = topic_length.unpack_from(data, topic_at)[0]
    if topic_bytes < 0:
        # `new byte[length]` throws for a negative length, so the decoder returns null.
        return None
    properties_at = topic_at + topic_length.size + topic_bytes
    properties_bytes = max(PROPERTIES.unpack_from(data, properties_at)[0], 0)
    return timestamp if properties_at + PROPERTIES.size + properties_bytes <= len(data) else None


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Return whether a file's times overlap the window (IndexFile.isTimeMatched)."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def select_physical_offsets(
    file: IndexFileReader, target_hash: int, max_num: int, begin: int, end: int
) -> list[int]:
    """Return what IndexFile.selectPhyOffset finds in one file: physical offsets of a hash in a time window.

    Raises StoreAccessError.

    In RocketMQ: timeMatched.
    """
    selected = _selected(file, file.header(), target_hash, begin, end)
    return list(islice(selected, max(max_num, 0)))


def _selected(
    file: IndexFileReader,
    header: IndexHeader,
    target_hash: int,
    begin: int,
    end: int,
    before: int = ANY_OFFSET,
    effort: Effort | None = None,
) -> Iterator[int]:
    """Yield what IndexFile.selectPhyOffset finds before an offset: physical offsets of a hash in the time window."""
    item, count = file.slot(target_hash % file.hash_slots), header.next_item
    if not 0 < item <= count or count <= 1:
        return
    # A damaged chain may be a circle, so the steps are counted.
    for _ in range(count):
        if item >= file.index_items:
            return
        if effort is not None:
            effort.spend()
        item_hash, offset, time_diff_s, previous = file.item(item)
        if time_diff_s < 0:
            return
        # The broker knows times only in whole seconds after the file's begin timestamp.
        timestamp = wrap_int64(header.begin_timestamp + time_diff_s * 1000)
        if item_hash == target_hash and begin <= timestamp <= end and offset < before:
            yield offset
        if not 0 < previous <= count or previous == item or timestamp < begin:
            return
        item = previous
