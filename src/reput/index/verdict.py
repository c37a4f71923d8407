"""What an IndexFile is believed for, and who decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reput.index.proven import Proof
from reput.index.reader import IndexFileReader
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader


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
