"""CommitLog records: layout, decoding, encoding, and the proof that bytes are a record.

Mirrors `CommitLog.checkMessageAndReturnSize`, `CommitLog.calMsgLength`, `CommitLog.MessageExtEncoder` and
`MessageDecoder.decode` of tag rocketmq-all-4.9.3. All integers are big endian. If a topic is long, a broker of 5.x
writes magic V2, and a topic length of two bytes.

A record is

    TOTALSIZE 4 | MAGIC 4 | BODYCRC 4 | QUEUEID 4 | FLAG 4 | QUEUEOFFSET 8 | PHYSICALOFFSET 8 | SYSFLAG 4 |
    BORNTIMESTAMP 8 | BORNHOST 8 or 20 | STORETIMESTAMP 8 | STOREHOST 8 or 20 | RECONSUMETIMES 4 |
    PREPAREDTRANSACTIONOFFSET 8 | BODY 4+n | TOPIC 1+n (V2: 2+n) | PROPERTIES 2+n

The last record of a file is a blank: the number of bytes left (4) and the blank's magic (4). The bytes after it keep
their former content. Decoding does not compare PHYSICALOFFSET with the record's place, because a buffer does not show
where in the log it begins. The CRC is compared only on request.

In RocketMQ: TRANSACTION_NOT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from reput.format.host import HOST_V4_BYTES, HOST_V6_BYTES, Host, decode_host, encode_host
from reput.format.java_string import decode_utf8, encode_utf8
from reput.format.layout import Layout
from reput.format.message_id import encode_offset_id
from reput.format.properties import KEYS, TAGS, UNIQ_KEY, decode_properties, split_keys, unique_keys

# The fields compared with these constants are signed, as Java's integers are. In Java, they are MESSAGE_MAGIC_CODE,
# MESSAGE_MAGIC_CODE_V2 and BLANK_MAGIC_CODE.
MESSAGE_MAGIC = 0xDAA320A7 - (1 << 32)
MESSAGE_MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)

SYS_FLAG_COMPRESSED = 1
SYS_FLAG_MULTI_TAGS = 2
SYS_FLAG_TRANSACTION_MASK = 12
SYS_FLAG_PREPARED = 4
SYS_FLAG_COMMIT = 8
SYS_FLAG_ROLLBACK = 12
DISPATCHED_TRANSACTIONS = (0, SYS_FLAG_COMMIT)
"""Transaction bits of messages that are dispatched to their queues."""
SYS_FLAG_BORN_HOST_V6 = 16
SYS_FLAG_STORE_HOST_V6 = 32
SYS_FLAG_HOSTS_V6 = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
SYS_FLAG_NEED_UNWRAP = 64
SYS_FLAG_INNER_BATCH = 128
SYS_FLAG_COMPRESSION_TYPE = 0x700
SYS_FLAG_BODY_FORM = (
    SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_TYPE | SYS_FLAG_INNER_BATCH | SYS_FLAG_NEED_UNWRAP
)
"""Flags that state how a body is compressed, and that it contains messages."""


def _head_layout(sys_flag: int) -> Layout:
    born = HOST_V6_BYTES if sys_flag & SYS_FLAG_BORN_HOST_V6 else HOST_V4_BYTES
    store = HOST_V6_BYTES if sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4_BYTES
    return Layout(
        total_bytes="i", magic="i", body_crc="i", queue_id="i", flag="i", queue_offset="q", physical_offset="q",
        sys_flag="i", born_timestamp="q", born_host=f"{born}s", store_timestamp="q", store_host=f"{store}s",
        reconsume_times="i", prepared_transaction_offset="q", body_bytes="i",
    )  # fmt: skip


HEADS = {
    flags: _head_layout(flags)
    for flags in (0, SYS_FLAG_BORN_HOST_V6, SYS_FLAG_STORE_HOST_V6, SYS_FLAG_HOSTS_V6)
}
"""The fields from TOTALSIZE to the length of the body, by the flags SYS_FLAG_HOSTS_V6 of the record."""
HEAD = HEADS[0]
"""The head of a record with IPv4 hosts. The positions of fields up to BORNHOST are those of every record."""

# Where the fields of a record begin, for kernels. An IPv6 host moves the fields after it by WIDER_HOST_BYTES.
MAGIC_POSITION = HEAD.positions["magic"]
BODY_CRC_POSITION = HEAD.positions["body_crc"]
QUEUE_ID_POSITION = HEAD.positions["queue_id"]
FLAG_POSITION = HEAD.positions["flag"]
QUEUE_OFFSET_POSITION = HEAD.positions["queue_offset"]
PHYSICAL_OFFSET_POSITION = HEAD.positions["physical_offset"]
SYS_FLAG_POSITION = HEAD.positions["sys_flag"]
BORN_TIMESTAMP_POSITION = HEAD.positions["born_timestamp"]
BORN_HOST_POSITION = HEAD.positions["born_host"]
STORE_TIMESTAMP_POSITION = HEAD.positions["store_timestamp"]
STORE_HOST_POSITION = HEAD.positions["store_host"]
RECONSUME_TIMES_POSITION = HEAD.positions["reconsume_times"]
PREPARED_OFFSET_POSITION = HEAD.positions["prepared_transaction_offset"]
BODY_LENGTH_POSITION = HEAD.positions["body_bytes"]
WIDER_HOST_BYTES = HOST_V6_BYTES - HOST_V4_BYTES

# These read some fields from the beginning of a record.
SIZE_AND_MAGIC = HEAD.reader("total_bytes", "magic")
PHYSICAL_OFFSET = HEAD.reader("physical_offset")
QUEUE_PLACE = HEAD.reader("queue_id", "queue_offset")
_BODY_CRC = HEAD.reader("body_crc")
_SYS_FLAG = HEAD.reader("sys_flag")
_SIZE_AND_PHYSICAL_OFFSET = HEAD.reader("total_bytes", "physical_offset")
_SIZE_MAGIC_FLAG = HEAD.reader("total_bytes", "magic", "sys_flag")

STORE_TIMESTAMP = struct.Struct(">q")
"""Reads the field STORETIMESTAMP from its own position, `RecordLayout.store_timestamp_position`."""

# The lengths before the variable parts of a record.
BODY = struct.Struct(">i")
TOPIC_V1 = struct.Struct(">b")
TOPIC_V2 = struct.Struct(">h")
PROPERTIES = struct.Struct(">h")
# In kernels, the sizes of these fields.
BODY_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES = BODY.size, PROPERTIES.size

BLANK_BYTES = SIZE_AND_MAGIC.size
FIXED_BYTES = HEAD.size - 2 * HOST_V4_BYTES + PROPERTIES.size
"""Size of a record without its hosts, its body, its topic (with the length field) and its properties."""
MIN_RECORD_BYTES = HEAD.size + TOPIC_V1.size + PROPERTIES.size
# The length fields of a V1 record are a signed byte and a signed short.
MAX_TOPIC_BYTES = 127
MAX_PROPERTIES_BYTES = 32_767

INNER_HEAD = Layout(total_bytes="i", magic="i", body_crc="i", flag="i", body_bytes="i")
"""The head of a message in a batch (`MessageDecoder.encodeMessage`). Body, properties' length, properties follow."""

