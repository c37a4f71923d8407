"""The evidence for trusting an IndexFile.

A proof compares all items of the file with the log. A spot check compares some of them. A judge decides for which
ranges of the log the file is trusted; its decision is a `Verdict`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from reput.core.index.reader import IndexFileReader
from reput.core.log.offset_range import OffsetRange
from reput.core.log.reader import CommitLogReader
from reput.io import Stamp


@dataclass(frozen=True, slots=True)
class Proof:
    """A proof about an IndexFile's items 1 to `items`, for one CommitLog.

    ranges     physical offsets, oldest first: each key of each message that begins there is in these items, and a
               look-up reaches it
    problems   the reasons why the ranges do not cover more, one line each
    gap_bytes  0 if every message of the ranges was compared with its items. Otherwise, only samples of long ranges were
               compared. The samples include all gaps of more than `gap_bytes` bytes between the messages of consecutive
               items
    is_kept    whether the proof is remembered; False if the file has changed, or if a later change could leave its
               inode, size and change time the same
    is_timed   whether the seconds of items 2 and later never decrease, and the compared items agree with their messages
               (`reput.core.index.times`)
    seen       stamps (inode, size, change time) of the log files that contain the ranges; the proof is valid until a
               stamp changes
    """

    items: int
    ranges: tuple[OffsetRange, ...] = ()
    problems: tuple[str, ...] = ()
    gap_bytes: int = 0
    is_timed: bool = False
    is_kept: bool = field(default=False, compare=False)
    seen: tuple[tuple[str, Stamp], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ranges for which an IndexFile with items 1 to `last` can be trusted.

    ranges     ranges of the log whose keys are all among these items, according to spot checks
    proof      a proof of the file, or None; the ranges that it proves are trusted as well
    problem    a message for users: why the file is not trusted at all
    is_whole   whether the file is complete up to item `last`, so that only items added later need a check
    is_linked  whether every link was followed, and each item is reached from its slot
    """

    last: int
    ranges: tuple[OffsetRange, ...] = ()
    proof: Proof | None = None
    problem: str = ""
    is_whole: bool = False
    is_linked: bool = False


class Judge(Protocol):
    """Decides for which ranges of the log an IndexFile can be trusted, considering only its items 1 to `last`."""

    def __call__(
        self,
        file: IndexFileReader,
        log: CommitLogReader,
        last: int,
        before: Verdict | None,
        files: int = 1,
    ) -> Verdict:
        """Return the verdict on a file. `before` is an earlier verdict on the same file and log, if known.

        If `files`, the number of files judged together, is large, each file may be examined less closely.

        Raises StoreAccessError, StoreChangedError.
        """
        ...
