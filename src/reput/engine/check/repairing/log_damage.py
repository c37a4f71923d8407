"""Find the changes that make a log readable from its beginning to its end: ranges to fill, an end to cut.

Three kinds of records fill ranges. `CommitLog.checkMessageAndReturnSize` accepts all three (tag rocketmq-all-4.9.3):

- A placeholder for each message that has a ConsumeQueue entry: an ordinary message with its queue and queue offset, no
  keys, no tags, a body of zeros and the property REPUT_SALVAGED. Without the placeholder, the queue would lack a
  queue offset. Dispatch closes such a gap by moving all later entries, so consumers' committed offsets would mean other
  messages.
- A rolled-back transaction for bytes to which no entry leads. A broker dispatches it neither to a queue nor to the
  index (`DefaultMessageStore.CommitLogDispatcherBuildConsumeQueue`, `IndexService.buildIndex`).
- A blank up to the end of a file. After a blank, a broker continues in the next file.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reput import core
from reput.errors import ReputError
from reput.format import commit_log
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.host import Host
from reput.format.java_string import encode_utf8
from reput.format.properties import LMQ_PREFIX
from reput.io import FileReader

SALVAGED_TOPIC = "REPUT_SALVAGED"
SALVAGED_PROPERTY = "REPUT_SALVAGED"
_PROPERTIES = f"{SALVAGED_PROPERTY}\x01true\x02".encode()
_NOBODY = Host("0.0.0.0", 0)
# Maximum size of a filler record. A broker's recovery reads each record into memory.
_MOST_BYTES = 1 << 20
_LEAST_BYTES = commit_log.MIN_RECORD_BYTES + len(SALVAGED_TOPIC) + len(_PROPERTIES)
_PIECE_ENTRIES = 1 << 18


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """An unreadable message, as its ConsumeQueue entry describes it."""

    physical_offset: int
    size: int
    queue: core.Queue
    queue_offset: int

    @property
    def least_bytes(self) -> int:
        return commit_log.MIN_RECORD_BYTES + len(encode_utf8(self.queue.topic)) + len(_PROPERTIES)


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A damaged range of one log file, physical offsets [start, stop), which the repair must fill with valid records.

    store_timestamp  store time of a message near the range, ms
    ends_file        whether `stop` is the end of the file
    known            the messages in the range that have ConsumeQueue entries
    """

    start: int
    stop: int
    store_timestamp: int
    ends_file: bool = False
    known: tuple[KnownMessage, ...] = ()


def can_be_filled(damaged: DamagedRange) -> bool:
    """Return whether the range is long enough for `filler` to fill it exactly."""
    length = damaged.stop - damaged.start
    return length >= (commit_log.BLANK_BYTES if damaged.ends_file else _LEAST_BYTES)


def placeholders_in(damaged: DamagedRange) -> int:
    """Return the number of placeholders for the lost messages in a damaged range.

    A lost message gets a placeholder if a ConsumeQueue entry describes the message, and if there is enough space.
    """
    return sum(message is not None for _, _, message in _parts(damaged))


def filler(damaged: DamagedRange) -> Iterator[tuple[int, bytes]]:
    """Yield the records that fill a range exactly, each with its physical offset. `can_be_filled` must be true."""
    for start, stop, message in _parts(damaged):
        needs_blank = damaged.ends_file and stop == damaged.stop
        position = start
        if message is not None:
            size = _size_of(message, stop - start, needs_blank)
            yield start, _record(start, size, damaged.store_timestamp, message)
            position += size
        if needs_blank:  # Without the blank, a broker's recovery would end the log here.
            yield position, commit_log.encode_blank(stop - position)
            continue
        for size in _sizes(stop - position):
            yield position, _record(position, size, damaged.store_timestamp, None)
            position += size


def _parts(damaged: DamagedRange) -> Iterator[tuple[int, int, KnownMessage | None]]:
    """Split the damaged range at each lost message whose offset a ConsumeQueue entry shows.

    Yield begin, end and message (None if unknown) of each part.
    A part that is too short for a record is joined with a neighbouring part.
    """
    parts: list[tuple[int, KnownMessage | None]] = [(damaged.start, None)]
    for message in damaged.known:
        start, before = parts[-1]
        needed = _LEAST_BYTES if before is None else before.least_bytes
        if message.physical_offset - start >= needed:
            parts.append((message.physical_offset, message))
        elif before is None:
            parts[-1] = start, message
    after = commit_log.BLANK_BYTES if damaged.ends_file else 0
    start, last = parts[-1]
    if last is not None and damaged.stop - start < last.least_bytes + after:
        parts[-1] = start, None
        if len(parts) > 1 and damaged.stop - start < (after or _LEAST_BYTES):
            parts.pop()
    ends = [start for start, _ in parts[1:]] + [damaged.stop]
    yield from ((start, end, message) for (start, message), end in zip(parts, ends, strict=True))