CRC_PROPERTY_BYTES = 20
CRC_PROPERTY_END = 2
CRC_PROPERTY = "__CRC32#"
"""Ends a record with `enabledAppendPropCRC` (5.x): this name, 0x01, ten decimal digits, the least one first, 0x02.

The number is the CRC-32, without its top bit, of all bytes of the record before the property.
"""
_CRC_NAME = f"{CRC_PROPERTY}\x01".encode()
_CRC_DIGITS = 10


def record_bytes(head: Layout, body: int, topic: int, properties: int) -> int:
    """Return the TOTALSIZE of a record with this head (one of HEADS) and these sizes in bytes.

    `topic` includes the topic's length field.
    """
    return head.size + body + topic + PROPERTIES.size + properties


def join_record(head: bytes, body: bytes | memoryview, topic: bytes, properties: bytes) -> bytes:
    """Return a record: its packed head (see HEADS) and the fields after it.

    `topic` includes the topic's length field.

    Raises struct.error for properties that do not fit their field.
    """
    return b"".join((head, body, topic, PROPERTIES.pack(len(properties)), properties))


class RecordError(ValueError):
    """Raised for bytes that are not a record, with the reason. Callers add the file and the offset.

    In RocketMQ: isSuccess.
    """


class ShortBufferError(RecordError):
    """Raised if a record extends beyond the end of the buffer. The record needs `needed_bytes` from its start."""

    def __init__(self, reason: str, needed_bytes: int) -> None:
        super().__init__(reason)
        self.needed_bytes = needed_bytes


