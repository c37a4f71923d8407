"""Ranges of the log that are scanned: cut into splits, scanned in parallel, joined as one walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from reput.query.bulk.candidates import Run
from reput.query.bulk.key_parts import KeyPart
from reput.query.bulk.scan_task import ScanFound, ScanTask
from reput.query.result import OffsetRange
from reput.store.commit_log import CommitLog
from reput.store.commit_log_files import CommitLogFile
from reput.store.damage import Damage
from reput.store.log_walk import LogWalk

_SPLIT_BYTES = 64 << 20


@dataclass(slots=True)
class ScannedRange:
    """Records that begin in [begin, stop) of one file; one begins at `begin`.

    is_read      the plan has read it already, and knows its damage; here it is about candidates only
    segment      the segment whose entries are not believed, None where there is no index at all
    position     end of what was read; `at_end` when that is the end of the log
    """

    file: CommitLogFile
    begin: int
    stop: int
    is_read: bool = False
    segment: int | None = None
    position: int = 0
    at_end: bool = False
    damage: list[Damage] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    _splits: list[ScanTask] = field(default_factory=list)
    _found: dict[int, ScanFound] = field(default_factory=dict)

    @property
    def scanned(self) -> OffsetRange:
        return OffsetRange(self.begin, max(min(self.position, self.stop), self.begin))

    def cut(
        self,
        store: tuple[int, str],
        first_number: int,
        wanted: str,
        parts: Sequence[tuple[int, KeyPart]],
        only: npt.NDArray[np.int64] | None = None,
    ) -> list[ScanTask]:
        """Tasks that scan it, numbered from `first_number` on."""
        begins = list(range(self.begin, self.stop, _SPLIT_BYTES))
        self._splits = [
            ScanTask(
                *store, first_number + place, self.file, begin, min(begin + _SPLIT_BYTES, self.stop),
                begin if begin == self.begin else None, wanted, tuple(parts), only,
            )
            for place, begin in enumerate(begins)
        ]  # fmt: skip
        return self._splits

    @property
    def splits(self) -> Sequence[ScanTask]:
        return self._splits

    def take(self, found: ScanFound) -> None:
        self._found[found.number] = found

    def rescan(self) -> ScanTask | None:
        """The first split whose beginning was guessed wrong, to be scanned from the true one; None when all join."""
        expected = self.begin
        self.runs, damage = [], self.damage if self.is_read else []
        for split in self._splits:
            if expected >= split.stop:
                continue
            found = self._found[split.number]
            if found.start != expected:  # a wrong guess, or none where the walk goes on
                return ScanTask(
                    split.store, split.store_path, split.number, split.file, split.begin,
                    split.stop, expected, split.wanted, split.parts, split.only,
                )  # fmt: skip
            self.runs += found.runs
            damage += [] if self.is_read else found.damage
            self.position = expected = found.end
            if found.finished:
                while found.unreadable and damage and _end(damage[-1]) == self.position:
                    self.position = damage.pop().physical_offset  # may belong to a torn tail
                break
        self.damage = damage
        return None

    def finish(self, log: CommitLog) -> None:
        """What is not read is no record: whether it is damage or the end of the log, a walk decides."""
        if self.is_read:
            self.position = self.stop
        if self.position < self.stop:
            walk = LogWalk(log, self.position, self.stop)
            for _ in walk:
                pass
            self.damage += walk.damage
            self.position, self.at_end = walk.position, walk.at_end


def _end(damage: Damage) -> int:
    return damage.physical_offset + damage.length