def _size_of(message: KnownMessage, room: int, needs_blank: bool) -> int:
    """Return the size of the placeholder for a lost message: the size of the message, if possible.

    The placeholder is at the start of a damaged part of `room` bytes. If the bytes after the placeholder would be too
    few for another record, the placeholder fills the whole part.
    """
    if needs_blank:
        room -= commit_log.BLANK_BYTES
    size = max(min(message.size, room, _MOST_BYTES), message.least_bytes)
    return size if needs_blank or room - size >= _LEAST_BYTES else room


def _sizes(length: int) -> Iterator[int]:
    """Yield the sizes of consecutive records that together fill exactly `length` bytes."""
    while length:
        size = min(length, _MOST_BYTES)
        # The remainder of the range must be empty, or long enough for another record.
        if 0 < length - size < _LEAST_BYTES:
            size -= _LEAST_BYTES
        yield size
        length -= size


def _record(offset: int, size: int, timestamp: int, message: KnownMessage | None) -> bytes:
    """Return a record of exactly this size: a placeholder for `message`, or a rolled-back transaction if None."""
    topic = SALVAGED_TOPIC if message is None else message.queue.topic
    least = _LEAST_BYTES if message is None else message.least_bytes
    return commit_log.encode(
        commit_log.MessageExt(
            topic=topic,
            queue_id=0 if message is None else message.queue.queue_id,
            queue_offset=0 if message is None else message.queue_offset,
            physical_offset=offset,
            size_bytes=size,
            flag=0,
            sys_flag=commit_log.SYS_FLAG_ROLLBACK if message is None else 0,
            body_crc=0,
            born_timestamp=timestamp,
            born_host=_NOBODY,
            store_timestamp=timestamp,
            store_host=_NOBODY,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=bytes(size - least),
            properties_bytes=_PROPERTIES,
        )
    )


@dataclass(slots=True)
class FileDamage:
    """The damage of one log file.

    ranges  unreadable ranges and records with a wrong CRC, ascending, with valid records between them
    end     physical offset after the last verifiable record, or the beginning of the file if it has no such record. If
            a blank record follows the last verifiable record, `end` is the end of the file.
    times   store timestamp (ms) of a message near each range
    """

    file: core.CommitLogFile
    ranges: tuple[core.OffsetRange, ...] = ()
    end: int = 0
    times: list[int] = field(default_factory=list)


def damage_of(file: core.CommitLogFile, whole: int = 0) -> FileDamage:
    """Return the damage of a file that should reach up to physical offset `whole`. Every CRC is checked.

    Raises StoreAccessError if the file cannot be read.
    """
    scan = core.FileScan(file, file.start, file.end, core.ScanMode.SALVAGE)
    bad: list[core.OffsetRange] = []
    good: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    end = file.start
    for piece in scan.pieces():
        wrong = _wrong_records(piece)
        offsets = piece.positions + piece.base
        ends = offsets + piece.batch.messages["size"].astype(np.int64)
        bad += map(core.OffsetRange, offsets[wrong].tolist(), ends[wrong].tolist())
        right = np.ones(len(offsets), np.bool_)
        right[wrong] = False
        if right.any():
            end = int(ends[right][-1])
            # The store times of the first and last valid record suffice: a record that fills a damaged range needs only
            # an approximate store time.
            edges = np.flatnonzero(right)[[0, -1]]
            good.append((offsets[edges], piece.batch.messages["store_timestamp"][edges].copy()))
    bad += core.OffsetRange.of(scan.damage)
    if scan.end.unreadable:
        bad.append(core.OffsetRange(scan.end.position, file.end))
    elif scan.end.position == file.end:
        end = file.end
    if file.end < whole:
        bad.append(core.OffsetRange(file.end, whole))
    damage = FileDamage(file, core.OffsetRange.merged(sorted(bad)), end)
    damage.times = [_time_near(good, start) for start, _ in damage.ranges]
    return damage


