"""CommitLog, the writing side: records at the end of the log, blanks at the ends of files.

Mirrors `CommitLog.asyncPutMessage`, `.DefaultAppendMessageCallback.doAppend` (tag rocketmq-all-4.9.3). A record is
written only where a blank fits behind it; else the blank ends the file, and the record begins the next. Prepared and
rolled-back messages do not count in their queue: their queue offset is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from threading import Lock
from zlib import crc32

from reput.config import StoreConfig
from reput.errors import MessageRefusedError
from reput.format.commit_log import (
    BLANK_BYTES,
    MESSAGE_MAGIC,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_PREPARED,
    SYS_FLAG_STORE_HOST_V6,
    encode_blank,
)
from reput.format.host import HOST_V6_BYTES, Host, encode_host
from reput.format.message_id import encode_offset_id
from reput.format.record_parts import SIZE_AND_MAGIC, TOPIC_V1, join_record
from reput.format.unique_key import UniqueKeys
from reput.kernels.record_layout import lay_out_records
from reput.store.health import Health
from reput.store.put.columns import PutColumns, PutColumnsResult, as_array
from reput.store.put.log_files import LogFiles
from reput.store.put.message import (
    Message,
    PutResult,
    check_queue_id,
    encode_topic,
    properties_string,
)

_HOST_FLAGS = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_MOST_TOPICS = 1 << 16
_HEAD_BYTES = SIZE_AND_MAGIC.size
_OFFSET_DIGITS = 16


class CommitLogWriter:
    """The end of the log. Any thread may put.

    position         physical offset behind the last record
    store_timestamp  of the last message put, ms
    queue_offsets    what the next message of each queue gets
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
        on_append: Callable[[], None],
    ) -> None:
        self._files, self.position, self.queue_offsets = files, position, queue_offsets
        self._health, self._unique_keys = health, unique_keys
        self._clock_ms, self._on_append = clock_ms, on_append
        self.max_message_bytes = min(config.max_message_bytes, files.file_bytes - BLANK_BYTES)
        self._store_host = encode_host(store_host)
        self.id_prefix = encode_offset_id(store_host, 0)[:-_OFFSET_DIGITS]
        self._store_flag = SYS_FLAG_STORE_HOST_V6 if len(self._store_host) == HOST_V6_BYTES else 0
        files.ready = position
        self._topics: dict[str, bytes] = {}
        self._lock = Lock()
        self.store_timestamp = 0

    def put(self, message: Message) -> PutResult:
        """Put one message. Raises MessageRefusedError, StoreFailedError, StoreAccessError."""
        topic = self._topics.get(message.topic) or self._encode_topic(message.topic)
        body, queue_id = message.body, check_queue_id(message.queue_id)
        born_host = self._store_host
        if message.born_host is not None:
            born_host = encode_host(message.born_host)
        sys_flag = message.sys_flag & ~_HOST_FLAGS | self._store_flag
        if len(born_host) == HOST_V6_BYTES:
            sys_flag |= SYS_FLAG_BORN_HOST_V6
        crc = crc32(body) & 0x7FFFFFFF
        counts = not sys_flag & SYS_FLAG_PREPARED
        queue = (message.topic, queue_id)  # as a Queue, which takes longer to make
        with self._lock:
            self._health.check()
            now = self._clock_ms()
            properties = properties_string(message, self._unique_keys, now)
            born = now if message.born_timestamp is None else message.born_timestamp
            number = self.queue_offsets.get(queue, 0) if counts else 0
            position = self.position
            parts = (
                born_host, now, self._store_host,
                (message.reconsume_times, message.prepared_transaction_offset, len(body)),
                body, topic, properties,
            )  # fmt: skip
            while True:
                head = (
                    MESSAGE_MAGIC, crc, queue_id, message.flag, number, position, sys_flag, born,
                )  # fmt: skip
                try:
                    record = join_record(head, *parts)
                except struct.error as error:
                    raise MessageRefusedError(
                        f"a number that does not fit its field: {error}"
                    ) from None
                size = len(record)
                if size > self.max_message_bytes:
                    raise self._too_large(size)
                if size + BLANK_BYTES <= self._files.end - position:
                    break
                position = self._roll()
            if position + size > self._files.ready:
                self._files.prepare(position + size)
            at = position - self._files.start
            data = self._files.file.data
            # Size and magic last: no reader takes half a record for one.
            data[at + _HEAD_BYTES : at + size] = memoryview(record)[_HEAD_BYTES:]
            data[at : at + _HEAD_BYTES] = record[:_HEAD_BYTES]
            if counts:
                self.queue_offsets[queue] = number + 1
            self.position = position + size
            self.store_timestamp = now
        self._on_append()
        return PutResult(position, number, f"{self.id_prefix}{position:016X}", now)

    def put_columns(self, columns: PutColumns) -> PutColumnsResult:
        """Put many messages with one store timestamp, in the order of their rows. Raises as `put` does.

        Where the disk is full in the midst of them, those before it are put.
        """
        total = columns.check(len(self._store_host), self.max_message_bytes)
        with self._lock:
            self._health.check()
            now = self._clock_ms()
            arrays = columns.finish(self._unique_keys, now)
            next_offset = columns.next_offsets(self.queue_offsets)
            result = PutColumnsResult.of(len(columns.rows), now)
            store_host = as_array(self._store_host)
            row = 0
            try:
                while row < len(columns.rows):
                    start = self._files.start
                    end = min(self.position + total, self._files.end)
                    if end > self._files.ready:
                        self._files.prepare(end)
                    where = (self._files.file.array, self.position - start, start)
                    filled = (result.physical_offset, result.queue_offset)
                    row, at = lay_out_records(
                        *(*where, columns.rows, row, *arrays, store_host, now, next_offset, *filled)
                    )
                    self.position = start + int(at)
                    if row < len(columns.rows):
                        self._roll()
            finally:
                self.queue_offsets.update(zip(columns.queues, next_offset.tolist(), strict=True))
                self.store_timestamp = now
        self._on_append()
        return result

    def _roll(self) -> int:
        """End the file with a blank and begin the next; returns where that begins."""
        at = self.position - self._files.start
        ended = self._files.file
        self._files.roll()
        ended.data[at : at + BLANK_BYTES] = encode_blank(self._files.file_bytes - at)
        self.position = self._files.start
        return self.position

    def _encode_topic(self, topic: str) -> bytes:
        data = encode_topic(topic)
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
        encoded = self._topics[topic] = TOPIC_V1.pack(len(data)) + data
        return encoded

    def _too_large(self, size: int) -> MessageRefusedError:
        return MessageRefusedError(
            f"a message of {size} bytes in all: the limit is {self.max_message_bytes} "
            "(maxMessageSize, and what a CommitLog file can hold)"
        )
