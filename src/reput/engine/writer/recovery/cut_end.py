"""Decide whether recovery may cut the end of a log, and keep a copy of the messages that it cuts.

A broker that starts ends its log at the first unreadable record, and loses the readable messages after this record.
Recovery cuts at the same offset. If that removes readable messages, it cuts only in four cases, and keeps a copy:

- The user asks for it.
- A power cut explains the damage. The store was not shut down cleanly, reput was its last owner, and a part of the
  record at the cut was never written to the disk: its first bytes, or a whole sector, are zeros. A sync of the log
  covers all earlier bytes. So no message after this record was ever durable.
- A broker has cut the log here before, and has stored newer messages since. The messages after the cut are remains:
  each was stored before the last message of the log.
- The only readable message is the last one, whose body is right. A broker with forceVerifyPropCRC cuts it, because it
  does not match the CRC of its record.

In any other case the store is refused. Copies are stores of their own: `reput.cut/N` has files of the log with the
bytes after the cut, and ConsumeQueues with their entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reput import core
from reput.base import counted
from reput.engine.writer.recovery.queue_files import QueueFiles, is_blank, physical_offsets, sizes
from reput.engine.writer.recovery.recovery_point import locked_at
from reput.errors import StoreError, StoreNotFoundError
from reput.format.commit_log import SIZE_AND_MAGIC
from reput.format.consume_queue import BATCH_ENTRY_BYTES
from reput.format.dtypes import RawEntries
from reput.format.file_names import (
    BATCH_QUEUE_FOLDER,
    COMMIT_LOG_FOLDER,
    CONSUME_QUEUE_FOLDER,
    CUT_FOLDER,
    LOCK_FILE,
    OWNER_FILE,
)
from reput.format.untrusted_json import parse_json
from reput.io import Disk, FileReader, data_runs

CutReason = Literal["asked", "power_cut", "remains", "record_crc"]
REASONS: dict[CutReason, str] = {
    "asked": "the log was cut as a broker does",
    "power_cut": "a power cut lost a part of the log before it was synced",
    "remains": "a broker had already cut the log here",
    "record_crc": "the last record does not match its CRC",
}
"""The words of a report for each reason."""
_SECTOR_BYTES = 512
# A size field of which fewer bytes are zeros could be a small size.
_LEAST_ZEROS = 3
# The damaged record begins at the cut, so the search for a sector of zeros stops after the longest usual record.
_SEARCHED_BYTES = 8 << 20
_COPIED_BYTES = 4 << 20
MOST_OWNER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class CutEnd:
    """The messages that a cut of the log at physical offset `end` removes.

    Attributes:
        end: Physical offset of the cut.
        stop: Physical offset after the last byte that is not zero.
        first: Physical offset of the first readable message.
        messages: Number of readable messages.
        entries: Number of ConsumeQueue entries of messages after the cut.
        newest: Store timestamp of the newest readable message, ms.
    """

    end: int
    stop: int
    first: int
    messages: int
    entries: int
    newest: int

    @property
    def is_readable(self) -> bool:
        """Return whether the record at the cut is readable, and only its record CRC is wrong."""
        return self.first == self.end

    def __str__(self) -> str:
        return (
            f"{counted(self.stop - self.end, 'byte')} (readable messages: {self.messages:,}, from offset {self.first} "
            f"on; queue entries: {self.entries:,})"
        )


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of `reput.owner`, which exists while reput owns a store, and after a crash.

    Attributes:
        token: A random text, another one for each owner.
        end: End of the log when the owner opened the store. All earlier bytes were durable. -1 before recovery.
        lock: Modification time of the file `lock` at that time, ns.
    """

    token: str
    end: int = -1
    lock: int = 0

    def encode(self) -> bytes:
        return json.dumps({"token": self.token, "end": self.end, "lock": self.lock}).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> OwnerRecord | None:
        """Return the record in these bytes; None if there is no valid record."""
        try:
            content: Mapping[str, Any] = parse_json(data or b"")
            return cls(str(content["token"]), int(content["end"]), int(content["lock"]))
        except (ValueError, TypeError, LookupError):
            return None

    @classmethod
    def read(cls, store: Path) -> OwnerRecord | None:
        """Read the record of the last owner. Return None if it is missing or damaged. Raises StoreAccessError."""
        try:
            return cls.decode(FileReader.content_of(store / OWNER_FILE, MOST_OWNER_BYTES))
        except StoreNotFoundError:
            return None


