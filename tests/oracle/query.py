"""Queries by key as the broker answers them.

IndexService.queryOffset, IndexFile.selectPhyOffset, DefaultMessageStore.queryMessage and the
client's own filter (MQAdminImpl), all of rocketmq-all-4.9.3.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.index_file import HEADER, ITEM, SLOT, key_hash
from tests.oracle.java_text import decode_utf8, split, to_long
from tests.oracle.records import (
    BORN_HOST_V6,
    MAGIC_V2,
    STORE_HOST_V6,
    Buffer,
    Reader,
    UnreadableError,
    parse_properties,
)
from tests.oracle.walk import LogListing

MAX_MESSAGES_BATCH = 64
_PASSES = 3


class EndlessChainError(RuntimeError):
    """The broker would follow this chain forever."""


@dataclass(frozen=True)
class Answer:
    """Physical offsets in the order of the answer, and the last update of the newest index file."""

    last_update_timestamp: int
    last_update_physical_offset: int
    offsets: tuple[int, ...]


class IndexView:
    """One index file as the broker reads it."""

    def __init__(self, data: Buffer, hash_slots: int) -> None:
        self.data = data
        self.hash_slots = hash_slots
        header: tuple[int, ...] = HEADER.unpack_from(data)
        self.begin_timestamp, self.end_timestamp, _, self.end_physical_offset, _, count = header
        self.index_count = count if count > 0 else 1

    def is_time_matched(self, begin: int, end: int) -> bool:
        first, last = self.begin_timestamp, self.end_timestamp
        around = begin < first and end > last
        return around or first <= begin <= last or first <= end <= last

    def select(self, offsets: list[int], hashed: int, max_num: int, begin: int, end: int) -> None:
        """Add the offsets in the chain of a hash, newest first, up to max_num."""
        slot_at = HEADER.size + hashed % self.hash_slots * SLOT.size
        items_at = HEADER.size + self.hash_slots * SLOT.size
        try:
            (item,) = SLOT.unpack_from(self.data, slot_at)
            if not 0 < item <= self.index_count or self.index_count <= 1:
                return
            for _ in range(self.index_count + 1):
                if len(offsets) >= max_num:
                    return
                item_hash, offset, seconds, before = ITEM.unpack_from(
                    self.data, items_at + item * ITEM.size
                )
                if seconds < 0:
                    return
                time = to_long(self.begin_timestamp + seconds * 1000)
                if item_hash == hashed and begin <= time <= end:
                    offsets.append(offset)
                if not 0 < before <= self.index_count or before == item or time < begin:
                    return
                item = before
        except struct.error:
            return  # outside the file: the broker keeps the results found so far
        raise EndlessChainError(f"chain of hash {hashed}")


def query_offset(
    index: Sequence[IndexView], topic: str, key: str, max_num: int, begin: int, end: int
) -> Answer:
    """IndexService.queryOffset over index files, oldest first. Raises ValueError if max_num < 0."""
    if max_num < 0:
        raise ValueError(f"IllegalArgumentException: max_num {max_num}")
    max_num = min(max_num, MAX_MESSAGES_BATCH)
    offsets: list[int] = []
    for file in reversed(index):
        if file.is_time_matched(begin, end):
            file.select(offsets, key_hash(topic, key), max_num, begin, end)
        if file.begin_timestamp < begin or len(offsets) >= max_num:
            break
    if not index:
        return Answer(0, 0, ())
    return Answer(index[-1].end_timestamp, index[-1].end_physical_offset, tuple(offsets))


@dataclass(frozen=True)
class Message:
    """The fields of a message that a query compares."""

    store_timestamp: int
    topic: str
    keys: str | None


class CommitLogView:
    """The CommitLog as the broker reads single messages from it, up to its end."""

    def __init__(self, files: LogListing, end_offset: int) -> None:
        self.files = [(start, data) for start, data in files if start < end_offset]
        self.end_offset = end_offset

    def _readable(self, offset: int, *, first_if_none: bool) -> tuple[Buffer, int, int] | None:
        """Return (file, position, end of the readable bytes); None outside the log."""
        for start, data in self.files:
            if start <= offset < start + len(data):
                return data, offset - start, min(len(data), self.end_offset - start)
        if first_if_none and self.files:
            start, data = self.files[0]
            return data, 0, min(len(data), self.end_offset - start)
        return None

    def look(self, offset: int) -> Message | None:
        """lookMessageByOffset. Raises ValueError if the broker throws an exception.

        Offset 0 of a log whose head has expired looks at the first message that is left.
        """
        place = self._readable(offset, first_if_none=offset == 0)
        if place is None:
            return None
        data, at, end = place
        if at + 4 > end:
            return None
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size < 0:
            raise ValueError("IllegalArgumentException: a buffer cannot be limited to that")
        return None if at + size > end else _decode_message(data, at, at + size)

    def message_size(self, offset: int) -> int | None:
        """The size of the message that getData returns. Raises ValueError if the broker throws an exception.

        Returns None outside the log.
        """
        place = self._readable(offset, first_if_none=False)
        if place is None or place[1] >= place[2]:
            return None
        data, at, end = place
        if end - at < 4:
            raise ValueError("IndexOutOfBoundsException")
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if not 0 <= size <= end - at:
            raise ValueError("IllegalArgumentException: a buffer cannot be limited to that")
        return size


def _decode_message(data: Buffer, at: int, end: int) -> Message | None:
    """Decode as MessageDecoder.decode: without a check of the magic and the sum of lengths. Return None on failure."""
    try:
        return _read_message(Reader(data, at, end))
    except UnreadableError:
        return None


def _read_message(reader: Reader) -> Message:
    reader.take(4, "TOTALSIZE")
    magic = reader.signed(4, "MAGIC") & 0xFFFFFFFF
    reader.take(28, "BODYCRC to PHYSICALOFFSET")
    sys_flag = reader.signed(4, "SYSFLAG")
    reader.take(8, "BORNTIMESTAMP")
    _read_host(reader, v6=bool(sys_flag & BORN_HOST_V6))
    store_timestamp = reader.signed(8, "STORETIMESTAMP")
    _read_host(reader, v6=bool(sys_flag & STORE_HOST_V6))
    reader.take(12, "RECONSUMETIMES and PREPAREDTRANSACTIONOFFSET")
    reader.take(max(0, reader.signed(4, "body length")), "body")
    topic_length = reader.signed(2 if magic == MAGIC_V2 else 1, "topic length")
    topic = decode_utf8(reader.take(topic_length, "topic"))
    string = decode_utf8(reader.take(max(0, reader.signed(2, "properties length")), "properties"))
    return Message(store_timestamp, topic, parse_properties(string).get("KEYS"))


def _read_host(reader: Reader, *, v6: bool) -> None:
    reader.take(16 if v6 else 4, "host")
    if not 0 <= (port := reader.signed(4, "port")) <= 65535:
        raise UnreadableError(f"port {port}")


def query_message(
    log: CommitLogView,
    index: Sequence[IndexView],
    topic: str,
    key: str,
    max_num: int,
    begin: int,
    end: int,
) -> Answer:
    """DefaultMessageStore.queryMessage: the messages that the index finds, including hash collisions."""
    answer = Answer(0, 0, ())
    last_query_time = end
    for _ in range(_PASSES):
        found = query_offset(index, topic, key, max_num, begin, last_query_time)
        if not found.offsets:
            break
        handed_out, total_bytes = list(answer.offsets), 0
        for position, offset in enumerate(sorted(found.offsets)):
            try:
                message = log.look(offset)
                if position == 0:
                    if message is None:
                        # NullPointerException, which the broker catches for this offset only
                        continue
                    last_query_time = message.store_timestamp
                size = log.message_size(offset)
            except ValueError:
                continue
            if size is not None:
                handed_out.append(offset)
                total_bytes += size
        answer = Answer(
            found.last_update_timestamp, found.last_update_physical_offset, tuple(handed_out)
        )
        if total_bytes > 0 or last_query_time < begin:
            break
    return answer


def client_matched(
    log: CommitLogView, offsets: Sequence[int], topic: str, key: str
) -> tuple[int, ...]:
    """The client's filter of an answer: equal topic, and the key among KEYS split at spaces."""
    kept = []
    for offset in offsets:
        message = log.look(offset)
        if message is None or message.keys is None or message.topic != topic:
            continue
        if key in split(message.keys, " "):
            kept.append(offset)
    return tuple(kept)
