"""Ranges of the log that are scanned: cut into splits, scanned in parallel, joined as one walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from reput.findings import Finding
from reput.log.files import CommitLogFile
from reput.log.offset_range import OffsetRange
from reput.log.reader import CommitLogReader
from reput.log.splits import DEFAULT_SPLIT_BYTES, cut
from reput.log.verdict import WalkVerdict
from reput.log.walk import LogWalk
from reput.lookup.candidates import CandidateRun
from reput.lookup.key_parts import KeyPart
from reput.lookup.place import StorePlace
from reput.lookup.scan_task import LookupScanTask, ScanFound


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
    damage: list[Finding] = field(default_factory=list)
    runs: list[CandidateRun] = field(default_factory=list)
    _splits: list[LookupScanTask] = field(default_factory=list)
    _found: dict[int, ScanFound] = field(default_factory=dict)

    @property
    def scanned(self) -> OffsetRange:
        return OffsetRange(self.begin, max(min(self.position, self.stop), self.begin))

    def cut(
        self,
        store: StorePlace,
        first_number: int,
        wanted: str,
        parts: Sequence[tuple[int, KeyPart]],
        only: npt.NDArray[np.int64] | None = None,
    ) -> list[LookupScanTask]:
        """Tasks that scan it, numbered from `first_number` on."""
        pieces = cut(self.file, self.begin, self.stop, DEFAULT_SPLIT_BYTES)
        self._splits = [
            LookupScanTask(
                store, number, self.file, begin, stop,
                begin if begin == self.begin else None, wanted, tuple(parts), only,
            )
            for number, (begin, stop) in enumerate(pieces, first_number)
        ]  # fmt: skip
        return self._splits

    @property
    def splits(self) -> Sequence[LookupScanTask]:
        return self._splits

    def take(self, found: ScanFound) -> None:
        self._found[found.number] = found

    def rescan(self) -> LookupScanTask | None:
        """The first split whose beginning was guessed wrong, to be scanned from the true one; None when all join."""
        expected = self.begin
        self.runs, damage = [], self.damage if self.is_read else []
        for split in self._splits:
            if expected >= split.stop:
                continue
            found = self._found[split.number]
            if found.start != expected:  # a wrong guess, or none where the walk goes on
                return replace(split, start=expected)
            self.runs += found.runs
            damage += [] if self.is_read else found.damage
            self.position = expected = found.end
            if found.finished:
                if found.unreadable and not self.is_read:
                    # Whether it is the end of the log, `finish` decides.
                    rest = self.file.lost(found.end, self.file.end, found.unreadable)
                    verdict = WalkVerdict(rest.stop, [*damage, rest], is_unreadable=True)
                    self.position = verdict.tail_start
                    damage = [lost for lost in damage if lost.start < self.position]
                break
        self.damage = damage
        return None

    def finish(self, log: CommitLogReader) -> None:
        """What is not read is no record: whether it is damage or the end of the log, a walk decides."""
        if self.is_read:
            self.position = self.stop
        if self.position < self.stop:
            walk = LogWalk(log, self.position, self.stop)
            for _ in walk:
                pass
            self.damage += walk.damage
            self.position, self.at_end = walk.position, walk.at_end