def find_cut_end(
    files: Sequence[core.CommitLogFile], end: int, queues: Mapping[core.Queue, QueueFiles]
) -> CutEnd | None:
    """Return the messages that a cut at `end` would remove; None if no readable message begins there or later.

    A message is readable if its record states its own offset, and its body matches its CRC. Raises StoreAccessError.
    """
    stop, first, messages, newest = end, -1, 0, -1
    for file in files:
        if file.end <= end:
            continue
        start = max(end, file.start)
        with FileReader(file.path) as reader:
            last = reader.last_nonzero(file.size)
            if last is None or file.start + last < start:
                continue
            stop = file.start + last + 1
            begin = core.find_record(reader, file, start, stop)
        if begin is None:
            continue
        first = begin if first < 0 else first
        for piece in core.FileScan(file, begin, file.end, core.ScanMode.SALVAGE).pieces():
            rows = piece.batch.messages
            right = rows["physical_offset"] == piece.positions + piece.base
            right[core.wrong_bodies(piece.data, piece.positions, rows)] = False
            messages += int(right.sum())
            newest = max([newest, *rows["store_timestamp"][right].tolist()])
    if first < 0:
        return None
    entries = sum(
        int(is_written.any(axis=1).sum()) for _, is_written in _entries_after(queues, end)
    )
    return CutEnd(end, stop, first, messages, entries, newest)


def cut_reason(
    store: Path,
    files: Sequence[core.CommitLogFile],
    cut: CutEnd,
    *,
    as_broker: bool,
    is_clean: bool,
    durable: int,
) -> CutReason | None:
    """Return why recovery may cut the log; None if it may not.

    Args:
        store: The store.
        files: The files of the log.
        cut: The messages after the cut.
        as_broker: Whether the user asks for the cut.
        is_clean: Whether the store was shut down cleanly.
        durable: Physical offset up to which a recovery point states that the log is durable; -1 if unknown.
    """
    if as_broker:
        return "asked"
    if cut.is_readable and cut.messages == 1:
        return "record_crc"
    if not is_clean and not cut.is_readable:
        begin = max(durable, _durable_for_owner(store))
        if 0 <= begin <= cut.end and _has_unwritten_part(files, cut):
            return "power_cut"
    log = core.CommitLogReader(core.StoreLog(store))
    try:
        before = core.newest_timestamp(log, cut.end) if cut.end > files[0].start else None
    finally:
        log.close()
    return "remains" if before is not None and cut.newest < before else None


def _durable_for_owner(store: Path) -> int:
    """Return the offset up to which the last owner found the log durable; -1 if reput was not the last owner.

    A broker that starts writes into `lock`. A power cut can lose the modification time of `lock`, but not make an
    empty file of a broker's.
    """
    owner, lock = OwnerRecord.read(store), store / LOCK_FILE
    if owner is None:
        return -1
    is_ours = locked_at(store) == owner.lock or (lock.exists() and lock.stat().st_size == 0)
    return owner.end if is_ours else -1


def _has_unwritten_part(files: Sequence[core.CommitLogFile], cut: CutEnd) -> bool:
    """Return whether the beginning of the record at the cut, or a sector before the first message, is all zeros."""
    file = next((file for file in files if file.start <= cut.end < file.end), None)
    if file is None:
        return False
    position = cut.end - file.start
    stop = min(cut.first, file.end, cut.end + _SEARCHED_BYTES) - file.start
    with FileReader(file.path) as reader:
        data = np.frombuffer(reader.read(position, stop - position), np.uint8)
    to_sector = -position % _SECTOR_BYTES
    head = min(SIZE_AND_MAGIC.size, to_sector or _SECTOR_BYTES)
    if _LEAST_ZEROS <= head <= len(data) and not data[:head].any():
        return True
    sectors = data[to_sector:]
    sectors = sectors[: len(sectors) - len(sectors) % _SECTOR_BYTES]
    return bool((~sectors.reshape(-1, _SECTOR_BYTES).any(axis=1)).any())