class SizeMismatchError(RecordError):
    """Raised if TOTALSIZE is not the sum of the sizes of the record's parts, `part_bytes`.

    A broker then expects the next record after the parts, and ignores TOTALSIZE.
    """

    def __init__(self, total_bytes: int, part_bytes: int) -> None:
        super().__init__(f"TOTALSIZE {total_bytes} is not the {part_bytes} bytes of its parts")
        self.part_bytes = part_bytes


class RecordLayout(NamedTuple):
    """Positions and lengths, in bytes, of the parts of one record in its buffer. All have been checked."""

    position: int
    total_bytes: int
    magic: int
    sys_flag: int
    store_timestamp_position: int
    body_position: int
    body_bytes: int
    topic_position: int
    topic_bytes: int
    properties_position: int
    properties_bytes: int

    def at_zero(self) -> RecordLayout:
        """Return this layout for a buffer that begins with the record."""
        begin = self.position
        if not begin:
            return self
        return RecordLayout(
            0, self.total_bytes, self.magic, self.sys_flag, self.store_timestamp_position - begin,
            self.body_position - begin, self.body_bytes, self.topic_position - begin,
            self.topic_bytes, self.properties_position - begin, self.properties_bytes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageExt:
    """One stored message with every field of its record. Times are milliseconds since 1970 in UTC."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties_bytes: bytes
    magic: int = MESSAGE_MAGIC

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(decode_utf8(self.properties_bytes))

    @property
    def keys(self) -> list[str]:
        """Return the property KEYS, split at spaces."""
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def tags(self) -> str | None:
        """Return the property TAGS."""
        return self.properties.get(TAGS)

    @property
    def unique_key(self) -> str | None:
        """Return the property UNIQ_KEY: the id created by the client, which consoles call message id."""
        return self.properties.get(UNIQ_KEY)

    @property
    def unique_keys(self) -> list[str]:
        """Return every UNIQ_KEY.

        If a 5.x client sent a list of messages in one call, each message has two: its own, then the list's.
        """
        return unique_keys(decode_utf8(self.properties_bytes))

    @property
    def message_id(self) -> str:
        """Return the offset message id (`MessageExt.getMsgId` at a broker): store host and physical offset."""
        return encode_offset_id(self.store_host, self.physical_offset)

    @property
    def body_crc_ok(self) -> bool:
        return self.body_crc == body_crc(self.body)

    @property
    def transaction(self) -> str:
        """Return the transaction state: none, prepared, commit or rollback."""
        names = ("none", "prepared", "commit", "rollback")
        return names[(self.sys_flag & SYS_FLAG_TRANSACTION_MASK) >> 2]


def is_dispatched(sys_flag: int) -> bool:
    """Return whether a message is dispatched to its queue: it belongs to no transaction, or to a committed one."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK in DISPATCHED_TRANSACTIONS


def body_crc(body: bytes | memoryview) -> int:
    """Return the CRC-32 of a body, with the top bit of the CRC cleared (`UtilAll.crc32`); 0 for an empty body."""
    return crc32(body) & 0x7FFFFFFF


def read_size_and_magic(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return size and magic of a record or a blank. The caller has checked that 8 bytes are left."""
    return SIZE_AND_MAGIC.unpack_from(buffer, position)


def read_size_and_physical_offset(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return TOTALSIZE and PHYSICALOFFSET of a record. The caller has checked that MIN_RECORD_BYTES are left."""
    return _SIZE_AND_PHYSICAL_OFFSET.unpack_from(buffer, position)


def read_store_timestamp(record: bytes | memoryview) -> int:
    """Return STORETIMESTAMP (ms) of the record at the start of a buffer of at least MIN_RECORD_BYTES."""
    head = HEADS[_SYS_FLAG.unpack_from(record)[0] & SYS_FLAG_HOSTS_V6]
    return int(head.reader("store_timestamp").unpack_from(record)[0])


def locate(buffer: bytes | memoryview, position: int, end: int) -> RecordLayout:
    """Check every length of the record at `position` against `end`, as the broker's reader does.

    As in the broker, a negative length of body or properties counts as 0.

    Raises:
        ShortBufferError: by its lengths, the record extends beyond `end`.
        SizeMismatchError: TOTALSIZE is not the sum of the parts.
        RecordError: fewer than MIN_RECORD_BYTES are left, the magic is wrong, the topic's length is negative, or a part
            other than the body is larger than TOTALSIZE.
    """
    if end - position < MIN_RECORD_BYTES:
        raise RecordError(f"{end - position} bytes are too few for a record")
    total_bytes, magic, sys_flag = _SIZE_MAGIC_FLAG.unpack_from(buffer, position)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        raise RecordError(f"magic 0x{magic & 0xFFFFFFFF:08X} is not a message's")
    head = HEADS[sys_flag & SYS_FLAG_HOSTS_V6]
    body_position = position + head.size
    (body_bytes,) = _unpack(BODY, buffer, position, body_position - BODY.size, end)
    body_bytes = max(body_bytes, 0)
    topic_length = TOPIC_V1 if magic == MESSAGE_MAGIC else TOPIC_V2
    topic_position = body_position + body_bytes + topic_length.size
    (topic_bytes,) = _unpack(topic_length, buffer, position, body_position + body_bytes, end)
    if topic_bytes < 0:
        raise RecordError(f"topic length {topic_bytes} is negative")
    properties_position = topic_position + topic_bytes + PROPERTIES.size
    (properties_bytes,) = _unpack(PROPERTIES, buffer, position, topic_position + topic_bytes, end)
    properties_bytes = max(properties_bytes, 0)
    # The record ends after its properties: a broker reads the next record there, and ignores TOTALSIZE.
    stop = properties_position + properties_bytes
    if stop > end:
        reason = f"properties of {properties_bytes} bytes extend beyond the available bytes"
        raise ShortBufferError(reason, stop - position)
    if total_bytes != stop - position:
        # The broker copies hosts, topic and properties one by one into a byte array of TOTALSIZE bytes. If one of them
        # does not fit, the broker throws, and never reaches the next record.
        host_bytes = HOST_V6_BYTES if sys_flag & SYS_FLAG_HOSTS_V6 else HOST_V4_BYTES
        if total_bytes < max(host_bytes, topic_bytes, properties_bytes):
            raise RecordError(f"TOTALSIZE {total_bytes} is smaller than one of the record's parts")
        raise SizeMismatchError(total_bytes, stop - position)
    return RecordLayout(
        position, total_bytes, magic, sys_flag, position + head.positions["store_timestamp"],
        body_position, body_bytes, topic_position, topic_bytes, properties_position, properties_bytes,
    )  # fmt: skip


def is_proven(buffer: bytes | memoryview, position: int, end: int, physical_offset: int) -> bool:
    """Return whether the bytes are the record at `physical_offset`: magic, offset, lengths and CRC match."""
    try:
        layout = locate(buffer, position, end)
    except RecordError:
        return False
    (stated_offset,) = PHYSICAL_OFFSET.unpack_from(buffer, position)
    return stated_offset == physical_offset and crc_matches(buffer, layout)


def crc_matches(buffer: bytes | memoryview, layout: RecordLayout) -> bool:
    """Return whether the body has the stored CRC. As in the broker, the CRC of an empty body is not compared.

    In RocketMQ: checkCRC.
    """
    if not layout.body_bytes:
        return True
    body = memoryview(buffer)[layout.body_position : layout.body_position + layout.body_bytes]
    return bool(_BODY_CRC.unpack_from(buffer, layout.position)[0] == body_crc(body))


def decode(buffer: bytes | memoryview, position: int = 0, end: int | None = None) -> MessageExt:
    """Return the record at `position`. Raises RecordError. Does not compare the body's CRC (see `body_crc_ok`)."""
    return decode_located(buffer, locate(buffer, position, len(buffer) if end is None else end))


def decode_located(buffer: bytes | memoryview, layout: RecordLayout) -> MessageExt:
    """Decode the record for which `locate` returned this layout."""
    head = HEADS[layout.sys_flag & SYS_FLAG_HOSTS_V6]
    (
        total, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_offset, _,
    ) = head.struct.unpack_from(buffer, layout.position)  # fmt: skip
    # An answer may have hundreds of thousands of messages, so this calls as few functions as possible.
    begin, body_begin, start = (
        layout.topic_position, layout.body_position, layout.properties_position,
    )  # fmt: skip
    topic = buffer[begin : begin + layout.topic_bytes]
    body = buffer[body_begin : body_begin + layout.body_bytes]
    properties = buffer[start : start + layout.properties_bytes]
    if not (isinstance(topic, bytes) and isinstance(body, bytes) and isinstance(properties, bytes)):
        topic, body, properties = bytes(topic), bytes(body), bytes(properties)
    return MessageExt(
        decode_utf8(topic), queue_id, queue_offset, physical_offset, total, flag, sys_flag, crc, born_timestamp,
        decode_host(born_host), store_timestamp, decode_host(store_host), reconsume_times, prepared_offset, body,
        properties, magic,
    )  # fmt: skip


def encode(message: MessageExt) -> bytes:
    """Return the record of `message`. TOTALSIZE, CRC and host flags are computed.

    Raises RecordError for a topic or properties that do not fit their length fields.
    """
    topic = encode_utf8(message.topic)
    born, store = encode_host(message.born_host), encode_host(message.store_host)
    topic_length = TOPIC_V1 if message.magic == MESSAGE_MAGIC else TOPIC_V2
    if len(topic) > (1 << (8 * topic_length.size - 1)) - 1:
        raise RecordError(f"topic of {len(topic)} bytes does not fit its length field")
    if len(message.properties_bytes) > MAX_PROPERTIES_BYTES:
        raise RecordError(
            f"properties of {len(message.properties_bytes)} bytes exceed {MAX_PROPERTIES_BYTES}"
        )
    # Set the IPv6 flags according to the hosts themselves, because `message.sys_flag` may not match the hosts.
    hosts_flags = SYS_FLAG_BORN_HOST_V6 if len(born) == HOST_V6_BYTES else 0
    hosts_flags |= SYS_FLAG_STORE_HOST_V6 if len(store) == HOST_V6_BYTES else 0
    sys_flag = message.sys_flag & ~SYS_FLAG_HOSTS_V6 | hosts_flags
    head, properties = HEADS[hosts_flags], message.properties_bytes
    topic = topic_length.pack(len(topic)) + topic
    fields = head.struct.pack(
        record_bytes(head, len(message.body), len(topic), len(properties)),
        message.magic, body_crc(message.body), message.queue_id, message.flag,
        message.queue_offset, message.physical_offset, sys_flag, message.born_timestamp,
        born, message.store_timestamp, store,
        message.reconsume_times, message.prepared_transaction_offset, len(message.body),
    )  # fmt: skip
    return join_record(fields, message.body, topic, properties)


def encode_blank(remaining_bytes: int) -> bytes:
    """Return the first 8 bytes of the blank record, which fills the last `remaining_bytes` bytes of a file.

    The bytes after these 8 bytes stay unchanged.
    """
    return SIZE_AND_MAGIC.pack(remaining_bytes, BLANK_MAGIC)


def stated_record_crc(record: bytes | memoryview) -> int | None:
    """Return the CRC that a record states, or None if the property is missing or malformed."""
    if record[-1:] != b"\x02":
        return None
    tail = bytes(record[-CRC_PROPERTY_BYTES:])
    digits = tail[len(_CRC_NAME) : len(_CRC_NAME) + _CRC_DIGITS]
    if not tail.startswith(_CRC_NAME) or not digits.isdigit():
        return None
    return int(digits[::-1])


def record_crc(record: bytes | memoryview) -> int:
    """Compute the CRC of a record that ends with its CRC property."""
    return body_crc(record[:-CRC_PROPERTY_BYTES])


def encode_crc_property(crc: int) -> bytes:
    return _CRC_NAME + f"{crc:0{_CRC_DIGITS}d}"[::-1].encode() + b"\x02"


def without_record_crc(properties: bytes) -> bytes:
    """Return the properties of a record without its CRC property."""
    has_crc = stated_record_crc(properties) is not None
    return properties[:-CRC_PROPERTY_BYTES] if has_crc else properties


def record_crc_ok(record: bytes | memoryview) -> bool:
    """Return whether a record matches the CRC that it states; True for a record without a CRC."""
    return stated_record_crc(record) is None or has_right_record_crc(record)


def has_right_record_crc(record: bytes | memoryview) -> bool:
    """Return whether a record states a CRC and matches it."""
    return stated_record_crc(record) == record_crc(record)


def _unpack(
    layout: struct.Struct, buffer: bytes | memoryview, begin: int, position: int, end: int
) -> tuple[int, ...]:
    if position + layout.size > end:
        raise ShortBufferError(
            "by its lengths, the record extends beyond the available bytes",
            position + layout.size - begin,
        )
    return layout.unpack_from(buffer, position)
