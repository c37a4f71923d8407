"""The plan of a repair: what is done to which part of a store and why, what stays, and what it takes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reput.config import StoreConfig
from reput.files.copies import TreeEntry
from reput.findings import Finding, Kind
from reput.format.file_names import COMMIT_LOG_FOLDER, parse_offset_file_name
from reput.verify.checking.tally import MOST_OF_A_KIND
from reput.verify.repair.filler import DamagedRange, placeholders_in

Verb = Literal["rebuild", "fill", "cut", "write", "remove", "keep"]
Asked = Literal["salvage", "truncate_tail"]

_MOVED = frozenset({Kind.MISPLACED_QUEUE_ENTRY, Kind.LMQ_OFFSETS_RESTARTED})
_LOSSES = frozenset(
    {
        Kind.UNREADABLE_RECORD, Kind.RECORD_SIZE_MISMATCH, Kind.MISSING_LOG_FILE, Kind.LOG_FILE_SIZE,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan: what is done to which file or folder of the store, and the findings that ask for it.

    why  names of kinds, or words where no finding asks for it
    """

    verb: Verb
    name: str
    detail: str
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remaining:
    """A finding that the repair leaves as it is; `asked` is the argument that would have it repaired."""

    finding: Finding
    asked: Asked | None = None


@dataclass(slots=True)
class Plan:
    """What a repair of a store does.

    findings      of the check, those that are worth no more than knowing among them
    dispatch_from physical offset from which messages are dispatched to a database that stays, None for none
    cut_at        physical offset at which the log is cut, None where it is not
    file_bytes    of a CommitLog file
    dropped       names in commitlog/ that the repaired store does not have
    seconds       estimate, from the time that the check took
    needed_bytes  estimate, of what is written beside the store
    seen          how every file looked when the plan was made
    """

    store: Path
    backup: Path
    config: StoreConfig
    findings: list[Finding]
    steps: list[Step] = field(default_factory=list)
    remaining: list[Remaining] = field(default_factory=list)
    queues: bool = False
    index: bool = False
    dispatch_from: int | None = None
    ranges: list[DamagedRange] = field(default_factory=list)
    cut_at: int | None = None
    file_bytes: int = 0
    dropped: frozenset[str] = frozenset()
    sizes_assumed: bool = False
    seconds: float = 0.0
    needed_bytes: int = 0
    free_bytes: int = 0
    seen: tuple[TreeEntry, ...] = ()

    @property
    def inodes(self) -> dict[str, int]:
        """What each file and folder was when the plan was made, by its path in the store."""
        return {one.name: one.inode for one in self.seen}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    @property
    def changes_log(self) -> bool:
        return bool(self.ranges) or self.cut_at is not None

    @property
    def changed_files(self) -> frozenset[str]:
        """Names of the CommitLog files whose bytes or size change."""
        places = [one.start for one in self.ranges]
        if self.cut_at is not None:
            places.append(self.cut_at)
        names = (one.name.partition("/") for one in self.seen if not one.is_folder)
        starts = {
            name: parse_offset_file_name(name)
            for folder, _, name in names
            if folder == COMMIT_LOG_FOLDER
        }
        return frozenset(
            name
            for name, start in starts.items()
            if start is not None and any(start <= at < start + self.file_bytes for at in places)
        )

    @property
    def entries_move(self) -> bool:
        """Whether entries may get another number: a message is lost that no placeholder stands for.

        In a queue that is not light the gap stays, as far as the log shows it.
        """
        lost = any(
            one.finding.kind in _LOSSES and one.asked != "truncate_tail" for one in self.remaining
        )
        bare = any(not one.known or placeholders_in(one) < len(one.known) for one in self.ranges)
        return self.queues and (lost or bare)

    def expects(self, finding: Finding, root: Path) -> bool:
        """Whether a finding of the repaired store, built in `root`, is one that the plan leaves or leads to."""
        if not finding.is_wrong:
            return True
        if finding.kind in _MOVED and (self.entries_move or self.ranges):  # queues may not know all
            return True
        left = [one.finding for one in self.remaining if one.finding.kind is finding.kind]
        if len(left) > MOST_OF_A_KIND:  # the last stands for any number of files
            return True
        name = os.path.relpath(finding.file, root)
        return any(os.path.relpath(one.file, self.store) == name for one in left)

    def as_json(self) -> dict[str, Any]:
        """Everything that is printed, as json.dumps takes it."""
        return {
            "store": str(self.store),
            "backup": str(self.backup),
            "steps": [
                {"verb": one.verb, "name": one.name, "detail": one.detail, "why": list(one.why)}
                for one in self.steps
            ],
            "remaining": [{**one.finding.as_json(), "asked": one.asked} for one in self.remaining],
            "entries_move": self.entries_move,
            "sizes_assumed": self.sizes_assumed,
            "estimated_seconds": round(self.seconds, 1),
            "estimated_bytes": self.needed_bytes,
            "free_bytes": self.free_bytes,
        }
