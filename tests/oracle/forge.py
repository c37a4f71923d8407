"""Logs as raw bytes, built without the package: records, log files, and damage to them."""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.oracle.java_text import encode_utf8
from tests.oracle.records import BORN_HOST_V6, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, STORE_HOST_V6

Host = tuple[bytes, int]
Files = list[tuple[int, bytes]]
BLANK_BYTES = 8
BORN_HOST: Host = (bytes([10, 20, 30, 40]), 50000)
STORE_HOST: Host = (bytes([127, 0, 0, 1]), 10911)


def encode_properties(properties: Mapping[str, str] | str | bytes) -> bytes:
    """Join properties as the broker does; strings and bytes are used unchanged."""
    if isinstance(properties, bytes):
        return properties
    if isinstance(properties, str):
        return encode_utf8(properties)
    return encode_utf8("\x02".join(f"{name}\x01{value}" for name, value in properties.items()))


@dataclass(frozen=True)
class RecordFields:
    """The fields of a record; `encode_record` computes all dependent fields.

    `topic` and `properties` may be raw bytes. The flags for IPv6 hosts are set from the hosts.
    """

    topic: str | bytes = "T"
    body: bytes = b""
    properties: Mapping[str, str] | str | bytes = b""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: Host = BORN_HOST
    store_timestamp: int = 1_700_000_000_001
    store_host: Host = STORE_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = MAGIC_V1


def encode_record(fields: RecordFields, *, total_size: int | None = None) -> bytes:
    """Encode a record. A `total_size` other than the true one gives a record whose lengths mismatch."""
    topic = fields.topic if isinstance(fields.topic, bytes) else encode_utf8(fields.topic)
    properties = encode_properties(fields.properties)
    topic_length = struct.pack(">h" if fields.magic == MAGIC_V2 else ">b", len(topic))
    rest = b"".join(
        (
            _fixed_fields(fields),
            struct.pack(">i", len(fields.body)) + fields.body,
            topic_length + topic,
            struct.pack(">h", len(properties)) + properties,
        )
    )
    return struct.pack(">i", 4 + len(rest) if total_size is None else total_size) + rest


def body_position(fields: RecordFields) -> int:
    """Return the position of the body in the record."""
    return 4 + len(_fixed_fields(fields)) + 4


def _fixed_fields(fields: RecordFields) -> bytes:
    """Encode the fields from MAGIC to PREPAREDTRANSACTIONOFFSET."""
    born_address, born_port = fields.born_host
    store_address, store_port = fields.store_host
    sys_flag = fields.sys_flag
    sys_flag |= BORN_HOST_V6 if len(born_address) == 16 else 0
    sys_flag |= STORE_HOST_V6 if len(store_address) == 16 else 0
    return b"".join(
        (
            struct.pack(">II", fields.magic, zlib.crc32(fields.body) & 0x7FFFFFFF),
            struct.pack(">ii", fields.queue_id, fields.flag),
            struct.pack(">qq", fields.queue_offset, fields.physical_offset),
            struct.pack(">iq", sys_flag, fields.born_timestamp),
            born_address + struct.pack(">i", born_port),
            struct.pack(">q", fields.store_timestamp),
            store_address + struct.pack(">i", store_port),
            struct.pack(">iq", fields.reconsume_times, fields.prepared_transaction_offset),
        )
    )


def encode_blank(declared_size: int) -> bytes:
    return struct.pack(">iI", declared_size, MAGIC_BLANK)


