"""What of a log has to change so that it can be read from its beginning to its end: ranges to fill, an end to cut."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reput.errors import ReputError
from reput.files.reader import FileReader
from reput.format.consume_queue import ENTRY_BYTES, PRE_BLANK
from reput.format.dtypes import ENTRY_DTYPE
from reput.format.properties import LMQ_PREFIX
from reput.log.dispatch_batch import Queue
from reput.log.files import CommitLogFile
from reput.log.kernel_crc import wrong_bodies
from reput.log.offset_range import OffsetRange, merged, ranges_of
from reput.log.scan import FileScan, ScannedPiece
from reput.log.scan_mode import SALVAGE
from reput.queues.folders import offset_entries
from reput.verify.repair.filler import DamagedRange, KnownMessage

_PIECE_ENTRIES = 1 << 18


@dataclass(slots=True)
class FileDamage:
    """One file of the log.

    ranges  what no record can be read from, or a record with a wrong CRC; in order, apart from each other
    end     physical offset after the last verifiable record, or the file's begin; its end where a blank follows
    times   store timestamp (ms) of a message before each range, or after it where none is before
    """

    file: CommitLogFile
    ranges: tuple[OffsetRange, ...] = ()
    end: int = 0
    times: list[int] = field(default_factory=list)


def damage_of(file: CommitLogFile, whole: int = 0) -> FileDamage:
    """Walk a file that should reach up to physical offset `whole`, and compare every CRC. Raises StoreAccessError."""
    scan = FileScan(file, file.start, file.end, SALVAGE)
    bad: list[OffsetRange] = []
    good: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    end = file.start
    for piece in scan.pieces():
        wrong = _wrong_records(piece)
        offsets = piece.positions + piece.base
        ends = offsets + piece.batch.messages["size"].astype(np.int64)
        bad += map(OffsetRange, offsets[wrong].tolist(), ends[wrong].tolist())
        right = np.ones(len(offsets), np.bool_)
        right[wrong] = False
        if right.any():
            end = int(ends[right][-1])
            edges = np.flatnonzero(right)[[0, -1]]  # times near a range need not be exact
            good.append((offsets[edges], piece.batch.messages["store_timestamp"][edges].copy()))
    bad += ranges_of(scan.damage)
    if scan.end.unreadable:
        bad.append(OffsetRange(scan.end.position, file.end))
    elif scan.end.position == file.end:
        end = file.end
    if file.end < whole:
        bad.append(OffsetRange(file.end, whole))
    found = FileDamage(file, merged(sorted(bad)), end)
    found.times = [_time_near(good, start) for start, _ in found.ranges]
    return found


def _wrong_records(piece: ScannedPiece) -> npt.NDArray[np.int64]:
    return wrong_bodies(piece.data, piece.positions, piece.batch.messages)


def _time_near(good: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]], offset: int) -> int:
    """Store timestamp (ms) of a message before the offset, else of one after it, else 0."""
    found = 0
    for offsets, times in reversed(good):
        for at, time in zip(offsets[::-1].tolist(), times[::-1].tolist(), strict=True):
            found = int(time)
            if at < offset:
                return found
    return found


def verifiable_end(files: Sequence[CommitLogFile]) -> int:
    """Physical offset after the last verifiable record of a log. Raises StoreAccessError."""
    for file in reversed(files):
        with FileReader(file.path) as reader:
            if reader.last_nonzero(file.size) is None:
                continue
        if (end := damage_of(file).end) > file.start:
            return end
    return files[0].start


def stated_start(file: CommitLogFile) -> int | None:
    """Return where a file begins by the physical offsets that its records state; None if they state several places.

    Raises StoreAccessError.
    """
    starts: set[int] = set()
    for piece in FileScan(file, file.start, file.end, SALVAGE).pieces():
        shifts = piece.batch.messages["physical_offset"] - (piece.positions + piece.base)
        starts.update((np.unique(shifts) + file.start).tolist())
        if len(starts) > 1:
            return None
    found = starts.pop() if starts else file.start
    return found if found >= 0 else None


def ranges_to_fill(
    files: Sequence[CommitLogFile],
    chosen: Collection[str],
    end: int,
    file_bytes: int,
    queues: dict[Queue, str],
) -> list[DamagedRange]:
    """Damage before physical offset `end`, with the messages that ConsumeQueues know in it.

    Args:
        files: Of the log, in order.
        chosen: Paths of those that are to be walked.
        end: Where the log ends, or is cut.
        file_bytes: What each file has once it is repaired.
        queues: Folder of each queue.

    Raises:
        StoreAccessError: something cannot be read.
    """
    found: list[DamagedRange] = []
    for file in files:
        if file.path not in chosen or file.start >= end:
            continue
        whole = file.start + file_bytes
        damage = damage_of(file, whole if whole <= end else 0)
        for (start, stop), time in zip(damage.ranges, damage.times, strict=True):
            if start < end:
                stop = min(stop, end)
                found.append(DamagedRange(start, stop, max(time, 0), stop == whole))
    return _with_known(found, queues)


def _with_known(ranges: list[DamagedRange], queues: dict[Queue, str]) -> list[DamagedRange]:
    if not ranges:
        return []
    starts = np.array([one.start for one in ranges])
    stops = np.array([one.stop for one in ranges])
    known: dict[int, dict[int, KnownMessage]] = {}
    for queue, folder in sorted(queues.items()):
        if queue.topic.startswith(LMQ_PREFIX):  # of a message that has a queue of its own
            continue
        for message in _entries_within(queue, folder, starts, stops):
            number = int(np.searchsorted(starts, message.physical_offset, side="right")) - 1
            known.setdefault(number, {}).setdefault(message.physical_offset, message)
    return [
        replace(one, known=tuple(message for _, message in sorted(known.get(number, {}).items())))
        for number, one in enumerate(ranges)
    ]


def _entries_within(
    queue: Queue,
    folder: str,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> Iterator[KnownMessage]:
    """Entries of a queue that lead into one of the ranges; none where the queue cannot be read."""
    for first, entry in offset_entries(folder):
        if first % ENTRY_BYTES or os.path.islink(entry.path):
            continue
        try:
            with FileReader(entry.path) as reader:
                count = reader.size // ENTRY_BYTES
                for begin in range(0, count, _PIECE_ENTRIES):
                    data = np.empty(min(_PIECE_ENTRIES, count - begin), ENTRY_DTYPE)
                    reader.read_into(data.view(np.uint8), begin * ENTRY_BYTES)
                    yield from _chosen(queue, first // ENTRY_BYTES + begin, data, starts, stops)
        except ReputError:
            continue


def _chosen(
    queue: Queue,
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
