"""Read inner batches (5.x): records of batch queues that contain several messages.

This mirrors `MessageDecoder.decodeMessages` and the 5.3.3 client's unwrapping of a pulled batch. The body of the record
is a sequence of messages, each with these big-endian fields:

    size 4 | magic 4 | body CRC 4 | flag 4 | body length 4 | body | properties length 2 | properties

No IndexFile has the messages inside. So `InnerBatches` finds them in the records that contain them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from reput.base import Finding, Kind, checked
from reput.core.log.reader import CommitLogReader
from reput.core.log.record import KeyedRecord, LocatedRecord
from reput.core.log.walk import WALKED_BYTES, LogWalk
from reput.errors import CorruptMessageError, MessageNotFoundError
from reput.format.bodies import sent_body
from reput.format.commit_log import (
    BODY_CRC_POSITION,
    FLAG_POSITION,
    INNER_HEAD,
    PROPERTIES,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_BODY_FORM,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_POSITION,
    MessageExt,
    RecordLayout,
    body_crc,
    decode_located,
)
from reput.format.java_string import decode_utf8, joined_surrogates

_LENGTH, _OFFSET = struct.Struct(">i"), struct.Struct(">q")
_REPLACEMENT = "\ufffd"


def is_inner_batch(message: MessageExt) -> bool:
    return bool(message.sys_flag & SYS_FLAG_INNER_BATCH)


@checked
def unwrap(message: MessageExt) -> tuple[MessageExt, ...]:
    """Return the messages of an inner batch, in order. If the message is not a batch, return the message itself.

    Each message has its own body, flag and properties. Queue offsets count up from the offset of the record. All other
    fields have the values of the record, including `physical_offset` and `size_bytes`.

    Raises CorruptMessageError for a body that is not a sequence of messages.
    """
    if not is_inner_batch(message):
        return (message,)
    return tuple(_messages(_decompress(message)))


class InnerSpan(NamedTuple):
    """The place of one message in the data of a batch: its flag, and the positions of body and properties."""

    flag: int
    body_at: int
    body_end: int
    properties_at: int
    end: int


class OpenBatch(NamedTuple):
    """An inner batch, and its decompressed body, which contains the messages one after the other."""

    outer: MessageExt
    data: bytes

    def message_count(self) -> int:
        """Return the number of messages. Raises CorruptMessageError as `unwrap` does."""
        return sum(1 for _ in self.spans())

    def spans(self) -> Iterator[InnerSpan]:
        """Yield the places of the messages, in order. Raises CorruptMessageError as `unwrap` does."""
        outer, data = self
        position, number = 0, 0
        while position < len(data):
            if len(data) - position < INNER_HEAD.size + PROPERTIES.size:
                raise _corrupt(
                    outer, f"{len(data) - position} bytes are too few for an inner message"
                )
            size, _, _, flag, body_bytes = INNER_HEAD.struct.unpack_from(data, position)
            body_end = position + INNER_HEAD.size + body_bytes
            properties_at = body_end + PROPERTIES.size
            if body_bytes < 0 or properties_at > len(data):
                raise _corrupt(outer, f"inner message {number} reaches past the end of the batch")
            (properties_bytes,) = PROPERTIES.unpack_from(data, body_end)
            end = properties_at + properties_bytes
            if properties_bytes < 0 or end > len(data) or size != end - position:
                raise _corrupt(outer, f"the lengths of inner message {number} do not add up")
            yield InnerSpan(flag, position + INNER_HEAD.size, body_end, properties_at, end)
            position, number = end, number + 1


def open_batch(record: bytes, layout: RecordLayout) -> OpenBatch:
    """Decompress the inner batch in `record`. `layout` states where the fields of the record are.

    Raises CorruptMessageError for an unreadable body.
    """
    return _decompress(decode_located(record, layout))


def _decompress(message: MessageExt) -> OpenBatch:
    body = sent_body(message)
    if body.error is not None:
        raise _corrupt(message, body.error)
    return OpenBatch(message, body.data)


class InnerRecord(NamedTuple):
    """A message of an inner batch in the form of a CommitLog record: its bytes, and their layout."""

    data: bytes
    layout: RecordLayout


def inner_records(
    record: bytes, layout: RecordLayout, batch: OpenBatch | None = None
) -> list[InnerRecord]:
    """Return the messages of an inner batch, each as a record of its own.

    `layout` is the layout of the batch record; `batch` is the result of `open_batch`. Each returned record has the
    header of the batch record, even its TOTALSIZE, but the message's own flag, body, properties and queue offset.
    An inner message has no valid CRC of its own. It counts as intact if the CRC of the batch is right.

    Raises CorruptMessageError for a body that is not a sequence of messages.
    """
    batch = batch or open_batch(record, layout)
    is_sound = batch.outer.body_crc_ok
    head = record[layout.position : layout.body_position - _LENGTH.size]
    after_body = layout.body_position + layout.body_bytes
    topic = record[after_body : layout.properties_position - PROPERTIES.size]
    return [_record(head, topic, layout, inner, is_sound) for inner in _messages(batch)]


def _record(
    head: bytes, topic: bytes, layout: RecordLayout, message: MessageExt, is_sound: bool
) -> InnerRecord:
    data = bytearray(head)
    # A deliberately wrong CRC marks messages of a damaged batch as damaged.
    crc = message.body_crc if is_sound else message.body_crc ^ 1
    _LENGTH.pack_into(data, BODY_CRC_POSITION, crc)
    _LENGTH.pack_into(data, FLAG_POSITION, message.flag)
    _OFFSET.pack_into(data, QUEUE_OFFSET_POSITION, message.queue_offset)
    _LENGTH.pack_into(data, SYS_FLAG_POSITION, message.sys_flag)
    body_position = len(data) + _LENGTH.size
    data += _LENGTH.pack(len(message.body)) + message.body + topic
    data += PROPERTIES.pack(len(message.properties_bytes)) + message.properties_bytes
    return InnerRecord(
        bytes(data),
        layout._replace(
            position=0,
            total_bytes=len(data),
            sys_flag=message.sys_flag,
            store_timestamp_position=layout.store_timestamp_position - layout.position,
            body_position=body_position,
            body_bytes=len(message.body),
            topic_position=body_position + len(message.body) + len(topic) - layout.topic_bytes,
            properties_position=len(data) - len(message.properties_bytes),
            properties_bytes=len(message.properties_bytes),
        ),
    )


def _messages(batch: OpenBatch) -> Iterator[MessageExt]:
    outer, data = batch
    sys_flag = outer.sys_flag & ~SYS_FLAG_BODY_FORM
    for number, span in enumerate(batch.spans()):
        body = data[span.body_at : span.body_end]
        yield replace(
            outer, queue_offset=outer.queue_offset + number, flag=span.flag, sys_flag=sys_flag, body=body,
            body_crc=body_crc(body), properties_bytes=data[span.properties_at : span.end],
        )  # fmt: skip


def _corrupt(message: MessageExt, reason: str) -> CorruptMessageError:
    where = f"{message.topic}/{message.queue_id}, queue offset {message.queue_offset}"
    return CorruptMessageError(where, 0, f"an inner batch: {reason}", message.physical_offset)


IsWanted = Callable[[KeyedRecord], bool]
MayHold = Callable[[OpenBatch], bool]


def may_hold_any(texts: Iterable[str]) -> MayHold:
    """Return a function that tests whether a batch may contain one of these keys.

    The function searches for the bytes of the keys.
    """
    needles: list[bytes] = []
    for text in map(joined_surrogates, texts):
        if _REPLACEMENT in text or any(map(_is_surrogate, text)):
            # The key contains U+FFFD or a surrogate without its pair, so its stored bytes are unknown: Java decodes any
            # malformed bytes to U+FFFD, and such a surrogate has no bytes in UTF-8. So any batch may contain the key.
            return lambda batch: True
        needles.append(text.encode())
    return lambda batch: any(needle in batch.data for needle in needles)


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"


class InnerMessage(NamedTuple):
    """A message of an inner batch: its number in the batch, from 1, and its record.

    The record has the physical offset of the batch.
    """

    number: int
    located: LocatedRecord


class InnerBatches:
    """The inner batches of some topics.

    searched    number of inner messages examined
    unreadable  unreadable records of any topic
    unopened    for each topic: batches that could not be unwrapped
    """

    def __init__(
        self,
        log: CommitLogReader,
        topics: frozenset[str],
        may_hold: MayHold,
        *,
        walks_first: bool = True,
    ) -> None:
        """Search the batches for which `may_hold` is true. Messages of all other batches are only counted.

        With `walks_first`, the first bytes of a search are read in plain Python. This takes less time than loading the
        kernels.
        """
        self._log, self._topics, self._may_hold = log, topics, may_hold
        self._left_bytes = WALKED_BYTES if walks_first else 0
        self.searched = 0
        self.unreadable: list[Finding] = []
        self.unopened: dict[str, list[Finding]] = {}

    @property
    def damage(self) -> list[Finding]:
        """Return the ranges that could not be read or unwrapped."""
        return [
            *self.unreadable,
            *(damage for of_topic in self.unopened.values() for damage in of_topic),
        ]

    def find(self, start: int, stop: int, matches: IsWanted) -> list[LocatedRecord]:
        """Return the wanted messages of a range. Raises as `messages` does."""
        messages = self.messages(start, stop)
        return [message.located for message in messages if matches(message.located.keyed())]

    def messages(self, start: int, stop: int) -> Iterator[InnerMessage]:
        """Yield the inner messages of records that begin in [start, stop). A record must begin at `start`.

        Raises StoreAccessError, StoreChangedError.
        """
        for _, part in self._log.parts(start, stop):
            for located in self._records(*part):
                if self._is_batch(located):
                    yield from self._inner(located)

    def _records(self, start: int, stop: int) -> Iterator[LocatedRecord]:
        """Yield records that may be inner batches.

        The first bytes are read in plain Python, because loading the compiled kernels takes time. At damage, the
        kernels take over: they also find the later records of a damaged file.
        """
        middle = min(stop, start + self._left_bytes)
        walk = LogWalk(self._log, start, middle)
        for record in walk:
            if walk.damage:
                break
            yield record
        position = walk.damage[0].start if walk.damage else walk.position
        self._left_bytes = max(self._left_bytes - (position - start), 0)
        if (walk.at_end and not walk.damage) or position >= stop:
            return
        from reput.core.log.kernel_scan import find_inner_batches

        places, damage = find_inner_batches(self._log, position, stop)
        self.unreadable += damage
        for offset, size in places:
            try:
                yield self._log.locate(offset, size)
            except (MessageNotFoundError, CorruptMessageError):
                # The file has expired meanwhile.
                continue

    def _is_batch(self, located: LocatedRecord) -> bool:
        layout = located.layout
        return bool(layout.sys_flag & SYS_FLAG_INNER_BATCH) and _topic(located) in self._topics

    def _inner(self, located: LocatedRecord) -> Iterator[InnerMessage]:
        offset, data, layout = located
        try:
            batch = open_batch(data, layout)
            if not self._may_hold(batch):
                self.searched += batch.message_count()
                return
            inner = inner_records(data, layout, batch)
        except CorruptMessageError as error:
            file = self._log.file_at(offset)
            if file is not None:
                end = offset + layout.total_bytes
                lost = file.lost(offset, end, error.reason, Kind.UNDECODABLE_MESSAGE)
                self.unopened.setdefault(_topic(located), []).append(lost)
            return
        self.searched += len(inner)
        for number, (inner_data, inner_layout) in enumerate(inner, 1):
            # The TOTALSIZE in an inner record may be wrong, but clients use it. Replace it by the actual size.
            size = inner_layout.total_bytes.to_bytes(4, "big")
            record = LocatedRecord(offset, size + inner_data[len(size) :], inner_layout)
            yield InnerMessage(number, record)


def _topic(located: LocatedRecord) -> str:
    start = located.layout.topic_position
    return decode_utf8(located.data[start : start + located.layout.topic_bytes])
