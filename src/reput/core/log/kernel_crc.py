"""Check the CRCs of the messages in a long range of the log, with compiled functions (kernels).

A broker makes the same check when it starts. This module imports numba, so it is imported only for ranges that are long
enough.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from reput.core.log.files import CommitLogFile
from reput.core.log.scan import FileScan
from reput.core.log.scan_mode import ScanMode
from reput.core.log.verdict import FileEnd, WalkVerdict, end_of_file
from reput.format.commit_log import has_right_record_crc
from reput.io import FileReader, OpenFile, RangeReader
from reput.kernels.checksum import find_wrong_bodies

_PIECE_BYTES = 1 << 20
_FindWrong = Callable[
    [npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.void]], npt.NDArray[np.int64]
]


def end_within(
    file: CommitLogFile,
    start: int,
    open_file: OpenFile = FileReader,
    *,
    whole_records: bool = False,
) -> FileEnd:
    """Walk from `start` on, and return the offset of the first record that is unreadable or has a wrong CRC.

    For `whole_records` see `recovered_end`. Raises StoreNotFoundError, StoreAccessError, StoreChangedError.
    """
    find_wrong = _wrong_records if whole_records else wrong_bodies
    scan = FileScan(file, start, file.end, ScanMode.UP_TO_DAMAGE, open_file=open_file)
    position = start
    with open_file(file.path) as reader:
        if file.gap:
            position = file.after_header(reader, start)
        for batch in scan.batches():
            # Records are adjacent until the first damage, so add up their sizes. The physical offsets that the records
            # state may be wrong.
            sizes = batch.messages["size"] + file.gap
            ends = position + np.cumsum(sizes, dtype=np.int64)
            stop = WalkVerdict(file.end, scan.damage).end_for_broker()
            sound = int(np.searchsorted(ends - sizes, stop))
            edges = np.concatenate([[position], ends[:sound]]) - file.start
            bad = _first_bad_crc(reader, edges, batch.messages, find_wrong)
            if bad is not None:
                return FileEnd(file.start + bad, False)
            if scan.damage:
                return FileEnd(stop, False)
            position = int(ends[-1])
    return end_of_file(scan.verdict(), file)


def _first_bad_crc(
    reader: RangeReader,
    edges: npt.NDArray[np.int64],
    messages: npt.NDArray[np.void],
    find_wrong: _FindWrong,
) -> int | None:
    """Return the position of the first record with a wrong CRC.

    `edges` are the beginnings of all records, and the end of the last one.
    """
    first, last = 0, len(edges) - 1
    buffer = np.empty(0, np.uint8)
    while first < last:
        # Check one piece at a time, so that its bytes stay in the processor's cache.
        stop = int(np.searchsorted(edges, edges[first] + _PIECE_BYTES))
        stop = min(max(stop, first + 1), last)
        length = int(edges[stop] - edges[first])
        if length > len(buffer):
            buffer = np.empty(max(length, 2 * _PIECE_BYTES), np.uint8)
        piece = buffer[:length]
        reader.read_into(piece, int(edges[first]))
        bad = find_wrong(piece, edges[first:stop] - edges[first], messages[first:stop])
        if len(bad):
            return int(edges[first + bad[0]])
        first = stop
    return None


def wrong_bodies(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], messages: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """Return the rows of records whose body does not match its CRC. `data` contains these records completely."""
    wrong = np.empty(len(positions), np.int64)
    return wrong[: find_wrong_bodies(data, positions, messages["sys_flag"], wrong)]


def _wrong_records(
    data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], messages: npt.NDArray[np.void]
) -> npt.NDArray[np.int64]:
    """Return the rows of records whose CRC of the whole record is missing or wrong."""
    ends = positions + messages["size"]
    spans = enumerate(zip(positions.tolist(), ends.tolist(), strict=True))
    wrong = [row for row, (begin, end) in spans if not has_right_record_crc(data.data[begin:end])]
    return np.array(wrong, np.int64)