def refusal(store: Path, cut: CutEnd, can_salvage: bool) -> StoreError:
    """Return the error for a cut that would lose readable messages."""
    if cut.is_readable:
        keeps = (
            "the record there does not match its CRC, and only a broker with forceVerifyPropCRC ends the CommitLog "
            "there: without this setting, all messages stay"
        )
    elif can_salvage:
        keeps = "reput repair with salvage keeps these messages"
    else:
        keeps = "reput repair with salvage does not support this store's queues: restore the file from a replica"
    return StoreError(
        f"{store}: the CommitLog is damaged at physical offset {cut.end}, and opening it for writing would remove the "
        f"last {cut}; no file was changed; {keeps}; reput recover with as_broker ends the CommitLog there, as a "
        f"broker does, and keeps a copy of the rest in {CUT_FOLDER}/",
        arguments=["salvage", "as_broker"],
    )


def keep_cut_end(
    store: Path,
    files: Sequence[core.CommitLogFile],
    end: int,
    queues: Mapping[core.Queue, QueueFiles],
    disk: Disk,
) -> Path:
    """Copy the bytes of the log after `end`, and their queue entries, into a new folder of `reput.cut`, durably.

    Return the folder. Raises StoreAccessError.
    """
    root = store / CUT_FOLDER
    numbers = [int(path.name) for path in root.glob("*") if path.name.isdecimal()]
    folder = root / str(max(numbers, default=0) + 1)
    for file in files:
        if file.end > end:
            _copy_end(Path(file.path), folder / COMMIT_LOG_FOLDER, max(end - file.start, 0), disk)
    for (queue, start), entries in _entries_after(queues, end):
        found = queues[queue]
        path = core.queue_folder(folder / CONSUME_QUEUE_FOLDER, *queue) / found.path(start).name
        disk.make_folder(path.parent)
        with disk.open(path, found.file_bytes) as copy:
            copy.write(entries.data.cast("B"), 0)
            copy.sync()
        disk.sync_folder(path.parent)
    for path in sorted((store / BATCH_QUEUE_FOLDER).glob("*/*/*")):
        if path.is_file() and path.stat().st_size >= BATCH_ENTRY_BYTES:
            _copy_end(path, folder / path.parent.relative_to(store), 0, disk)
    return folder


def _copy_end(path: Path, folder: Path, begin: int, disk: Disk) -> None:
    """Copy a file's bytes from `begin` on into a file of the same name and size. Holes stay holes."""
    disk.make_folder(folder)
    with FileReader(str(path)) as reader, disk.open(folder / path.name, reader.size) as copy:
        for start, stop in data_runs(reader, begin, reader.size):
            for position in range(start, stop, _COPIED_BYTES):
                data = reader.read(position, min(_COPIED_BYTES, stop - position))
                if data.count(0) < len(data):
                    copy.write(data, position)
        copy.sync()
    disk.sync_folder(folder)


def _entries_after(
    queues: Mapping[core.Queue, QueueFiles], end: int
) -> Iterator[tuple[tuple[core.Queue, int], RawEntries]]:
    """Yield, for each queue file with entries of messages at or after `end`, the file with only these entries."""
    for queue, queue_files in queues.items():
        for start, entries in queue_files.all_entries(
            queue_files.first_at(end, queue_files.first, queue_files.stop)
        ):
            file_start = queue_files.file_start(start)
            after = (physical_offsets(entries) >= end) & (sizes(entries) > 0) & ~is_blank(entries)
            if after.any():
                padded = np.zeros((start - file_start + len(entries), entries.shape[1]), np.uint32)
                padded[start - file_start :][after] = entries[after]
                yield (queue, file_start), padded
