"""Sample records from all parts of a range of the log, without a walk over the range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader, LocatedRecord
from reput.core.log.record_search import find_record
from reput.core.log.walk import LogWalk
from reput.errors import StoreError

_LEAST_STEP_BYTES, _RECORDS = 64 << 10, 16


def sampled_records(
    log: CommitLogReader, within: OffsetRange, places: int, records: int = _RECORDS
) -> Iterator[LocatedRecord]:
    """Yield at most `records` consecutive records from each of several places at equal distances.

    The first place is the start of the range itself if a record begins there, as at the beginning of a log.

    Raises StoreAccessError.
    """
    step = max(within.size_bytes // places, _LEAST_STEP_BYTES)
    for at in range(within.start, within.stop, step):
        file = log.file_at(at)
        # The file has expired.
        if file is None:
            continue
        with suppress(StoreError), log.source.open(file.path) as reader:
            start: int | None = file.start + file.gap
            if at not in (start, log.min_offset):
                start = find_record(reader, file, at, file.end)
            if start is not None:
                yield from islice(LogWalk(log, start, within.stop), records)
