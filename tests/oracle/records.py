"""One CommitLog record: its contents, and its dispatch.

CommitLog.checkMessageAndReturnSize of rocketmq-all-4.9.3, and records of magic V2 as 5.x writes
them. Read field by field, slowly; nothing is trusted.
"""

from dataclasses import dataclass
from mmap import mmap

from tests.oracle.java_text import decode_utf8, hash_code, parse_number, split, to_long

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

TRANSACTION_MASK = 12
TRANSACTION_NONE = 0
TRANSACTION_PREPARED = 4
TRANSACTION_COMMIT = 8
TRANSACTION_ROLLBACK = 12
BORN_HOST_V6 = 16
STORE_HOST_V6 = 32

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_MINUTE_S, _HOUR_S = 60, 3600
DELAY_LEVELS_S = (
    *(1, 5, 10, 30),
    *(minutes * _MINUTE_S for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(1 * _HOUR_S, 2 * _HOUR_S),
)

Buffer = bytes | bytearray | mmap


class UnreadableError(ValueError):
    """No record can be read here, and the place of the next one is unknown."""


@dataclass(frozen=True)
class Blank:
    """The end-of-file record; the rest of its file is unused."""

    declared_size: int


@dataclass(frozen=True)
class SizeMismatch:
    """A record with readable fields whose TOTALSIZE is not the sum of their lengths."""

    total_size: int
    length: int


@dataclass(frozen=True)
class Record:
    """One message. Hosts are (4 or 16 address bytes, port); `properties_string` as stored.

    `keys` and `uniq_key` are as DispatchRequest has them: without properties `keys` is "",
    with properties that lack KEYS it is None.
    """

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[bytes, int]
    store_timestamp: int
    store_host: tuple[bytes, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_string: str
    properties: dict[str, str]
    keys: str | None
    uniq_key: str | None
    tags_code: int
    tags: str | None = None

    @property
    def transaction_type(self) -> int:
        return self.sys_flag & TRANSACTION_MASK

    @property
    def index_keys(self) -> list[str]:
        """Return the keys in the index, in order, with repetitions; none for a rolled-back message."""
        if self.transaction_type == TRANSACTION_ROLLBACK:
            return []
        unique = [] if self.uniq_key is None else [self.uniq_key]
        return unique + [key for key in split(self.keys or "", " ") if key]

    @property
    def index_tags(self) -> list[str]:
        """Return the key for the tags, which brokers of 5.4 and later put after the others; at most one."""
        is_rolled_back = self.transaction_type == TRANSACTION_ROLLBACK
        return [] if is_rolled_back or not self.tags else [f"T#{self.tags}"]


class Reader:
    """Reads consecutive big-endian fields, never beyond `end`."""

    def __init__(self, data: Buffer, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def take(self, size: int, what: str) -> bytes:
        if size < 0 or size > self.end - self.at:
            raise UnreadableError(f"{what} of {size} bytes at {self.at} does not end by {self.end}")
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def signed(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "big", signed=True)


def decode(data: Buffer, at: int = 0, end: int | None = None) -> Record | Blank | SizeMismatch:
    """Decode the record at `at` of a file whose readable part ends at `end`. Raises UnreadableError."""
    reader = Reader(data, at, len(data) if end is None else end)
    total_size = reader.signed(4, "TOTALSIZE")
    magic = reader.signed(4, "MAGIC") & 0xFFFFFFFF
    if magic == MAGIC_BLANK:
        return Blank(total_size)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise UnreadableError(f"magic {magic:#010x} at {at}")
    # The broker copies hosts, topic and properties through an array of TOTALSIZE bytes.
    room = Room(total_size)
    body_crc = reader.signed(4, "BODYCRC")
    queue_id = reader.signed(4, "QUEUEID")
    flag = reader.signed(4, "FLAG")
    queue_offset = reader.signed(8, "QUEUEOFFSET")
    physical_offset = reader.signed(8, "PHYSICALOFFSET")
    sys_flag = reader.signed(4, "SYSFLAG")
    born_timestamp = reader.signed(8, "BORNTIMESTAMP")
    born_host = _host(reader, room, v6=bool(sys_flag & BORN_HOST_V6))
    store_timestamp = reader.signed(8, "STORETIMESTAMP")
    store_host = _host(reader, room, v6=bool(sys_flag & STORE_HOST_V6))
    reconsume_times = reader.signed(4, "RECONSUMETIMES")
    prepared_transaction_offset = reader.signed(8, "PREPAREDTRANSACTIONOFFSET")
    # Negative lengths of body and properties count as 0; a negative length of a topic is unreadable.
    body = reader.take(max(0, reader.signed(4, "body length")), "body")
    topic_length = reader.signed(1 if magic == MAGIC_V1 else 2, "topic length")
    topic = decode_utf8(reader.take(room.fit(topic_length), "topic"))
    properties_length = max(0, reader.signed(2, "properties length"))
    properties_string = decode_utf8(reader.take(room.fit(properties_length), "properties"))
    properties = parse_properties(properties_string)
    tags_code = _tags_code(topic, properties, store_timestamp)
    if total_size != reader.at - at:
        return SizeMismatch(total_size, reader.at - at)
    return Record(
        total_size=total_size,
        magic=magic,
        body_crc=body_crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=topic,
        properties_string=properties_string,
        properties=properties,
        keys=properties.get("KEYS") if properties_length else "",
        uniq_key=properties.get("UNIQ_KEY"),
        tags_code=tags_code,
        tags=properties.get("TAGS"),
    )


class Room:
    """The array of TOTALSIZE bytes through which the broker copies a record's short fields."""

    def __init__(self, total_size: int) -> None:
        if total_size < 0:
            raise UnreadableError(f"TOTALSIZE {total_size}")
        self.total_size = total_size

    def fit(self, length: int) -> int:
        """Return the length of a field, if it fits. Raises UnreadableError."""
        if not 0 <= length <= self.total_size:
            raise UnreadableError(f"a field of {length} bytes in a record of {self.total_size}")
        return length


def _host(reader: Reader, room: Room, *, v6: bool) -> tuple[bytes, int]:
    room.fit(20 if v6 else 8)
    return reader.take(16 if v6 else 4, "host"), reader.signed(4, "port")


def parse_properties(string: str) -> dict[str, str]:
    """MessageDecoder.string2messageProperties: later duplicates win, malformed chunks are ignored.

    A chunk counts with a name and a value that are not empty (so it has three units or more); the
    value may hold further separators.
    """
    properties = {}
    for chunk in string.split("\x02"):
        name, separator, value = chunk.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def _tags_code(topic: str, properties: dict[str, str], store_timestamp: int) -> int:
    """Return the hash of the tags or, for a delayed message, the time at which it is due.

    A level that is not a number makes the whole record unreadable for the broker.
    """
    code = hash_code(properties.get("TAGS", ""))
    if topic != SCHEDULE_TOPIC or "DELAY" not in properties:
        return code
    try:
        level = parse_number(properties["DELAY"], 32)
    except ValueError as error:
        raise UnreadableError(f"delay level: {error}") from None
    if level <= 0:
        return code
    delay_s = DELAY_LEVELS_S[min(level, len(DELAY_LEVELS_S)) - 1]
    return to_long(store_timestamp + delay_s * 1000)