@dataclass
class LogForge:
    """Write log files as the broker does: whole records, and a BLANK if one does not fit.

    `offsets` and `blanks` are the places of records and end-of-file records.
    """

    file_bytes: int
    start_offset: int = 0
    offsets: list[int] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._data = bytearray()

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self._data)

    @property
    def room(self) -> int:
        """Return the bytes left in the current file."""
        return self.file_bytes - len(self._data) % self.file_bytes

    def make_room(self, size: int, *, rest: bytes = b"") -> int:
        """End the file if `size` bytes and a BLANK do not fit. Returns the offset for the next record.

        `rest` are the bytes after the BLANK, which a broker never reads.
        """
        if size + BLANK_BYTES > self.file_bytes:
            raise ValueError(f"{size} bytes do not fit in a file of {self.file_bytes}")
        if size + BLANK_BYTES > self.room:
            self.end_file(rest=rest)
        return self.end_offset

    def end_file(self, *, rest: bytes = b"") -> None:
        """Write a BLANK. It fills the rest of the file; the whole file if a message is too large for any file."""
        room = self.room
        self.blanks.append((self.end_offset, room))
        ending = encode_blank(room) + rest[: room - BLANK_BYTES]
        self._data += ending.ljust(room, b"\0")

    def put_bytes(self, record: bytes) -> int:
        """Append a record whose physical offset is already right. Returns its offset."""
        offset = self.make_room(len(record))
        self.offsets.append(offset)
        self._data += record
        return offset

    def put(self, fields: RecordFields) -> int:
        """Append a record with its physical offset. Returns the offset."""
        offset = self.make_room(len(encode_record(fields)))
        return self.put_bytes(encode_record(at_offset(fields, offset)))

    def leave(self, room: int, fields: RecordFields) -> int:
        """Append a record whose body leaves exactly `room` bytes in its file.

        Raises ValueError if even an empty body is too long; then nothing was written.
        """
        spare = self.room - room - len(encode_record(with_body(fields, b"")))
        if room < BLANK_BYTES or spare < 0:
            raise ValueError(f"no record leaves {room} of the file's {self.room} free bytes")
        return self.put(with_body(fields, b"p" * spare))

    def files(self) -> Files:
        """Return (start offset, bytes) of each file, with the last one filled up with zeros."""
        size = self.file_bytes
        data = bytes(self._data) + bytes(-len(self._data) % size)
        return [(self.start_offset + at, data[at : at + size]) for at in range(0, len(data), size)]


def at_offset(fields: RecordFields, physical_offset: int) -> RecordFields:
    return replace(fields, physical_offset=physical_offset)


def with_body(fields: RecordFields, body: bytes) -> RecordFields:
    return replace(fields, body=body)


def forge_log(
    records: Iterable[RecordFields], *, file_bytes: int, start_offset: int = 0
) -> LogForge:
    """Return a log of these records."""
    forge = LogForge(file_bytes, start_offset)
    for fields in records:
        forge.put(fields)
    return forge


def write_store(store: Path, files: Sequence[tuple[int, bytes]]) -> Path:
    """Create a store directory that has only these log files. Returns the directory."""
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    for start, data in files:
        (folder / f"{start:020d}").write_bytes(data)
    return store


def overwrite(files: Sequence[tuple[int, bytes]], offset: int, data: bytes) -> Files:
    """Return the files with `data` written over a log offset. Bytes beyond the end of that file are dropped."""
    return [
        (start, _patched(old, offset - start, data))
        if start <= offset < start + len(old)
        else (start, old)
        for start, old in files
    ]


def _patched(old: bytes, at: int, data: bytes) -> bytes:
    return (old[:at] + data + old[at + len(data) :])[: len(old)]


def flip_bit(files: Sequence[tuple[int, bytes]], offset: int, bit: int) -> Files:
    """Return the files with one bit flipped (0 to 7, lowest first) of the byte at a log offset."""
    old = next(data[offset - start] for start, data in files if start <= offset < start + len(data))
    return overwrite(files, offset, bytes([old ^ 1 << bit]))


def zero_fill(files: Sequence[tuple[int, bytes]], offset: int, length: int) -> Files:
    """Return the files with zeros from a log offset to the end of its file."""
    return overwrite(files, offset, bytes(length))


def set_total_size(files: Sequence[tuple[int, bytes]], offset: int, total_size: int) -> Files:
    """Return the files with another TOTALSIZE for the record at a log offset: huge, negative, 0, or off by a little."""
    return overwrite(files, offset, struct.pack(">i", total_size))


def truncate(files: Sequence[tuple[int, bytes]], offset: int) -> Files:
    """Return the files cut at a log offset, like a copy that was interrupted: the last file is short."""
    return [(start, data[: offset - start]) for start, data in files if start < offset]