def _wrong_records(piece: core.ScannedPiece) -> npt.NDArray[np.int64]:
    return core.wrong_bodies(piece.data, piece.positions, piece.batch.messages)


def _time_near(good: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]], offset: int) -> int:
    """Return the store timestamp (ms) of a message before the offset, else of a message after it, else 0."""
    nearest = 0
    for offsets, times in reversed(good):
        for at, time in zip(offsets[::-1].tolist(), times[::-1].tolist(), strict=True):
            nearest = int(time)
            if at < offset:
                return nearest
    return nearest


def verifiable_end(files: Sequence[core.CommitLogFile]) -> int:
    """Return the physical offset after the last verifiable record of a log. Raises StoreAccessError."""
    for file in reversed(files):
        with FileReader(file.path) as reader:
            if reader.last_nonzero(file.size) is None:
                continue
        if (end := damage_of(file).end) > file.start:
            return end
    return files[0].start


def ranges_to_fill(
    files: Sequence[core.CommitLogFile],
    paths: Collection[str],
    end: int,
    file_bytes: int,
    queues: dict[core.Queue, str],
) -> list[DamagedRange]:
    """Return the damaged ranges before physical offset `end`, each with its messages that have ConsumeQueue entries.

    Args:
        files: The log's files, in order.
        paths: Paths of the files to read.
        end: Physical offset at which the log ends, or is cut.
        file_bytes: Size of each file after the repair.
        queues: Folder of each queue.

    Raises:
        StoreAccessError: A file cannot be read.
    """
    ranges: list[DamagedRange] = []
    for file in files:
        if file.path not in paths or file.start >= end:
            continue
        # All files before the end of the log must be full, so the missing end of a shorter file is also damage.
        whole = file.start + file_bytes
        damage = damage_of(file, whole if whole <= end else 0)
        for (start, stop), time in zip(damage.ranges, damage.times, strict=True):
            if start < end:
                stop = min(stop, end)
                ranges.append(DamagedRange(start, stop, max(time, 0), stop == whole))
    return _with_messages(ranges, queues)


def _with_messages(ranges: list[DamagedRange], queues: dict[core.Queue, str]) -> list[DamagedRange]:
    if not ranges:
        return []
    starts = np.array([damaged.start for damaged in ranges])
    stops = np.array([damaged.stop for damaged in ranges])
    messages: dict[int, dict[int, KnownMessage]] = {}
    for queue, folder in sorted(queues.items()):
        # A message in a light queue (LMQ) also has an entry in the queue of its topic. A placeholder can name only the
        # queue of the topic, so skip light queues.
        if queue.topic.startswith(LMQ_PREFIX):
            continue
        for message in _entries_within(queue, folder, starts, stops):
            number = int(np.searchsorted(starts, message.physical_offset, side="right")) - 1
            messages.setdefault(number, {}).setdefault(message.physical_offset, message)
    return [
        replace(
            damaged, known=tuple(message for _, message in sorted(messages.get(number, {}).items()))
        )
        for number, damaged in enumerate(ranges)
    ]


def _entries_within(
    queue: core.Queue,
    folder: str,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> Iterator[KnownMessage]:
    """Yield entries of a queue that lead into one of the ranges; nothing if the queue is unreadable."""
    for first, entry in core.offset_entries(folder):
        if first % ENTRY_BYTES or os.path.islink(entry.path):
            continue
        try:
            with FileReader(entry.path) as reader:
                count = reader.size // ENTRY_BYTES
                for begin in range(0, count, _PIECE_ENTRIES):
                    data = np.empty(min(_PIECE_ENTRIES, count - begin), ENTRY_DTYPE)
                    reader.read_into(data.view(np.uint8), begin * ENTRY_BYTES)
                    yield from _entries_inside(
                        queue, first // ENTRY_BYTES + begin, data, starts, stops
                    )
        except ReputError:
            continue


def _entries_inside(
    queue: core.Queue,
    first: int,
    data: npt.NDArray[np.void],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> Iterator[KnownMessage]:
    offsets, sizes = data["physical_offset"].astype(np.int64), data["size"].astype(np.int64)
    place = np.searchsorted(starts, offsets, side="right") - 1
    inside = (place >= 0) & (offsets < stops[place]) & (sizes > 0)
    inside &= (offsets != PRE_BLANK.physical_offset) | (sizes != PRE_BLANK.size)
    for row in np.flatnonzero(inside).tolist():
        yield KnownMessage(int(offsets[row]), int(sizes[row]), queue, first + row)
