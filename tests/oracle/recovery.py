"""Where a broker of each release ends a log when it starts, read record by record.

CommitLog.recoverNormally, recoverAbnormally and isMappedFileMatchedRecover of rocketmq-all-4.9.3, 5.3.3 and 5.4.0.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from tests.oracle.records import MAGIC_V1, MAGIC_V2, Blank, Buffer, Record, UnreadableError, decode

LogListing = Sequence[tuple[int, Buffer]]
_LATE_MS = 3000
_FILES_OF_4 = 3
_MOST_FILES = 10
_MAGIC = slice(4, 8)
_STATED = slice(28, 36)
_STORED = slice(56, 64)  # With an IPv4 host.


@dataclass(frozen=True)
class Start:
    """What a broker knows when it starts.

    Attributes:
        release: "4.9", "5.3", "5.4" or "5.5".
        is_clean: Whether there is no file `abort`.
        dispatched: The greatest physical offset that the queues know, -1 without entries.
        in_rocksdb: Whether the queues are in RocksDB.
        latest: The earlier time of checkpoint.
        is_accelerated: The setting enableAcceleratedRecovery.
    """

    release: str
    is_clean: bool
    dispatched: int
    in_rocksdb: bool
    latest: int
    is_accelerated: bool = False


def log_end(files: LogListing, start: Start) -> int:
    """Return the physical offset at which a broker ends the log of these files, (start offset, bytes)."""
    number = _first_file(files, start)
    begin, data = files[number]
    at = 0
    if start.is_accelerated and start.in_rocksdb and start.release >= "5.4":
        place = start.dispatched - begin
        at = place if 0 < place < len(data) else 0
    while True:
        found = _checked(data, at)
        if isinstance(found, Record):
            at += found.total_size
        elif isinstance(found, Blank) and number + 1 < len(files):
            number += 1
            (begin, data), at = files[number], 0
        else:
            return begin + at


def _first_file(files: LogListing, start: Start) -> int:
    last = len(files) - 1
    if start.release == "4.9" and start.is_clean:
        return max(last + 1 - _FILES_OF_4, 0)
    lowest = max(last + 1 - _MOST_FILES, 0) if start.release >= "5.4" else 0
    number = last
    while number > lowest and not _fits(*files[number], start):
        number -= 1
    return number


def _fits(begin: int, data: Buffer, start: Start) -> bool:
    if start.release == "5.3" and start.is_clean:
        return begin <= start.dispatched
    if start.release >= "5.4":
        first = _checked(data, 0)
        if not isinstance(first, Record):
            return False
        stated, stored = first.physical_offset, first.store_timestamp
    else:
        if int.from_bytes(data[_MAGIC], "big") not in (MAGIC_V1, MAGIC_V2):
            return False
        stated = int.from_bytes(data[_STATED], "big", signed=True)
        stored = int.from_bytes(data[_STORED], "big", signed=True)
    by_offset = start.release != "4.9" and (start.in_rocksdb or start.is_clean)
    if by_offset:
        # Only the newer broker refuses a record without a time here.
        return stated <= start.dispatched and (stored != 0 or start.release == "5.3")
    return stored != 0 and stored <= max(start.latest - _LATE_MS, 0)


def _checked(data: Buffer, at: int) -> Record | Blank | None:
    """Return the record or blank at a place; None if a broker that recovers does not read it."""
    try:
        found = decode(data, at)
    except UnreadableError:
        return None
    if isinstance(found, Record):
        right = not found.body or zlib.crc32(found.body) & 0x7FFFFFFF == found.body_crc
        return found if right else None
    return found if isinstance(found, Blank) else None
