"""Write the CommitLog: records at the end of the log, blanks at the ends of files.

A blank is a filler record between the last message and the end of a file. Mirrors `CommitLog.asyncPutMessage` and
`.DefaultAppendMessageCallback.doAppend` (tag rocketmq-all-4.9.3). A record is written only if a blank fits after it.
Otherwise a blank ends the file, and the record begins the next file. Prepared and rolled-back messages take no queue
offset: their records state 0. `RecordForm` and `batch_size` describe the differences of 5.x.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from threading import Lock
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from reput.base import StoreConfig
from reput.core import Queue
from reput.engine.writer.owner import second_owner
from reput.engine.writer.put.batches import batch_size, with_base
from reput.engine.writer.put.columns import PutColumns, PutColumnsResult, as_array
from reput.engine.writer.put.log_files import LogFiles
from reput.engine.writer.put.message import (
    Message,
    PutResult,
    as_plain,
    check_queue_id,
    encode_born_host,
    properties_string,
)
from reput.engine.writer.put.record_form import RecordForm, magic_of, with_crc, with_length
from reput.engine.writer.put.routing import delayed, further_queues, light_queues, with_offsets
from reput.engine.writer.threads import Health
from reput.errors import MessageRefusedError, ReputError, UsageError
from reput.format.commit_log import (
    BLANK_BYTES,
    HEADS,
    SIZE_AND_MAGIC,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_PREPARED,
    SYS_FLAG_STORE_HOST_V6,
    encode_blank,
    join_record,
    record_bytes,
)
from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES, Host, encode_host
from reput.format.message_id import UniqueKeys, encode_offset_id
from reput.kernels.record_layout import lay_out_records

# The store sets these bits, because they must agree with the lengths of the hosts in the record.
_HOST_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_MOST_TOPICS = 1 << 16
_HEAD_BYTES = SIZE_AND_MAGIC.size
_NO_HEAD = bytes(_HEAD_BYTES)
_OFFSET_BYTES = 8
_OFFSET_DIGITS = 2 * _OFFSET_BYTES
_WINDOW_BYTES = 8 << 20  # Number of bytes that a put of columns prepares and writes at a time.
_new = tuple.__new__


class PutUnderWay(NamedTuple):
    """Records of a put in progress. They are in the log once size and magic of the first record are written.

    end           physical offset at which the last record ends
    next_offsets  the next queue offset of each queue of the records
    heads         for each record after the first: its physical offset, and its size and magic
    """

    end: int
    store_timestamp: int
    next_offsets: tuple[tuple[tuple[str, int], int], ...]
    heads: Sequence[tuple[int, bytes]] = ()


class _JoinedRecords:
    """Consecutive records that are written together at the end of the log.

    end           physical offset at which the last record ends
    next_offsets  the next queue offset of each queue of the records
    """

    __slots__ = ("end", "head", "heads", "next_offsets", "parts")

    def __init__(self, begin: int) -> None:
        self.end = begin
        self.head = b""
        self.heads: list[tuple[int, bytes]] = []
        self.parts: list[bytes] = []
        self.next_offsets: dict[tuple[str, int], int] = {}

    def add(self, head: bytes, rest: bytes) -> None:
        """Add a record. `head` is its size and magic, `rest` the other bytes."""
        if self.parts:
            self.heads.append((self.end, head))
            self.parts.append(_NO_HEAD)
        else:
            self.head = head
        self.parts.append(rest)
        self.end += _HEAD_BYTES + len(rest)


class ColumnsUnderWay(NamedTuple):
    """The state of a put of many records, while the put is in progress.

    progress      int64[2]: number of records of the put that are already in the log, and physical offset at which the
                  last one ends
    queues        the queues of the records
    next_offsets  int64[n]: next queue offset of each of these queues
    """

    progress: npt.NDArray[np.int64]
    store_timestamp: int
    queues: list[Queue]
    next_offsets: npt.NDArray[np.int64]


class CommitLogWriter:
    """Appends to the log. Any thread may put, until the writer is closed.

    An asynchronous exception (Ctrl-C) never leaves an unfinished put. The writer notes the put in progress. If the put
    is interrupted, the next thread that takes the lock finishes it. If the record's size and magic are written, the
    record is in the log, and the thread sets the new position. Otherwise the thread clears the record's bytes.

    position         physical offset at which the last record ends
    store_timestamp  store time of the last message, ms
    form             form of the records
    queue_offsets    next queue offset of each queue
    """

    def __init__(
        self,
        files: LogFiles,
        position: int,
        queue_offsets: dict[tuple[str, int], int],
        config: StoreConfig,
        health: Health,
        unique_keys: UniqueKeys,
        store_host: Host,
        clock_ms: Callable[[], int],
        on_append: Callable[[int], None],
        batch_topics: Collection[str] = (),
    ) -> None:
        self._files, self.position, self.queue_offsets = files, position, queue_offsets
        self._health, self._unique_keys = health, unique_keys
        self._clock_ms, self._on_append = clock_ms, on_append
        self.max_message_bytes = min(config.max_message_bytes, files.file_bytes - BLANK_BYTES)
        self._window_bytes = max(_WINDOW_BYTES, self.max_message_bytes + BLANK_BYTES)
        self.delay_levels = len(config.delay_table_ms())
        self.form, self._batch_topics = RecordForm.of(config), batch_topics
        self._lmq = config.enable_lmq
        is_five = self.form.is_five
        self.has_further_queues = config.enable_lmq if is_five else config.enable_multi_dispatch
        self._store_host = encode_host(store_host)
        self.id_prefix = encode_offset_id(store_host, 0)[:-_OFFSET_DIGITS]
        self._store_flag = SYS_FLAG_STORE_HOST_V6 if len(self._store_host) == HOST_V6_BYTES else 0
        files.begin(position)
        self._heads = {
            HOST_V4_BYTES: HEADS[self._store_flag],
            HOST_V6_BYTES: HEADS[self._store_flag | SYS_FLAG_BORN_HOST_V6],
        }
        self._topics: dict[tuple[str, int], tuple[int, bytes]] = {}
        self._lock = Lock()
        self._under_way: PutUnderWay | ColumnsUnderWay | None = None
        self._is_closed = False
        self.store_timestamp = 0

    def put(self, message: Message) -> PutResult:
        """Put one message. Raises MessageRefusedError, StoreFailedError, StoreAccessError."""
        further: list[tuple[str, int]] | None = None
        message = as_plain(message)
        if message.properties:
            message = delayed(message, self.delay_levels, self.form)
            if self.has_further_queues:
                further = self._further_queues(message)
        count = 1
        if self.form.is_five:
            count = batch_size(message, self._batch_topics)
        # This tuple equals a Queue, and is faster to create.
        queue = message.topic, message.queue_id
        magic, topic = self._topics.get(queue) or self._encode_topic(queue)
        body = message.body
        # A broker clears the sign bit of the CRC.
        crc = crc32(body) & 0x7FFFFFFF
        with self._lock:
            # Test the conditions of `_check` here, because a call would slow down every put.
            if (
                self._under_way is not None
                or self.position < self._files.start
                or self._is_closed
                or self._health.reason is not None
            ):
                self._check()
            now = self._clock_ms()
            ends: tuple[tuple[tuple[str, int], int], ...] = ()
            if further is not None:
                offsets = [self.queue_offsets.get(name, 0) for name in further]
                message = with_offsets(message, offsets, self.form)
                # In a 5.x broker, a prepared message takes queue offsets in the queues of INNER_MULTI_DISPATCH. In a
                # 4.9 broker, it does not.
                if self.form.is_five or not message.sys_flag & SYS_FLAG_PREPARED:
                    ends = tuple((name, at + 1) for name, at in zip(further, offsets, strict=True))
            if message.sys_flag & SYS_FLAG_INNER_BATCH and self.form.is_five:
                message = with_base(message, self.queue_offsets.get(queue, 0), self.form)
            properties = properties_string(message, self._unique_keys, now, self.form)
            if self.form.has_crc:
                properties += bytes(self.form.crc_bytes)
            place = self._append(message, queue, crc, now, magic, topic, properties, ends, count)
            position, number = place
            end = self.position
        # Call this without the lock: it may sleep to let dispatch proceed.
        self._on_append(end)
        return self._result(position, number, now)

    def put_run(self, messages: Sequence[Message]) -> list[PutResult | ReputError]:
        """Put several messages in one call.

        Each message must go to only one queue, have no delay, and have its properties as bytes.

        Return the result or the error of each message: a refused message does not stop the others. Raises
        StoreFailedError if the store accepts no more messages.
        """
        results: list[PutResult | ReputError] = []
        with self._lock:
            self._check()
            now = self._clock_ms()
            run, written = _JoinedRecords(self.position), 0
            try:
                for message in messages:
                    try:
                        magic, topic, properties, size = self._measured(message, now)
                        if size + BLANK_BYTES > self._files.end - run.end:
                            self._write_run(run, now)
                            written = len(results)
                            self._roll()
                            run = _JoinedRecords(self.position)
                        results.append(self._add(run, message, magic, topic, properties, size, now))
                    except MessageRefusedError as error:
                        results.append(error)
                self._write_run(run, now)
            # A write failed, for example because the disk is full. Messages that were not written yet get this error.
            except ReputError as error:
                results[written:] = [error] * (len(messages) - written)
            end = self.position
        self._on_append(end)
        return results

    def _measured(self, message: Message, now: int) -> tuple[int, bytes, bytes, int]:
        """Return magic, topic, properties and size of a record. Raises MessageRefusedError."""
        form, queue = self.form, (message.topic, message.queue_id)
        if form.is_five:
            batch_size(message, self._batch_topics)
        magic, topic = self._topics.get(queue) or self._encode_topic(queue)
        properties = properties_string(message, self._unique_keys, now, form)
        if form.has_crc:
            properties += bytes(form.crc_bytes)
        return magic, topic, properties, self._size(message, topic, properties)

    def _add(
        self,
        run: _JoinedRecords,
        message: Message,
        magic: int,
        topic: bytes,
        properties: bytes,
        size: int,
        now: int,
    ) -> PutResult:
        """Add a message's record to records that are written together. Raises MessageRefusedError."""
        counts = not message.sys_flag & SYS_FLAG_PREPARED
        queue, number, position = (message.topic, message.queue_id), 0, run.end
        if counts:
            number = run.next_offsets.get(queue) or self.queue_offsets.get(queue, 0)
        crc = crc32(message.body) & 0x7FFFFFFF
        record = self._record(message, crc, now, magic, topic, properties, number, position, size)
        if counts:
            run.next_offsets[queue] = number + 1
        run.add(*record)
        return self._result(position, number, now)

    def _write_run(self, run: _JoinedRecords, now: int) -> None:
        if run.parts:
            ends = tuple(run.next_offsets.items())
            self._write(run.head, b"".join(run.parts), now, ends, run.heads)

    def _result(self, position: int, number: int, now: int) -> PutResult:
        # Creating the tuple and the digits of its message id in this way takes half the time of PutResult(...).
        message_id = self.id_prefix + position.to_bytes(_OFFSET_BYTES).hex().upper()
        return _new(PutResult, (position, number, message_id, now))

    def _further_queues(self, message: Message) -> list[tuple[str, int]] | None:
        if self.form.is_five:
            return light_queues(message)
        return further_queues(message, self._lmq) or None

    def _append(
        self,
        message: Message,
        queue: tuple[str, int],
        crc: int,
        now: int,
        magic: int,
        topic: bytes,
        properties: bytes,
        ends: tuple[tuple[tuple[str, int], int], ...],
        count: int,
    ) -> tuple[int, int]:
        """Write the record; return its physical offset and its queue offset.

        Args:
            message: The message as it is stored.
            queue: Its topic and queue id.
            crc: CRC of the body.
            now: Store timestamp, ms.
            magic: Magic of the record.
            topic: Encoded topic with its length prefix.
            properties: Encoded properties, with room for the record's CRC.
            ends: The next queue offset, after this record, in each queue of INNER_MULTI_DISPATCH that gets the message.
            count: Number of queue offsets that the record takes in its own queue.
        """
        counts = not message.sys_flag & SYS_FLAG_PREPARED
        number = self.queue_offsets.get(queue, 0) if counts else 0
        size = self._size(message, topic, properties)
        if size + BLANK_BYTES > self._files.end - self.position:
            self._roll()
        position = self.position
        head, rest = self._record(
            message, crc, now, magic, topic, properties, number, position, size
        )
        if counts:
            ends = ((queue, number + count), *ends)
        self._write(head, rest, now, ends)
        return position, number

    def _size(self, message: Message, topic: bytes, properties: bytes) -> int:
        """Return the size of a message's record in bytes. Raises MessageRefusedError if it is too large."""
        born_host = message.born_host
        host = self._store_host if born_host is None else encode_born_host(born_host)
        size = record_bytes(self._heads[len(host)], len(message.body), len(topic), len(properties))
        if size > self.max_message_bytes:
            raise self._too_large(size)
        return size

    def _record(
        self,
        message: Message,
        crc: int,
        now: int,
        magic: int,
        topic: bytes,
        properties: bytes,
        number: int,
        position: int,
        size: int,
    ) -> tuple[bytes, bytes]:
        """Return a record in two parts: size and magic, and the rest. Raises MessageRefusedError."""
        body, born, born_host = message.body, message.born_timestamp, self._store_host
        sys_flag = message.sys_flag & ~_HOST_FLAGS | self._store_flag
        if message.born_host is not None:
            born_host = encode_born_host(message.born_host)
        if len(born_host) == HOST_V6_BYTES:
            sys_flag |= SYS_FLAG_BORN_HOST_V6
        try:
            head = self._heads[len(born_host)].struct.pack(
                size, magic, crc, message.queue_id, message.flag, number, position, sys_flag,
                now if born is None else born, born_host, now, self._store_host,
                message.reconsume_times, message.prepared_transaction_offset, len(body),
            )  # fmt: skip
            rest = join_record(head[_HEAD_BYTES:], body, topic, properties)
        except struct.error as error:
            raise MessageRefusedError(
                f"a number does not fit its field of the record: {error}"
            ) from None
        if self.form.has_crc:
            rest = with_crc(head[:_HEAD_BYTES] + rest)[_HEAD_BYTES:]
        return head[:_HEAD_BYTES], rest

    def _write(
        self,
        head: bytes,
        rest: bytes,
        now: int,
        ends: tuple[tuple[tuple[str, int], int], ...],
        heads: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """Write a record that fits into the last file, and set the new position. `head` is its size and magic.

        `rest` may contain further records, with zeros in place of their sizes and magics. `heads` contains these sizes
        and magics.
        """
        files, end = self._files, self.position + _HEAD_BYTES + len(rest)
        if end > files.mark:
            files.prepare(end)
        start, stop = self.position - files.start, end - files.start
        data = files.file.data
        self._under_way = _new(PutUnderWay, (end, now, ends, heads))
        # Write size and magic last, so that no reader mistakes a partial record for a complete one. Write the sizes and
        # magics of several records in log order. Otherwise a killed process could leave a valid record after a gap.
        data[start + _HEAD_BYTES : stop] = rest
        data[start : start + _HEAD_BYTES] = head
        if heads:
            self._write_heads(heads)
        # Do the same as `_settle`, but faster. Set the position last: it shows `_settle` that the put is finished.
        if len(ends) == 1:
            ((queue, queue_end),) = ends
            self.queue_offsets[queue] = queue_end
        else:
            self.queue_offsets.update(ends)
        self.store_timestamp = now
        self.position = end
        self._under_way = None

    def _write_heads(self, heads: Sequence[tuple[int, bytes]]) -> None:
        data, begin = self._files.file.data, self._files.start
        for position, head in heads:
            data[position - begin : position - begin + _HEAD_BYTES] = head

    def put_columns(self, columns: PutColumns, in_one_file: bool = False) -> PutColumnsResult:
        """Put many messages with one store timestamp, in the order of their rows. Raises as `put` does.

        If the disk becomes full, earlier messages are put, and the rest are not. With `in_one_file`, either all
        messages are put or none.
        """
        total = columns.check(len(self._store_host), self.max_message_bytes)
        if in_one_file and total > self.max_message_bytes:
            raise self._too_large(total)
        with self._lock:
            self._check()
            now = self._clock_ms()
            arrays = columns.finish(self._unique_keys, now)
            next_offset = columns.next_offsets(self.queue_offsets)
            result = PutColumnsResult.of(len(columns.rows), now)
            store_host = as_array(self._store_host)
            if in_one_file and total + BLANK_BYTES > self._files.end - self.position:
                self._roll()
            progress = np.array([0, self.position])
            self._under_way = ColumnsUnderWay(progress, now, columns.queues, next_offset)
            try:
                while progress[0] < len(columns.rows):
                    start = self._files.start
                    window = min(total + BLANK_BYTES, self._window_bytes)
                    # Each call of `lay_out_records` fills only one window of the file, so that dispatch can begin
                    # before the last record is written.
                    end = min(self.position + window, self._files.end)
                    if end > self._files.mark:
                        self._files.prepare(end)
                    where = (self._files.file.array[: end - start], start, progress)
                    filled = (result.physical_offset, result.queue_offset)
                    lay_out_records(
                        *(*where, columns.rows, *arrays, store_host, now, next_offset, *filled),
                        self.form.is_five, self.form.has_crc,
                    )  # fmt: skip
                    self.position = int(progress[1])
                    self._on_append(self.position)
                    if progress[0] < len(columns.rows) and end == self._files.end:
                        self._roll()
                        progress[1] = self.position
            finally:
                self._settle()
        return result

    def check_end(self) -> None:
        """Raise StoreFailedError if another process has written after the last record.

        Nothing is checked while a put is in flight.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            at = self.position - self._files.start
            is_idle = self._under_way is None and not self._is_closed and at >= 0
            if is_idle and any(self._files.file.data[at : at + _HEAD_BYTES]):
                raise second_owner(self._files.file.path)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Refuse further messages. Return when no put is in flight."""
        with self._lock:
            self._settle()
            self._is_closed = True

    def put_back_files(self) -> None:
        """Restore log files that another process deleted, so that no acknowledged message is lost.

        Call this only after the writer has stopped accepting messages. Raises StoreAccessError.
        """
        with self._lock:
            self._settle()
            self._files.put_back()

    def disown(self) -> None:
        """Accept no more messages in a forked child.

        The lock is replaced: if a thread of the parent held it at the fork, nobody would release the child's copy.
        """
        self._is_closed, self._lock = True, Lock()

    def _check(self) -> None:
        """Raise UsageError if the writer is closed, StoreFailedError if an earlier operation failed."""
        if self._under_way is not None or self.position < self._files.start:
            self._settle()
        if self._is_closed:
            raise UsageError("the store is closed")
        if self._health.reason is not None:
            self._health.check()

    def _settle(self) -> None:
        """Finish an interrupted put. The position moves past its complete records. An incomplete record is cleared.

        If `_settle` is interrupted, the next thread that takes the lock calls `_settle` again. So every step must be
        safe to run twice.
        """
        files, put = self._files, self._under_way
        # The interrupted put has created the next file, but perhaps not written the blank at the end of this one.
        if self.position < files.start:
            self._end_file()
        if isinstance(put, ColumnsUnderWay):
            self.queue_offsets.update(zip(put.queues, put.next_offsets.tolist(), strict=True))
            self.store_timestamp = put.store_timestamp
            self.position = max(self.position, int(put.progress[1]))
        elif put is not None and self.position < put.end:
            data, start, stop = files.file.data, self.position - files.start, put.end - files.start
            # Size and magic, which are written last, are missing. So the record is not in the log. Clear its other
            # bytes, or they could become part of a later record.
            if data[start : start + _HEAD_BYTES] == _NO_HEAD:
                data[start:stop] = bytes(stop - start)
            else:
                self._write_heads(put.heads)
                self.queue_offsets.update(put.next_offsets)
                self.store_timestamp, self.position = put.store_timestamp, put.end
        self._under_way = None

    def _roll(self) -> None:
        """End the file with a blank, and begin the next file."""
        self._files.roll()
        self._end_file()

    def _end_file(self) -> None:
        """Write the blank after the last record.

        Call this only when the next file exists, so that a failure to create the next file changes nothing.
        """
        at = self.position % self._files.file_bytes
        ended = self._files.opened(self.position - at)
        ended.data[at : at + BLANK_BYTES] = encode_blank(self._files.file_bytes - at)
        self.position = self._files.start

    def _encode_topic(self, queue: tuple[str, int]) -> tuple[int, bytes]:
        """Return the magic code, and the length-prefixed topic, of the records of a queue."""
        topic, queue_id = queue
        check_queue_id(queue_id)
        data = self.form.encode_topic(topic)
        # Limit the memory of the cache.
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
        encoded = with_length(data)
        self._topics[queue] = found = magic_of(encoded), encoded
        return found

    def _too_large(self, size: int) -> MessageRefusedError:
        return MessageRefusedError(
            f"message of {size} bytes: at most {self.max_message_bytes} bytes fit "
            "(maxMessageSize, and the size of a CommitLog file)"
        )
