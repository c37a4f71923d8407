"""The serial walk over a CommitLog that precedes dispatch.

DefaultMessageStore.ReputMessageService of rocketmq-all-4.9.3, on files at rest: where the broker
knows its own write position, the walk must distinguish the end of the log from damage.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path

from tests.oracle.records import (
    MAGIC_V1,
    MAGIC_V2,
    Blank,
    Buffer,
    Record,
    SizeMismatch,
    UnreadableError,
    decode,
)

LogListing = Sequence[tuple[int, Buffer]]
_MAGIC_AT = 4
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Damage:
    """Skipped bytes of the log: log offset, length, and reason."""

    offset: int
    length: int
    reason: str


@dataclass
class Walk:
    """The result of a walk.

    `records` are (log offset, record). Dispatch uses the `physical_offset` that a record states, which
    may differ from its log offset. `blanks` are (log offset, declared size). `end_offset` is the end
    of the log.
    """

    records: list[tuple[int, Record]] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    end_offset: int = 0

    @property
    def dispatched(self) -> list[Record]:
        return [record for _, record in self.records]


def read_log(store: Path) -> list[tuple[int, Buffer]]:
    """Return the (start offset, bytes) of each file in a store's commitlog/, ascending."""
    paths = sorted((store / "commitlog").iterdir())
    return [(int(path.name), read_file(path)) for path in paths if path.name.isdigit()]


def read_file(path: Path) -> Buffer:
    """Return a file's bytes as a mapping, so that a large sparse file costs nothing."""
    if path.stat().st_size == 0:
        return b""
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def walk(files: LogListing) -> Walk:
    """Walk log files, (start offset, bytes) ascending. The first may start anywhere.

    - After a BLANK, the walk continues in the next file.
    - If nothing is readable at a position, the rest of that file is damage.
    - If TOTALSIZE is not the sum of the lengths, that record is damage, and the walk continues after its parts. The
      broker's reader has then read these parts, and only its counter advances by TOTALSIZE.
    - Damage at the end of the last file that has data is a torn tail if no verifiable record follows it in the file.
      The log then ends where the torn tail begins, and the tail is not reported as damage.
    """
    found = Walk(end_offset=files[0][0] if files else 0)
    used = [number for number, (_, data) in enumerate(files) if has_data(data)]
    tail: list[int] = []
    for start, data in files[: used[-1] + 1] if used else []:
        if start > found.end_offset:
            found.damage.append(Damage(found.end_offset, start - found.end_offset, "missing file"))
        tail = _walk_file(found, start, data)
        found.end_offset = start + len(data)
    for at in tail:
        if not any(proven_records(start, data, at)):
            found.end_offset = start + at
            found.damage = [item for item in found.damage if item.offset < found.end_offset]
            break
    return found


def _walk_file(found: Walk, start: int, data: Buffer) -> list[int]:
    """Walk one file. Return the positions of the damage at its end; an empty list if it ends with a record or blank."""
    at = 0
    tail: list[int] = []
    while at < len(data):
        try:
            item = decode(data, at)
        except UnreadableError as error:
            found.damage.append(Damage(start + at, len(data) - at, str(error)))
            return [*tail, at]
        if isinstance(item, Blank):
            found.blanks.append((start + at, item.declared_size))
            return []
        if isinstance(item, SizeMismatch):
            reason = f"TOTALSIZE {item.total_size}, but lengths add up to {item.length}"
            found.damage.append(Damage(start + at, item.length, reason))
            tail.append(at)
            at += item.length
        else:
            found.records.append((start + at, item))
            tail = []
            at += item.total_size
    return tail


def proven_records(start: int, data: Buffer, after: int) -> Iterator[int]:
    """Yield the positions after `after` in one file at which a verifiable record begins.

    It has a magic code, its own physical offset, lengths that add up, and its body's CRC.
    """
    magics = [magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)]
    for magic in magics:
        found = data.find(magic, after + 1 + _MAGIC_AT)
        while found >= 0:
            at = found - _MAGIC_AT
            try:
                item = decode(data, at)
            except UnreadableError:
                item = None
            if (
                isinstance(item, Record)
                and item.physical_offset == start + at
                and _crc_is_right(item)
            ):
                yield at
            found = data.find(magic, found + 1)


def _crc_is_right(record: Record) -> bool:
    return not record.body or record.body_crc == zlib.crc32(record.body) & 0x7FFFFFFF


def has_data(data: Buffer) -> bool:
    """Return whether any byte of a file is not zero."""
    zeros = bytes(_CHUNK_BYTES)
    for at in range(0, len(data), _CHUNK_BYTES):
        chunk = bytes(data[at : at + _CHUNK_BYTES])
        if chunk != zeros[: len(chunk)]:
            return True
    return False
