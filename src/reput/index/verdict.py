"""What an IndexFile is believed for: what was proved of it, what spot checks found, and who decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from reput.files.stamps import Stamp
from reput.format.index_file import IndexHeader
from reput.index.reader import IndexFileReader
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader

_INT32_MAX = 0x7FFFFFFF
_READS_OF_HEADER = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved of an IndexFile's items 1 to `items`, for one CommitLog.

    ranges     physical offsets, oldest first: each key of each message that begins there is in these items, and a
               look-up reaches it
    problems   why there are no more, one line each
    gap_bytes  0 when each message of the ranges was compared with its items; otherwise messages without items are
               ruled out only where two neighbouring items lie further apart than this
    is_kept    it is remembered; not if the file changed meanwhile, or may change without a trace
    is_timed   the seconds of the items from the second on never fall, and as many as were compared are those of their
               messages (`reput.index.times`)
    seen       log files that the ranges lie in, as they were: it holds while they stay so
    """

    items: int
    ranges: tuple[OffsetRange, ...] = ()
    problems: tuple[str, ...] = ()
    gap_bytes: int = 0
    is_timed: bool = False
    is_kept: bool = field(default=False, compare=False)
    seen: tuple[tuple[str, Stamp], ...] = field(default=(), compare=False)


def settled_header(file: IndexFileReader) -> tuple[IndexHeader, str]:
    """The header, and what in it contradicts the items, or "".

    A broker that is putting keys sets count, end and timestamp one after the other: they are read until they agree.
    """
    for _ in range(_READS_OF_HEADER):
        header = file.header()
        problem = _contradiction(file, header)
        if not problem:
            break
    return header, problem


def _contradiction(file: IndexFileReader, header: IndexHeader) -> str:
    last = header.last_item(file.index_items)
    if last == 0:
        return ""
    first_item, last_item = file.item(1), file.item(last)
    if header.begin_physical_offset != first_item.physical_offset:
        return "the header's begin offset is not the first item's"
    if header.end_physical_offset != last_item.physical_offset:
        return "the header's end offset is not the last item's"
    if last > 1 and header.begin_timestamp > 0 and 0 < last_item.time_diff_s < _INT32_MAX:
        passed_ms = header.end_timestamp - header.begin_timestamp
        if passed_ms // 1000 != last_item.time_diff_s:
            return "the header's timestamps are not as far apart as the items'"
    return ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an IndexFile with items 1 to `last` may be believed for.

    ranges     stretches of the log whose every key is among those items, as far as spot checks show
    proof      what was proved of the file, for more stretches
    problem    why it is not believed at all, for the user
    is_whole   the file is of one piece up to its last item, so that only what is put next need be looked at
    is_linked  every link was followed: each item is reached from its slot
    """

    last: int
    ranges: tuple[OffsetRange, ...] = ()
    proof: Proof | None = None
    problem: str = ""
    is_whole: bool = False
    is_linked: bool = False


class Judge(Protocol):
    """Decides what an IndexFile may be believed for, at its first `last` items."""

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None,
        files: int = 1,
    ) -> Verdict:
        """`before` is the verdict on the same file and log at an earlier time, if there is one; `files` are judged
        in all.

        Raises StoreAccessError, StoreChangedError.
        """
        ...
